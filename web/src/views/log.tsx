// Log and events: roles and orders, errors, logged queries, failed logins, scripts.
import type { Rec } from '../api';
import { clock, count, micros, millis, num, server } from '../format';
import { rowsOf, useView } from '../live';
import { Act } from '../parts/act';
import { type Column, Table } from '../parts/table';
import { Part, View, Pill } from '../parts/view';
import { href, usePlace } from '../route';
import { kindOf } from '../parts/events';

const s = (value: string | null | undefined): string => (value ? clock(num(value) * 1_000) : '–');

const HOSTS: Column<Rec>[] = [
  { key: 'address', label: 'Client', value: (row) => row.client_address },
  { key: 'errors', label: 'Failures', num: true, value: (row) => row.error_count },
  { key: 'last', label: 'Last', num: true, value: (row) => row.last_updated, show: (row) => s(row.last_updated) },
];

const TABS: { name: string; label: string; of: string; note: string; empty: string; sort: string; columns: Column<Rec>[] }[] = [
  {
    name: 'events', label: 'Roles and orders', of: 'events', sort: '-at', empty: 'Nothing has changed since the start.',
    note: 'Every change of a role, status or member, and every order: what was seen, by whom, and what was decided.',
    columns: [
      { key: 'at', label: 'Time', num: true, value: (row) => row.sequence, show: (row) => clock(num(row.time_ms)) },
      { key: 'kind', label: 'Kind', value: (row) => row.kind, show: (row) => <Pill kind={kindOf(row)} text={row.kind ?? ''} /> },
      { key: 'cluster', label: 'Cluster', num: true, value: (row) => row.cluster ?? '' },
      { key: 'server', label: 'Server', value: (row) => server(row.hostname, row.port) },
      { key: 'change', label: 'Change', value: (row) => `${row.from_state ?? ''} → ${row.to_state ?? ''}`, show: (row) => <>{row.from_state && <>{row.from_state} → </>}<b>{row.to_state}</b></> },
      { key: 'why', label: 'Why', long: true, value: (row) => (row.kind === 'order' ? row.seen || row.why : row.why) },
      { key: 'seen', label: 'What was seen', long: true, wide: true, value: (row) => [row.kind !== 'order' && row.seen, row.seen_by && `(${row.seen_by})`].filter(Boolean).join(' ') },
    ],
  },
  {
    name: 'errors', label: 'Errors', of: 'errors', sort: '-last', empty: 'No statement has failed since the start.',
    note: 'Errors that servers gave, connects that failed, and what the proxy itself answered (no server).',
    columns: [
      { key: 'last', label: 'Last', num: true, value: (row) => row.last_seen, show: (row) => s(row.last_seen) },
      { key: 'errno', label: 'Error', num: true, value: (row) => row.errno },
      { key: 'count', label: 'Count', num: true, value: (row) => row.count_star, show: (row) => count(num(row.count_star)) },
      { key: 'text', label: 'Text', long: true, value: (row) => row.last_error },
      { key: 'server', label: 'Server', value: (row) => (row.hostname ? `${row.hostgroup}/${server(row.hostname, row.port)}` : 'the proxy') },
      { key: 'user', label: 'User', value: (row) => row.username },
      { key: 'client', label: 'Client', wide: true, value: (row) => row.client_address },
      { key: 'schema', label: 'Schema', wide: true, value: (row) => row.schemaname },
      { key: 'first', label: 'First', num: true, wide: true, value: (row) => row.first_seen, show: (row) => s(row.first_seen) },
    ],
  },
  {
    name: 'queries', label: 'Query log', of: 'queries', sort: '-id', empty: 'No logged query is in memory. Rules with log=1 or mysql-eventslog_default_log log queries, with mysql-eventslog_buffer_history_size above 0; “Fetch” moves them here.',
    note: 'Logged queries that were moved to memory.',
    columns: [
      { key: 'id', label: 'Begin', num: true, value: (row) => row.id, show: (row) => clock(num(row.start_time) / 1_000) },
      { key: 'took', label: 'Took', num: true, value: (row) => num(row.end_time) - num(row.start_time), show: (row) => micros(num(row.end_time) - num(row.start_time)) },
      { key: 'query', label: 'Query', long: true, value: (row) => row.query, show: (row) => <code>{row.query}</code> },
      { key: 'error', label: 'Error', value: (row) => (row.errno && row.errno !== '0' ? `${row.errno} ${row.error ?? ''}` : '') },
      { key: 'user', label: 'User', value: (row) => row.username },
      { key: 'server', label: 'Server', value: (row) => `${row.hid}/${row.server ?? ''}` },
      { key: 'rows', label: 'Rows', num: true, wide: true, value: (row) => row.rows_sent },
    ],
  },
  {
    name: 'logins', label: 'Failed logins', of: 'logins', sort: '-last', empty: 'No login has failed since the start.',
    note: 'Logins that the proxy refused, by user and error. A name that no user has is in the text only.',
    columns: [
      { key: 'last', label: 'Last', num: true, value: (row) => row.last_seen, show: (row) => s(row.last_seen) },
      { key: 'user', label: 'User', value: (row) => row.username, show: (row) => row.username || <span class="muted">unknown</span> },
      { key: 'client', label: 'Last client', value: (row) => row.client_address },
      { key: 'count', label: 'Count', num: true, value: (row) => row.count_star, show: (row) => count(num(row.count_star)) },
      { key: 'errno', label: 'Error', num: true, value: (row) => row.errno },
      { key: 'text', label: 'Text', long: true, value: (row) => row.last_error },
      { key: 'first', label: 'First', num: true, wide: true, value: (row) => row.first_seen, show: (row) => s(row.first_seen) },
    ],
  },
  {
    name: 'scheduler', label: 'Scripts', of: 'scheduler', sort: 'id', empty: 'The scheduler has no active script.',
    note: 'Runs of the scheduler’s scripts.',
    columns: [
      { key: 'id', label: 'id', num: true, value: (row) => row.id },
      { key: 'file', label: 'Script', value: (row) => row.filename },
      { key: 'runs', label: 'Runs', num: true, value: (row) => row.runs },
      { key: 'exit', label: 'Last exit', num: true, value: (row) => row.last_exit },
      { key: 'took', label: 'Took', num: true, value: (row) => row.last_duration_ms, show: (row) => millis(num(row.last_duration_ms)) },
      { key: 'output', label: 'Output', long: true, value: (row) => row.last_output, show: (row) => <code>{row.last_output}</code> },
    ],
  },
  {
    name: 'replicas', label: 'Replicas through the proxy', of: 'replicas', sort: 'session', empty: 'No replica or change-data client replicates through the proxy.',
    note: 'Who reads the binlog through this proxy.',
    columns: ['session', 'server_id', 'user', 'client', 'hostgroup', 'server', 'asked_from', 'bytes'].map((name) => ({ key: name, label: name, value: (row: Rec) => row[name] })),
  },
];

