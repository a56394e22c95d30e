// What happens now: numbers, the last hour, and what needs a look.
import type { ComponentChildren } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { type Rec, type Sample, type ViewData, session } from '../api';
import { bytes, clock, count, micros, millis, num, server } from '../format';
import { rowsOf, useRates, useSamples, useView } from '../live';
import { Chart, type Line, Spark } from '../parts/chart';
import { Part, Pill, View } from '../parts/view';
import { href } from '../route';
import { useStore } from '../store';
import { EventLine } from '../parts/events';
import { type Item, attention } from '../attention';
import { MarkList, marksOf } from '../parts/marks';
import { type Standing, lagOf, sinceText, standings, writerless } from '../servers';

const SPANS: [string, number][] = [['5 min', 300_000], ['15 min', 900_000], ['1 h', 3_600_000]];

export function Now() {
  const live = useView('now');
  const samples = useSamples();
  const who = useStore(session);
  const exposure = who && who !== 'asking' ? who.exposure : null;
  const [span, setSpan] = useState(300_000);
  const rates = useRates(live.data?.at);
  const end = samples.at(-1)?.at ?? 0;
  const shown = samples.filter((one) => one.at >= end - span);
  const at = shown.map((one) => one.at);
  const marks = useMemo(() => (live.data ? marksOf(live.data).filter((mark) => mark.at > end - span && mark.at <= end + 2_000) : []), [live.data, end, span]);
  const line = (label: string, key: string, colour: string, dash = false): Line => ({ label, colour, dash, values: shown.map((one) => one[key] ?? null) });
  return (
    <View name="now" title="Now" live={live}>
      {(data) => (
        <>
          <Part data={data} of="standing"><Servers data={data} rates={rates} /></Part>
          <Attention items={attention(data, samples, exposure)} at={data.at} />
          <Tiles samples={samples} data={data} />
          <div class="chartbar" role="group" aria-label="How much is shown">
            {SPANS.map(([label, ms]) => <button key={ms} type="button" class="quiet" aria-pressed={span === ms} onClick={() => setSpan(ms)}>{label}</button>)}
            <span class="muted">{samples.length ? `Kept by the proxy since ${clock(samples[0]?.at ?? 0)}` : 'The first sample comes within a second.'}</span>
          </div>
          <MarkList marks={marks} />
          <div class="charts">
            <Chart title="Statements a second" at={at} span_ms={span} marks={marks} unit={count} lines={[line('statements', 'queries', '--c1'), line('errors', 'errors', '--bad'), line('slow', 'slow', '--c3', true)]} />
            <Chart title="Time of a statement" at={at} span_ms={span} marks={marks} unit={micros} lines={[line('p50', 'p50_us', '--c1'), line('p95', 'p95_us', '--c3'), line('p99', 'p99_us', '--c4')]} />
            <Chart title="Clients and server connections" at={at} span_ms={span} marks={marks} unit={count} lines={[line('clients', 'clients', '--c2'), line('in use', 'backends_used', '--c1'), line('free', 'backends_free', '--c3', true)]} />
            <Chart title="Sessions that wait for a connection" at={at} span_ms={span} marks={marks} unit={count} lines={[line('waiting', 'waiters', '--c4'), line('held hostgroups', 'held', '--c3', true)]} />
            <Chart title="Bytes a second" at={at} span_ms={span} marks={marks} unit={bytes} lines={[line('from clients', 'bytes_in', '--c2'), line('to clients', 'bytes_out', '--c1')]} />
            <Chart title="Memory of the process" at={at} span_ms={span} marks={marks} unit={bytes} lines={[line('resident', 'rss', '--c2')]} />
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
      <table role="table">
        <thead><tr><th scope="col">Statement</th><th scope="col" class="num">a second</th><th scope="col" class="num">mean</th><th scope="col" class="num">longest</th></tr></thead>
        <tbody>
          {rows.map((row) => {
            const key = `${row.digest}/${row.hostgroup}/${row.username}`;
            const each = rates(key, row.count_star);
            return (
              <tr key={key}>
                <td class="long"><a href={href('statements', row.digest ?? '')}><code>{row.digest_text}</code></a></td>
                <td class="num" data-label="a second">{each === null ? '–' : count(each)}</td>
                <td class="num" data-label="mean">{micros(num(row.sum_time) / Math.max(1, num(row.count_star)))}</td>
                <td class="num" data-label="longest">{micros(num(row.max_time))}</td>
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

/** One line for each server, red where it is in trouble. */
function Servers({ data, rates }: { data: ViewData; rates: ReturnType<typeof useRates> }) {
  const all = standings(data);
  const lost = writerless(data);
  if (!all.length) return <div class="empty">No server is in force. Add rows to <code>mysql_servers</code> in <a href={href('config')}>Configuration</a>, then apply.</div>;
  return (
    <table class="fleet">
      <thead><tr><th scope="col">Server</th><th scope="col">Role</th><th scope="col" class="num">Statements/s</th><th scope="col" class="num">p95</th><th scope="col">Lag</th><th scope="col">Status</th></tr></thead>
      <tbody>
        {lost.map((one) => <tr key={`lost${one.cluster}`} class="bad"><th scope="row" colSpan={6}><Pill kind="bad" text="no writer" /> Cluster {one.cluster}{one.since !== null && <span class="muted"> {sinceText(one.since, data.at)}</span>}</th></tr>)}
        {all.map((one) => <Line key={one.cluster + one.address} one={one} data={data} rates={rates} />)}
      </tbody>
    </table>
  );
}

function Line({ one, data, rates }: { one: Standing; data: ViewData; rates: ReturnType<typeof useRates> }) {
  const groups = one.rows.map((row) => row.hostgroup);
  const of = (key: string) => rowsOf(data, key).filter((row) => groups.includes(row.hostgroup ?? null) && server(row.srv_host, row.srv_port) === one.address);
  const each = rates(`s${one.cluster}/${one.address}`, String(of('pool').reduce((sum, row) => sum + num(row.Queries), 0)));
  const p95 = Math.max(0, ...of('latency').filter((row) => num(row.count) > 0).map((row) => num(row.p95_us)));
  const writes = one.roles.includes('writer');
  const lag = lagOf(one.rows, writes);
  return (
    <tr class={one.kind} data-server={one.address}>
      <th scope="row"><a href={href('clusters')}>{one.address}</a></th>
      <td data-label="Role">{one.roles.join(', ') || `hostgroup ${groups.join(', ')}`}</td>
      <td data-label="Statements/s" class="num">{each === null ? '–' : count(each)}</td>
      <td data-label="p95" class="num">{p95 ? micros(p95) : '–'}</td>
      <td data-label="Lag" class={lag.isBad ? 'said bad' : lag.text ? '' : 'muted'}>{lag.text || lag.why || '–'}</td>
      <td data-label="Status"><Pill kind={one.kind} text={one.isStray && one.status === 'ONLINE' ? 'stray, ONLINE' : one.status} />{one.since !== null && <span class="muted"> {sinceText(one.since, data.at)}</span>}{one.reason && <div class={one.kind === 'bad' ? 'said bad' : 'muted'}>{one.reason}</div>}</td>
    </tr>
  );
}

/** What an operator should look at, with the way to it. */
function Attention({ items, at }: { items: Item[]; at: number }) {
  return (
    <section class="attention" aria-labelledby="look">
      <h2 id="look">Worth a look</h2>
      {items.length ? <ul>{items.map((item) => <li key={item.key}><Pill kind={item.kind} text={{ bad: 'trouble', warn: 'look', info: 'note' }[item.kind]} /> <a href={item.target}>{item.text}</a>{item.since !== null && <span class="muted"> {sinceText(item.since, at)}</span>}</li>)}</ul> : <p class="muted"><Pill kind="ok" text="calm" /> All servers are ONLINE, no session waits, no login failed, and nothing runs for long.</p>}
    </section>
  );
}
