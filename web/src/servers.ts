// What stats_tidegate_servers says of a server, as every view shows it.
import type { Rec, ViewData } from './api';
import { clock, millis, num, server } from './format';
import { rowsOf } from './live';
import { statusKind } from './parts/view';

export type Kind = 'ok' | 'warn' | 'bad';

/** A server in one cluster; it may serve several of its hostgroups. */
export interface Standing {
  address: string;
  /** The cluster's writer hostgroup, or the hostgroup of a server in no cluster. */
  cluster: string;
  isCluster: boolean;
  rows: Rec[];
  roles: string[];
  status: string;
  reason: string;
  /** When the status began, Unix ms; null for a stray that still serves. */
  since: number | null;
  isStray: boolean;
  kind: Kind;
}

const SEVERITY = ['OFFLINE_HARD', 'SHUNNED', 'SHUNNED_REPLICATION_LAG', 'OFFLINE_SOFT'];
const severity = (row: Rec): number => { const at = SEVERITY.indexOf(row.status ?? ''); return at < 0 ? SEVERITY.length : at; };
export const STRAY = 'replicates from no server while another server writes: its data is old';

/** All servers, one entry for each address and cluster: writers first, then by address. */
export function standings(data: ViewData): Standing[] {
  const found = new Map<string, Rec[]>();
  for (const row of rowsOf(data, 'standing')) {
    const key = `${row.cluster ?? `h${row.hostgroup}`} ${server(row.hostname, row.port)}`;
    found.set(key, [...found.get(key) ?? [], row]);
  }
  const all = [...found.values()].map((rows) => standing(rows, data.at));
  const writes = (one: Standing) => (one.roles.includes('writer') ? 0 : 1);
  return all.sort((a, b) => num(a.cluster) - num(b.cluster) || writes(a) - writes(b) || a.address.localeCompare(b.address, 'en', { numeric: true }));
}

function standing(rows: Rec[], at: number): Standing {
  const worst = rows.reduce((one, other) => (severity(other) < severity(one) ? other : one));
  const isStray = rows.some((row) => row.is_stray === '1');
  const status = worst.status ?? '';
  return {
    address: server(worst.hostname, worst.port),
    cluster: worst.cluster ?? worst.hostgroup ?? '',
    isCluster: worst.cluster !== null,
    rows,
    roles: rows.map((row) => (row.role ?? '').replace('_', ' ')).filter(Boolean),
    status,
    reason: worst.reason || (isStray ? STRAY : ''),
    since: isStray && status === 'ONLINE' ? null : at - num(worst.since_ms),
    isStray,
    kind: isStray ? 'bad' : statusKind(status),
  };
}

/** The lag of a server, or why it is not known. */
export function lagOf(rows: Rec[], writes: boolean): { text: string; why: string; isBad: boolean } {
  const row = rows[0];
  if (row?.repl_lag) return { text: num(row.repl_lag) < 60 ? `${row.repl_lag} s` : millis(num(row.repl_lag) * 1_000), why: '', isBad: false };
  const note = row?.lag_note ?? '';
  // A writer has nobody to lag behind.
  if (writes && /^(replicates|member)/.test(note)) return { text: '', why: 'writes', isBad: false };
  return { text: '', why: note, isBad: /^(unknown|the check fails|replicates)/.test(note) };
}

/** A cluster that no server takes writes for. */
export interface Writerless { cluster: string; since: number | null; rows: Rec[]; hostgroups: Set<string | null | undefined> }

/** Clusters without a writer, each with the time of its last event that said so. */
export function writerless(data: ViewData): Writerless[] {
  const rows = rowsOf(data, 'standing').filter((row) => row.cluster !== null);
  const clusters = [...new Set(rows.map((row) => row.cluster ?? ''))];
  const found = clusters.filter((cluster) => !rows.some((row) => row.cluster === cluster && row.role === 'writer' && row.status === 'ONLINE'));
  return found.map((cluster) => {
    const its = rows.filter((row) => row.cluster === cluster);
    const event = rowsOf(data, 'writers').find((one) => one.cluster === cluster && one.to_state === 'none');
    return { cluster, since: event ? num(event.time_ms) : null, rows: its, hostgroups: new Set([cluster, ...its.map((row) => row.hostgroup)]) };
  });
}

export const sinceText = (since: number, at: number): string => `since ${clock(since)} (${millis(Math.max(0, at - since))})`;
