// Statements by digest: what they cost, where they go, and a rule made of one.
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Rec, type SqlReply, type ViewData, records, session, sql } from '../api';
import { ago, clock, count, groups, literal, micros, millis, num, quote, server } from '../format';
import { changed, rowsOf, useRates, useRecent, useView } from '../live';
import { Act, type Action, NULL, STATS_REASON } from '../parts/act';
import { Chart, type Line } from '../parts/chart';
import { type Column, Table } from '../parts/table';
import { Copy, Part, View } from '../parts/view';
import { go, href, usePlace } from '../route';
import { useStore } from '../store';

const HOUR_MS = 3_600_000;
/** Windows by the query that asks for them. */
const WINDOWS: [string, string][] = [['minutes=5', '5 min'], ['minutes=60', '1 h'], ['', 'since the start']];
const KEPT_WINDOW = 'tidegate.window';
const LINES = 6;

const idOf = (row: Rec): string => [row.hostgroup, row.schemaname, row.username, row.client_address, row.digest].join('/');
const meanOf = (row: Rec): number => num(row.sum_time) / Math.max(1, num(row.count_star));
const rowsPerCall = (row: Rec): number => num(row.sum_rows_sent) / Math.max(1, num(row.count_star));
const us = (key: string, label: string, of: (row: Rec) => number, title?: string): Column<Rec> => ({ key, label, num: true, value: of, show: (row) => micros(of(row)), ...(title ? { title } : {}) });
/** Who sends a statement, and to where. */
const SENDERS: Column<Rec>[] = [
  { key: 'hostgroup', label: 'HG', num: true, fold: true, value: (row) => row.hostgroup, title: 'Hostgroup; -1: answered by the proxy' },
  { key: 'schemaname', label: 'Schema', wide: true, fold: true, value: (row) => row.schemaname },
  { key: 'username', label: 'User', wide: true, fold: true, value: (row) => row.username },
  { key: 'client_address', label: 'Client', wide: true, fold: true, value: (row) => row.client_address },
];

export function Statements() {
  const live = useView('statements');
  const place = usePlace();
  const rates = useRates(live.data?.at);
  const [span, setSpan] = useState(sessionStorage.getItem(KEPT_WINDOW) ?? '');
  const recent = useRecent(span);
  const data = live.data;
  const all = rowsOf(data, 'digests');
  const rows = span ? recent?.rows ?? [] : all;
  const total = rows.reduce((sum, row) => sum + num(row.sum_time), recent?.others_us ?? 0) || 1;
  const rateOf = (row: Rec) => (span ? num(row.count_star) * 1_000 / Math.max(1, recent?.length_ms ?? 0) : rates(idOf(row), row.count_star));
  const percentiles = ['p50_us', 'p95_us', 'p99_us'].filter((name) => !span && data?.results.digests?.columns.includes(name));
  const columns: Column<Rec>[] = [
    { key: 'digest_text', label: 'Statement', long: true, value: (row) => row.digest_text, show: (row) => <code>{row.digest_text}</code> },
    ...SENDERS,
    { key: 'rate', label: 'a second', num: true, value: (row) => rateOf(row) ?? -1, show: (row) => { const each = rateOf(row); return each === null ? '–' : count(each); } },
    { key: 'count_star', label: 'Count', num: true, value: (row) => row.count_star, show: (row) => count(num(row.count_star)) },
    { key: 'share', label: 'Share of time', num: true, value: (row) => num(row.sum_time) / total, show: (row) => <>{(num(row.sum_time) * 100 / total).toFixed(1)} %</> },
    us('sum_time', 'Total', (row) => num(row.sum_time)),
    us('mean', 'Mean', meanOf),
    ...percentiles.map((name): Column<Rec> => ({ key: name, label: name.replace('_us', ''), num: true, value: (row) => (row[name] === null ? -1 : num(row[name])), show: (row) => (row[name] === null ? '–' : micros(num(row[name]))), title: 'To within a quarter, once a statement has run 16 times' })),
    ...(span ? [] : [us('max_time', 'Max', (row) => num(row.max_time))]),
    { key: 'rows_sent', label: 'Rows per call', num: true, value: rowsPerCall, show: (row) => count(rowsPerCall(row)) },
  ];
  const isChosen = (row: Rec) => row.digest === place.rest;
  const chosen = all.some(isChosen) ? all.filter(isChosen) : rows.filter(isChosen);
  const choose = (query: string) => { sessionStorage.setItem(KEPT_WINDOW, query); setSpan(query); };
  const tools = (
    <span class="choice" role="group" aria-label="Time">
      {WINDOWS.map(([query, label]) => <button key={label} type="button" class="quiet" aria-pressed={span === query} onClick={() => choose(query)}>{label}</button>)}
    </span>
  );
  const note = !span ? undefined : !recent ? 'Asking the proxy…' : recent.length_ms ? `The last ${millis(recent.length_ms)}, in slices of 20 s. A slice has the 100 digests with the most time.` : 'The proxy has no slice yet: the first comes 20 s after its start.';
  return (
    <View name="statements" title="Statements" live={live} intro="Statements with their values taken out. Choose one to see its history, who sends it, where it goes and why." tools={tools}>
      {(shown) => (
        <>
          {place.rest && chosen[0] && <Detail key={place.rest} rows={chosen} data={shown} />}
          {place.rest && !chosen[0] && <div class="empty">Digest {place.rest} is not among the 1,000 with the most time. <a href={href('statements')}>Show all</a></div>}
          <Part data={shown} of="digests" note={note}>
            <Table name="digests" caption="Statements by digest" columns={columns} rows={rows} id={idOf} sort="-sum_time" empty={span ? 'No statement ran in this time.' : 'No statement has come since the start, or since the digests were reset.'} open={(row) => go(href('statements', row.digest ?? ''))} chosen={chosen[0] ? idOf(chosen[0]) : null} />
          </Part>
          <Part data={shown} of="latency" title="How long statements take, by server and kind">
            <ServerTimes />
            <Table name="latency" caption="Percentiles by server and kind" rows={rowsOf(shown, 'latency')} id={(row) => `${row.hostgroup}/${row.srv_host}/${row.srv_port}/${row.kind}`} sort="-count" empty="No statement has been answered by a server yet." columns={latencyColumns} />
          </Part>
          <Part data={shown} of="digests" title="Where would a statement go?" note="EXPLAIN ROUTE runs nothing: it says what the proxy would do, and why.">
            <Route statement="" user={all[0]?.username ?? ''} schema={all[0]?.schemaname ?? ''} />
          </Part>
        </>
      )}
    </View>
  );
}

