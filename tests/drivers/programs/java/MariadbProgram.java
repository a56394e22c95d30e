/** MariaDB Connector/J, with its bulk batches. */
final class MariadbProgram extends Program {
    @Override String scheme() { return "jdbc:mariadb"; }
    @Override String always() { return "allowPublicKeyRetrieval=true"; }
    @Override String tls() { return "sslMode=trust"; }
    @Override String serverPrepare() { return "useServerPrepStmts=true"; }
    @Override String batches() { return "useBulkStmts=true"; }

    MariadbProgram() {
        tests.put("batch_bulk_inserts", () -> batch("useBulkStmtsForInserts=true", "useServerPrepStmts=true"));
        tests.put("pipeline_off", () -> batch("disablePipeline=true", "useServerPrepStmts=true"));
        tests.put("reset", () -> { try (var c = connect("useResetConnection=true")) { update(c, "SET @mine = 1, time_zone = '+03:00'"); c.unwrap(org.mariadb.jdbc.Connection.class).reset(); return query(c, "SELECT @mine, @@time_zone"); } });
    }

    public static void main(String[] args) throws Exception { new MariadbProgram().run(); }
}
