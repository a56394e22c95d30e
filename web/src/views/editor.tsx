// One configuration table in memory: its rows, and a form for a row.
import { useEffect, useState } from 'preact/hooks';
import { type Rec, type SqlReply, records, sql } from '../api';
import { literal, quote } from '../format';
import { Act, type Action, NULL, type Values } from '../parts/act';
import { type Column, Table, plain } from '../parts/table';
import { Pill } from '../parts/view';
import { type Around, type TableOf, blames, fieldsOf, parse } from '../schema';
import { useStore } from '../store';
import { check, remarksOf, verdict } from './configuration';

export const TABLES = ['mysql_servers', 'mysql_users', 'mysql_query_rules', 'mysql_query_rules_fast_routing', 'mysql_replication_hostgroups', 'mysql_galera_hostgroups', 'mysql_group_replication_hostgroups', 'mysql_aws_aurora_hostgroups', 'mysql_hostgroup_attributes', 'mysql_servers_ssl_params', 'mysql_firewall_whitelist_users', 'mysql_firewall_whitelist_rules', 'mysql_firewall_whitelist_sqli_fingerprints', 'proxysql_servers', 'scheduler', 'restapi_routes', 'global_variables'];
const SECRET_VARIABLES = "variable_name LIKE '%password%' OR variable_name LIKE '%credentials%' OR variable_name LIKE '%secret%'";
/** Columns of wide tables that are shown even where all rows have the default. */
const ALWAYS = new Set(['rule_id', 'active', 'match_digest', 'destination_hostgroup', 'apply', 'username', 'hostgroup_id', 'hostname', 'port', 'status', 'weight', 'max_connections', 'default_hostgroup']);

interface Loaded { schema: TableOf; rows: Rec[]; around: Around }

async function ask(text: string): Promise<Rec[]> {
  const reply = await sql(text);
  if (reply.kind === 'error') throw new Error(reply.text);
  return reply.kind === 'rows' ? records(reply.columns, reply.rows) : [];
}

async function load(table: string): Promise<Loaded> {
  const create = (await ask(`SHOW CREATE TABLE ${table}`))[0]?.['Create Table'] ?? '';
  const schema = table === 'global_variables' ? parse('\nvariable_name VARCHAR NOT NULL,\nvariable_value VARCHAR NOT NULL,\nPRIMARY KEY (variable_name)') : parse(create);
  const list = schema.columns.map(({ name, isSecret }) => {
    if (table === 'global_variables' && name === 'variable_value') return `CASE WHEN (${SECRET_VARIABLES}) AND variable_value <> '' THEN '(hidden)' ELSE variable_value END AS variable_value`;
    return isSecret ? `CASE WHEN IFNULL(${name}, '') = '' THEN ${name} ELSE '(hidden)' END AS ${name}` : name;
  });
  const rows = await ask(`SELECT ${list.join(', ')} FROM ${table}`);
  const hostgroups = (await ask('SELECT hostgroup_id AS id FROM mysql_servers UNION SELECT reader_hostgroup FROM mysql_replication_hostgroups UNION SELECT writer_hostgroup FROM mysql_replication_hostgroups')).map((row) => row.id ?? '');
  const users = table === 'mysql_query_rules' || table.includes('fast_routing') ? (await ask('SELECT username FROM mysql_users')).map((row) => row.username ?? '') : [];
  return { schema, rows, around: { hostgroups: new Set(hostgroups), users: new Set(users), rows } };
}

/** Attributes of users may hold a second password. */
const hide = (text: string | null | undefined): string | null => text?.replace(/("additional_password"\s*:\s*)"[^"]*"/, '$1"(hidden)"') ?? null;
const where = (schema: TableOf, row: Rec): string => schema.key.map((name) => (row[name] === null ? `${name} IS NULL` : `${name} = ${quote(row[name] ?? '')}`)).join(' AND ');
const nameOf = (schema: TableOf, row: Rec): string => schema.key.map((name) => `${name}=${row[name]}`).join(', ');
const value = (text: string | undefined): string => (text === undefined || text === NULL ? 'NULL' : literal(text));

