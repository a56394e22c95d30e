// What all views have: a title, the SQL behind them, and their loading, failed and stale states.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { type ViewData, type ViewName, link, queriesOf, session } from '../api';
import { clock, millis } from '../format';
import { type Live, refresh, useNow } from '../live';
import { href } from '../route';
import { useStore } from '../store';

const STALE_MS = 6_000;

export function Copy({ text }: { text: string }) {
  const [done, set] = useState(false);
  const copy = () => {
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    if (document.execCommand('copy')) { set(true); window.setTimeout(() => set(false), 1_500); }
    area.remove();
  };
  return <button type="button" class="quiet" onClick={copy} aria-label={`Copy: ${text.slice(0, 60)}`}>{done ? 'Copied' : 'Copy'}</button>;
}

/** Which SQL shows the same. */
export function SqlNote({ queries }: { queries: Record<string, string> }) {
  return (
    <details class="sqlnote">
      <summary>The SQL that shows this</summary>
      <p class="muted">On the admin port, with any MySQL client.</p>
      <ul>
        {Object.entries(queries).map(([key, text]) => (
          <li key={key}>
            <code>{text};</code>
            <Copy text={`${text};`} />
            <a href={href('sql', '', { q: text })}>Open<span class="hidden"> {key} in the SQL console</span></a>
          </li>
        ))}
      </ul>
    </details>
  );
}

interface Props { name: ViewName; title: string; intro?: ComponentChildren; live: Live; children: (data: ViewData) => ComponentChildren; tools?: ComponentChildren }

export function View({ name, title, intro, live, children, tools }: Props) {
  const now = useNow();
  const age = live.data ? now - live.data.got : 0;
  const stale = live.data !== null && (live.error !== null || age > STALE_MS);
  return (
    <>
      <header class="viewhead">
        <h1 tabIndex={-1} id="title">{title}</h1>
        {tools}
      </header>
      {intro && <p class="intro">{intro}</p>}
      {stale && live.data && (
        <div class="banner warn" role="status">
          <b>Not live.</b> What you see is of {clock(live.data.got)}, {millis(Math.max(0, age))} ago. {live.error ?? 'No newer answer has come.'} The page goes on asking.
          {' '}<button type="button" class="quiet" onClick={refresh}>Ask now</button>
        </div>
      )}
      {!live.data && live.error && (
        <div class="banner bad" role="alert">
          <b>This could not be loaded.</b> {live.error} <button type="button" class="quiet" onClick={refresh}>Try again</button>
        </div>
      )}
      {!live.data && !live.error && <div class="loading" role="status"><span class="hidden">Loading</span><i /><i /><i /></div>}
      {live.data && <div class={stale ? 'stale' : ''}>{children(live.data)}</div>}
      <SqlNote queries={queriesOf(name)} />
    </>
  );
}

/** A part of a view that stands on one query; its error is told calmly, where the part would be. */
export function Part({ data, of, title, note, children }: { data: ViewData; of: string | string[]; title?: ComponentChildren; note?: ComponentChildren; children: ComponentChildren }) {
  const failed = [of].flat().map((key) => data.results[key]).find((answer) => answer?.error);
  const who = session.get();
  const isStats = who !== 'asking' && who?.role === 'stats';
  return (
    <section class="part">
      {title && <h2>{title}</h2>}
      {note && <p class="intro">{note}</p>}
      {failed ? <div class="empty">{isStats ? 'The stats login may not read this. ' : ''}<span class="muted">The proxy says: {failed.error}</span></div> : children}
    </section>
  );
}

export function Pill({ text, kind }: { text: string; kind: 'ok' | 'warn' | 'bad' | 'info' | 'off' }) {
  const sign = { ok: '●', warn: '▲', bad: '■', info: '◆', off: '○' }[kind];
  return <span class={`pill ${kind}`}><span aria-hidden="true">{sign}</span> {text}</span>;
}

export const statusKind = (status: string): 'ok' | 'warn' | 'bad' => (status === 'ONLINE' ? 'ok' : status.startsWith('OFFLINE_SOFT') ? 'warn' : 'bad');

/** Whether numbers are live, for the header. */
export function LinkState() {
  const { at, error } = useStore(link);
  const now = useNow();
  if (document.hidden) return <span class="linkstate">paused</span>;
  if (error || now - at > STALE_MS) return <span class="linkstate bad" role="status"><span aria-hidden="true">■</span> stale{at ? ` for ${millis(Math.max(0, now - at))}` : ''}</span>;
  return <span class="linkstate ok"><span aria-hidden="true">●</span> live</span>;
}
