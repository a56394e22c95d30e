//! Numbers of MySQL's and MariaDB's errors, under the names of the manual without `ER_`.
//!
//! Sources: the MySQL Server Error Message Reference, MariaDB's Error Code Reference, and for the last ones ProxySQL's documentation.

/// The record has changed since it was read.
pub const CHECKREAD: u16 = 1020;
/// A key exists already.
pub const DUP_KEY: u16 = 1022;
/// The table is read-only.
pub const OPEN_AS_READONLY: u16 = 1036;
/// Too many connections.
pub const CON_COUNT: u16 = 1040;
/// Out of memory.
pub const OUT_OF_RESOURCES: u16 = 1041;
/// The client's host name cannot be found.
pub const BAD_HOST: u16 = 1042;
/// Bad handshake.
pub const HANDSHAKE: u16 = 1043;
/// The user may not enter the schema.
pub const DBACCESS_DENIED: u16 = 1044;
/// The login is refused.
pub const ACCESS_DENIED: u16 = 1045;
/// No schema is selected.
pub const NO_DB: u16 = 1046;
/// Unknown command; a Galera node that is not in the primary component.
pub const UNKNOWN_COM: u16 = 1047;
/// The column cannot be NULL.
pub const BAD_NULL: u16 = 1048;
/// Unknown schema.
pub const BAD_DB: u16 = 1049;
/// The table exists already.
pub const TABLE_EXISTS: u16 = 1050;
/// Unknown table in a DROP.
pub const BAD_TABLE: u16 = 1051;
/// The column is ambiguous.
pub const NON_UNIQ: u16 = 1052;
/// The server is shutting down.
pub const SERVER_SHUTDOWN: u16 = 1053;
/// Unknown column.
pub const BAD_FIELD: u16 = 1054;
/// Duplicate column name.
pub const DUP_FIELDNAME: u16 = 1060;
/// Duplicate entry for a key.
pub const DUP_ENTRY: u16 = 1062;
/// The statement cannot be parsed.
pub const PARSE: u16 = 1064;
/// The statement is empty.
pub const EMPTY_QUERY: u16 = 1065;
/// The table or alias is not unique.
pub const NONUNIQ_TABLE: u16 = 1066;
/// Normal shutdown.
pub const NORMAL_SHUTDOWN: u16 = 1077;
/// Shutdown complete.
pub const SHUTDOWN_COMPLETE: u16 = 1079;
/// Unknown thread id.
pub const NO_SUCH_THREAD: u16 = 1094;
/// The thread is another user's.
pub const KILL_DENIED: u16 = 1095;
/// Incorrect table name.
pub const WRONG_TABLE_NAME: u16 = 1103;
/// Anything else.
pub const UNKNOWN_ERROR: u16 = 1105;
/// Unknown table.
pub const UNKNOWN_TABLE: u16 = 1109;
/// A column is given twice.
pub const FIELD_SPECIFIED_TWICE: u16 = 1110;
/// Invalid use of a group function.
pub const INVALID_GROUP_FUNC_USE: u16 = 1111;
/// The table is full.
pub const RECORD_FILE_FULL: u16 = 1114;
/// A loadable function cannot be initialized.
pub const CANT_INITIALIZE_UDF: u16 = 1123;
/// The host failed to connect too often.
pub const HOST_IS_BLOCKED: u16 = 1129;
/// The host may not connect.
pub const HOST_NOT_PRIVILEGED: u16 = 1130;
/// The number of values is not that of the columns.
pub const WRONG_VALUE_COUNT_ON_ROW: u16 = 1136;
/// The user may not do that with the table.
pub const TABLEACCESS_DENIED: u16 = 1142;
/// The user may not do that with the column.
pub const COLUMNACCESS_DENIED: u16 = 1143;
/// The table does not exist.
pub const NO_SUCH_TABLE: u16 = 1146;
/// The command is not allowed.
pub const NOT_ALLOWED_COMMAND: u16 = 1148;
/// Syntax error.
pub const SYNTAX: u16 = 1149;
/// The packet is larger than `max_allowed_packet`.
pub const NET_PACKET_TOO_LARGE: u16 = 1153;
/// Packets out of order.
pub const NET_PACKETS_OUT_OF_ORDER: u16 = 1156;
/// A unique constraint is violated.
pub const DUP_UNIQUE: u16 = 1169;
/// An error during COMMIT.
pub const ERROR_DURING_COMMIT: u16 = 1180;
/// Unknown system variable.
pub const UNKNOWN_SYSTEM_VARIABLE: u16 = 1193;
/// The user has `max_user_connections` already.
pub const TOO_MANY_USER_CONNECTIONS: u16 = 1203;
/// The wait for a lock was too long.
pub const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// Incorrect arguments.
pub const WRONG_ARGUMENTS: u16 = 1210;
/// A deadlock.
pub const LOCK_DEADLOCK: u16 = 1213;
/// A foreign key refers to no row.
pub const NO_REFERENCED_ROW: u16 = 1216;
/// A foreign key refers to the row.
pub const ROW_IS_REFERENCED: u16 = 1217;
/// Incorrect usage.
pub const WRONG_USAGE: u16 = 1221;
/// SELECTs of a UNION have different numbers of columns.
pub const WRONG_NUMBER_OF_COLUMNS_IN_SELECT: u16 = 1222;
/// The user has exceeded a resource.
pub const USER_LIMIT_REACHED: u16 = 1226;
/// A privilege is missing.
pub const SPECIFIC_ACCESS_DENIED: u16 = 1227;
/// The variable has only a session value.
pub const LOCAL_VARIABLE: u16 = 1228;
/// The variable has only a global value.
pub const GLOBAL_VARIABLE: u16 = 1229;
/// The variable cannot have the value.
pub const WRONG_VALUE_FOR_VAR: u16 = 1231;
/// Not supported yet.
pub const NOT_SUPPORTED_YET: u16 = 1235;
/// The binlog cannot be read from where the replica asks: it does not try again.
pub const MASTER_FATAL_ERROR_READING_BINLOG: u16 = 1236;
/// The variable is read-only, or of another scope.
pub const INCORRECT_GLOBAL_LOCAL_VAR: u16 = 1238;
/// A subquery returns more than one row.
pub const SUBQUERY_NO_1_ROW: u16 = 1242;
/// Unknown prepared statement.
pub const UNKNOWN_STMT_HANDLER: u16 = 1243;
/// A derived table needs an alias.
pub const DERIVED_MUST_HAVE_ALIAS: u16 = 1248;
/// The client cannot authenticate in the way that is asked for.
pub const NOT_SUPPORTED_AUTH_MODE: u16 = 1251;
/// A value is out of range.
pub const WARN_DATA_OUT_OF_RANGE: u16 = 1264;
/// Data is truncated.
pub const WARN_DATA_TRUNCATED: u16 = 1265;
/// Unknown collation.
pub const UNKNOWN_COLLATION: u16 = 1273;
/// Old passwords are refused.
pub const SERVER_IS_IN_SECURE_AUTH_MODE: u16 = 1275;
/// An option, `read_only` say, prevents the statement.
pub const OPTION_PREVENTS_STATEMENT: u16 = 1290;
/// Incorrect value.
pub const TRUNCATED_WRONG_VALUE: u16 = 1292;
/// The routine does not exist.
pub const SP_DOES_NOT_EXIST: u16 = 1305;
/// The execution was interrupted.
pub const QUERY_INTERRUPTED: u16 = 1317;
/// The view refers to a table or column that does not exist.
pub const VIEW_INVALID: u16 = 1356;
/// The column has no default.
pub const NO_DEFAULT_FOR_FIELD: u16 = 1364;
/// Division by 0.
pub const DIVISION_BY_ZERO: u16 = 1365;
/// Incorrect value for a column.
pub const TRUNCATED_WRONG_VALUE_FOR_FIELD: u16 = 1366;
/// The user may not do that with the routine.
pub const PROCACCESS_DENIED: u16 = 1370;
/// Too many parameters.
pub const PS_MANY_PARAM: u16 = 1390;
/// Data too long for a column.
pub const DATA_TOO_LONG: u16 = 1406;
/// No geometry can be made of the data.
pub const CANT_CREATE_GEOMETRY_OBJECT: u16 = 1416;
/// The prepared statement has no cursor.
pub const STMT_HAS_NO_OPEN_CURSOR: u16 = 1421;
/// A foreign key refers to the row, which is named.
pub const ROW_IS_REFERENCED_2: u16 = 1451;
/// A foreign key, which is named, refers to no row.
pub const NO_REFERENCED_ROW_2: u16 = 1452;
/// Too many prepared statements.
pub const MAX_PREPARED_STMT_COUNT_REACHED: u16 = 1461;
/// The plugin is not loaded.
pub const PLUGIN_IS_NOT_LOADED: u16 = 1524;
/// No partition takes the value.
pub const NO_PARTITION_FOR_GIVEN_VALUE: u16 = 1526;
/// Duplicate entry for a key, which is named.
pub const DUP_ENTRY_WITH_KEY_NAME: u16 = 1586;
/// A number is out of range.
pub const DATA_OUT_OF_RANGE: u16 = 1690;
/// The login without password is refused.
pub const ACCESS_DENIED_NO_PASSWORD: u16 = 1698;
/// A statement that commits implicitly while `gtid_next` is set.
pub const CANT_DO_IMPLICIT_COMMIT_WITH_GTID_NEXT: u16 = 1778;
/// The transaction is READ ONLY.
pub const CANT_EXECUTE_IN_READ_ONLY_TRANSACTION: u16 = 1792;
/// The password has to be changed first.
pub const MUST_CHANGE_PASSWORD: u16 = 1820;
/// Malformed communication packet.
pub const MALFORMED_PACKET: u16 = 1835;
/// The server runs in read-only mode.
pub const READ_ONLY_MODE: u16 = 1836;
/// The password has expired.
pub const MUST_CHANGE_PASSWORD_LOGIN: u16 = 1862;
/// `max_execution_time` exceeded, as ProxySQL numbers it.
pub const PROXY_QUERY_TIMEOUT: u16 = 1907;
/// The connection was killed (MariaDB).
pub const CONNECTION_KILLED: u16 = 1927;
/// `max_statement_time` exceeded (MariaDB).
pub const STATEMENT_TIMEOUT: u16 = 1969;
/// `max_execution_time` exceeded (MySQL).
pub const QUERY_TIMEOUT: u16 = 3024;
/// The server is in offline mode.
pub const SERVER_OFFLINE_MODE: u16 = 3032;
/// The name of a user variable is illegal.
pub const ILLEGAL_USER_VAR: u16 = 3061;
/// A replication channel that is not there.
pub const REPLICA_CHANNEL_DOES_NOT_EXIST: u16 = 3074;
/// A plugin of replication refused the transaction.
pub const RUN_HOOK_ERROR: u16 = 3100;
/// A plugin of replication had the transaction rolled back.
pub const TRANSACTION_ROLLBACK_DURING_COMMIT: u16 = 3101;
/// The account is locked (MySQL).
pub const ACCOUNT_HAS_BEEN_LOCKED: u16 = 3118;
/// TLS is required.
pub const SECURE_TRANSPORT_REQUIRED: u16 = 3159;
/// The session was killed (MySQL).
pub const SESSION_WAS_KILLED: u16 = 3169;
/// A CHECK constraint is violated (MySQL).
pub const CHECK_CONSTRAINT_VIOLATED: u16 = 3819;
/// The account is blocked after too many failed logins.
pub const ACCOUNT_BLOCKED_BY_PASSWORD_LOCK: u16 = 3955;
/// A CHECK constraint is violated (MariaDB).
pub const CONSTRAINT_FAILED: u16 = 4025;
/// The client was idle for too long.
pub const CLIENT_INTERACTION_TIMEOUT: u16 = 4031;
/// The account is locked (MariaDB).
pub const ACCOUNT_IS_LOCKED: u16 = 4151;

// Of clients (`CR_...`).
/// A client cannot connect to the server.
pub const CONN_HOST_ERROR: u16 = 2003;
/// A client lost its connection while it waited for a reply.
pub const SERVER_LOST: u16 = 2013;
/// A client got a malformed packet.
pub const CLIENT_MALFORMED_PACKET: u16 = 2027;

// Of proxies.
/// No connection to a server of the hostgroup in time.
pub const NO_CONNECTION: u16 = 9001;
/// The server lost its role under a transaction.
pub const SERVER_LEFT: u16 = 9004;
