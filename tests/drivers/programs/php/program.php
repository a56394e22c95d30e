<?php
// PHP: mysqli and PDO, both over mysqlnd.
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
const CROWD = 12;

function setting(string $name): string { return getenv("DRIVERS_$name") ?: ''; }

function my(array $options = []): mysqli {
    $c = mysqli_init();
    $c->options(MYSQLI_OPT_LOCAL_INFILE, true);
    $flags = ($options['tls'] ?? false) ? MYSQLI_CLIENT_SSL | MYSQLI_CLIENT_SSL_DONT_VERIFY_SERVER_CERT : 0;
    if ($options['compress'] ?? false) { $flags |= MYSQLI_CLIENT_COMPRESS; }
    $c->real_connect(setting('HOST'), $options['user'] ?? setting('USER'), $options['password'] ?? setting('PASSWORD'), setting('DATABASE'), (int) setting('PORT'), null, $flags);
    $c->set_charset('utf8mb4');
    return $c;
}

function pdo(array $options = []): PDO {
    $dsn = sprintf('mysql:host=%s;port=%s;dbname=%s;charset=utf8mb4', setting('HOST'), setting('PORT'), setting('DATABASE'));
    return new PDO($dsn, setting('USER'), setting('PASSWORD'), $options + [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}

function rows(mysqli $c, string $sql): array { return $c->query($sql)->fetch_all(MYSQLI_ASSOC); }

function table(mysqli $c, string $name, string $columns): void {
    $c->query("DROP TABLE IF EXISTS $name");
    $c->query("CREATE TABLE $name ($columns)");
}

function every_type(mysqli $c): void {
    $c->query('DROP TABLE IF EXISTS every_type');
    foreach (array_filter(array_map('trim', explode(";\n", file_get_contents(setting('SQL') . '/types.sql')))) as $statement) { $c->query($statement); }
}

function failure(callable $body): array {
    try { $body(); } catch (mysqli_sql_exception $e) { return [$e->getCode(), $e->getSqlState(), $e->getMessage()]; } catch (PDOException $e) { return [$e->getCode(), $e->getMessage()]; }
    throw new Exception('no error');
}

function results(mysqli $c): array {
    $all = [];
    do {
        $result = $c->store_result();
        $all[] = $result ? $result->fetch_all() : $c->affected_rows;
    } while ($c->more_results() && $c->next_result());
    return $all;
}

function crowd(callable $statement, string $question): array {
    $all = array_map(fn() => my(), range(1, CROWD));
    foreach ($all as $n => $c) { $c->query($statement($n)); }
    $seen = [];
    foreach ([1, 2] as $round) { foreach ($all as $c) { $seen[] = rows($c, $question); } }
    foreach ($all as $c) { $c->close(); }
    return $seen;
}

$tests = [
    'connect' => fn() => rows(my(), "SELECT 1 a, 'b' b, NULL c, DATABASE() d"),
    'tls' => fn() => rows(my(['tls' => true]), "SELECT 'over TLS' a"),
    'compressed' => fn() => md5(json_encode(rows(my(['compress' => true]), "SELECT REPEAT('abc', 300000) a"))),
    'wrong_password' => fn() => array_slice(failure(fn() => my(['password' => 'wrong'])), 0, 2),
    'types_text' => function () { $c = my(); every_type($c); return array_map(fn($r) => array_map(fn($v) => is_string($v) && !preg_match('//u', $v) ? bin2hex($v) : $v, $r), rows($c, 'SELECT * FROM every_type ORDER BY id')); },
    'types_prepared' => function () {
        $c = my();
        $s = $c->prepare('SELECT * FROM every_type WHERE id > ? ORDER BY id');
        $zero = 0;
        $s->bind_param('i', $zero);
        $s->execute();
        return array_map(fn($r) => array_map(fn($v) => is_string($v) && !preg_match('//u', $v) ? bin2hex($v) : $v, $r), $s->get_result()->fetch_all(MYSQLI_ASSOC));
    },
    'fields' => fn() => array_map(fn($f) => [$f->name, $f->type, $f->length, $f->flags, $f->decimals, $f->charsetnr], my()->query('SELECT * FROM every_type')->fetch_fields()),
    'cursor' => function () {
        $c = my();
        $s = $c->prepare('SELECT id, c_varchar FROM every_type ORDER BY id');
        $s->attr_set(MYSQLI_STMT_ATTR_CURSOR_TYPE, MYSQLI_CURSOR_TYPE_READ_ONLY);
        $s->attr_set(MYSQLI_STMT_ATTR_PREFETCH_ROWS, 1);
        $s->execute();
        $s->bind_result($id, $text);
        $seen = [];
        while ($s->fetch()) { $seen[] = [$id, $text]; }
        return $seen;
    },
    'long_data' => function () {
        $c = my();
        table($c, 'php_long', 'b LONGBLOB');
        $s = $c->prepare('INSERT INTO php_long VALUES (?)');
        $null = null;
        $s->bind_param('b', $null);
        for ($i = 0; $i < 20; $i++) { $s->send_long_data(0, str_repeat(chr(65 + $i), 1 << 20)); }
        $s->execute();
        return rows($c, 'SELECT LENGTH(b) l, SHA2(b, 256) h FROM php_long');
    },
    'big_blob' => function () {
        $c = my();
        table($c, 'php_blob', 'b LONGBLOB');
        $blob = str_repeat(hash('sha256', 'seed', true), 655360);
        $c->query("INSERT INTO php_blob VALUES ('" . $c->real_escape_string($blob) . "')");
        return [rows($c, 'SELECT LENGTH(b) l FROM php_blob'), rows($c, 'SELECT b FROM php_blob')[0]['b'] === $blob];
    },
    'transactions' => function () {
        [$a, $b] = [my(), my()];
        table($a, 'php_trx', 'i INT PRIMARY KEY');
        $seen = [];
        foreach (['rollback', 'commit'] as $end) {
            $a->begin_transaction(MYSQLI_TRANS_START_READ_WRITE);
            $a->query('INSERT INTO php_trx VALUES (1)');
            $seen[] = rows($b, 'SELECT COUNT(*) n FROM php_trx');
            $a->$end();
            $seen[] = rows($b, 'SELECT COUNT(*) n FROM php_trx');
        }
        $a->autocommit(false);
        $a->query('INSERT INTO php_trx VALUES (2)');
        $seen[] = rows($b, 'SELECT COUNT(*) n FROM php_trx');
        $a->close();
        $seen[] = rows($b, 'SELECT COUNT(*) n FROM php_trx');
        return $seen;
    },
    'results' => function () {
        $c = my();
        table($c, 'php_ids', 'i INT PRIMARY KEY AUTO_INCREMENT, t INT');
        $seen = [];
        foreach (['INSERT INTO php_ids (t) VALUES (1), (1), (1)', 'UPDATE php_ids SET t = 1', 'UPDATE php_ids SET t = 2 WHERE i > 1', 'DROP TABLE IF EXISTS no_such_one', 'DELETE FROM php_ids'] as $sql) {
            $c->query($sql);
            $seen[] = [$c->insert_id, $c->affected_rows, $c->warning_count, $c->info];
        }
        return $seen;
    },
    'warnings' => function () {
        $c = my();
        $c->query('DROP TABLE IF EXISTS no_such_one');
        $w = $c->get_warnings();
        return [$w->errno, $w->sqlstate, $w->message];
    },
    'errors' => function () {
        $c = my();
        return array_map(fn($sql) => failure(fn() => $c->query($sql)), ['SELECT * FROM nowhere', 'SELEC 1', 'USE nowhere', "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'own é'"]);
    },
    'multi' => function () { $c = my(); $c->multi_query("SELECT 1; DO 1; SELECT 'x;y', 2; SELECT 3 WHERE FALSE"); return results($c); },
    'multi_error' => function () { $c = my(); $e = failure(function () use ($c) { $c->multi_query('SELECT 1; SELECT * FROM nowhere; SELECT 2'); results($c); }); return [$e, rows($c, 'SELECT 5 five')]; },
    'procedure' => function () {
        $c = my();
        $c->query('DROP PROCEDURE IF EXISTS two_results');
        $c->query(file_get_contents(setting('SQL') . '/procedure.sql'));
        $c->multi_query('SET @b = 0, @c = 10; CALL two_results(5, @b, @c); SELECT @b, @c');
        return results($c);
    },
    'load_data' => function () {
        $path = setting('SCRATCH') . '/php.csv';
        file_put_contents($path, str_repeat("1,one\n2,two\n", 4000));
        $c = my();
        table($c, 'php_loaded', 'i INT, t VARCHAR(20)');
        $c->query("LOAD DATA LOCAL INFILE '$path' INTO TABLE php_loaded FIELDS TERMINATED BY ','");
        return [$c->affected_rows, $c->info, rows($c, 'SELECT COUNT(*) n, SUM(i) s FROM php_loaded')];
    },
    'change_user' => function () { $c = my(['tls' => true]); $c->query("SET @mine = 1, time_zone = '+03:00'"); $c->change_user('app', 'app-pass', 'test'); return rows($c, 'SELECT @mine m, @@time_zone z, CURRENT_USER() u'); },
    'unbuffered' => function () { $c = my(); $r = $c->query('SELECT * FROM every_type ORDER BY id', MYSQLI_USE_RESULT); $n = 0; while ($r->fetch_row()) { $n++; } $r->free(); return [$n, rows($c, 'SELECT 1 one')]; },
    'async' => function () {
        $all = [my(), my(), my()];
        foreach ($all as $n => $c) { $c->query("SELECT $n n, SLEEP(0.2) s", MYSQLI_ASYNC); }
        return array_map(fn($c) => $c->reap_async_query()->fetch_all(), $all);
    },
    'crowd_time_zone' => fn() => crowd(fn($n) => "SET time_zone = '+0" . ($n % 10) . ":00'", 'SELECT @@time_zone z'),
    'crowd_set_charset' => fn() => (function () {
        $all = array_map(fn() => my(), range(1, CROWD));
        foreach ($all as $n => $c) { $c->set_charset(['utf8mb4', 'latin1', 'cp1251'][$n % 3]); }
        return array_map(fn($c) => rows($c, 'SELECT @@character_set_client c, @@character_set_results r'), $all);
    })(),
    'select_db' => function () { [$a, $b] = [my(), my()]; $a->select_db('mysql'); return [rows($a, 'SELECT DATABASE() d'), rows($b, 'SELECT DATABASE() d'), rows($a, 'SELECT DATABASE() d')]; },
    'pdo_types' => fn() => array_map(fn($r) => array_map(fn($v) => is_string($v) && !preg_match('//u', $v) ? bin2hex($v) : $v, $r), pdo([PDO::ATTR_EMULATE_PREPARES => false])->query('SELECT * FROM every_type ORDER BY id')->fetchAll(PDO::FETCH_ASSOC)),
    'pdo_prepared' => function () {
        $seen = [];
        foreach ([true, false] as $emulate) {
            $p = pdo([PDO::ATTR_EMULATE_PREPARES => $emulate]);
            $s = $p->prepare('SELECT :a AS a, :b AS b, HEX(:c) AS c');
            foreach (['é', '😀', "it's"] as $v) { $s->execute(['a' => $v, 'b' => null, 'c' => $v]); $seen[] = $s->fetchAll(PDO::FETCH_ASSOC); }
        }
        return $seen;
    },
    'pdo_transaction' => function () {
        $p = pdo();
        $p->exec('DROP TABLE IF EXISTS pdo_trx');
        $p->exec('CREATE TABLE pdo_trx (i INT PRIMARY KEY AUTO_INCREMENT, t TEXT)');
        $p->beginTransaction();
        $p->exec("INSERT INTO pdo_trx (t) VALUES ('x')");
        $seen = [$p->lastInsertId(), $p->inTransaction()];
        $p->rollBack();
        return [...$seen, $p->inTransaction(), $p->query('SELECT COUNT(*) FROM pdo_trx')->fetchColumn()];
    },
    'pdo_errors' => fn() => [failure(fn() => pdo()->query('SELECT * FROM nowhere')), failure(fn() => pdo([PDO::ATTR_EMULATE_PREPARES => false])->prepare('SELEC ?'))],
    'pdo_rowsets' => function () { $s = pdo()->query("SELECT 1; SELECT 2, 'two'"); $seen = []; do { $seen[] = $s->fetchAll(PDO::FETCH_NUM); } while ($s->nextRowset()); return $seen; },
    'pdo_persistent' => function () {
        $seen = [];
        for ($i = 0; $i < 3; $i++) { $p = pdo([PDO::ATTR_PERSISTENT => true]); $p->exec("SET time_zone = '+0$i:00'"); $seen[] = $p->query('SELECT @@time_zone')->fetchColumn(); unset($p); }
        return $seen;
    },
];
ini_set('memory_limit', '1G');
foreach ($tests as $name => $test) {
    try {
        $text = json_encode($test(), JSON_UNESCAPED_UNICODE | JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR);
        $line = ['test' => $name, 'status' => 'pass', 'detail' => strlen($text) < 5000 ? $text : substr($text, 0, 200) . md5($text)];
    } catch (Throwable $e) {
        $line = ['test' => $name, 'status' => 'fail', 'detail' => get_class($e) . ': ' . $e->getMessage() . ' line ' . $e->getLine()];
    }
    echo '@@ ', json_encode($line, JSON_INVALID_UTF8_SUBSTITUTE), "\n";
}
