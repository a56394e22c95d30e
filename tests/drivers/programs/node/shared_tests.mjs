// The tests of both Node drivers. `d` says how the driver does things: connect(options), query(c, sql, args) giving rows or a result,
// execute(c, sql, args) for prepared statements, close(c).
import { assert, blob, csvFile, numbers, procedure, refused, types } from './common.mjs';

const CROWD = 12;

export function sharedTests(d) {
  const using = async (options, body) => {
    const c = await d.connect(options);
    try {
      return await body(c);
    } finally {
      await d.close(c);
    }
  };
  const fill = async (c) => {
    await d.query(c, 'DROP TABLE IF EXISTS every_type');
    for (const statement of types) await d.query(c, statement);
  };
  const table = async (c, name, columns) => {
    await d.query(c, `DROP TABLE IF EXISTS ${name}`);
    await d.query(c, `CREATE TABLE ${name} (${columns})`);
  };
  const plain = (result) => ({ rows: Number(result.affectedRows), id: String(result.insertId), warnings: result.warningStatus, changed: result.changedRows });
  const crowd = async (statement, question) => {
    const all = await Promise.all(Array.from({ length: CROWD }, () => d.connect({})));
    try {
      for (const [n, c] of all.entries()) await d.query(c, statement(n));
      const seen = [];
      for (let round = 0; round < 2; round++) for (const c of all) seen.push(await d.query(c, question));
      return seen;
    } finally {
      await Promise.all(all.map((c) => d.close(c)));
    }
  };
  return {
    connect: () => using({}, (c) => d.query(c, "SELECT 1 AS a, 'b' AS b, NULL AS c, DATABASE() AS d")),
    connect_tls: () => using({ tls: true }, (c) => d.query(c, "SELECT 'over TLS' AS a")),
    connect_compressed: () => using({ compress: true }, (c) => d.query(c, "SELECT REPEAT('abc', 300000) AS a, 2 AS b")),
    wrong_password: () => refused(using({ password: 'wrong' }, () => 0)).then((e) => e.slice(0, 2)),
    types_text: () => using({}, async (c) => (await fill(c), d.query(c, 'SELECT * FROM every_type ORDER BY id'))),
    types_prepared: () => using({}, (c) => d.execute(c, 'SELECT * FROM every_type WHERE id > ? ORDER BY id', [0])),
    prepared_many: () => using({}, async (c) => {
      await table(c, 'node_many', 'i INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(40), d DOUBLE, w DATETIME(3), n INT');
      for (let n = 0; n < 60; n++) await d.execute(c, 'INSERT INTO node_many (t, d, w, n) VALUES (?, ?, ?, ?)', [`é${n}`, n / 4, '2024-02-29 01:02:03.456', null]);
      return d.execute(c, 'SELECT * FROM node_many WHERE i BETWEEN ? AND ? ORDER BY i', [20, 25]);
    }),
    unicode: () => using({}, async (c) => {
      const words = "é Ж 漢字 😀 \\ ' \" \0 \n % _";
      const rows = await d.query(c, 'SELECT ? AS w, HEX(?) AS h', [words, words]);
      assert(rows[0].w === words, rows[0].w);
      return rows;
    }),
    parameters: () => using({}, (c) => d.execute(c, 'SELECT ? AS a, ? AS b, ? AS c, ? AS d, HEX(?) AS e', [1, 'text', null, 1.5, Buffer.from([0, 255])])),
    big_blob: () => using({}, async (c) => {
      const bytes = blob();
      await table(c, 'node_blob', 'b LONGBLOB');
      await d.query(c, 'INSERT INTO node_blob VALUES (?)', [bytes]);
      const rows = await d.query(c, 'SELECT b FROM node_blob');
      assert(bytes.equals(rows[0].b), 'the same blob');
      await d.execute(c, 'INSERT INTO node_blob VALUES (?)', [bytes]);
      return d.query(c, 'SELECT COUNT(*) AS n, COUNT(DISTINCT SHA2(b, 256)) AS u FROM node_blob');
    }),
    many_rows: () => using({}, async (c) => (await d.query(c, numbers)).length),
    many_rows_prepared: () => using({}, async (c) => (await d.execute(c, numbers, [])).length),
    transactions: () => using({}, (a) => using({}, async (b) => {
      await table(a, 'node_trx', 'i INT PRIMARY KEY');
      const seen = [];
      for (const end of ['rollback', 'commit']) {
        await a.beginTransaction();
        await d.query(a, 'INSERT INTO node_trx VALUES (1)');
        seen.push(await d.query(b, 'SELECT COUNT(*) AS n FROM node_trx'));
        await a[end]();
        seen.push(await d.query(b, 'SELECT COUNT(*) AS n FROM node_trx'));
      }
      return seen;
    })),
    results: () => using({}, async (c) => {
      await table(c, 'node_ids', 'i INT PRIMARY KEY AUTO_INCREMENT, t INT');
      const seen = [];
      for (const statement of ['INSERT INTO node_ids (t) VALUES (1), (1), (1)', 'UPDATE node_ids SET t = 1', 'UPDATE node_ids SET t = 2 WHERE i > 1',
        'DROP TABLE IF EXISTS no_such_one', 'DELETE FROM node_ids', 'INSERT INTO node_ids (i, t) VALUES (18, 1)']) {
        seen.push(plain(await d.query(c, statement)));
      }
      return [seen, await d.query(c, 'SELECT LAST_INSERT_ID() AS l')];
    }),
    errors: () => using({}, async (c) => {
      const seen = [];
      for (const statement of ['SELECT * FROM nowhere', 'SELEC 1', 'USE nowhere', "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'own é', MYSQL_ERRNO = 5555"]) seen.push(await refused(d.query(c, statement)));
      seen.push(await refused(d.execute(c, 'SELECT nothing FROM every_type WHERE id = ?', [1])));
      return [seen, await d.query(c, 'SELECT 1 AS one')];
    }),
    multi_statements: () => using({ multi: true }, async (c) => d.query(c, "SELECT 1 AS a; DO 1; SELECT 'x;y' AS b, 2 AS c; SELECT 3 AS d WHERE FALSE")),
    multi_statement_error: () => using({ multi: true }, async (c) => [await refused(d.query(c, 'SELECT 1; SELECT * FROM nowhere; SELECT 2')), await d.query(c, 'SELECT 5 AS five')]),
    procedure: () => using({}, async (c) => {
      await d.query(c, 'DROP PROCEDURE IF EXISTS two_results');
      await d.query(c, procedure);
      await d.query(c, 'SET @b = 0, @c = 10');
      const seen = await d.query(c, 'CALL two_results(?, @b, @c)', [5]);
      const prepared = await d.execute(c, 'CALL two_results(?, @b, @c)', [6]);
      return [seen, prepared, await d.query(c, 'SELECT @b, @c')];
    }),
    load_data: () => using({ infile: true }, async (c) => {
      await table(c, 'node_loaded', 'i INT, t VARCHAR(20)');
      const result = await d.load(c, csvFile(), 'node_loaded');
      return [Number(result.affectedRows), await d.query(c, 'SELECT COUNT(*) AS n, SUM(i) AS s FROM node_loaded')];
    }),
    pipelined: () => using({}, (c) => Promise.all(Array.from({ length: 50 }, (_, n) => d.query(c, 'SELECT ? AS n', [n])))),
    pool: async () => {
      const pool = d.pool({});
      await d.query(pool, 'DROP TABLE IF EXISTS node_pool');
      await d.query(pool, 'CREATE TABLE node_pool (task INT, n INT)');
      const task = async (t) => {
        for (let n = 0; n < 10; n++) {
          await d.execute(pool, 'INSERT INTO node_pool VALUES (?, ?)', [t, n]);
          const rows = await d.execute(pool, 'SELECT COUNT(*) AS n FROM node_pool WHERE task = ?', [t]);
          assert(Number(rows[0].n) === n + 1, `task ${t} sees ${rows[0].n} of ${n + 1}`);
        }
      };
      await Promise.all(Array.from({ length: 30 }, (_, t) => task(t)));
      const seen = await d.query(pool, 'SELECT COUNT(*) AS n FROM node_pool');
      await pool.end();
      return seen;
    },
    change_user: () => using({ tls: true }, async (c) => {
      await d.query(c, "SET @mine = 1, time_zone = '+03:00'");
      await d.changeUser(c, { user: 'app', password: 'app-pass', database: 'test' });
      return d.query(c, 'SELECT @mine AS m, @@time_zone AS z, CURRENT_USER() AS u');
    }),
    reset: () => using({}, async (c) => {
      await d.query(c, "SET @mine = 1, time_zone = '+03:00'");
      await c.reset();
      return d.query(c, 'SELECT @mine AS m, @@time_zone AS z, DATABASE() AS d');
    }),
    streaming: () => using({}, (c) => d.stream(c, numbers)),
    ping: () => using({}, (c) => c.ping().then(() => 'ponged')),
    crowd_time_zone: () => crowd((n) => `SET time_zone = '+0${n % 10}:00'`, 'SELECT @@time_zone AS z'),
    crowd_charset: () => crowd((n) => `SET NAMES ${['utf8mb4', 'latin1', 'ascii'][n % 3]}`, 'SELECT @@character_set_client AS c'),
    crowd_schema: () => crowd((n) => `USE ${['test', 'mysql', 'information_schema'][n % 3]}`, 'SELECT DATABASE() AS d'),
    user_variables: () => using({}, (a) => using({}, async (b) => {
      await d.query(a, "SET @mine = 'a'");
      await d.query(b, "SET @mine = 'b'");
      return [await d.query(a, 'SELECT @mine AS m'), await d.execute(b, 'SELECT @mine AS m', []), await d.query(a, 'SELECT @mine AS m')];
    })),
    time_zone: () => using({ zone: '+05:00' }, async (c) => {
      await table(c, 'node_time', 't TIMESTAMP(3) NULL, d DATETIME(3)');
      const moment = new Date('2024-07-01T10:20:30.400Z');
      await d.execute(c, 'INSERT INTO node_time VALUES (?, ?)', [moment, moment]);
      return [await d.query(c, 'SELECT * FROM node_time'), await d.query(c, 'SELECT CAST(d AS CHAR) AS t FROM node_time')];
    }),
  };
}
