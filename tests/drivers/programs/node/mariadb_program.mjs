// mariadb (Connector/Node.js), with its batches.
import mariadb from 'mariadb';
import { address, run } from './common.mjs';
import { sharedTests } from './shared_tests.mjs';

const settings = ({ tls, compress, multi, password, infile, zone, bulk }) => ({
  ...address, bulk: bulk ?? true, ...(tls ? { ssl: { rejectUnauthorized: false } } : { allowPublicKeyRetrieval: true }), ...(compress && { compress: true }),
  ...(multi && { multipleStatements: true }), ...(password && { password }), ...(infile && { permitLocalInfile: true }), ...(zone && { timezone: zone }),
});
const driver = {
  connect: (options) => mariadb.createConnection(settings(options)),
  close: (c) => c.end(),
  pool: (options) => mariadb.createPool({ ...settings(options), connectionLimit: 20 }),
  query: (c, sql, args) => c.query(sql, args),
  execute: (c, sql, args) => c.execute(sql, args),
  changeUser: (c, user) => c.changeUser(user),
  load: (c, path, table) => c.query(`LOAD DATA LOCAL INFILE '${path}' INTO TABLE ${table} FIELDS TERMINATED BY ','`),
  stream: async (c, sql) => {
    let count = 0;
    for await (const _ of c.queryStream(sql)) count++;
    return count;
  },
};

async function batch(options) {
  const c = await driver.connect(options);
  try {
    await c.query('DROP TABLE IF EXISTS node_batch');
    await c.query('CREATE TABLE node_batch (i INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(40), d DATETIME, n INT, b BLOB)');
    const rows = Array.from({ length: 5000 }, (_, n) => [`é ${n}`, '2024-02-29 12:00:00', n % 3 ? n : null, Buffer.from([n % 256])]);
    const result = await c.batch('INSERT INTO node_batch (t, d, n, b) VALUES (?, ?, ?, ?)', rows);
    const update = await c.batch('UPDATE node_batch SET n = ? WHERE i = ?', [[1, 1], [2, 2], [3, 3]]);
    const seen = await c.query('SELECT COUNT(*) AS c, SUM(n) AS s, MIN(t) AS t, COUNT(DISTINCT b) AS b FROM node_batch');
    return [Number(result.affectedRows), Number(update.affectedRows), seen];
  } finally {
    await c.end();
  }
}

run({
  ...sharedTests(driver),
  batch_bulk: () => batch({ bulk: true }),
  batch_plain: () => batch({ bulk: false }),
  batch_error: async () => {
    const c = await driver.connect({ bulk: true });
    try {
      await c.query('DROP TABLE IF EXISTS node_unique');
      await c.query('CREATE TABLE node_unique (i INT PRIMARY KEY)');
      const error = await c.batch('INSERT INTO node_unique VALUES (?)', [[1], [2], [1], [3]]).then(() => null, (e) => e);
      return [error.errno, await c.query('SELECT COUNT(*) AS n FROM node_unique')];
    } finally {
      await c.end();
    }
  },
});
