// Sessions: what each does, what it keeps, and an end to it.
import { useState } from 'preact/hooks';
import type { Rec, ViewData } from '../api';
import { groups, millis, num, server } from '../format';
import { rowsOf, useView } from '../live';
import * as orders from '../orders';
import { Act } from '../parts/act';
import { Table } from '../parts/table';
import { Part, Pill, View } from '../parts/view';
import { REASONS } from '../reasons';
import { go, href, usePlace } from '../route';

const LONG_MS = 2_000;
const IDLE_TRANSACTION_MS = 10_000;
type Kind = 'all' | 'busy' | 'pinned' | 'waiting';
const KINDS: [Kind, string][] = [['all', 'All'], ['busy', 'Busy'], ['waiting', 'Waiting'], ['pinned', 'Pinned']];

interface Seen { row: Rec; pins: Rec[]; state: string; kind: 'ok' | 'warn' | 'bad' | 'info' | 'off'; words: string }

/** A session in one word, with what it means. */
function judge(row: Rec, pins: Rec[]): Seen {
  const ms = num(row.time_ms);
  const long_pin = pins.find((pin) => pin.reason === 'transaction');
  const seen = (state: string, kind: Seen['kind'], words: string): Seen => ({ row, pins, state, kind, words });
  const at = server(row.srv_host, row.srv_port);
  switch (row.command) {
    case 'Connect': return seen('waits', 'warn', `It waits for a connection to hostgroup ${row.hostgroup} for ${millis(ms)}: all are in use, the hostgroup is held, or it has no server.`);
    case 'Delay': return seen('delayed', 'warn', 'A rule or setting delays its statement.');
    case 'Connecting client': return seen('logs in', 'info', 'Its client has not logged in yet.');
    case 'Fast forward': return seen('passes through', 'info', 'A fast_forward user: bytes pass unread.');
    case 'Sleep':
      if (long_pin && num(long_pin.since_ms) > IDLE_TRANSACTION_MS) return seen('idle in transaction', 'bad', `Its transaction is open for ${millis(num(long_pin.since_ms))}, and its client has said nothing for ${millis(ms)}. It keeps a connection to ${at} and its row locks: others may wait for these.`);
      return pins.length ? seen('idle, pinned', 'info', `Its client says nothing for ${millis(ms)}; it keeps a connection.`) : seen('idle', 'off', `Its client says nothing for ${millis(ms)}; it holds no connection.`);
    default:
      return ms >= LONG_MS ? seen('runs long', 'bad', `${at} works on its statement for ${millis(ms)}. Either it is slow, or it waits there for a lock of another session: look for sessions that are idle in a transaction.`) : seen('runs', 'ok', `${at} works on its statement.`);
  }
}

export function Sessions() {
  const live = useView('sessions');
  const place = usePlace();
  const [kind, setKind] = useState<Kind>('all');
  const pins = groups(rowsOf(live.data, 'pins'), (pin) => pin.session ?? '');
  const all = rowsOf(live.data, 'sessions').map((row) => judge(row, pins.get(row.SessionID ?? '') ?? []));
  const is = { all: () => true, busy: (one: Seen) => one.row.command !== 'Sleep', waiting: (one: Seen) => one.kind === 'warn', pinned: (one: Seen) => one.pins.length > 0 };
  const chosen = all.find((one) => one.row.SessionID === place.rest);
  return (
    <View name="sessions" title="Sessions" live={live} intro="A session is one client. It has a server connection only while it runs something or is pinned.">
      {(data) => (
        <>
          {place.rest && (chosen ? <Detail one={chosen} all={all} data={data} /> : <div class="empty">Session {place.rest} has ended. <a href={href('sessions')}>Show all</a></div>)}
          <Part data={data} of="sessions">
            <Table name="sessions" caption="Sessions" rows={all.filter(is[kind])} id={(one) => one.row.SessionID ?? ''} sort="-rank" empty={kind === 'all' ? 'No client is connected.' : 'No session is like that now.'} mark={(one) => (one.kind === 'bad' ? 'alarm' : undefined)} open={(one) => go(href('sessions', one.row.SessionID ?? ''))} chosen={place.rest}
              tools={<span class="choice" role="group" aria-label="Which sessions">{KINDS.map(([name, label]) => <button key={name} type="button" class="quiet" aria-pressed={kind === name} onClick={() => setKind(name)}>{label} {all.filter(is[name]).length}</button>)}</span>}
              columns={[
                { key: 'id', label: 'Session', num: true, value: (one) => one.row.SessionID },
                { key: 'rank', label: 'State', value: (one) => ({ bad: 3e9, warn: 2e9, ok: 1e9, info: 5e8, off: 0 }[one.kind] + Math.min(num(one.row.time_ms), 4e8)), show: (one) => <Pill kind={one.kind} text={one.state} /> },
                { key: 'time', label: 'For', num: true, value: (one) => num(one.row.time_ms), show: (one) => millis(num(one.row.time_ms)) },
                { key: 'user', label: 'User', fold: true, value: (one) => one.row.user },
                { key: 'db', label: 'Schema', wide: true, fold: true, value: (one) => one.row.db },
                { key: 'client', label: 'Client', wide: true, value: (one) => server(one.row.cli_host, one.row.cli_port) },
                { key: 'server', label: 'Server', value: (one) => (one.row.srv_host ? `${one.row.hostgroup}/${server(one.row.srv_host, one.row.srv_port)}` : ''), show: (one) => (one.row.srv_host ? `${one.row.hostgroup}/${server(one.row.srv_host, one.row.srv_port)}` : <span class="muted">–</span>) },
                { key: 'pins', label: 'Pins', value: (one) => one.pins.map((pin) => pin.reason).join(', '), show: (one) => one.pins.map((pin) => <span key={pin.reason} class="tag" title={REASONS[pin.reason ?? '']?.begins}>{pin.reason}</span>) },
                { key: 'info', label: 'Statement', long: true, value: (one) => one.row.info ?? '', show: (one) => (one.row.info ? <code>{one.row.info}</code> : <span class="muted">–</span>) },
                { key: 'act', label: '', value: () => null, show: (one) => <Act quiet label="End…" about={`session ${one.row.SessionID}`} of={() => orders.kill(one.row, one.pins.map((pin) => pin.reason ?? ''))} /> },
              ]} />
          </Part>
          <Part data={data} of="users" title="Clients by user">
            <Table name="users" caption="Clients by user" filter={false} rows={rowsOf(data, 'users')} id={(row) => row.username ?? ''} sort="-now" empty="No user is configured." columns={[
              { key: 'user', label: 'User', value: (row) => row.username },
              { key: 'now', label: 'Connected', num: true, value: (row) => row.frontend_connections },
              { key: 'max', label: 'At most', num: true, value: (row) => row.frontend_max_connections },
            ]} />
          </Part>
        </>
      )}
    </View>
  );
}

