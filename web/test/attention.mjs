// What is worth a look, and in which order: the page's judgement without a proxy.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';

// The page's modules look for a browser when they are loaded.
globalThis.localStorage = globalThis.sessionStorage = { getItem: () => null };
globalThis.document = { documentElement: { dataset: {} }, addEventListener: () => {} };
globalThis.window = { addEventListener: () => {} };
globalThis.location = { hash: '' };
globalThis.matchMedia = () => ({ addEventListener: () => {} });
const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
async function bundle(entry) {
  const outfile = join(folder, `${entry}.mjs`);
  await build({ entryPoints: [new URL(`../src/${entry}`, import.meta.url).pathname], bundle: true, outfile, format: 'esm', jsx: 'automatic', jsxImportSource: 'preact' });
  return import(outfile);
}
const { attention } = await bundle('attention.tsx');
const { lagOf } = await bundle('servers.ts');
rmSync(folder, { recursive: true });

const AT = 1_700_000_000_000;
const view = (results) => ({ at: AT, got: AT, results: Object.fromEntries(Object.entries(results).map(([key, rows]) => [key, { sql: '', columns: [], rows, error: null }])) });
const row = (host, role, status = 'ONLINE', more = {}) => ({ hostgroup: role === 'writer' ? '0' : '1', hostname: host, port: '3306', cluster: '0', role, status, since_ms: '60000', reason: '', repl_lag: null, lag_note: '', is_stray: '0', ...more });
const text = (node) => (node === null || node === undefined || typeof node === 'boolean' ? '' : Array.isArray(node) ? node.map(text).join('') : typeof node === 'object' ? text(node.props?.children) : String(node));
const lines = (results, samples = []) => attention(view(results), samples).map((item) => text(item.text));
const healthy = [row('a', 'writer'), row('b', 'reader'), row('c', 'reader')];

assert.deepEqual(lines({ standing: healthy }), [], 'all is calm');
for (const [open, kind] of [[true, 'bad'], [false, 'info']]) {
  const [item] = attention(view({ standing: healthy }), [], { text: 'Anybody may log in.', open });
  assert.deepEqual([item.text, item.kind], ['Anybody may log in.', kind], 'a guessable password');
}

const down = { status: 'SHUNNED', reason: 'it misses pings' };
const lost = {
  standing: [row('b', 'reader'), row('a', 'reader', 'SHUNNED', down)],
  writers: [{ cluster: '0', to_state: 'none', time_ms: String(AT - 5_000) }],
  waits: [{ hostgroup: '0', waiters: '3', oldest_ms: '4000' }],
  errors: [{ hostgroup: '0', errno: '9001', count_star: '7', first_seen: '1', last_seen: String(Date.now() / 1_000), last_error: 'no writer' }],
  stuck: [{ SessionID: '7', user: 'app', time_ms: '3000' }],
};
const [first, ...rest] = lines(lost);
assert.match(first, /^Cluster 0 has no writer: 3 sessions wait\. a:3306 is SHUNNED \(it misses pings\)$/);
assert.match(rest[0], /^A statement runs for 2 s/);
assert.equal(rest.length, 1, 'the dead server, its waiting sessions and its errors are the same cause');
assert.equal(attention(view(lost), [])[0].since, AT - 5_000);

const same = { status: 'SHUNNED', reason: 'it misses pings' };
const merged = lines({ standing: [row('a', 'writer'), row('b', 'reader', 'SHUNNED', same), row('c', 'reader', 'SHUNNED', same), row('d', 'reader', 'OFFLINE_SOFT')] });
assert.deepEqual(merged, ['b:3306, c:3306 are SHUNNED: it misses pings', 'd:3306 is OFFLINE_SOFT'], 'one cause is one line');

const apart = (whom) => ({ status: 'SHUNNED', reason: `replicates from ${whom}, not from the writer b:3306: serves no reads until it replicates from b:3306 (mysql-shun_stray_replicas)` });
assert.deepEqual(lines({ standing: [row('b', 'writer'), row('a', 'reader', 'SHUNNED', apart('nobody')), row('c', 'reader', 'SHUNNED', apart('a:3306'))] }), ['a:3306, c:3306 are SHUNNED: not replicating from the writer b:3306 (mysql-shun_stray_replicas)']);

const stray = lines({ standing: [row('b', 'writer'), row('a', 'reader', 'ONLINE', { is_stray: '1' })], holds: [{ hostgroup: '1', reason: 'pause', since_ms: '10' }] });
assert.match(stray[0], /^a:3306 serves reads and replicates from no server while another server writes/);
assert.match(stray[1], /^Hostgroup 1 is held/);

const samples = [1, 2, 3].map((n) => ({ at: AT - n * 60_000, denied: n })).reverse();
assert.match(lines({ standing: healthy }, [...samples, { at: AT, denied: 0 }])[0], /^6 logins failed/);
assert.deepEqual(lines({ standing: healthy }, [{ at: AT - 400_000, denied: 5 }, { at: AT, denied: 0 }]), [], 'long ago');

assert.deepEqual(lagOf([row('b', 'reader', 'ONLINE', { repl_lag: '0' })], false), { text: '0 s', why: '', isBad: false });
assert.deepEqual(lagOf([row('b', 'reader', 'ONLINE', { lag_note: 'not measured: max_replication_lag=0' })], false), { text: '', why: 'not measured: max_replication_lag=0', isBad: false });
assert.equal(lagOf([row('a', 'writer', 'ONLINE', { lag_note: 'replicates from no server' })], true).why, 'writes');
assert.ok(lagOf([row('a', 'reader', 'ONLINE', { lag_note: 'replicates from no server' })], false).isBad);
console.log('ok  what is worth a look, and in which order');
