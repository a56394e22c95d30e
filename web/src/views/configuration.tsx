// The configuration: tables, differences of its layers, check, apply, rollback.
import { useEffect, useState } from 'preact/hooks';
import { type Rec, type SqlReply, type ViewData, records, session, sql } from '../api';
import { clock, groups, num } from '../format';
import { refresh, rowsOf, useView } from '../live';
import { Act, type Action } from '../parts/act';
import { Table } from '../parts/table';
import { Part, Pill, View } from '../parts/view';
import { href, usePlace } from '../route';
import { blames } from '../schema';
import { Store, useStore } from '../store';
import { Editor, TABLES } from './editor';

/** What CONFIG CHECK last said of memory. */
export const verdict = new Store<SqlReply | null>(null);
export const check = async (): Promise<void> => { verdict.set(await sql('CONFIG CHECK').catch((error: unknown): SqlReply => ({ kind: 'error', code: 0, text: String(error) }))); };
/** Its rows as lines. */
export const remarksOf = (reply: SqlReply | null): string[] => (reply?.kind === 'rows' ? records(reply.columns, reply.rows).map((row) => `${row.table}, ${row.row}, column ${row.column}: ${row.text}`) : []);

const MODULES: [RegExp, string][] = [
  [/^mysql_users$/, 'MYSQL USERS'], [/^mysql_query_rules/, 'MYSQL QUERY RULES'], [/^mysql_firewall/, 'MYSQL FIREWALL'], [/^mysql_/, 'MYSQL SERVERS'],
  [/^scheduler$/, 'SCHEDULER'], [/^restapi_routes$/, 'RESTAPI'], [/^proxysql_servers$/, 'PROXYSQL SERVERS'], [/^coredump/, 'COREDUMP'],
];
/** The modules that rows of CONFIG DIFF belong to. */
const modulesOf = (rows: Rec[]): string[] => [...new Set(rows.map((row) => {
  if (row.table === 'global_variables') return /admin-/.test(row.key ?? '') ? 'ADMIN VARIABLES' : 'MYSQL VARIABLES';
  return MODULES.find(([pattern]) => pattern.test(row.table ?? ''))?.[1] ?? '';
}))].filter(Boolean);

const TABS = [['tables', 'Tables'], ['differences', 'Differences'], ['history', 'History']] as const;

export function Configuration() {
  const live = useView('config');
  const place = usePlace();
  const who = useStore(session);
  const isAdmin = who !== 'asking' && who?.role === 'admin';
  const [tab = 'tables', table = 'mysql_servers'] = (place.rest || 'tables/mysql_servers').split('/');
  const runtime = sided(rowsOf(live.data, 'runtime'), 'memory', 'runtime');
  const edited = runtime.map((row) => JSON.stringify(row)).join();
  useEffect(() => { if (isAdmin && live.data) void check(); }, [edited, isAdmin, live.data === null]);
  return (
    <View name="config" title="Configuration" live={live} intro="Edit tables in memory, check, then apply: nothing changes for clients before that. Saving to disk is for the next start.">
      {(data) => (isAdmin ? (
        <>
          <Layers data={data} />
          <nav class="tabs" aria-label="Configuration">
            {TABS.map(([name, label]) => <a key={name} href={href('config', name === 'tables' ? `tables/${table}` : name)} aria-current={tab === name ? 'page' : undefined}>{label}</a>)}
          </nav>
          {tab === 'differences' ? <Differences data={data} /> : tab === 'history' ? <History data={data} /> : (
            <>
              <label class="picker">Table <select value={table} onChange={(event) => { location.hash = href('config', `tables/${event.currentTarget.value}`); }}>{TABLES.map((name) => <option key={name}>{name}</option>)}</select></label>
              <Editor key={table} table={table} changes={runtime.filter((row) => row.table === table)} at={edited} />
            </>
          )}
        </>
      ) : <div class="empty"><p>The stats login may not read the configuration: it has passwords in it.</p><p class="muted">Log in with admin credentials. What is in force can be compared by its checksums in <a href={href('proxies')}>Proxies</a>, as far as your login may see them.</p></div>)}
    </View>
  );
}

