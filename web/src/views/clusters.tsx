// Clusters as they are drawn: who writes, who reads, how far behind, and why.
import type { ViewData, Rec } from '../api';
import { clock, count, micros, millis, num, server } from '../format';
import { rowsOf, useRates, useView } from '../live';
import * as orders from '../orders';
import { Act } from '../parts/act';
import { Part, Pill, View, statusKind } from '../parts/view';
import { EventLine } from '../parts/events';
import { STRAY, lagOf, sinceText, standings } from '../servers';

interface Group { id: string; role: string }
interface Cluster { id: string; kind: string; comment: string; groups: Group[] }

/** Kinds of clusters by query, with the columns that name their hostgroups. */
const KINDS: [string, string, [string, string][]][] = [
  ['replication', 'replication', [['writer_hostgroup', 'writer'], ['reader_hostgroup', 'readers']]],
  ['galera', 'Galera', [['writer_hostgroup', 'writer'], ['backup_writer_hostgroup', 'backup writers'], ['reader_hostgroup', 'readers'], ['offline_hostgroup', 'offline']]],
  ['group', 'Group Replication', [['writer_hostgroup', 'writer'], ['backup_writer_hostgroup', 'backup writers'], ['reader_hostgroup', 'readers'], ['offline_hostgroup', 'offline']]],
  ['aurora', 'Aurora', [['writer_hostgroup', 'writer'], ['reader_hostgroup', 'readers']]],
];
/** Shorter waits are everyday life. */
const MOMENT_MS = 50;
/** Pins that a SWITCHOVER waits out or cuts. */
const PASSING = new Set(['transaction', 'replication_gtid', 'next_transaction', 'savepoint']);

export function Clusters() {
  const live = useView('clusters');
  const rates = useRates(live.data?.at);
  return (
    <View name="clusters" title="Servers and clusters" live={live} intro="Who writes is observed, not configured. Each server says why it is where it is.">
      {(data) => (
        <>
          {setting(data, 'mysql-monitor_enabled') === 'false' && <div class="banner warn"><b>The monitor is off</b> (mysql-monitor_enabled): roles are frozen, and nothing here is checked.</div>}
          {data.results.replication?.error && <div class="banner info">This login may not read which hostgroups make a cluster, so each hostgroup is shown by itself. <span class="muted">The proxy says: {data.results.replication.error}</span></div>}
          {clusters(data).map((cluster) => <ClusterBox key={cluster.id + cluster.kind} cluster={cluster} data={data} rates={rates} />)}
          {!serversOf(data).length && <div class="empty">No server is in force. Add rows to <code>mysql_servers</code> in Configuration, then apply.</div>}
          <Part data={data} of="events" title="What happened, and why" note="Every change of a role or status and every order, newest first.">
            {rowsOf(data, 'events').length ? <><Strip events={rowsOf(data, 'events')} /><ol class="timeline">{rowsOf(data, 'events').slice(0, 40).map((event) => <EventLine key={event.sequence} event={event} />)}</ol></> : <div class="empty">Nothing has changed since the start.</div>}
            <p><a href="#/log">All events</a></p>
          </Part>
        </>
      )}
    </View>
  );
}

const setting = (data: ViewData, name: string): string => rowsOf(data, 'settings').find((row) => row.variable_name === name)?.variable_value ?? '';
/** Servers in force; without the right to read them, what has a pool. */
const serversOf = (data: ViewData): Rec[] => (data.results.servers?.error ? rowsOf(data, 'pool').map((row) => ({ hostgroup_id: row.hostgroup ?? null, hostname: row.srv_host ?? null, port: row.srv_port ?? null, status: row.status ?? null, weight: null, max_connections: null })) : rowsOf(data, 'servers'));

function clusters(data: ViewData): Cluster[] {
  const found: Cluster[] = [];
  for (const [key, kind, columns] of KINDS) {
    for (const row of rowsOf(data, key)) found.push({ id: row.writer_hostgroup ?? '', kind, comment: row.comment ?? '', groups: columns.map(([column, role]) => ({ id: row[column] ?? '', role })) });
  }
  const known = new Set(found.flatMap((cluster) => cluster.groups.map((group) => group.id)));
  const alone = [...new Set(serversOf(data).map((row) => row.hostgroup_id ?? ''))].filter((id) => !known.has(id));
  return [...found, ...alone.map((id) => ({ id, kind: '', comment: '', groups: [{ id, role: '' }] }))];
}

interface Inner { cluster: Cluster; data: ViewData; rates: ReturnType<typeof useRates> }

