// The only module that speaks to the proxy: login, views, samples and SQL.
import spec from '../views.json';
import { Store } from './store';

export type Cell = string | null;
/** A row by its columns' names; a column that the answer lacks is undefined. */
export type Rec = Record<string, Cell>;
export type ViewName = keyof typeof spec;

export interface Answer { sql: string; columns: string[]; rows: Rec[]; error: string | null }
/** `at` is the proxy's clock, `got` this machine's. */
export interface ViewData { at: number; got: number; results: Record<string, Answer> }
export interface Session { user: string; role: 'admin' | 'stats'; token: string; version: string; name: string; exposure: Exposure | null }
/** A guessable password, and whether another machine can use it. */
export interface Exposure { text: string; open: boolean }
export interface Rows { kind: 'rows'; columns: string[]; rows: Cell[][]; cut: boolean }
export interface Done { kind: 'done'; affected: number; info: string; warnings: string[] }
export interface Refused { kind: 'error'; code: number; text: string }
export type SqlReply = Rows | Done | Refused;

/** What went wrong on the way, in words that can be shown. */
export class ApiError extends Error {
  constructor(readonly status: number, text: string) { super(text); }
}

export const session = new Store<Session | null | 'asking'>('asking');
/** When the proxy last answered anything, and why it does not since. */
export const link = new Store<{ at: number; error: string | null }>({ at: 0, error: null });
/** Statements of this page, newest first; kept for the tab, but for those that may name a secret. */
export const statements = new Store<string[]>(JSON.parse(sessionStorage.getItem('tidegate.sql') ?? '[]') as string[]);

const ANSWER_LIMIT_MS = 10_000;
const STATEMENTS_KEPT = 200;
const NO_ANSWER = 'The proxy does not answer.';

async function call(method: string, path: string, body?: unknown, limit_ms = ANSWER_LIMIT_MS): Promise<unknown> {
  const headers: Record<string, string> = {};
  const now = session.get();
  if (body !== undefined) headers['content-type'] = 'application/json';
  const token = now && now !== 'asking' ? now.token : localStorage.getItem(TOKEN);
  if (token) headers['x-tidegate-token'] = token;
  let reply: Response;
  try {
    const signal = AbortSignal.timeout(limit_ms);
    reply = await fetch(path, { method, headers, signal, body: body === undefined ? null : JSON.stringify(body), credentials: 'same-origin', cache: 'no-store' });
  } catch (error) {
    const text = error instanceof DOMException && error.name === 'TimeoutError' ? `No answer within ${limit_ms / 1000} s.` : NO_ANSWER;
    link.set({ ...link.get(), error: text });
    throw new ApiError(0, text);
  }
  const text = await reply.text().catch(() => '');
  let value: unknown = null;
  try { value = text ? JSON.parse(text) : null; } catch { value = null; }
  if (reply.status === 401 && path !== 'api/login') session.set(null);
  if (!reply.ok) {
    const said = (value as { error?: unknown } | null)?.error;
    const reason = typeof said === 'string' ? said : `The proxy answered with status ${reply.status}.`;
    if (reply.status >= 500) link.set({ ...link.get(), error: reason });
    throw new ApiError(reply.status, reason);
  }
  link.set({ at: Date.now(), error: null });
  return value;
}

/** Forms that were not sent, kept for the tab. */
export const DRAFTS = 'tidegate.drafts';

/** Says that there may be a cookie, which scripts cannot see: without it nobody is asked. */
const LOGGED_IN = 'tidegate.login';

/** The token, where there is no TLS: a cookie goes to all ports of this host then, and proves nothing. What is stored here is this port's. */
const TOKEN = 'tidegate.token';

export async function resume(): Promise<void> {
  try {
    if (!localStorage.getItem(LOGGED_IN)) throw new ApiError(401, 'nobody');
    session.set(await call('GET', 'api/session') as Session);
  } catch {
    session.set(null);
  }
}

export async function login(user: string, password: string): Promise<void> {
  session.set(await call('POST', 'api/login', { user, password }) as Session);
  localStorage.setItem(LOGGED_IN, '1');
  const now = session.get();
  if (now && now !== 'asking' && location.protocol === 'http:') localStorage.setItem(TOKEN, now.token);
}

export async function logout(): Promise<void> {
  await call('POST', 'api/logout', {}).catch(() => null);
  localStorage.removeItem(LOGGED_IN);
  localStorage.removeItem(TOKEN);
  sessionStorage.removeItem(DRAFTS);
  session.set(null);
}

/** Runs one statement of the admin port; a refusal is a value, only a lost connection throws. */
export async function sql(text: string, limit_ms = 120_000): Promise<SqlReply> {
  const value = await call('POST', 'api/sql', { sql: text }, limit_ms) as { error?: { code: number; text: string }; columns?: string[]; rows?: Cell[][]; cut?: boolean; affected?: number; info?: string; warnings?: string[] };
  if (value.error) return { kind: 'error', ...value.error };
  if (value.columns) return { kind: 'rows', columns: value.columns, rows: value.rows ?? [], cut: value.cut ?? false };
  return { kind: 'done', affected: value.affected ?? 0, info: value.info ?? '', warnings: value.warnings ?? [] };
}

/** Puts a statement into the console's history. */
export function remember(text: string): void {
  const kept = [text, ...statements.get().filter((other) => other !== text)].slice(0, STATEMENTS_KEPT);
  statements.set(kept);
  sessionStorage.setItem('tidegate.sql', JSON.stringify(kept.filter((one) => !/password|credentials|secret|_key/i.test(one))));
}

export const records = (columns: string[], rows: Cell[][]): Rec[] =>
  rows.map((row) => Object.fromEntries(columns.map((column, at) => [column, row[at] ?? null])));

interface RawResult { sql: string; columns?: string[]; rows?: Cell[][]; error?: string }

export async function view(name: ViewName): Promise<ViewData> {
  const raw = await call('GET', `api/view/${name}`) as { at: number; results: Record<string, RawResult> };
  const results = Object.entries(raw.results).map(([key, one]): [string, Answer] =>
    [key, { sql: one.sql, columns: one.columns ?? [], rows: records(one.columns ?? [], one.rows ?? []), error: one.error ?? null }]);
  return { at: raw.at, got: Date.now(), results: Object.fromEntries(results) };
}

export type Sample = Record<string, number | null> & { at: number };

export async function samples(since: number): Promise<Sample[]> {
  const raw = await call('GET', `api/samples?since=${since}`) as { columns: string[]; rows: (number | null)[][] };
  return raw.rows.map((row) => Object.fromEntries(raw.columns.map((column, at) => [column, row[at] ?? null])) as Sample);
}

/** The last hour by digest or by server. `length_ms` is the time of a window, `others_us` the time of digests that are not listed. */
export interface Recent { rows: Rec[]; length_ms: number; others_us: number }

export async function recent(query: string): Promise<Recent> {
  const raw = await call('GET', `api/recent?${query}`) as { columns: string[]; rows: (Cell | number)[][]; length_ms?: number; others_us?: number };
  const rows = raw.rows.map((row) => row.map((value) => (value === null ? null : String(value))));
  return { rows: records(raw.columns, rows), length_ms: raw.length_ms ?? 0, others_us: raw.others_us ?? 0 };
}

/** What a view asks, known before its first answer. */
export const queriesOf = (name: ViewName): Record<string, string> => spec[name].queries;
export const everyOf = (name: ViewName): number => spec[name].every_ms;