function Detail({ one, all, data }: { one: Seen; all: Seen[]; data: ViewData }) {
  const { row, pins } = one;
  const pin_rows = pins.map((pin) => ({ pin, known: REASONS[pin.reason ?? ''] }));
  const suspects = one.state === 'runs long' ? all.filter((other) => other.pins.some((pin) => pin.reason === 'transaction' || pin.reason === 'lock_tables') && other.row.srv_host === row.srv_host && other.row.srv_port === row.srv_port && other.row.SessionID !== row.SessionID && other.row.command === 'Sleep').slice(0, 5) : [];
  return (
    <section class="detail" aria-labelledby="session">
      <header>
        <h2 id="session">Session {row.SessionID}</h2>
        <Pill kind={one.kind} text={one.state} />
        <span class="gap" />
        <Act label="End the session…" danger of={() => orders.kill(row, pins.map((pin) => pin.reason ?? ''))} />
        <a class="button quiet" href={href('sessions')}>Close</a>
      </header>
      <p><b>{one.words}</b></p>
      {suspects.length > 0 && <div class="banner warn">On the same server these sessions are silent and may hold the lock: {suspects.map((other, at) => <>{at > 0 && ', '}<a key={other.row.SessionID} href={href('sessions', other.row.SessionID ?? '')}>{other.row.SessionID} ({other.pins.map((pin) => `${pin.reason} for ${millis(num(pin.since_ms))}`).join(', ')})</a></>)}</div>}
      {row.info && <pre>{row.info}</pre>}
      <dl class="facts">
        <div><dt>user</dt><dd>{row.user}</dd></div>
        <div><dt>schema</dt><dd>{row.db || '–'}</dd></div>
        <div><dt>client</dt><dd>{server(row.cli_host, row.cli_port)}</dd></div>
        <div><dt>hostgroup</dt><dd>{row.hostgroup}</dd></div>
        <div><dt>server</dt><dd>{row.srv_host ? server(row.srv_host, row.srv_port) : 'none'}</dd></div>
        <div><dt>worker</dt><dd>{row.ThreadID}</dd></div>
      </dl>
      {pin_rows.length > 0 ? (
        <><h3>What it keeps</h3><ul class="reasons">{pin_rows.map(({ pin, known }) => <li key={pin.reason}><b>{pin.reason}</b> for {millis(num(pin.since_ms))}, begun by <code>{pin.digest_text || 'no statement'}</code>{known && <div class="muted">Ends with {known.ends}. {known.change}</div>}</li>)}</ul></>
      ) : <p class="muted">{row.srv_host ? 'It keeps its connection while its statement runs, and no longer.' : 'It keeps nothing: connections are shared with others.'}</p>}
      {rowsOf(data, 'waits').filter((wait) => wait.hostgroup === row.hostgroup).map((wait) => <p key={wait.hostgroup} class="muted">In hostgroup {wait.hostgroup} {wait.waiters} sessions wait for a connection.</p>)}
    </section>
  );
}