function ClusterBox({ cluster, data, rates }: Inner) {
  const writers = serversOf(data).filter((row) => row.hostgroup_id === cluster.id && row.status === 'ONLINE');
  const healing = rowsOf(data, 'healing').find((row) => row.writer_hostgroup === cluster.id);
  const drawn = cluster.groups.filter((group) => group.role !== 'offline' || serversOf(data).some((row) => row.hostgroup_id === group.id));
  return (
    <section class="cluster" aria-label={cluster.kind ? `Cluster ${cluster.id}` : `Hostgroup ${cluster.id}`}>
      <header>
        <h2>{cluster.kind ? `Cluster ${cluster.id}` : `Hostgroup ${cluster.id}`}</h2>
        <span class="muted">{cluster.kind || (data.results.replication?.error ? '' : 'no cluster: servers are as configured')} {cluster.comment}</span>
        {cluster.kind && (writers.length === 0 ? <Pill kind="bad" text="no writer" /> : writers.length > 1 && cluster.kind === 'replication' ? <Pill kind="warn" text={`${writers.length} writers`} /> : null)}
        <span class="gap" />
        {cluster.kind && <Act label="Fail back…" about={`cluster ${cluster.id}`} of={() => orders.failback(cluster.id)} quiet />}
      </header>
      {healing && <p class={healing.ready === '1' && healing.verdict === 'alive' ? 'muted' : 'said bad'}><Pill kind={healing.verdict === 'alive' ? 'ok' : 'bad'} text={`writer: ${healing.verdict}`} /> Advice: {healing.advice}</p>}
      <div class="topology">
        <div class="node proxybox">Tidegate<span class="muted">{count(rowsOf(data, 'pool').filter((row) => drawn.some((group) => group.id === row.hostgroup)).reduce((sum, row) => sum + num(row.ConnUsed), 0))} connections in use</span></div>
        <div class="branches">
          {drawn.map((group) => <GroupBox key={group.id} group={group} cluster={cluster} data={data} rates={rates} />)}
        </div>
      </div>
    </section>
  );
}

function GroupBox({ group, cluster, data, rates }: Inner & { group: Group }) {
  const servers = serversOf(data).filter((row) => row.hostgroup_id === group.id);
  const hold = rowsOf(data, 'holds').find((row) => row.hostgroup === group.id);
  const wait = rowsOf(data, 'waits').find((row) => row.hostgroup === group.id && num(row.waiters) > 0 && num(row.oldest_ms) >= MOMENT_MS);
  const used = rowsOf(data, 'pool').filter((row) => row.hostgroup === group.id).reduce((sum, row) => sum + num(row.ConnUsed), 0);
  return (
    <div class={`branch ${group.role === 'writer' ? 'writes' : ''}`}>
      <div class="grouphead">
        <h3>{group.role ? `${group.role}, ` : ''}hostgroup {group.id}</h3>
        {hold && <Pill kind="warn" text={`held: ${hold.reason}, ${millis(num(hold.since_ms))}`} />}
        {wait && <Pill kind="warn" text={`${wait.waiters} wait, ${millis(num(wait.oldest_ms))}`} />}
        <span class="gap" />
        {hold?.reason === 'pause' ? <Act label="Resume…" about={`hostgroup ${group.id}`} of={() => orders.resume(group.id)} /> : <Act label="Pause…" about={`hostgroup ${group.id}`} of={() => orders.pause(group.id, used)} quiet />}
      </div>
      <ul class="servers">
        {servers.map((row) => <ServerBox key={server(row.hostname, row.port)} row={row} group={group} cluster={cluster} data={data} rates={rates} />)}
        {!servers.length && <li class="node none">{group.role === 'writer' ? 'No writer: statements wait for one.' : 'No server is here.'}</li>}
      </ul>
    </div>
  );
}