const PERCENTILES = ['p50', 'p95', 'p99'] as const;

/** A percentile of the busiest servers over the last hour. */
function ServerTimes() {
  const recent = useRecent('servers');
  const [shown, setShown] = useState<typeof PERCENTILES[number]>('p95');
  const rows = recent?.rows ?? [];
  const at = [...new Set(rows.map((row) => num(row.at)))];
  const sum = (list: Rec[]) => list.reduce((all, row) => all + num(row.count), 0);
  const busiest = [...groups(rows, (row) => `${row.hostgroup}/${row.server}`)].sort((a, b) => sum(b[1]) - sum(a[1])).slice(0, LINES);
  const lines = busiest.map(([label, list], index): Line => {
    const values = new Map(list.map((row) => [num(row.at), row[`${shown}_us`] ?? null]));
    return { label, colour: `--c${index + 1}`, values: at.map((ms) => { const value = values.get(ms) ?? null; return value === null ? null : num(value); }) };
  });
  if (at.length < 2) return <p class="muted">Their course of the last hour is drawn here once the page has been enabled for a minute.</p>;
  return (
    <>
      <div class="chartbar" role="group" aria-label="Percentile">
        {PERCENTILES.map((name) => <button key={name} type="button" class="quiet" aria-pressed={shown === name} onClick={() => setShown(name)}>{name}</button>)}
      </div>
      <div class="charts"><Chart title={`${shown} by hostgroup and server`} at={at} span_ms={Math.min(HOUR_MS, (at.at(-1) ?? 0) - (at[0] ?? 0))} unit={micros} lines={lines} height={170} /></div>
    </>
  );
}

const latencyColumns: Column<Rec>[] = [
  { key: 'server', label: 'Server', value: (row) => server(row.srv_host, row.srv_port) },
  { key: 'hostgroup', label: 'HG', num: true, value: (row) => row.hostgroup },
  { key: 'kind', label: 'Kind', value: (row) => row.kind },
  { key: 'count', label: 'Count', num: true, value: (row) => row.count, show: (row) => count(num(row.count)) },
  ...['p50_us', 'p95_us', 'p99_us', 'max_us'].map((name): Column<Rec> => ({ key: name, label: name.replace('_us', ''), num: true, value: (row) => row[name], show: (row) => micros(num(row[name])) })),
];

