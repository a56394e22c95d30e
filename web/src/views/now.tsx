// What happens now: numbers, the last hour, and what needs a look.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { Rec, Sample, ViewData } from '../api';
import { bytes, clock, count, micros, millis, num, server } from '../format';
import { rowsOf, useRates, useSamples, useView } from '../live';
import { Chart, type Line, Spark } from '../parts/chart';
import { Part, Pill, View } from '../parts/view';
import { href } from '../route';
import { EventLine } from '../parts/events';

const SPANS: [string, number][] = [['5 min', 300_000], ['15 min', 900_000], ['1 h', 3_600_000]];

export function Now() {
  const live = useView('now');
  const samples = useSamples();
  const [span, setSpan] = useState(300_000);
  const rates = useRates(live.data?.at);
  const end = samples.at(-1)?.at ?? 0;
  const shown = samples.filter((one) => one.at >= end - span);
  const at = shown.map((one) => one.at);
  const line = (label: string, key: string, colour: string, dash = false): Line => ({ label, colour, dash, values: shown.map((one) => one[key] ?? null) });
  return (
    <View name="now" title="Now" live={live}>
      {(data) => (
        <>
          <Attention data={data} />
          <Tiles samples={samples} data={data} />
          <div class="chartbar" role="group" aria-label="How much is shown">
            {SPANS.map(([label, ms]) => <button key={ms} type="button" class="quiet" aria-pressed={span === ms} onClick={() => setSpan(ms)}>{label}</button>)}
            <span class="muted">{samples.length ? `Kept by the proxy since ${clock(samples[0]?.at ?? 0)}` : 'The first sample comes within a second.'}</span>
          </div>
          <div class="charts">
            <Chart title="Statements a second" at={at} span_ms={span} unit={count} lines={[line('statements', 'queries', '--c1'), line('errors', 'errors', '--bad'), line('slow', 'slow', '--c3', true)]} />
            <Chart title="Time of a statement" at={at} span_ms={span} unit={micros} lines={[line('p50', 'p50_us', '--c1'), line('p95', 'p95_us', '--c3'), line('p99', 'p99_us', '--c4')]} />
            <Chart title="Clients and server connections" at={at} span_ms={span} unit={count} lines={[line('clients', 'clients', '--c2'), line('in use', 'backends_used', '--c1'), line('free', 'backends_free', '--c3', true)]} />
            <Chart title="Sessions that wait for a connection" at={at} span_ms={span} unit={count} lines={[line('waiting', 'waiters', '--c4'), line('held hostgroups', 'held', '--c3', true)]} />
            <Chart title="Bytes a second" at={at} span_ms={span} unit={bytes} lines={[line('from clients', 'bytes_in', '--c2'), line('to clients', 'bytes_out', '--c1')]} />
            <Chart title="Memory of the process" at={at} span_ms={span} unit={bytes} lines={[line('resident', 'rss', '--c2')]} />
          </div>
          <div class="columns">
            <Part data={data} of="slowest" title="Where the time goes" note="Statements with the most time in all. More in Statements.">
              <Slowest rows={rowsOf(data, 'slowest')} rates={rates} />
            </Part>
            <Part data={data} of="events" title="Last changes of roles and orders">
              {rowsOf(data, 'events').length ? <ol class="timeline">{rowsOf(data, 'events').map((event) => <EventLine key={event.sequence} event={event} />)}</ol> : <div class="empty">No role, status or order has changed since the start.</div>}
              <p><a href={href('clusters')}>Servers and clusters</a></p>
            </Part>
          </div>
        </>
      )}
    </View>
  );
}

