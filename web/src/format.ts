// Numbers, times and texts as an operator reads them.
import type { Cell } from './api';

export const num = (value: Cell | number | undefined): number => {
  const number = Number(value ?? 0);
  return Number.isFinite(number) ? number : 0;
};

const whole = new Intl.NumberFormat('en');
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (value: number): string => {
  if (Math.abs(value) >= 100_000) return compact.format(value);
  return whole.format(Math.abs(value) < 10 && !Number.isInteger(value) ? Math.round(value * 10) / 10 : Math.round(value));
};
export const rate = (value: number | null): string => (value === null ? '–' : count(value));

export const micros = (us: number): string => {
  if (us < 1_000) return `${Math.round(us)} µs`;
  if (us < 1_000_000) return `${(us / 1_000).toFixed(us < 10_000 ? 1 : 0)} ms`;
  return millis(us / 1_000);
};

export const millis = (ms: number): string => {
  const s = ms / 1_000;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3_600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86_400) return `${Math.floor(s / 3_600)} h ${Math.floor(s % 3_600 / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor(s % 86_400 / 3_600)} h`;
};

export const bytes = (n: number): string => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (n >= 1_024 && at < units.length - 1) { n /= 1_024; at += 1; }
  return `${n.toFixed(at && n < 100 ? 1 : 0)} ${units[at]}`;
};

const two = (n: number): string => String(n).padStart(2, '0');

/** Local time; with the day when it is not today. */
export const clock = (ms: number): string => {
  const t = new Date(ms);
  const time = `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
  return t.toDateString() === new Date().toDateString() ? time : `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${time}`;
};
export const ago = (ms: number): string => `${millis(Math.max(0, Date.now() - ms))} ago`;

/** A text as SQL writes it. */
export const quote = (text: string): string => `'${text.replaceAll("'", "''")}'`;
export const literal = (value: Cell): string => (value === null ? 'NULL' : quote(value));
export const server = (host: Cell | undefined, port: Cell | undefined): string => (port && port !== '0' ? `${host ?? ''}:${port}` : host ?? '');

/** CSV for spreadsheets: a cell that would be taken for a formula begins with an apostrophe. */
export const csv = (columns: string[], rows: Cell[][]): string => {
  const cell = (value: Cell): string => {
    const text = value ?? '';
    const safe = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(',')).join('\r\n');
};

export function groups<T>(rows: T[], by: (row: T) => string): Map<string, T[]> {
  const found = new Map<string, T[]>();
  for (const row of rows) {
    const key = by(row);
    const group = found.get(key);
    if (group) group.push(row);
    else found.set(key, [row]);
  }
  return found;
}
