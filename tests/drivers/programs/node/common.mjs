// What the Node programs share: addresses from the environment, one line of JSON a test, a clock on each test.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const env = (name) => process.env[`DRIVERS_${name}`];
export const address = { host: env('HOST'), port: Number(env('PORT')), user: env('USER'), password: env('PASSWORD'), database: env('DATABASE') };
export const types = readFileSync(join(env('SQL'), 'types.sql'), 'utf8').split(';\n').map((s) => s.trim()).filter(Boolean);
export const procedure = readFileSync(join(env('SQL'), 'procedure.sql'), 'utf8');
export const numbers = (() => {
  const ten = '(SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)';
  return `SELECT a.n + b.n * 10 + c.n * 100 + d.n * 1000 AS n, 'filling' FROM ${ten} a, ${ten} b, ${ten} c, ${ten} d ORDER BY n`;
})();
const LIMIT_MS = 40_000;

export function blob() {
  return Buffer.concat(Array(655_360).fill(createHash('sha256').update('seed').digest()));
}

export function csvFile() {
  const path = join(env('SCRATCH'), 'node.csv');
  writeFileSync(path, '1,one\n2,two\n'.repeat(4000));
  return path;
}

export function assert(condition, what) {
  if (!condition) throw new Error(`not so: ${what}`);
}

/** The code and text of the error that `promise` must end with. */
export async function refused(promise) {
  try {
    await promise;
  } catch (error) {
    return [error.errno, error.sqlState, (error.sqlMessage ?? error.message).split('\nsql:')[0].replace(/^\(conn[^)]*\)\s*/, '')];
  }
  throw new Error('no error');
}

function text(value) {
  const json = JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? `${v}n` : v)) ?? 'undefined';
  return json.length < 4000 ? json : `${json.slice(0, 200)}... ${createHash('sha256').update(json).digest('hex')}`;
}

export async function run(tests) {
  for (const [test, body] of Object.entries(tests)) {
    let clock;
    const late = new Promise((_, reject) => (clock = setTimeout(() => reject(new Error('no end in time')), LIMIT_MS)));
    try {
      const seen = await Promise.race([body(), late]);
      console.log('@@ ' + JSON.stringify({ test, status: 'pass', detail: text(seen) }));
    } catch (error) {
      console.log('@@ ' + JSON.stringify({ test, status: 'fail', detail: `${error.code ?? ''} ${error.message}`.slice(0, 600) }));
    }
    clearTimeout(clock);
  }
  process.exit(0);
}
