// mysql2, its promise interface.
import { createReadStream } from 'node:fs';
import mysql from 'mysql2/promise';
import { address, run } from './common.mjs';
import { sharedTests } from './shared_tests.mjs';

const settings = ({ tls, compress, multi, password, zone }) => ({
  ...address, charset: 'utf8mb4', supportBigNumbers: true, bigNumberStrings: true,
  ...(tls && { ssl: { rejectUnauthorized: false } }), ...(compress && { compress: true }), ...(multi && { multipleStatements: true }),
  ...(password && { password }), ...(zone && { timezone: zone }),
});
const driver = {
  connect: (options) => mysql.createConnection(settings(options)),
  close: (c) => c.end(),
  pool: (options) => mysql.createPool({ ...settings(options), connectionLimit: 20 }),
  query: async (c, sql, args) => (await c.query(sql, args))[0],
  execute: async (c, sql, args) => (await c.execute(sql, args))[0],
  changeUser: (c, user) => c.changeUser(user),
  load: async (c, path, table) => (await c.query({ sql: `LOAD DATA LOCAL INFILE '${path}' INTO TABLE ${table} FIELDS TERMINATED BY ','`, infileStreamFactory: () => createReadStream(path) }))[0],
  stream: async (c, sql) => {
    let count = 0;
    for await (const _ of c.connection.query(sql).stream()) count++;
    return count;
  },
};
run(sharedTests(driver));