function Detail({ rows, data }: { rows: Rec[]; data: ViewData }) {
  const first = rows[0] as Rec;
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => { title.current?.focus(); }, []);
  const slices = useRecent(`digest=${first.digest}`)?.rows ?? [];
  const at = slices.map((slice) => num(slice.at));
  const known = (of: (slice: Rec) => number | null) => slices.map((slice) => (slice.count_star === null ? null : of(slice)));
  const isTracked = rows.some((row) => row.client_address);
  return (
    <section class="detail" aria-labelledby="digest">
      <header>
        <h2 id="digest" ref={title} tabIndex={-1}>Digest {first.digest}</h2>
        <span class="gap" />
        <Copy text={first.digest_text ?? ''} />
        <Act label="Make a rule of this…" of={() => makeRule(first)} />
        <a class="button quiet" href={href('statements')}>Close</a>
      </header>
      <pre>{first.digest_text}</pre>
      {at.length > 1 ? (
        <div class="charts two">
          <Chart title="A second, the last hour" at={at} unit={count} lines={[{ label: 'statements', colour: '--c1', values: known((slice) => num(slice.count_star) * 1_000 / Math.max(1, num(slice.length_ms))) }]} height={130} />
          <Chart title="Mean time, the last hour" at={at} unit={micros} lines={[{ label: 'mean', colour: '--c3', values: known((slice) => (num(slice.count_star) ? meanOf(slice) : null)) }]} height={130} />
        </div>
      ) : <p class="muted">The proxy keeps an hour of its history, in slices of 20 s. The first two slices are not there yet.</p>}
      <h3>Senders and route</h3>
      <Table name="digest" caption="This statement by hostgroup, user and client" filter={false} rows={rows} id={idOf} sort="-sum_time" columns={[
        ...SENDERS,
        { key: 'servers', label: 'Servers there', value: (row) => rowsOf(data, 'latency').filter((one) => one.hostgroup === row.hostgroup).map((one) => server(one.srv_host, one.srv_port)).filter((one, at, list) => list.indexOf(one) === at).join(', ') || 'the proxy itself' },
        { key: 'count', label: 'Count', num: true, value: (row) => row.count_star, show: (row) => count(num(row.count_star)) },
        us('sum_time', 'Total', (row) => num(row.sum_time)),
        us('mean', 'Mean', meanOf),
        ...(first.max_time === undefined ? [] : [
          us('min_time', 'Min', (row: Rec) => num(row.min_time)),
          us('max_time', 'Max', (row: Rec) => num(row.max_time)),
          { key: 'first', label: 'First seen', num: true, value: (row: Rec) => row.first_seen, show: (row: Rec) => clock(num(row.first_seen) * 1_000) },
          { key: 'last', label: 'Last seen', num: true, value: (row: Rec) => row.last_seen, show: (row: Rec) => ago(num(row.last_seen) * 1_000) },
        ]),
      ]} />
      {!isTracked && <p class="muted">Client addresses are counted while <code>mysql-query_digests_track_hostname</code> is true. Each address is then a row of its own.</p>}
      <Saved digest={first.digest ?? ''} />
      <h3>Its route, and why</h3>
      <Route statement={first.digest_text ?? ''} user={first.username ?? ''} schema={first.schemaname ?? ''} fixed />
    </section>
  );
}

/** Older numbers, where digests are saved to disk. */
function Saved({ digest }: { digest: string }) {
  const [reply, set] = useState<SqlReply | null>(null);
  useEffect(() => { sql(`SELECT dump_time, SUM(count_star) AS count_star, SUM(sum_time) AS sum_time FROM stats_history.history_mysql_query_digest WHERE digest = ${quote(digest)} GROUP BY dump_time ORDER BY dump_time LIMIT 500`).then(set, () => null); }, [digest]);
  if (reply?.kind !== 'rows' || !reply.rows.length) return <p class="muted">Older history: none is saved (<code>admin-stats_mysql_query_digest_to_disk</code> is 0, or nothing was saved yet).</p>;
  const rows = records(reply.columns, reply.rows);
  const at = rows.map((row) => num(row.dump_time) * 1_000);
  return <Chart title="Mean time, as saved to disk" at={at} unit={micros} height={130} lines={[{ label: 'mean', colour: '--c2', values: rows.map((row) => num(row.sum_time) / Math.max(1, num(row.count_star))) }]} />;
}

