// The page: login, navigation, keys, and the view that the address names.
import { type FunctionComponent, render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import 'uplot/dist/uPlot.min.css';
import './app.css';
import { ApiError, login, logout, resume, session } from './api';
import { forget } from './live';
import { ActionDialog } from './parts/act';
import { LinkState } from './parts/view';
import { go, href, usePlace } from './route';
import { useStore } from './store';
import { nextTheme, theme } from './theme';
import { Clusters } from './views/clusters';
import { Configuration } from './views/configuration';
import { Log } from './views/log';
import { Now } from './views/now';
import { Pins } from './views/pins';
import { Proxies } from './views/proxies';
import { Rehearsals } from './views/rehearsals';
import { Sessions } from './views/sessions';
import { Sql } from './views/sql';
import { Statements } from './views/statements';

const VIEWS: { name: string; label: string; key: string; of: FunctionComponent }[] = [
  { name: 'now', label: 'Now', key: 'n', of: Now },
  { name: 'clusters', label: 'Servers and clusters', key: 'c', of: Clusters },
  { name: 'statements', label: 'Statements', key: 's', of: Statements },
  { name: 'pins', label: 'Why not shared', key: 'w', of: Pins },
  { name: 'sessions', label: 'Sessions', key: 'p', of: Sessions },
  { name: 'config', label: 'Configuration', key: 'o', of: Configuration },
  { name: 'proxies', label: 'Proxies', key: 'x', of: Proxies },
  { name: 'log', label: 'Log and events', key: 'l', of: Log },
  { name: 'sql', label: 'SQL', key: 'q', of: Sql },
  { name: 'rehearsals', label: 'Rehearsals', key: 'r', of: Rehearsals },
];

function App() {
  const who = useStore(session);
  useEffect(() => { void resume(); }, []);
  useEffect(() => { if (who === null) forget(); }, [who]);
  if (who === 'asking') return <p class="boot" role="status">Asking the proxy…</p>;
  return who ? <Page /> : <Login />;
}

function Login() {
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    setBusy(true);
    try {
      await login(String(form.get('user')), String(form.get('password')));
    } catch (failure) {
      setError(failure instanceof ApiError && failure.status === 429 ? `${failure.message} Wait a little before you try again.` : failure instanceof Error ? failure.message : String(failure));
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form onSubmit={submit}>
        <h1><Logo /> Tidegate</h1>
        <p class="muted">Log in as on the admin port: with <code>admin-admin_credentials</code>, or with <code>admin-stats_credentials</code> to look only.</p>
        <label for="user">User</label>
        <input id="user" name="user" autocomplete="username" required autofocus spellcheck={false} />
        <label for="password">Password</label>
        <input id="password" name="password" type="password" autocomplete="current-password" />
        <p class="said bad" role="alert">{error}</p>
        <button type="submit" class="strong" disabled={busy}>{busy ? 'One moment…' : 'Log in'}</button>
      </form>
    </main>
  );
}

const Logo = () => <img src="favicon.svg" alt="" width={22} height={22} />;

function Page() {
  const who = useStore(session);
  const place = usePlace();
  const shown = useStore(theme);
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  const main = useRef<HTMLElement>(null);
  const chosen = VIEWS.find((view) => view.name === place.view);
  const first = useRef(true);
  useEffect(() => {
    document.title = `${chosen?.label ?? 'No such view'} · Tidegate`;
    setMenu(false);
    if (first.current) { first.current = false; return; }
    document.getElementById('title')?.focus();
    window.scrollTo(0, 0);
  }, [place.view]);
  useKeys(() => setHelp(true));
  if (!who || who === 'asking') return null;
  const Shown = chosen?.of;
  return (
    <div class="page">
      <a class="skip" href="#title" onClick={(event) => { event.preventDefault(); document.getElementById('title')?.focus(); }}>To the content</a>
      <header class="top">
        <button type="button" class="quiet menu" aria-expanded={menu} aria-controls="views" onClick={() => setMenu(!menu)}>Menu</button>
        <a class="brand" href={href('now')}><Logo /> Tidegate</a>
        <span class="proxy" title="This proxy">{who.name}</span>
        <span class="muted wide">{who.version}</span>
        <LinkState />
        <span class="gap" />
        <span class={`role ${who.role}`} title={who.role === 'stats' ? 'Sees all, changes nothing' : 'May change everything'}>{who.user} · {who.role === 'stats' ? 'looks only' : 'admin'}</span>
        <button type="button" class="quiet" onClick={nextTheme} aria-label={`Colours: ${shown}. Change`}>{{ auto: '◐', light: '☀', dark: '☾' }[shown]}</button>
        <button type="button" class="quiet wide" onClick={() => setHelp(true)} aria-label="Keys">?</button>
        <button type="button" class="quiet" onClick={() => void logout()}>Log out</button>
      </header>
      <nav id="views" aria-label="Views" class={menu ? 'open' : ''}>
        <ul>
          {VIEWS.map((view, at) => (
            <li key={view.name}><a href={href(view.name)} aria-current={view.name === place.view ? 'page' : undefined}>{view.label}<kbd aria-hidden="true">{at < 9 ? at + 1 : `g ${view.key}`}</kbd></a></li>
          ))}
        </ul>
      </nav>
      <main ref={main} key={place.view}>
        {Shown ? <Shown /> : <><h1 id="title" tabIndex={-1}>No such view</h1><p>“{place.view}” is no view of this page. <a href={href('now')}>Go to Now</a></p></>}
      </main>
      <ActionDialog />
      {help && <Help close={() => setHelp(false)} />}
    </div>
  );
}

function Help({ close }: { close: () => void }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => { box.current?.showModal(); }, []);
  return (
    <dialog ref={box} aria-labelledby="keys" onClose={close}>
      <h2 id="keys">Keys</h2>
      <table class="keys">
        <thead><tr><th scope="col">Key</th><th scope="col">What it does</th></tr></thead>
        <tbody>
          {VIEWS.map((view, at) => <tr key={view.name}><td>{at < 9 && <><kbd>{at + 1}</kbd> or </>}<kbd>g</kbd> <kbd>{view.key}</kbd></td><td>{view.label}</td></tr>)}
          <tr><td><kbd>/</kbd></td><td>to the filter</td></tr>
          <tr><td><kbd>t</kbd></td><td>colours: as the system, light, dark</td></tr>
          <tr><td><kbd>Esc</kbd></td><td>out of a field, a dialog or a detail</td></tr>
          <tr><td><kbd>?</kbd></td><td>this list</td></tr>
        </tbody>
      </table>
      <div class="buttons"><button type="button" class="strong" onClick={() => box.current?.close()}>Close</button></div>
    </dialog>
  );
}

/** Single keys work where no text is typed. */
function useKeys(help: () => void): void {
  useEffect(() => {
    let after_g = 0;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
      if (target.matches('input, textarea, select')) {
        if (event.key === 'Escape') target.blur();
        return;
      }
      const by_number = VIEWS[Number(event.key) - 1];
      const by_letter = Date.now() - after_g < 1_500 ? VIEWS.find((view) => view.key === event.key) : undefined;
      const view = by_letter ?? by_number;
      after_g = event.key === 'g' ? Date.now() : 0;
      if (view) go(href(view.name));
      else if (event.key === '?') help();
      else if (event.key === 't') nextTheme();
      else if (event.key === '/') {
        event.preventDefault();
        document.querySelector<HTMLInputElement>('[data-filter]')?.focus();
      }
    };
    document.addEventListener('keydown', press);
    return () => document.removeEventListener('keydown', press);
  }, []);
}

const root = document.getElementById('app');
if (root) {
  root.replaceChildren();
  render(<App />, root);
}