export function Editor({ table, changes, at }: { table: string; changes: Rec[]; at: string }) {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [error, setError] = useState('');
  const said = useStore(verdict);
  const again = () => load(table).then((found) => { setLoaded(found); setError(''); }, (failure: unknown) => setError(failure instanceof Error ? failure.message : String(failure)));
  useEffect(() => { void again(); }, [table, at]);
  if (error) return <div class="banner bad" role="alert"><b>{table} could not be read.</b> {error} <button type="button" class="quiet" onClick={() => void again()}>Try again</button></div>;
  if (!loaded) return <div class="loading" role="status"><span class="hidden">Loading {table}</span><i /><i /></div>;
  const { schema, rows, around } = loaded;
  const text = said?.kind === 'error' ? said.text : remarksOf(said).join('\n');
  const blamed = blames(text).filter((blame) => blame.table === table);
  const faultOf = (row: Rec) => blamed.find((blame) => Object.entries(blame.key).every(([name, key]) => row[name] === key));
  const done = (_: SqlReply[]) => { void again(); void check(); };
  const edit = (row: Rec): Action => ({
    title: `${table}: ${nameOf(schema, row)}`, verb: 'Write to memory', done,
    fields: fieldsOf(table, schema, row, around),
    effect: () => <p>This row changes in memory. Clients notice nothing until you apply the configuration.</p>,
    sql: (values) => { const set = differing(schema, row, values); return set.length ? [`UPDATE ${table} SET ${set.join(', ')} WHERE ${where(schema, row)}`] : []; },
  });
  const add = (from: Rec | null): Action => ({
    title: `A new row of ${table}${from ? `, like ${nameOf(schema, from)}` : ''}`, verb: 'Write to memory', done,
    fields: fieldsOf(table, schema, null, around).map((field) => (from && !schema.key.includes(field.name) && field.kind !== 'secret' ? { ...field, value: from[field.name] ?? NULL } : field)),
    effect: () => <p>A row is added in memory. Clients notice nothing until you apply the configuration.</p>,
    sql: (values) => {
      const given = schema.columns.filter(({ name, fallback }) => !(values[name] === NULL && (fallback === null || schema.key.includes(name))) && values[name] !== fallback);
      return [`INSERT INTO ${table} (${given.map(({ name }) => name).join(', ')}) VALUES (${given.map(({ name }) => value(values[name])).join(', ')})`];
    },
  });
  const remove = (row: Rec): Action => ({ title: `Delete ${nameOf(schema, row)} of ${table}`, verb: 'Delete from memory', danger: true, done, effect: () => <p>The row goes from memory. Clients notice nothing until you apply the configuration.</p>, sql: () => [`DELETE FROM ${table} WHERE ${where(schema, row)}`] });
  const shown = schema.columns.filter((column) => schema.columns.length < 8 || ALWAYS.has(column.name) || schema.key.includes(column.name) || rows.some((row) => row[column.name] !== null && row[column.name] !== '' && row[column.name] !== column.fallback));
  const changed = (row: Rec) => changes.some((one) => one.key === nameOf(schema, row));
  const columns: Column<Rec>[] = [
    { key: 'act', label: '', value: () => null, show: (row) => <span class="rowacts"><Act quiet label="Edit…" about={nameOf(schema, row)} of={() => edit(row)} />{table !== 'global_variables' && <><Act quiet label="Copy…" about={nameOf(schema, row)} of={() => add(row)} /><Act quiet label="Delete…" about={nameOf(schema, row)} of={() => remove(row)} /></>}</span> },
    { key: 'state', label: 'State', value: (row) => (faultOf(row) ? 'fault' : changed(row) ? 'edited' : ''), show: (row) => (faultOf(row) ? <Pill kind={said?.kind === 'error' ? 'bad' : 'warn'} text={said?.kind === 'error' ? 'cannot be loaded' : 'remark'} /> : changed(row) ? <Pill kind="info" text="edited" /> : <span class="muted">in force</span>) },
    ...shown.map((column): Column<Rec> => ({
      key: column.name, label: column.name, num: column.isNumber, long: /pattern|digest|value/.test(column.name), value: (row) => hide(row[column.name]),
      show: (row) => <>{faultOf(row)?.column === column.name ? <mark title={text}>{row[column.name] ?? 'NULL'}</mark> : plain(hide(row[column.name]))}</>,
    })),
  ];
  const gone = changes.filter((one) => one.column === null && one.left === null);
  return (
    <section class="part">
      {gone.length > 0 && <p class="muted">Deleted in memory, still in force: {gone.map((one) => one.key).join('; ')}</p>}
      {rows.length === 0 && table !== 'global_variables' && <p><Act label="Add a row…" of={() => add(null)} /></p>}
      <Table name={`config-${table}`} caption={`${table} in memory`} rows={rows} id={(row) => nameOf(schema, row)} mark={(row) => (faultOf(row) ? 'alarm' : undefined)} empty={`${table} has no rows in memory.`} tools={table === 'global_variables' ? null : <Act quiet label="Add a row…" of={() => add(null)} />} columns={columns} />
    </section>
  );
}

function differing(schema: TableOf, row: Rec, values: Values): string[] {
  return schema.columns.filter(({ name, isSecret }) => {
    const now = values[name];
    if (isSecret || row[name] === '(hidden)') return now !== '' && now !== '(hidden)' && now !== undefined;
    return (now === NULL ? null : now) !== row[name];
  }).map(({ name }) => `${name} = ${value(values[name])}`);
}
