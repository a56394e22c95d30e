// What a configuration table takes, read from its CREATE TABLE: checks as one types.
import type { Rec } from './api';
import type { Field, Verdict } from './parts/act';
import { NULL } from './parts/act';

export interface ColumnOf { name: string; isNumber: boolean; nullable: boolean; fallback: string | null; choices: string[]; min: number; max: number; isJson: boolean; isSecret: boolean }
export interface TableOf { columns: ColumnOf[]; key: string[] }
/** What is known of the rest of the configuration. */
export interface Around { hostgroups: Set<string>; users: Set<string>; rows: Rec[] }

const SECRET = /password/;

export function parse(create: string): TableOf {
  const columns: ColumnOf[] = [];
  let key: string[] = [];
  for (const line of create.split('\n').slice(1)) {
    const text = line.trim().replace(/,$/, '');
    const list = /^PRIMARY KEY \(([^)]*)\)/.exec(text)?.[1];
    if (list) key = list.split(',').map((name) => name.trim());
    const found = /^(\w+) ([A-Z]+)/.exec(text);
    if (!found?.[1] || /^(CHECK|PRIMARY|UNIQUE|FOREIGN)\b/.test(text)) continue;
    const name = found[1];
    if (/PRIMARY KEY/.test(text)) key = [name];
    const isNumber = /^INT/.test(found[2] ?? '');
    const check = /CHECK \((.*)\)( NOT NULL| DEFAULT|$)/.exec(text)?.[1] ?? '';
    const choices = /\bIN \(([^)]*)\)/.exec(check)?.[1]?.split(',').map((one) => one.trim().replace(/^'|'$/g, '')) ?? [];
    const bound = (pattern: RegExp, otherwise: number) => { const n = pattern.exec(check)?.[1]; return n === undefined ? otherwise : Number(n); };
    columns.push({
      name, isNumber, choices,
      nullable: !/NOT NULL/.test(text),
      fallback: /DEFAULT \(?('[^']*'|[-\w]+)/.exec(text)?.[1]?.replace(/^'|'$/g, '') ?? null,
      min: bound(/>= (\d+)/, -Infinity), max: bound(/<= (\d+)/, Infinity),
      isJson: /JSON_VALID/.test(check), isSecret: SECRET.test(name),
    });
  }
  return { columns, key };
}

/** What CHECK of the table, or the proxy at a LOAD, would say of a value. */
function judge(column: ColumnOf, value: string): Verdict | null {
  const error = (text: string): Verdict => ({ level: 'error', text });
  if (column.isNumber) {
    if (!/^-?\d+$/.test(value)) return error(column.nullable ? 'A whole number is needed, or NULL.' : 'A whole number is needed.');
    if (Number(value) < column.min || Number(value) > column.max) return error(`${value} is out of range: ${range(column)}.`);
  }
  if (column.choices.length && !column.choices.some((choice) => choice.toUpperCase() === value.toUpperCase())) return error(`One of ${column.choices.join(', ')} is needed.`);
  if (column.isJson && value) { try { JSON.parse(value); } catch (failure) { return error(`This is no JSON: ${failure instanceof Error ? failure.message : ''}`); } }
  return null;
}

const range = ({ min, max }: ColumnOf): string => (max === Infinity ? `${min} or more` : `${min === -Infinity ? '' : min}..${max}`);

function remark(column: string, value: string, around: Around): Verdict | null {
  const say = (text: string): Verdict => ({ level: 'remark', text });
  if (!value) return null;
  if (/^match_(digest|pattern)$/.test(column)) {
    try { new RegExp(value); } catch (failure) { return say(`This may not compile as a regular expression: ${failure instanceof Error ? failure.message.replace(/^.*: /, '') : ''}. CONFIG CHECK decides.`); }
    if (column === 'match_digest' && /(['"]|(?<![\w\\{,.[-])\d+(?![\w}\]-]))/.test(value)) return say('Digests have ? for numbers and strings: this may never match.');
  }
  if (/^(destination_hostgroup|mirror_hostgroup|default_hostgroup|gtid_from_hostgroup)$/.test(column) && !around.hostgroups.has(value)) return say(`Hostgroup ${value} has no servers in memory: statements for it wait, then fail with error 9001.`);
  if (column === 'active' && value === '0') return say('An inactive row does nothing.');
  if (column === 'username' && around.users.size && !around.users.has(value)) return say(`“${value}” is no user in memory.`);
  if (column === 'client_addr' && value.includes('/')) return say('Networks are written with %, as 10.0.0.%: a / never matches.');
  return null;
}

export function fieldsOf(table: string, schema: TableOf, row: Rec | null, around: Around): Field[] {
  return schema.columns.map((column) => {
    const start = row ? row[column.name] ?? null : column.fallback;
    const secret = column.isSecret && row !== null;
    const isUser = column.name === 'username' && table === 'mysql_users';
    return {
      name: column.name,
      label: column.name,
      value: secret ? '' : start ?? (column.nullable || (!row && schema.key.length === 1 && column.isNumber && schema.key[0] === column.name) ? NULL : ''),
      nullable: column.nullable || (!row && schema.key.length === 1 && column.isNumber && schema.key[0] === column.name),
      kind: column.isSecret ? 'secret' : column.choices.length > 2 ? 'choice' : column.isNumber ? 'number' : /pattern|digest|attributes|settings|init_connect|defaults/.test(column.name) ? 'long' : 'text',
      ...(column.choices.length > 2 ? { choices: column.choices } : {}),
      hint: secret ? 'Empty: it stays as it is.' : hint(column),
      check: (value, values) => {
        if (secret && !value) return null;
        const found = judge(column, value) ?? (isUser ? null : remark(column.name, value, around));
        if (found) return found;
        if (!schema.key.includes(column.name) || column.name !== schema.key.at(-1)) return null;
        const taken = around.rows.some((other) => other !== row && schema.key.every((name) => other[name] === values[name]));
        return taken ? { level: 'error', text: `There is a row with this ${schema.key.join(', ')} already.` } : null;
      },
    };
  });
}

function hint(column: ColumnOf): string {
  const parts = [];
  if (column.choices.length) parts.push(column.choices.join(' or '));
  else if (column.isNumber && (column.min !== -Infinity || column.max !== Infinity)) parts.push(range(column));
  if (column.isJson) parts.push('JSON, or empty');
  if (column.fallback !== null) parts.push(`default ${column.fallback === '' ? 'empty' : column.fallback}`);
  return parts.join('; ');
}

/** The row that a remark or error of CONFIG CHECK names. */
export interface Blame { table: string; column: string; key: Rec }

export function blames(text: string): Blame[] {
  const found: Blame[] = [];
  for (const one of text.matchAll(/(\w+)\.(\w+) of rule (\d+)/g)) found.push({ table: one[1] ?? '', column: one[2] ?? '', key: { rule_id: one[3] ?? '' } });
  for (const one of text.matchAll(/(\w+)((?:, \w+=(?:[^,:]|:(?! ))*)+)(?:, column (\w+))?/g)) {
    const key = Object.fromEntries((one[2] ?? '').split(', ').filter(Boolean).map((pair): [string, string] => { const at = pair.indexOf('='); return [pair.slice(0, at), pair.slice(at + 1).replace(/^'|'$/g, '')]; }));
    found.push({ table: one[1] ?? '', column: one[3] ?? '', key });
  }
  return found;
}
