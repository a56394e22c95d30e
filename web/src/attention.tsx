// What needs an operator, the most harmful first: one line for one cause, with its time and the way to it.
import type { ComponentChildren } from 'preact';
import type { Exposure, Rec, Sample, ViewData } from './api';
import { clock, num, server } from './format';
import { rowsOf } from './live';
import { href } from './route';
import { STRAY, type Standing, type Writerless, standings, writerless } from './servers';

export interface Item { key: string; harm: number; kind: 'bad' | 'warn' | 'info'; text: ComponentChildren; since: number | null; target: string }

/** Harm, from what stops writes to what only costs a little. */
const HARM = { writerless: 100, exposed: 90, config: 85, stray: 80, status: 70, hold: 60, waits: 55, stuck: 50, idle: 45, logins: 40, errors: 30, drained: 20, pins: 10, guessable: 5 };
/** How long failed logins count, ms. */
const LOGINS_MS = 300_000;
const ERRORS_S = 60;
const some = (n: number, one: string, more: string): string => `${n} ${n === 1 ? one : more}`;

export function attention(data: ViewData, samples: Sample[], exposure: Exposure | null = null): Item[] {
  const lost = writerless(data);
  const servers = standings(data).filter((one) => !lost.some((cluster) => one.isCluster && cluster.cluster === one.cluster));
  const open = (key: string) => rowsOf(data, key).filter((row) => !lost.some((one) => one.hostgroups.has(row.hostgroup)));
  return [
    ...lost.map((one) => withoutWriter(one, data)),
    ...byCause(servers),
    ...holds(open('holds'), data.at),
    ...waits(open('waits'), data.at),
    ...slow(data),
    ...logins(samples),
    ...errors(open('errors')),
    ...rowsOf(data, 'proxies').map((row): Item => ({ key: `p${row.name}`, harm: HARM.config, kind: 'warn', text: <>Proxy {row.name} has revision {row.applied}; revision {row.wanted} is wanted. {row.error}</>, since: null, target: href('proxies') })),
    ...pins(data),
    ...(exposure ? [exposed(exposure)] : []),
  ].sort((a, b) => b.harm - a.harm || (a.since ?? 0) - (b.since ?? 0));
}

const exposed = ({ text, open }: Exposure): Item => ({ key: 'exposure', harm: open ? HARM.exposed : HARM.guessable, kind: open ? 'bad' : 'info', text, since: null, target: href('config') });

/** All that follows from the loss of a writer is in this one line. */
function withoutWriter(lost: Writerless, data: ViewData): Item {
  const groups = lost.hostgroups;
  const waiting = rowsOf(data, 'waits').filter((row) => groups.has(row.hostgroup)).reduce((sum, row) => sum + num(row.waiters), 0);
  const held = rowsOf(data, 'holds').some((row) => groups.has(row.hostgroup));
  const out = [...new Map(lost.rows.filter((row) => row.status !== 'ONLINE').map((row) => [server(row.hostname, row.port), row])).entries()];
  const causes = out.map(([address, row]) => `${address} is ${row.status}${row.reason ? ` (${row.reason})` : ''}`);
  const effect = waiting ? some(waiting, 'session waits', 'sessions wait') : held ? 'new work waits' : 'writes wait, then fail with error 9001';
  return { key: `c${lost.cluster}`, harm: HARM.writerless, kind: 'bad', text: <><b>Cluster {lost.cluster} has no writer</b>: {effect}. {causes.join('; ')}</>, since: lost.since, target: href('clusters') };
}

/** What happened to a server, in the same words for all servers that it happened to. */
function causeOf(one: Standing): string {
  if (one.status === 'ONLINE') return STRAY;
  // Each stray has its own source; the writer that they all miss is the cause.
  const missed = /not from the writer (\S+): serves/.exec(one.reason)?.[1];
  const reason = missed ? `not replicating from the writer ${missed} (mysql-shun_stray_replicas)` : one.reason;
  return `${one.status}${reason ? `: ${reason}` : ''}`;
}