function Layers({ data }: { data: ViewData }) {
  const runtime = sided(rowsOf(data, 'runtime'), 'memory', 'runtime');
  const disk = sided(rowsOf(data, 'disk'), 'memory', 'disk');
  const apply = (): Action => ({
    title: 'Apply the configuration', verb: 'Apply', done: () => void check(),
    effect: () => <><p>Memory is checked as a whole and put in force, all modules at once, or nothing is changed. Open sessions go on.</p><Verdict inDialog /><Changes rows={runtime} /></>,
    sql: () => ['CONFIG APPLY'],
  });
  const save = (): Action => ({ title: 'Save to disk', verb: 'Save', effect: () => <><p>The next start takes these modules as they are in memory now, also what is not in force yet.</p><Changes rows={disk} /></>, sql: () => modulesOf(disk).map((module) => `SAVE ${module} TO DISK`) });
  const discard = (): Action => ({ title: 'Discard what was edited', verb: 'Discard', danger: true, effect: () => <><p>Memory becomes what is in force again, for these modules. What was edited and not applied is lost.</p><Changes rows={runtime} /></>, sql: () => modulesOf(runtime).map((module) => `SAVE ${module} TO MEMORY`) });
  return (
    <section class="layers" aria-label="Layers">
      <div class="layerline">
        <Pill kind={runtime.length ? 'warn' : 'ok'} text={runtime.length ? `${runtime.length} ${runtime.length === 1 ? 'difference' : 'differences'} between memory and what is in force` : 'memory is in force'} />
        <Pill kind={disk.length ? 'warn' : 'ok'} text={disk.length ? `${disk.length} not saved to disk` : 'memory is saved to disk'} />
        <span class="gap" />
        <button type="button" class="quiet" onClick={() => void check()}>Check now</button>
        <Act label="Discard edits…" quiet of={discard} off={runtime.length ? null : 'Memory is as it is in force.'} />
        <Act label="Apply…" of={apply} off={runtime.length ? null : 'Nothing was edited: memory is in force.'} />
        <Act label="Save to disk…" of={save} off={disk.length ? null : 'Disk is as memory.'} />
      </div>
      <div role="status" class="verdict"><Verdict /></div>
    </section>
  );
}

/** What CONFIG CHECK said of memory. In the dialog it is asked again, and all rows are open. */
function Verdict({ inDialog = false }: { inDialog?: boolean }) {
  const reply = useStore(verdict);
  useEffect(() => { if (inDialog) void check(); }, []);
  const remarks = remarksOf(reply);
  if (reply?.kind === 'error') return <div class="banner bad"><b>{inDialog ? 'This will be refused:' : 'Memory cannot be loaded:'}</b> {reply.text} {!inDialog && blames(reply.text).slice(0, 1).map((blame) => <a key={blame.table} href={href('config', `tables/${blame.table}`)}>Show the row in {blame.table}</a>)}</div>;
  if (remarks.length > 0) return <details class="banner warn" open={inDialog}><summary><b>Memory can be loaded, with {remarks.length} {remarks.length === 1 ? 'remark' : 'remarks'}.</b></summary><ul>{remarks.map((text) => <li key={text}>{text}</li>)}</ul></details>;
  return reply?.kind === 'rows' ? <p class="muted">CONFIG CHECK: memory can be loaded, without a remark.</p> : null;
}

/** Rows of CONFIG DIFF, whose values stand in columns called by their sides: these two become `left` and `right`. */
const sided = (rows: Rec[], left: string, right: string): Rec[] => rows.map((row) => ({ ...row, left: row[left] ?? null, right: row[right] ?? null }));

const change = (row: Rec): string => (row.column === null ? (row.left !== null ? `is added: ${row.left}` : 'is removed') : `${row.column}: ${mask(row, row.right)} → ${mask(row, row.left)}`);
const mask = (row: Rec, value: string | null | undefined): string => (value === null || value === undefined ? 'NULL' : /password|credentials|secret/.test(`${row.column} ${row.key}`) && row.column !== null ? '(hidden)' : value === '' ? '(empty)' : value);

/** Differences as sentences; left is what comes, right is what goes. */
function Changes({ rows }: { rows: Rec[] }) {
  if (!rows.length) return <p>There is no difference.</p>;
  return <ul class="changes">{rows.slice(0, 30).map((row, at) => <li key={at}><b>{row.table}</b> {row.key} {change(row)}</li>)}{rows.length > 30 && <li>and {rows.length - 30} more</li>}</ul>;
}

const SIDES = ['runtime', 'disk', 'file', 'version'] as const;
type Side = typeof SIDES[number];

