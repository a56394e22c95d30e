# Ruby: mysql2 (MariaDB Connector/C underneath).
require 'digest'
require 'json'
require 'mysql2'
require 'timeout'

def setting(name) = ENV.fetch("DRIVERS_#{name}")

def connection(**options)
  Mysql2::Client.new(host: setting('HOST'), port: setting('PORT').to_i, username: setting('USER'), password: setting('PASSWORD'),
                     database: setting('DATABASE'), encoding: 'utf8mb4', local_infile: true, **options)
end

def rows(client, sql) = client.query(sql).to_a

def failure
  yield
  raise 'no error'
rescue Mysql2::Error => e
  [e.error_number, e.sql_state, e.message]
end

def fill(client)
  client.query('DROP TABLE IF EXISTS every_type')
  File.read("#{setting('SQL')}/types.sql").split(";\n").map(&:strip).reject(&:empty?).each { |s| client.query(s) }
end

def results(client)
  seen = [client.store_result&.to_a]
  seen << client.store_result&.to_a while client.next_result
  seen
end

TESTS = {
  connect: -> { rows(connection, "SELECT 1 a, 'b' b, NULL c, DATABASE() d") },
  tls: -> { rows(connection(ssl_mode: :required), "SELECT 'over TLS' a") },
  compressed: -> { rows(connection(flags: Mysql2::Client::COMPRESS), "SELECT REPEAT('abc', 300000) a").inspect },
  wrong_password: -> { failure { connection(password: 'wrong') }.first },
  types_text: -> { c = connection; fill(c); rows(c, 'SELECT * FROM every_type ORDER BY id').inspect },
  types_prepared: -> { connection.prepare('SELECT * FROM every_type WHERE id > ? AND id < 3 ORDER BY id').execute(0).to_a.inspect },
  prepared_many: lambda {
    c = connection
    c.query('DROP TABLE IF EXISTS ruby_many')
    c.query('CREATE TABLE ruby_many (i INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(30), d DOUBLE, n INT, w DATETIME)')
    s = c.prepare('INSERT INTO ruby_many (t, d, n, w) VALUES (?, ?, ?, ?)')
    ids = (1..40).map { |n| s.execute("é#{n}", n / 4.0, nil, Time.utc(2024, 2, 29, 1, 2, 3)); s.last_id }
    [ids, c.prepare('SELECT i, t, d, n FROM ruby_many WHERE i BETWEEN ? AND ?').execute(10, 14).to_a]
  },
  unicode: -> { connection.prepare('SELECT ? a, HEX(?) b').execute("é Ж 漢字 😀 ' \\", '😀').to_a },
  transactions: lambda {
    a, b = connection, connection
    a.query('DROP TABLE IF EXISTS ruby_trx')
    a.query('CREATE TABLE ruby_trx (i INT)')
    %w[ROLLBACK COMMIT].flat_map do |ending|
      a.query('BEGIN')
      a.query('INSERT INTO ruby_trx VALUES (1)')
      before = rows(b, 'SELECT COUNT(*) n FROM ruby_trx')
      a.query(ending)
      [before, rows(b, 'SELECT COUNT(*) n FROM ruby_trx')]
    end
  },
  results: lambda {
    c = connection
    c.query('DROP TABLE IF EXISTS ruby_ids')
    c.query('CREATE TABLE ruby_ids (i INT PRIMARY KEY AUTO_INCREMENT, t INT)')
    ['INSERT INTO ruby_ids (t) VALUES (1), (2), (3)', 'UPDATE ruby_ids SET t = 2', 'DROP TABLE IF EXISTS no_such', 'DELETE FROM ruby_ids'].map do |sql|
      c.query(sql)
      [c.affected_rows, c.last_id, c.warning_count, c.query_info]
    end
  },
  errors: -> { c = connection; ['SELECT * FROM nowhere', 'SELEC 1', 'USE nowhere', "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'own é'"].map { |s| failure { c.query(s) } } },
  multi: -> { c = connection(flags: Mysql2::Client::MULTI_STATEMENTS); [c.query("SELECT 1 a; DO 1; SELECT 'x;y' b").to_a] + (c.next_result ? results(c) : []) },
  procedure: lambda {
    c = connection(flags: Mysql2::Client::MULTI_STATEMENTS)
    c.query('DROP PROCEDURE IF EXISTS two_results')
    c.query(File.read("#{setting('SQL')}/procedure.sql"))
    c.query('SET @b = 0, @c = 10')
    [c.query('CALL two_results(5, @b, @c)').to_a, (c.next_result ? results(c) : []), rows(c, 'SELECT @b, @c')]
  },
  load_data: lambda {
    path = "#{setting('SCRATCH')}/ruby.csv"
    File.write(path, "1,one\n2,two\n" * 4000)
    c = connection
    c.query('DROP TABLE IF EXISTS ruby_loaded')
    c.query('CREATE TABLE ruby_loaded (i INT, t VARCHAR(20))')
    c.query("LOAD DATA LOCAL INFILE '#{path}' INTO TABLE ruby_loaded FIELDS TERMINATED BY ','")
    [c.affected_rows, rows(c, 'SELECT COUNT(*) n FROM ruby_loaded')]
  },
  stream: -> { c = connection; n = 0; c.query('SELECT id FROM every_type', stream: true, cache_rows: false).each { n += 1 }; [n, rows(c, 'SELECT 1 one')] },
  async: -> { all = Array.new(3) { connection }; all.each_with_index { |c, n| c.query("SELECT #{n} n, SLEEP(0.1)", async: true) }; all.map { |c| c.async_result.to_a } },
  select_db: -> { c = connection; c.select_db('mysql'); rows(c, 'SELECT DATABASE() d') },
  ping: -> { connection.ping },
  crowd: -> { all = Array.new(12) { connection }; all.each_with_index { |c, n| c.query("SET time_zone = '+0#{n % 10}:00'") }; (all + all).map { |c| rows(c, 'SELECT @@time_zone z') } }
}.freeze

$stdout.sync = true
TESTS.each do |name, body|
  seen = Timeout.timeout(40) { body.call }
  text = seen.inspect
  text = text[0, 200] + Digest::SHA256.hexdigest(text) if text.size > 5000
  puts "@@ #{JSON.generate(test: name, status: 'pass', detail: text.b.inspect)}"
rescue StandardError => e
  puts "@@ #{JSON.generate(test: name, status: 'fail', detail: "#{e.class}: #{e.message}".b.inspect)}"
end
