// Why a session keeps its connection: docs/reference/pins.md in short, with what to change.
export interface Reason { begins: string; ends: string; change: string }

const OFF = 'the session ends';
export const REASONS: Record<string, Reason> = {
  transaction: { begins: 'a transaction is open', ends: 'COMMIT or ROLLBACK', change: 'Normal while it works. Long ones: commit sooner, or limit them with mysql-max_transaction_idle_time.' },
  next_transaction: { begins: 'SET TRANSACTION for the next one', ends: 'COMMIT or ROLLBACK', change: 'Begin the transaction right after it, or SET SESSION TRANSACTION once.' },
  xa: { begins: 'XA START', ends: 'XA COMMIT or XA ROLLBACK', change: 'Finish XA transactions; look for a coordinator that died.' },
  savepoint: { begins: 'SAVEPOINT with autocommit=0', ends: 'COMMIT, ROLLBACK', change: 'Commit sooner.' },
  temporary_table: { begins: 'CREATE TEMPORARY TABLE', ends: 'the last one is dropped', change: 'DROP TEMPORARY TABLE when done, or use a derived table (WITH ...).' },
  lock_tables: { begins: 'LOCK TABLES, FLUSH TABLES WITH READ LOCK', ends: 'UNLOCK TABLES', change: 'Use a transaction with row locks instead; for dumps --single-transaction.' },
  user_lock: { begins: 'GET_LOCK()', ends: 'RELEASE_LOCK() of each, or RELEASE_ALL_LOCKS()', change: 'Release it as a statement of its own as soon as the work is done.' },
  user_variable: { begins: 'a user variable whose value no text tells', ends: 'its value was asked for', change: 'Raise mysql-carry_user_variables_max_length if values are long; else let the application keep the value.' },
  text_prepare: { begins: 'PREPARE in SQL text', ends: 'DEALLOCATE PREPARE of each', change: 'Use the driver’s prepared statements: these are shared.' },
  handler: { begins: 'HANDLER ... OPEN', ends: 'HANDLER ... CLOSE', change: 'Close handlers, or use SELECT.' },
  cursor: { begins: 'an execution with a cursor', ends: 'last row, reset or close', change: 'Fetch to the end, or switch the driver’s cursor fetch off.' },
  long_data: { begins: 'COM_STMT_SEND_LONG_DATA', ends: 'the statement is executed', change: 'Execute right after the data is sent.' },
  found_rows: { begins: 'SQL_CALC_FOUND_ROWS', ends: 'the next result', change: 'Use SELECT COUNT(*) instead.' },
  stored_code: { begins: 'a routine whose body is not known', ends: 'its body was read', change: 'Let the user read routines (SHOW_ROUTINE; MariaDB: SHOW CREATE ROUTINE), or name them in "safe_functions" of mysql_users.attributes.' },
  session_state: { begins: 'a SET, stored code or dynamic SQL that could not be followed', ends: 'a reset of the connection', change: 'Choose the schema of the tables at login; let the user read routines; set variables as single literals.' },
  role: { begins: 'SET ROLE', ends: OFF, change: 'Give the user a default role instead.' },
  replication: { begins: 'a replica, a binlog reader, or a fast_forward user', ends: OFF, change: 'Nothing is shared for these on purpose.' },
  replication_gtid: { begins: 'a replica asks for the binlog by GTID', ends: OFF, change: 'Nothing: it hinders no SWITCHOVER.' },
  auto_increment_delay: { begins: 'an insert id', ends: 'auto_increment_delay_multiplex statements later', change: 'Set mysql-auto_increment_delay_multiplex to 0: insert ids follow the session anyway.' },
  multiplexing_off: { begins: 'multiplexing is off', ends: OFF, change: 'Set mysql-multiplexing, or multiplex of the hostgroup, to on.' },
  rule: { begins: 'a query rule with multiplex=0', ends: 'a rule with multiplex=1', change: 'Remove multiplex=0 from the rule: state follows the session.' },
  autocommit_off: { begins: 'autocommit=0', ends: 'autocommit=1', change: 'Set mysql-autocommit_false_is_transaction to false, or let the driver use autocommit.' },
};
