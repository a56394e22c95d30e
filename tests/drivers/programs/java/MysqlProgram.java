/** MySQL Connector/J. */
final class MysqlProgram extends Program {
    @Override String scheme() { return "jdbc:mysql"; }
    @Override String always() { return "sslMode=DISABLED&allowPublicKeyRetrieval=true"; }
    @Override String tls() { return "sslMode=REQUIRED"; }
    @Override String serverPrepare() { return "useServerPrepStmts=true"; }
    @Override String batches() { return "rewriteBatchedStatements=true"; }

    MysqlProgram() {
        tests.put("change_user", () -> { try (var c = connect("sslMode=REQUIRED")) { update(c, "SET @mine = 1"); c.unwrap(com.mysql.cj.jdbc.JdbcConnection.class).changeUser("app", "app-pass"); return query(c, "SELECT @mine, CURRENT_USER()"); } });
        tests.put("reset", () -> { try (var c = connect()) { update(c, "SET @mine = 1, time_zone = '+03:00'"); c.unwrap(com.mysql.cj.jdbc.JdbcConnection.class).resetServerState(); return query(c, "SELECT @mine, @@time_zone"); } });
        tests.put("local_session_state", () -> { try (var c = connect("useLocalSessionState=true", "cacheServerConfiguration=true", "elideSetAutoCommits=true")) { c.setAutoCommit(false); update(c, "INSERT INTO java_trx VALUES (7)"); c.rollback(); return query(c, "SELECT COUNT(*) FROM java_trx"); } });
    }

    public static void main(String[] args) throws Exception { new MysqlProgram().run(); }
}