/** Servers that do not serve as they should, by cause. */
function byCause(servers: Standing[]): Item[] {
  const causes = new Map<string, Standing[]>();
  for (const one of servers.filter((one) => one.kind !== 'ok')) {
    const cause = causeOf(one);
    causes.set(cause, [...causes.get(cause) ?? [], one]);
  }
  return [...causes].map(([cause, all]): Item => {
    const since = Math.min(...all.map((one) => one.since ?? Infinity));
    const isStray = all.some((one) => one.status === 'ONLINE');
    const isDrained = all.every((one) => one.kind === 'warn');
    const names = all.map((one) => one.address).join(', ');
    const verb = isStray ? 'serves reads and ' : all.length === 1 ? 'is ' : 'are ';
    return { key: cause, harm: isStray ? HARM.stray : isDrained ? HARM.drained : HARM.status, kind: isDrained ? 'warn' : 'bad', text: <><b>{names}</b> {verb}{cause}</>, since: isStray ? null : since, target: href('clusters') };
  });
}

const holds = (rows: Rec[], at: number): Item[] => rows.map((row) => ({ key: `h${row.hostgroup}`, harm: HARM.hold, kind: 'warn', text: <>Hostgroup {row.hostgroup} is held ({row.reason}): new work waits</>, since: at - num(row.since_ms), target: href('clusters') }));

const waits = (rows: Rec[], at: number): Item[] => rows.map((row) => ({ key: `w${row.hostgroup}`, harm: HARM.waits, kind: 'warn', text: <>{some(num(row.waiters), 'session waits', 'sessions wait')} for a connection to hostgroup {row.hostgroup}</>, since: at - num(row.oldest_ms), target: href('pins') }));

function slow(data: ViewData): Item[] {
  const items: Item[] = [];
  const stuck = rowsOf(data, 'stuck');
  if (stuck[0]) items.push({ key: 'stuck', harm: HARM.stuck, kind: 'warn', text: <>{stuck.length === 1 ? 'A statement runs' : `${stuck.length}${stuck.length === 20 ? ' or more' : ''} statements run`} for 2 s or longer (the longest: session {stuck[0].SessionID}, {stuck[0].user})</>, since: data.at - num(stuck[0].time_ms), target: href('sessions', stuck[0].SessionID ?? '') });
  const idle = rowsOf(data, 'idle_transactions').filter((row) => row.command === 'Sleep');
  if (idle[0]) items.push({ key: 'idle', harm: HARM.idle, kind: 'warn', text: <>{idle.length === 1 ? 'A session does' : `${idle.length} sessions do`} nothing in an open transaction (the longest: session {idle[0].session}, {idle[0].user})</>, since: data.at - num(idle[0].since_ms), target: href('sessions', idle[0].session ?? '') });
  return items;
}

function logins(samples: Sample[]): Item[] {
  const end = samples.at(-1)?.at ?? 0;
  const recent = samples.filter((one) => one.at > end - LOGINS_MS && (one.denied ?? 0) > 0);
  const failed = Math.round(recent.reduce((sum, one) => sum + (one.denied ?? 0), 0));
  const last = recent.at(-1);
  return failed && last ? [{ key: 'logins', harm: HARM.logins, kind: 'warn', text: <>{some(failed, 'login', 'logins')} failed with a wrong name or password in the last 5 min, the last at {clock(last.at)}</>, since: recent[0]?.at ?? null, target: href('log', 'logins') }] : [];
}

/** One line for each error number. */
function errors(rows: Rec[]): Item[] {
  const recent = rows.filter((row) => Date.now() / 1_000 - num(row.last_seen) < ERRORS_S);
  const numbers = [...new Set(recent.map((row) => row.errno))].slice(0, 3);
  return numbers.map((errno): Item => {
    const same = recent.filter((row) => row.errno === errno);
    const last = same.reduce((one, other) => (num(other.last_seen) > num(one.last_seen) ? other : one));
    const total = same.reduce((sum, row) => sum + num(row.count_star), 0);
    return { key: `e${errno}`, harm: HARM.errors, kind: 'info', text: <>Error {errno}, {total === 1 ? 'once' : `${total} times`}, the last at {clock(num(last.last_seen) * 1_000)}: {last.last_error}</>, since: Math.min(...same.map((row) => num(row.first_seen))) * 1_000, target: href('log', 'errors') };
  });
}

function pins(data: ViewData): Item[] {
  const pinned = rowsOf(data, 'pins').filter((row) => row.reason !== 'transaction');
  const all = pinned.reduce((sum, row) => sum + num(row.sessions), 0);
  return all ? [{ key: 'pins', harm: HARM.pins, kind: 'info', text: <>{all === 1 ? '1 pin keeps its connection' : `${all} pins keep connections`} for more than a transaction: {pinned.slice(0, 4).map((row) => row.reason).join(', ')}</>, since: null, target: href('pins') }] : [];
}