export function Log() {
  const live = useView('log');
  const place = usePlace();
  const tab = TABS.find((one) => one.name === place.rest) ?? TABS[0];
  if (!tab) return null;
  const fetch_queries = () => ({ title: 'Move logged queries to memory', verb: 'Fetch', effect: () => <p>Queries in the log’s buffer move to <code>stats_mysql_query_events</code>, where this page shows them. The log’s files are not touched.</p>, sql: () => ['DUMP EVENTSLOG FROM BUFFER TO MEMORY'] });
  return (
    <View name="log" title="Log and events" live={live}>
      {(data) => (
        <>
          <nav class="tabs" aria-label="Kinds of events">
            {TABS.map((one) => <a key={one.name} href={href('log', one.name)} aria-current={one === tab ? 'page' : undefined}>{one.label} <span class="muted">{data.results[one.of]?.error ? '' : rowsOf(data, one.of).length}</span></a>)}
          </nav>
          <Part data={data} of={tab.of} note={tab.note}>
            {tab.name === 'queries' && <p><Act label="Fetch…" of={fetch_queries} /></p>}
            <Table key={tab.name} name={`log-${tab.name}`} caption={tab.label} rows={rowsOf(data, tab.of)} id={(row) => JSON.stringify([row.sequence, row.id, row.hostgroup, row.hostname, row.port, row.username, row.client_address, row.schemaname, row.errno, row.session])} sort={tab.sort} empty={tab.empty} columns={tab.columns} mark={(row) => (tab.name === 'events' && kindOf(row) === 'bad' ? 'alarm' : undefined)} />
          </Part>
          {tab.name === 'logins' && rowsOf(data, 'hosts').length > 0 && (
            <Part data={data} of="hosts" title="By client address" note="Addresses with failures since their last login that succeeded. mysql-client_host_error_counts refuses those with too many.">
              <Table name="log-hosts" caption="Failed logins by client address" rows={rowsOf(data, 'hosts')} id={(row) => row.client_address ?? ''} sort="-last" columns={HOSTS} />
            </Part>
          )}
        </>
      )}
    </View>
  );
}
