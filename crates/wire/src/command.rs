//! Command bytes: the first byte of the first packet that a client sends in a command.
//!
//! Source: "Command Phase" (MySQL) and MariaDB KB "Clientserver protocol: commands".

/// Defines [`Command`] with its byte values and names from one table.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $byte:literal, $text:literal;)*) => {
        /// A command of MySQL or MariaDB.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Command {
            $($(#[$doc])* $name = $byte,)*
        }

        impl Command {
            /// The command of this byte; `None` when neither server has one.
            #[must_use]
            pub const fn from_u8(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The command's name in the documentation, such as `COM_QUERY`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }

        /// Every command, in byte order.
        pub const ALL: &[Command] = &[$(Command::$name,)*];
    };
}

commands! {
    /// Internal to the server; refused.
    Sleep = 0x00, "COM_SLEEP";
    /// The client leaves; no reply.
    Quit = 0x01, "COM_QUIT";
    /// Changes the current schema.
    InitDb = 0x02, "COM_INIT_DB";
    /// SQL text.
    Query = 0x03, "COM_QUERY";
    /// Columns of a table; old.
    FieldList = 0x04, "COM_FIELD_LIST";
    /// Old; refused by today's servers.
    CreateDb = 0x05, "COM_CREATE_DB";
    /// Old; refused by today's servers.
    DropDb = 0x06, "COM_DROP_DB";
    /// FLUSH as a command; old.
    Refresh = 0x07, "COM_REFRESH";
    /// Stops the server; MariaDB only today.
    Shutdown = 0x08, "COM_SHUTDOWN";
    /// A line of text about the server; the reply is a bare string.
    Statistics = 0x09, "COM_STATISTICS";
    /// SHOW PROCESSLIST as a command; old.
    ProcessInfo = 0x0a, "COM_PROCESS_INFO";
    /// Internal to the server; refused.
    Connect = 0x0b, "COM_CONNECT";
    /// KILL as a command; old.
    ProcessKill = 0x0c, "COM_PROCESS_KILL";
    /// Dumps debug information into the server's log.
    Debug = 0x0d, "COM_DEBUG";
    /// Is the server there?
    Ping = 0x0e, "COM_PING";
    /// Internal to the server; refused.
    Time = 0x0f, "COM_TIME";
    /// Internal to the server; refused.
    DelayedInsert = 0x10, "COM_DELAYED_INSERT";
    /// A new login on the same connection.
    ChangeUser = 0x11, "COM_CHANGE_USER";
    /// Streams the binary log from a file and position.
    BinlogDump = 0x12, "COM_BINLOG_DUMP";
    /// Old; refused by today's servers.
    TableDump = 0x13, "COM_TABLE_DUMP";
    /// Internal to the server; refused.
    ConnectOut = 0x14, "COM_CONNECT_OUT";
    /// A replica presents itself.
    RegisterSlave = 0x15, "COM_REGISTER_SLAVE";
    /// Prepares a statement.
    StmtPrepare = 0x16, "COM_STMT_PREPARE";
    /// Executes a prepared statement.
    StmtExecute = 0x17, "COM_STMT_EXECUTE";
    /// A piece of a parameter; no reply.
    StmtSendLongData = 0x18, "COM_STMT_SEND_LONG_DATA";
    /// Forgets a prepared statement; no reply.
    StmtClose = 0x19, "COM_STMT_CLOSE";
    /// Drops a prepared statement's cursor and long data.
    StmtReset = 0x1a, "COM_STMT_RESET";
    /// Switches multi statements on or off; EOF in reply.
    SetOption = 0x1b, "COM_SET_OPTION";
    /// Rows from a cursor.
    StmtFetch = 0x1c, "COM_STMT_FETCH";
    /// Internal to the server; refused.
    Daemon = 0x1d, "COM_DAEMON";
    /// Streams the binary log from a GTID set; MySQL only.
    BinlogDumpGtid = 0x1e, "COM_BINLOG_DUMP_GTID";
    /// Brings the session back to its state after login.
    ResetConnection = 0x1f, "COM_RESET_CONNECTION";
    /// The clone plugin's stream; MySQL only.
    Clone = 0x20, "COM_CLONE";
    /// Group replication's stream; MySQL only.
    SubscribeGroupReplicationStream = 0x21, "COM_SUBSCRIBE_GROUP_REPLICATION_STREAM";
    /// Executes a prepared statement for many rows of parameters; MariaDB only.
    StmtBulkExecute = 0xfa, "COM_STMT_BULK_EXECUTE";
    /// Internal to MariaDB; refused.
    SlaveWorker = 0xfb, "COM_SLAVE_WORKER";
    /// Internal to MariaDB; refused.
    SlaveIo = 0xfc, "COM_SLAVE_IO";
    /// Internal to MariaDB; refused.
    SlaveSql = 0xfd, "COM_SLAVE_SQL";
    /// Several commands in one; MariaDB, withdrawn.
    Multi = 0xfe, "COM_MULTI";
}

impl Command {
    /// True when the server never answers this command (an error reply to long data comes with the next execute).
    #[must_use]
    pub const fn has_no_reply(self) -> bool {
        matches!(self, Self::Quit | Self::StmtClose | Self::StmtSendLongData)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        for byte in 0..=0xff {
            let command = Command::from_u8(byte);
            assert_eq!(command.is_some(), byte <= 0x21 || (0xfa..=0xfe).contains(&byte));
            assert!(command.is_none_or(|command| command as u8 == byte && command.name().starts_with("COM_")));
        }
        assert_eq!(ALL.len(), 0x22 + 5);
    }
}