/** All layers beside memory; what equals memory is said so. */
function Differences({ data }: { data: ViewData }) {
  const [chosen, choose] = useState('');
  const [version, setVersion] = useState<Rec[]>([]);
  const [error, setError] = useState('');
  const states = rowsOf(data, 'history');
  const edited = JSON.stringify(rowsOf(data, 'runtime'));
  useEffect(() => {
    setError('');
    if (!chosen) { setVersion([]); return; }
    void sql(`CONFIG DIFF MEMORY HISTORY ${chosen}`).then((reply) => { if (reply.kind === 'rows') setVersion(sided(records(reply.columns, reply.rows), 'memory', `history ${chosen}`)); else { setVersion([]); setError(reply.kind === 'error' ? reply.text : ''); } }, (failure: unknown) => setError(String(failure)));
  }, [chosen, edited]);
  const bySide: Record<Side, Rec[]> = { runtime: sided(rowsOf(data, 'runtime'), 'memory', 'runtime'), disk: sided(rowsOf(data, 'disk'), 'memory', 'disk'), file: sided(rowsOf(data, 'file'), 'memory', 'file'), version };
  const lines = new Map<string, { row: Rec; sides: Partial<Record<Side, string>>; memory: string }>();
  for (const side of SIDES) {
    for (const row of bySide[side]) {
      const key = JSON.stringify([row.table, row.key, row.column]);
      const line = lines.get(key) ?? { row, sides: {}, memory: mask(row, row.left) };
      line.sides[side] = mask(row, row.right);
      lines.set(key, line);
    }
  }
  const presence = (row: Rec, value: string) => (row.column === null && value === 'NULL' ? 'no row' : value);
  const side = (name: Side, label: string) => ({ key: name, label, value: (line: { row: Rec; sides: Partial<Record<Side, string>> }) => { const value = line.sides[name]; return value === undefined ? 'as memory' : presence(line.row, value); }, show: (line: { row: Rec; sides: Partial<Record<Side, string>> }) => { const value = line.sides[name]; return value === undefined ? <span class="muted">as memory</span> : <span class="diff">{presence(line.row, value)}</span>; } });
  return (
    <>
      <label class="picker">Beside them, version <select value={chosen} onChange={(event) => choose(event.currentTarget.value)}><option value="">none</option>{states.map((row) => <option key={row.id} value={row.id ?? ''}>{row.id}: {clock(num(row.time) * 1_000)} {row.command}</option>)}</select></label>
      {error && <div class="banner bad">{error}</div>}
      {data.results.file?.error && <p class="muted">No file beside them: {data.results.file.error}</p>}
      <Part data={data} of={['runtime', 'disk']}>
        <Table name="differences" caption="Differences between memory, runtime, disk, file and history" rows={[...lines.values()]} id={(line) => JSON.stringify([line.row.table, line.row.key, line.row.column])} sort="table"
          empty={<p>There is no difference: memory, what is in force, disk{data.results.file?.error ? '' : ', file'}{chosen ? ` and version ${chosen}` : ''} are the same.</p>}
          columns={[
            { key: 'table', label: 'Table', value: (line) => line.row.table, show: (line) => <a href={href('config', `tables/${line.row.table}`)}>{line.row.table}</a> },
            { key: 'key', label: 'Row', value: (line) => line.row.key },
            { key: 'column', label: 'Column', value: (line) => line.row.column ?? 'the row' },
            { key: 'memory', label: 'Memory', value: (line) => presence(line.row, line.memory) },
            side('runtime', 'Runtime'), side('disk', 'Disk'), ...(data.results.file?.error ? [] : [side('file', 'File')]), ...(chosen ? [side('version', `Version ${chosen}`)] : []),
          ]} />
      </Part>
    </>
  );
}

function History({ data }: { data: ViewData }) {
  const rows = rowsOf(data, 'history');
  const newest = rows.reduce((most, row) => Math.max(most, num(row.id)), 0);
  const rollback = (row: Rec): Action => ({
    title: `Go back to version ${row.id}`, verb: 'Roll back', danger: true, done: () => { void check(); refresh(); },
    effect: () => <><p>Version {row.id}, in force since {clock(num(row.time) * 1_000)} ({row.command}{row.user ? ` by ${row.user}` : ''}), is put into memory and in force. What is in memory and was not applied is lost; disk stays as it is.</p><DiffTo version={row.id ?? ''} /></>,
    sql: () => [`CONFIG ROLLBACK ${row.id}`],
  });
  return (
    <Part data={data} of="history" note="Configurations that were in force, newest first. What changed nothing is not kept again.">
      <Table name="history" caption="Configurations that were in force" rows={rows} id={(row) => row.id ?? ''} sort="-id" empty="None is kept: admin-config_history_size is 0." columns={[
        { key: 'id', label: 'Version', num: true, value: (row) => row.id },
        { key: 'time', label: 'In force since', num: true, value: (row) => row.time, show: (row) => clock(num(row.time) * 1_000) },
        { key: 'command', label: 'By', long: true, value: (row) => `${row.command ?? ''} ${row.user ?? ''}`, show: (row) => <><code>{row.command}</code> {row.user}</> },
        { key: 'changes', label: 'Changes', long: true, value: (row) => row.changes },
        { key: 'checksum', label: 'Checksum', wide: true, value: (row) => row.checksum },
        { key: 'bytes', label: 'Bytes', num: true, wide: true, value: (row) => row.bytes },
        { key: 'act', label: '', value: () => null, show: (row) => (num(row.id) === newest ? <span class="tag">newest</span> : <Act quiet label="Roll back…" about={`to version ${row.id}`} of={() => rollback(row)} />) },
      ]} />
    </Part>
  );
}

function DiffTo({ version }: { version: string }) {
  const [reply, set] = useState<SqlReply | null>(null);
  useEffect(() => { sql(`CONFIG DIFF HISTORY ${version} RUNTIME`).then(set, () => null); }, [version]);
  if (!reply) return <p class="muted">Comparing with what is in force…</p>;
  if (reply.kind === 'error') return <p class="said bad">{reply.text}</p>;
  const rows = reply.kind === 'rows' ? sided(records(reply.columns, reply.rows), `history ${version}`, 'runtime') : [];
  return <><p>{[...groups(rows, (row) => row.table ?? '')].map(([table, list]) => `${list.length} in ${table}`).join(', ') || 'It is what is in force.'}</p><Changes rows={rows} /></>;
}