function Slowest({ rows, rates }: { rows: Rec[]; rates: ReturnType<typeof useRates> }) {
  if (!rows.length) return <div class="empty">No statement has come yet.</div>;
  return (
    <div class="scroll" role="region" aria-label="Slowest statements" tabIndex={0}>
      <table>
        <thead><tr><th scope="col">Statement</th><th scope="col" class="num">a second</th><th scope="col" class="num">mean</th><th scope="col" class="num">longest</th></tr></thead>
        <tbody>
          {rows.map((row) => {
            const key = `${row.digest}/${row.hostgroup}/${row.username}`;
            const each = rates(key, row.count_star);
            return (
              <tr key={key}>
                <td class="long"><a href={href('statements', row.digest ?? '')}><code>{row.digest_text}</code></a></td>
                <td class="num">{each === null ? '–' : count(each)}</td>
                <td class="num">{micros(num(row.sum_time) / Math.max(1, num(row.count_star)))}</td>
                <td class="num">{micros(num(row.max_time))}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Tiles({ samples, data }: { samples: Sample[]; data: ViewData }) {
  const last = samples.at(-1);
  const recent = samples.slice(-60);
  const global = new Map(rowsOf(data, 'global').map((row) => [row.Variable_Name, row.Variable_Value]));
  const tile = (label: string, key: string, unit: (n: number) => string, target: string, bad = false, more?: ComponentChildren) => {
    const value = last?.[key];
    return (
      <a class={`tile${bad && value ? ' bad' : ''}`} href={href(target)} key={key} data-tile={key}>
        <span class="label">{label}</span>
        <span class="value">{value === null || value === undefined ? '–' : unit(value)}</span>
        {more && <span class="muted">{more}</span>}
        <Spark values={recent.map((one) => one[key] ?? null)} label={`${label}, the last minute`} />
      </a>
    );
  };
  return (
    <div class="tiles">
      {tile('Statements/s', 'queries', count, 'statements')}
      {tile('Median time', 'p50_us', micros, 'statements')}
      {tile('p99 time', 'p99_us', micros, 'statements')}
      {tile('Errors/s', 'errors', count, 'log', true)}
      {tile('Clients', 'clients', count, 'sessions', false, `${count(num(global.get('Client_Connections_non_idle')))} busy, ${count(num(global.get('Active_Transactions')))} in a transaction`)}
      {tile('Connections used', 'backends_used', count, 'pins', false, `${count(last?.backends_free ?? 0)} free`)}
      {tile('Waiting', 'waiters', count, 'sessions', true)}
      {tile('Memory', 'rss', bytes, 'sql', false, `up ${millis(num(global.get('ProxySQL_Uptime')) * 1_000)}`)}
    </div>
  );
}

/** Why a server's status is what it is, as far as the last events tell. */
function why(data: ViewData, row: Rec): string {
  const event = rowsOf(data, 'events').find((one) => one.kind === 'status' && one.hostname === row.srv_host && one.port === row.srv_port && one.to_state === row.status);
  return event?.why ? `: ${event.why}` : '';
}

/** What an operator should look at, with the way to it. */
function Attention({ data }: { data: ViewData }) {
  const items: [string, 'bad' | 'warn' | 'info', ComponentChildren, string][] = [];
  for (const row of rowsOf(data, 'pool').filter((one) => one.status !== 'ONLINE')) items.push([`s${row.hostgroup}${row.srv_host}${row.srv_port}`, row.status === 'OFFLINE_SOFT' ? 'warn' : 'bad', <>{server(row.srv_host, row.srv_port)} in hostgroup {row.hostgroup} is {row.status}{why(data, row)}</>, href('clusters')]);
  for (const row of rowsOf(data, 'holds')) items.push([`h${row.hostgroup}`, 'warn', <>Hostgroup {row.hostgroup} is held ({row.reason}) for {millis(num(row.since_ms))}: new work waits</>, href('clusters')]);
  for (const row of rowsOf(data, 'waits')) items.push([`w${row.hostgroup}`, 'warn', <>{row.waiters} {row.waiters === '1' ? 'session waits' : 'sessions wait'} for a connection to hostgroup {row.hostgroup}, the first for {millis(num(row.oldest_ms))}</>, href('pins')]);
  const stuck = rowsOf(data, 'stuck');
  if (stuck[0]) items.push(['stuck', 'warn', <>{stuck.length === 1 ? 'A statement runs' : `${stuck.length}${stuck.length === 20 ? ' or more' : ''} statements run`} for 2 s or longer, the longest for {millis(num(stuck[0].time_ms))} (session {stuck[0].SessionID}, {stuck[0].user})</>, href('sessions', stuck[0].SessionID ?? '')]);
  const idle = rowsOf(data, 'idle_transactions').filter((row) => row.command === 'Sleep');
  if (idle[0]) items.push(['idle', 'warn', <>{idle.length === 1 ? 'A session does' : `${idle.length} sessions do`} nothing in an open transaction, the longest for {millis(num(idle[0].since_ms))} (session {idle[0].session}, {idle[0].user})</>, href('sessions', idle[0].session ?? '')]);
  const pinned = rowsOf(data, 'pins').filter((row) => row.reason !== 'transaction');
  const pins = pinned.reduce((sum, row) => sum + num(row.sessions), 0);
  if (pins) items.push(['pins', 'info', <>{pins} {pins === 1 ? 'pin keeps its connection' : 'pins keep connections'} for more than a transaction: {pinned.slice(0, 4).map((row) => row.reason).join(', ')}</>, href('pins')]);
  for (const row of rowsOf(data, 'errors').filter((one) => Date.now() / 1_000 - num(one.last_seen) < 60).slice(0, 2)) items.push([`e${row.errno}${row.hostname}${row.port}${row.username}`, 'info', <>Error {row.errno}, {clock(num(row.last_seen) * 1_000)}: {row.last_error}</>, href('log', 'errors')]);
  for (const row of rowsOf(data, 'proxies')) items.push([`p${row.name}`, 'warn', <>Proxy {row.name} has revision {row.applied}, wanted is {row.wanted}. {row.error}</>, href('proxies')]);
  return (
    <section class="attention" aria-labelledby="look">
      <h2 id="look">Worth a look</h2>
      {items.length ? <ul>{items.map(([key, kind, text, target]) => <li key={key}><Pill kind={kind} text={{ bad: 'trouble', warn: 'look', info: 'note' }[kind]} /> <a href={target}>{text}</a></li>)}</ul> : <p class="muted"><Pill kind="ok" text="calm" /> All servers are ONLINE, nobody waits, and nothing runs for long.</p>}
    </section>
  );
}
