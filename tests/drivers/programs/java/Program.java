import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.sql.BatchUpdateException;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** JDBC programs as they are usually written. A driver's class names its URL and what it calls its options. */
abstract class Program {
    /** A test gives back what it saw. */
    interface Test { Object run() throws Exception; }

    /** Seconds that one test may take. */
    static final int LIMIT = 60;
    static final int CROWD = 12;

    final Map<String, Test> tests = new LinkedHashMap<>();

    /** The beginning of the driver's URLs, such as {@code jdbc:mariadb}. */
    abstract String scheme();
    /** Options of every connection. */
    abstract String always();
    abstract String tls();
    abstract String serverPrepare();
    abstract String batches();

    static String setting(String name) { return System.getenv("DRIVERS_" + name); }

    Connection connect(String... options) throws SQLException {
        String url = scheme() + "://" + setting("HOST") + ":" + setting("PORT") + "/" + setting("DATABASE") + "?" + always();
        for (String option : options) url += "&" + option;
        return DriverManager.getConnection(url, setting("USER"), setting("PASSWORD"));
    }

    static String hash(byte[] bytes) throws Exception { return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes)); }

    static List<Object> rows(ResultSet set) throws SQLException {
        List<Object> rows = new ArrayList<>();
        int columns = set.getMetaData().getColumnCount();
        while (set.next()) {
            List<Object> row = new ArrayList<>();
            for (int i = 1; i <= columns; i++) {
                Object value = set.getObject(i);
                row.add(value instanceof byte[] bytes ? HexFormat.of().formatHex(bytes) : value instanceof java.sql.Blob || value instanceof java.sql.Clob ? set.getString(i) : value);
            }
            rows.add(row);
        }
        return rows;
    }

    static List<Object> query(Connection c, String sql) throws SQLException {
        try (Statement s = c.createStatement()) { return rows(s.executeQuery(sql)); }
    }

    static int update(Connection c, String... all) throws SQLException {
        int changed = 0;
        try (Statement s = c.createStatement()) { for (String sql : all) changed = s.executeUpdate(sql); }
        return changed;
    }

    static List<Object> failure(Test test) throws Exception {
        try { test.run(); } catch (SQLException e) {
            String message = String.valueOf(e.getMessage()).replaceAll("\\(conn=[0-9]+\\) *", "");
            return Arrays.asList(e.getErrorCode(), e.getSQLState(), message.split("\n")[0]);
        }
        throw new IllegalStateException("no error");
    }

    static void fill(Connection c) throws Exception {
        update(c, "DROP TABLE IF EXISTS every_type");
        for (String sql : Files.readString(Path.of(setting("SQL"), "types.sql")).split(";\n")) if (!sql.isBlank()) update(c, sql);
    }

    Object types(String... options) throws Exception {
        try (Connection c = connect(options); PreparedStatement s = c.prepareStatement("SELECT * FROM every_type WHERE id > ? AND id < 3 ORDER BY id")) {
            s.setInt(1, 0);
            return rows(s.executeQuery());
        }
    }

    Object allResults(Statement s, boolean isSet) throws SQLException {
        List<Object> seen = new ArrayList<>();
        while (true) {
            if (isSet) seen.add(rows(s.getResultSet())); else if (s.getUpdateCount() == -1) return seen; else seen.add(s.getUpdateCount());
            isSet = s.getMoreResults();
        }
    }

    Object batch(String... options) throws Exception {
        try (Connection c = connect(options)) {
            update(c, "DROP TABLE IF EXISTS java_batch", "CREATE TABLE java_batch (i INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(40), n INT, d DATETIME(3))");
            try (PreparedStatement s = c.prepareStatement("INSERT INTO java_batch (t, n, d) VALUES (?, ?, ?)", Statement.RETURN_GENERATED_KEYS)) {
                for (int i = 0; i < 3000; i++) {
                    s.setString(1, "é " + i);
                    if (i % 3 == 0) s.setNull(2, Types.INTEGER); else s.setInt(2, i);
                    s.setTimestamp(3, Timestamp.valueOf("2024-02-29 12:34:56.789"));
                    s.addBatch();
                }
                int[] counts = s.executeBatch();
                List<Object> keys = rows(s.getGeneratedKeys());
                return Arrays.asList(counts.length, keys.size(), keys.get(0), query(c, "SELECT COUNT(*), SUM(n), MIN(t), MAX(i) FROM java_batch"));
            }
        }
    }

    Object batchError(String... options) throws Exception {
        try (Connection c = connect(options)) {
            update(c, "DROP TABLE IF EXISTS java_unique", "CREATE TABLE java_unique (i INT PRIMARY KEY)");
            try (PreparedStatement s = c.prepareStatement("INSERT INTO java_unique VALUES (?)")) {
                for (int i : new int[] {1, 2, 1, 3}) { s.setInt(1, i); s.addBatch(); }
                s.executeBatch();
            } catch (BatchUpdateException e) {
                return Arrays.asList(e.getErrorCode(), Arrays.toString(e.getUpdateCounts()), query(c, "SELECT COUNT(*) FROM java_unique"));
            }
            throw new IllegalStateException("no error");
        }
    }

    Object blob(String... options) throws Exception {
        byte[] bytes = new byte[20 << 20];
        for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) (i * 31 >> 3);
        try (Connection c = connect(options)) {
            update(c, "DROP TABLE IF EXISTS java_blob", "CREATE TABLE java_blob (b LONGBLOB)");
            try (PreparedStatement s = c.prepareStatement("INSERT INTO java_blob VALUES (?)")) {
                s.setBytes(1, bytes);
                s.executeUpdate();
                s.setBinaryStream(1, new ByteArrayInputStream(bytes), bytes.length);
                s.executeUpdate();
            }
            try (Statement s = c.createStatement(); ResultSet set = s.executeQuery("SELECT b FROM java_blob")) {
                List<Object> seen = new ArrayList<>();
                while (set.next()) seen.add(hash(set.getBytes(1)));
                return seen;
            }
        }
    }

    Object transactions() throws Exception {
        List<Object> seen = new ArrayList<>();
        try (Connection a = connect(); Connection b = connect()) {
            update(a, "DROP TABLE IF EXISTS java_trx", "CREATE TABLE java_trx (i INT)");
            a.setAutoCommit(false);
            for (boolean commit : new boolean[] {false, true}) {
                update(a, "INSERT INTO java_trx VALUES (1)");
                var savepoint = a.setSavepoint("s1");
                update(a, "INSERT INTO java_trx VALUES (2)");
                a.rollback(savepoint);
                seen.add(query(b, "SELECT COUNT(*) FROM java_trx"));
                if (commit) a.commit(); else a.rollback();
                seen.add(query(b, "SELECT COUNT(*) FROM java_trx"));
            }
            a.setAutoCommit(true);
            for (int level : new int[] {1, 2, 4, 8}) { a.setTransactionIsolation(level); seen.add(a.getTransactionIsolation()); seen.add(b.getTransactionIsolation()); }
            a.setReadOnly(true);
            seen.add(a.isReadOnly());
            a.setCatalog("mysql");
            seen.add(Arrays.asList(a.getCatalog(), b.getCatalog()));
        }
        return seen;
    }

    Object threads(String... options) throws Exception {
        try (Connection c = connect()) { update(c, "DROP TABLE IF EXISTS java_threads", "CREATE TABLE java_threads (t INT, n INT, KEY (t))"); }
        ExecutorService pool = Executors.newFixedThreadPool(20);
        List<Future<Object>> all = new ArrayList<>();
        for (int t = 0; t < 20; t++) {
            int task = t;
            Callable<Object> body = () -> {
                try (Connection c = connect(options); PreparedStatement insert = c.prepareStatement("INSERT INTO java_threads VALUES (?, ?)");
                     PreparedStatement count = c.prepareStatement("SELECT COUNT(*) FROM java_threads WHERE t = ?")) {
                    for (int n = 0; n < 20; n++) {
                        insert.setInt(1, task); insert.setInt(2, n); insert.executeUpdate();
                        count.setInt(1, task);
                        try (ResultSet set = count.executeQuery()) { set.next(); if (set.getInt(1) != n + 1) throw new IllegalStateException("task " + task + " sees " + set.getInt(1) + " of " + (n + 1)); }
                    }
                }
                return null;
            };
            all.add(pool.submit(body));
        }
        for (Future<Object> one : all) one.get();
        pool.shutdown();
        try (Connection c = connect()) { return query(c, "SELECT COUNT(*), SUM(n) FROM java_threads"); }
    }

    Object crowd() throws Exception {
        List<Connection> all = new ArrayList<>();
        for (int n = 0; n < CROWD; n++) { Connection c = connect(); all.add(c); update(c, "SET time_zone = '+0" + n % 10 + ":00'"); }
        List<Object> seen = new ArrayList<>();
        for (int round = 0; round < 2; round++) for (Connection c : all) seen.add(query(c, "SELECT @@time_zone"));
        for (Connection c : all) c.close();
        return seen;
    }

    Object procedure() throws Exception {
        try (Connection c = connect()) {
            update(c, "DROP PROCEDURE IF EXISTS two_results", Files.readString(Path.of(setting("SQL"), "procedure.sql")));
            try (CallableStatement s = c.prepareCall("{call two_results(?, ?, ?)}")) {
                s.setInt(1, 5);
                s.registerOutParameter(2, Types.INTEGER);
                s.setInt(3, 10);
                s.registerOutParameter(3, Types.INTEGER);
                Object sets = allResults(s, s.execute());
                return Arrays.asList(sets, s.getInt(2), s.getInt(3));
            }
        }
    }

    Object metadata() throws Exception {
        try (Connection c = connect(); Statement s = c.createStatement()) {
            List<Object> seen = new ArrayList<>();
            ResultSetMetaData columns = s.executeQuery("SELECT * FROM every_type").getMetaData();
            for (int i = 1; i <= columns.getColumnCount(); i++) seen.add(columns.getColumnName(i) + " " + columns.getColumnTypeName(i) + " " + columns.getPrecision(i) + " " + columns.getScale(i) + " " + columns.isNullable(i));
            try (ResultSet set = c.getMetaData().getColumns("test", null, "every_type", "%")) { while (set.next()) seen.add(set.getString("COLUMN_NAME") + " " + set.getString("TYPE_NAME") + " " + set.getInt("COLUMN_SIZE")); }
            seen.add(c.getMetaData().getDatabaseProductVersion().replaceAll("^5\\.5\\.5-", ""));
            return seen;
        }
    }

    Object fetchSize(String option, int size) throws Exception {
        String ten = "(SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)";
        try (Connection c = connect(option); PreparedStatement s = c.prepareStatement("SELECT a.n + b.n * 10 + c.n * 100 FROM " + ten + " a, " + ten + " b, " + ten + " c WHERE a.n >= ?", ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_READ_ONLY)) {
            s.setFetchSize(size);
            s.setInt(1, 0);
            long sum = 0;
            try (ResultSet set = s.executeQuery()) { while (set.next()) sum += set.getLong(1); }
            return Arrays.asList(sum, query(c, "SELECT 1"));
        }
    }

    Object loadData() throws Exception {
        Path path = Path.of(setting("SCRATCH"), "java.csv");
        Files.writeString(path, "1,one\n2,two\n".repeat(4000));
        try (Connection c = connect("allowLocalInfile=true", "allowLoadLocalInfile=true")) {
            update(c, "DROP TABLE IF EXISTS java_loaded", "CREATE TABLE java_loaded (i INT, t VARCHAR(20))");
            return Arrays.asList(update(c, "LOAD DATA LOCAL INFILE '" + path + "' INTO TABLE java_loaded FIELDS TERMINATED BY ','"), query(c, "SELECT COUNT(*), SUM(i) FROM java_loaded"));
        }
    }

    Object generatedKeys() throws Exception {
        try (Connection c = connect(); Statement s = c.createStatement()) {
            update(c, "DROP TABLE IF EXISTS java_ids", "CREATE TABLE java_ids (i INT PRIMARY KEY AUTO_INCREMENT, t INT)");
            List<Object> seen = new ArrayList<>();
            for (int n = 0; n < 3; n++) { seen.add(s.executeUpdate("INSERT INTO java_ids (t) VALUES (1), (2)", Statement.RETURN_GENERATED_KEYS)); seen.add(rows(s.getGeneratedKeys())); }
            seen.add(s.executeUpdate("UPDATE java_ids SET t = 1"));
            seen.add(s.executeUpdate("DROP TABLE IF EXISTS no_such"));
            seen.add(String.valueOf(s.getWarnings()).replaceAll("\\(conn=[0-9]+\\) *", ""));
            return seen;
        }
    }

    Object timeout() throws Exception {
        try (Connection c = connect(); Statement s = c.createStatement()) {
            s.setQueryTimeout(1);
            Object error = failure(() -> s.execute("SELECT SLEEP(20)")).get(0);
            return Arrays.asList(error, query(c, "SELECT 1"));
        }
    }

    Program() {
        tests.put("connect", () -> { try (Connection c = connect()) { fill(c); return query(c, "SELECT 1, 'b', NULL, DATABASE()"); } });
        tests.put("tls", () -> { try (Connection c = connect(tls())) { return query(c, "SELECT 'over TLS'"); } });
        tests.put("compressed", () -> { try (Connection c = connect("useCompression=true")) { return query(c, "SELECT REPEAT('abc', 300000), 1"); } });
        tests.put("wrong_password", () -> failure(() -> DriverManager.getConnection(scheme() + "://" + setting("HOST") + ":" + setting("PORT") + "/test?" + always(), "root", "wrong")).subList(0, 2));
        tests.put("types_text", () -> types());
        tests.put("types_prepared", () -> types(serverPrepare()));
        tests.put("metadata", this::metadata);
        tests.put("transactions", this::transactions);
        tests.put("generated_keys", this::generatedKeys);
        tests.put("batch", () -> batch());
        tests.put("batch_many", () -> batch(batches()));
        tests.put("batch_prepared", () -> batch(serverPrepare()));
        tests.put("batch_error", () -> batchError());
        tests.put("batch_error_many", () -> batchError(batches()));
        tests.put("blob", () -> blob());
        tests.put("blob_prepared", () -> blob(serverPrepare()));
        tests.put("blob_compressed", () -> blob("useCompression=true"));
        tests.put("procedure", this::procedure);
        tests.put("multi", () -> { try (Connection c = connect("allowMultiQueries=true"); Statement s = c.createStatement()) { return allResults(s, s.execute("SELECT 1; DO 1; SELECT 'x;y', 2; SELECT 3 WHERE FALSE")); } });
        tests.put("errors", () -> { try (Connection c = connect()) {
            List<Object> seen = new ArrayList<>();
            for (String sql : List.of("SELECT * FROM nowhere", "SELEC 1", "USE nowhere", "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'own é'")) seen.add(failure(() -> update(c, sql)));
            return seen; } });
        tests.put("errors_prepared", () -> { try (Connection c = connect(serverPrepare())) { return Arrays.asList(failure(() -> { try (PreparedStatement s = c.prepareStatement("SELECT nothing FROM every_type WHERE id = ?")) { s.setInt(1, 1); return s.executeQuery(); } }), query(c, "SELECT 1")); } });
        tests.put("load_data", this::loadData);
        tests.put("stream", () -> fetchSize("a=b", Integer.MIN_VALUE));
        tests.put("fetch_size", () -> fetchSize("useCursorFetch=true", 100));
        tests.put("crowd", this::crowd);
        tests.put("threads", () -> threads());
        tests.put("threads_prepared", () -> threads(serverPrepare()));
        tests.put("query_timeout", this::timeout);
        tests.put("valid_and_abort", () -> { Connection c = connect(); boolean valid = c.isValid(5); c.abort(Runnable::run); return Arrays.asList(valid, c.isClosed()); });
        tests.put("time_zone", () -> { try (Connection c = connect("connectionTimeZone=+05:00", "forceConnectionTimeZoneToSession=true")) { return query(c, "SELECT @@session.time_zone"); } });
    }

    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) if (c == '"' || c == '\\') out.append('\\').append(c); else if (c < 32 || c > 126) out.append(String.format("\\u%04x", (int) c)); else out.append(c);
        return out.append('"').toString();
    }

    void run() throws Exception {
        ExecutorService worker = Executors.newCachedThreadPool(body -> { Thread t = new Thread(body); t.setDaemon(true); return t; });
        for (var entry : tests.entrySet()) {
            String status = "pass", detail;
            Future<Object> running = worker.submit(() -> entry.getValue().run());
            try {
                detail = String.valueOf(running.get(LIMIT, TimeUnit.SECONDS));
                if (detail.length() > 5000) detail = detail.substring(0, 200) + hash(detail.getBytes(StandardCharsets.UTF_8));
            } catch (java.util.concurrent.TimeoutException e) {
                status = "fail"; detail = "no end in time";
            } catch (java.util.concurrent.ExecutionException e) {
                Throwable cause = e.getCause();
                StackTraceElement where = Arrays.stream(cause.getStackTrace()).filter(f -> f.getClassName().startsWith("Program")).findFirst().orElse(null);
                status = "fail"; detail = cause + " at " + where;
            }
            System.out.println("@@ {\"test\": " + quoted(entry.getKey()) + ", \"status\": \"" + status + "\", \"detail\": " + quoted(detail) + "}");
        }
        System.exit(0);
    }
}