function makeRule(row: Rec): Action {
  return {
    title: 'Make a rule of this statement',
    verb: 'Add the rule',
    fields: [
      { name: 'rule_id', label: 'rule_id', value: '', kind: 'number', hint: 'Rules are tried in this order. Empty: behind the last one.', check: (text) => (/^\d*$/.test(text) ? null : { level: 'error', text: 'A number, or nothing.' }) },
      { name: 'destination_hostgroup', label: 'Send it to hostgroup', value: row.hostgroup === '-1' ? '0' : row.hostgroup ?? '0', kind: 'number', nullable: true, check: (text) => (/^\d+$/.test(text) ? null : { level: 'error', text: 'A hostgroup is a number from 0.' }) },
      { name: 'cache_ttl', label: 'Cache its result, ms', value: NULL, kind: 'number', nullable: true, check: (text) => (/^[1-9]\d*$/.test(text) ? null : { level: 'error', text: 'At least 1 ms, or NULL.' }) },
      { name: 'timeout', label: 'Longest run time, ms', value: NULL, kind: 'number', nullable: true, check: (text) => (/^\d+$/.test(text) ? null : { level: 'error', text: 'A number of milliseconds, or NULL.' }) },
      { name: 'comment', label: 'Comment', value: 'made of a digest' },
      { name: 'load', label: 'Put it in force at once', value: '1', kind: 'tick' },
    ],
    effect: (values) => (
      <ul>
        <li>A rule in memory matches only digest {row.digest}, from all users.</li>
        <li>{values.load === '1' ? 'All query rules in memory are then put in force, also others that were edited before.' : 'Nothing changes for clients until you apply the configuration.'}</li>
        <li>It is not saved to disk: that is done in Configuration.</li>
      </ul>
    ),
    sql: (values) => {
      const fields: [string, string][] = [['active', '1'], ['digest', quote(row.digest ?? '')]];
      if (values.rule_id) fields.unshift(['rule_id', values.rule_id]);
      for (const name of ['destination_hostgroup', 'cache_ttl', 'timeout']) if (values[name] !== NULL) fields.push([name, values[name] ?? 'NULL']);
      fields.push(['apply', '1'], ['comment', literal(values.comment ?? '')]);
      const insert = `INSERT INTO mysql_query_rules (${fields.map(([name]) => name).join(', ')}) VALUES (${fields.map(([, value]) => value).join(', ')})`;
      return values.load === '1' ? [insert, 'LOAD MYSQL QUERY RULES TO RUNTIME'] : [insert];
    },
  };
}

/** EXPLAIN ROUTE drawn as a flow. */
export function Route(props: { statement: string; user: string; schema: string; fixed?: boolean }) {
  const [text, setText] = useState(props.statement);
  const [user, setUser] = useState(props.user);
  const [schema, setSchema] = useState(props.schema);
  const [reply, setReply] = useState<SqlReply | null>(null);
  const who = session.get();
  const allowed = who !== 'asking' && who?.role === 'admin';
  const line = `EXPLAIN ROUTE ${quote(text)}${user ? ` USER ${quote(user)}` : ''}${schema ? ` SCHEMA ${quote(schema)}` : ''}`;
  const run = () => { sql(line).then(setReply, (error: unknown) => setReply({ kind: 'error', code: 0, text: String(error) })); };
  const changes = useStore(changed);
  useEffect(() => { if (props.fixed && allowed) run(); }, [changes]);
  const id = props.fixed ? 'route-fixed' : 'route';
  return (
    <div class="routebox">
      {!props.fixed && (
        <form class="routeform" onSubmit={(event) => { event.preventDefault(); if (text.trim() && allowed) run(); }}>
          <label for={`${id}-sql`}>Statement</label>
          <textarea id={`${id}-sql`} rows={2} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} placeholder="SELECT * FROM orders WHERE id = 7" />
          <label for={`${id}-user`}>User</label><input id={`${id}-user`} value={user} onInput={(event) => setUser(event.currentTarget.value)} />
          <label for={`${id}-schema`}>Schema</label><input id={`${id}-schema`} value={schema} onInput={(event) => setSchema(event.currentTarget.value)} />
          <button type="submit" aria-disabled={allowed ? undefined : true} title={allowed ? undefined : STATS_REASON}>Explain</button>
        </form>
      )}
      {!allowed && <p class="muted">EXPLAIN ROUTE needs an admin login.</p>}
      {reply?.kind === 'error' && <div class="banner bad"><b>Refused:</b> {reply.text}</div>}
      {reply?.kind === 'rows' && <Flow rows={records(reply.columns, reply.rows)} />}
      {reply && <p class="muted sqlline"><code>{line};</code> <Copy text={`${line};`} /></p>}
    </div>
  );
}

export function Flow({ rows }: { rows: Rec[] }) {
  const servers = rows.filter((row) => row.step?.startsWith('server '));
  const steps = rows.filter((row) => !row.step?.startsWith('server '));
  return (
    <ol class="flow" aria-label="The route, step by step">
      {steps.map((row, at) => <li key={at} class={`${/^rule/.test(row.step ?? '') ? 'rule' : ''} ${row.step === 'hostgroup' ? 'goal' : ''}`}><span class="step">{row.step}</span><b>{row.outcome}</b><span class="why">{row.detail}</span></li>)}
      {servers.length > 0 && <li class="fan"><span class="step">one of</span><ul>{servers.map((row) => <li key={row.step}><b>{row.step?.replace('server ', '')}</b><span>{row.outcome}</span><span class="why">{row.detail}</span></li>)}</ul></li>}
    </ol>
  );
}