function ServerBox({ row, group, cluster, data, rates }: Inner & { row: Rec; group: Group }) {
  const address = server(row.hostname, row.port);
  const is_here = (one: Rec) => one.hostname === row.hostname && one.port === row.port;
  const pool = rowsOf(data, 'pool').find((one) => one.hostgroup === group.id && one.srv_host === row.hostname && one.srv_port === row.port);
  const latency = rowsOf(data, 'latency').find((one) => one.hostgroup === group.id && one.srv_host === row.hostname && one.srv_port === row.port);
  const standing = standings(data).find((one) => one.address === address && one.cluster === cluster.id);
  const read_only = rowsOf(data, 'read_only').find(is_here);
  const ping = rowsOf(data, 'ping').find(is_here);
  const identity = rowsOf(data, 'identities').find((one) => is_here(one) && one.state !== 'member');
  const here = standing?.rows.find((one) => one.hostgroup === group.id);
  const status = here?.status ?? row.status ?? '';
  const kind = standing?.isStray ? 'bad' : statusKind(status);
  const events = rowsOf(data, 'events').filter((event) => is_here(event) && event.kind !== 'order');
  const reason = (status === 'ONLINE' ? events.find((event) => event.kind === 'role') : events.find((event) => event.kind === 'status' && event.to_state === status)) ?? events[0];
  const order = rowsOf(data, 'events').find((event) => is_here(event) && event.kind === 'order' && /drained|draining|undrained/.test(event.to_state ?? ''));
  const is_drained = order !== undefined && order.to_state !== 'undrained';
  const all = serversOf(data);
  const is_writer = all.some((one) => one.hostgroup_id === cluster.id && is_here(one));
  const writer = all.find((one) => one.hostgroup_id === cluster.id && one.status === 'ONLINE');
  const lag = lagOf(standing?.rows ?? [], is_writer);
  const max = num(row.max_connections);
  const used = num(pool?.ConnUsed);
  const open = used + num(pool?.ConnFree);
  const each = rates(`q${group.id}/${address}`, pool?.Queries);
  const known = () => ({
    writer: writer ? server(writer.hostname, writer.port) : '',
    kind: cluster.kind,
    manages: setting(data, 'mysql-switchover_manages_read_only') === 'true',
    limit: setting(data, 'mysql-switchover_timeout_ms') || '10000',
    lag: lag.text || null,
    blockers: rowsOf(data, 'pins').filter((pin) => pin.hostgroup === cluster.id && !PASSING.has(pin.reason ?? '')).map((pin) => ({ session: pin.session ?? '', user: pin.user ?? '', reason: pin.reason ?? '' })),
  });
  const my_groups = new Set(all.filter(is_here).map((one) => one.hostgroup_id));
  const fallback = [...my_groups].map((id) => all.filter((one) => one.hostgroup_id === id && !is_here(one) && one.status === 'ONLINE').length);
  const total_used = rowsOf(data, 'pool').filter((one) => one.srv_host === row.hostname && one.srv_port === row.port).reduce((sum, one) => sum + num(one.ConnUsed), 0);
  return (
    <li class={`node server ${kind}`}>
      <div class="serverhead"><b>{address}</b> <Pill kind={kind} text={standing?.isStray && status === 'ONLINE' ? 'stray, ONLINE' : status} /></div>
      {standing?.isStray && <div class="said bad">It {STRAY}.</div>}
      <div class="reason">
        {here ? <><span class="muted">{status} {sinceText(data.at - num(here.since_ms), data.at)}{here.reason && ':'}</span> <span class={kind === 'bad' ? 'said bad' : ''}>{here.reason}</span></> : null}
        {reason && <div><span class="muted">Last change at {clock(num(reason.time_ms))}:</span> {reason.why}{reason.seen && <span class="muted"> · {reason.seen}</span>}</div>}
        {!lag.text && lag.why !== 'writes' && lag.why && <div class={lag.isBad ? 'said bad' : 'muted'}>Lag: {lag.why}</div>}
        {identity && <div class="said bad">{identity.state === 'stranger' ? 'It belongs to another cluster' : 'Its cluster is not known'}: {identity.identity}</div>}
        {[ping?.ping_error, read_only?.error].filter(Boolean).slice(0, 1).map((text) => <div class="said bad" key="check">Its last check failed: {text}</div>)}
      </div>
      <dl>
        <div><dt>queries/s</dt><dd>{each === null ? '–' : count(each)}</dd></div>
        <div><dt>p95</dt><dd>{latency && num(latency.count) ? micros(num(latency.p95_us)) : '–'}</dd></div>
        <div><dt>lag</dt><dd>{lag.text || (lag.why === 'writes' ? lag.why : '–')}</dd></div>
        <div><dt>ping</dt><dd>{ping?.ping_success_time_us && !ping.ping_error ? micros(num(ping.ping_success_time_us)) : '–'}</dd></div>
        <div><dt>read_only</dt><dd>{read_only?.read_only ?? '–'}</dd></div>
        <div><dt>weight</dt><dd>{row.weight ?? '–'}</dd></div>
      </dl>
      <div class="meterline"><span>{used} in use, {num(pool?.ConnFree)} free{max ? ` of ${count(max)}` : ''}</span>{max > 0 && <meter min={0} max={max} value={open} high={max * 0.8} aria-label={`Connections to ${address}`} />}</div>
      <div class="buttons">
        {cluster.kind && !is_writer && <Act label="Make writer…" about={address} of={() => orders.switchover(cluster.id, address, known())} off={status === 'ONLINE' ? null : `It is ${status}: it cannot become the writer.`} />}
        {is_drained ? <Act label="Undrain…" about={address} of={() => orders.undrain(address)} /> : <Act label="Drain…" about={address} of={() => orders.drain(address, total_used, Math.min(...fallback, Infinity) === Infinity ? 0 : Math.min(...fallback))} quiet />}
      </div>
    </li>
  );
}

/** Events on a line of time, from the first to now. */
function Strip({ events }: { events: Rec[] }) {
  const recent = events.filter((event) => Date.now() - num(event.time_ms) < 3_600_000).reverse();
  const first = num(recent[0]?.time_ms);
  const length = Math.max(60_000, Date.now() - first);
  if (recent.length < 2) return null;
  return (
    <svg class="strip" viewBox="0 0 1000 30" preserveAspectRatio="none" role="img" aria-label={`${recent.length} events in the last ${millis(length)}`}>
      <line x1="0" y1="15" x2="1000" y2="15" />
      {recent.map((event) => <rect key={event.sequence} class={event.kind ?? ''} x={(num(event.time_ms) - first) * 994 / length} y={event.kind === 'order' ? 3 : 8} width="5" height={event.kind === 'order' ? 24 : 14}><title>{`${clock(num(event.time_ms))} ${event.kind} ${server(event.hostname, event.port)}: ${event.to_state}`}</title></rect>)}
    </svg>
  );
}
