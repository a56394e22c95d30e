//! What the session knows itself about its last statements, so that it need not keep the backend that ran them.

use wire::flags::Capabilities;

/// Warnings (or the error) of the last statement, as SHOW WARNINGS gave them before the backend was lent on.
pub struct Diagnostics {
    /// The reply's packets with headers.
    pub packets: Vec<u8>,
    /// Capabilities of the backend that gave it.
    pub caps: Capabilities,
}

/// See the module.
#[derive(Default)]
pub struct SessionFacts {
    /// LAST_INSERT_ID().
    pub last_insert_id: u64,
    /// FOUND_ROWS().
    pub found_rows: u64,
    /// ROW_COUNT().
    pub row_count: i64,
    /// @@warning_count.
    pub warnings: u16,
    /// @@error_count.
    pub errors: u16,
    /// What SHOW WARNINGS shows; None when there is nothing to show.
    pub diagnostics: Option<Box<Diagnostics>>,
    /// The statement that just ran leaves older warnings standing (MariaDB, no table read).
    pub keeps_warnings: bool,
    /// LAST_INSERT_ID() changed while the session was pinned: the backend knows it.
    pub insert_id_with_backend: bool,
    /// Statements left before `auto_increment_delay_multiplex` ends.
    pub auto_increment_left: u64,
}

impl SessionFacts {
    /// @@error_count, @@warning_count as numbers to patch in.
    pub fn of(&self, fact: sql::Fact, connection_id: u64) -> i64 {
        match fact {
            sql::Fact::FoundRows => i64::try_from(self.found_rows).unwrap_or(i64::MAX),
            sql::Fact::RowCount => self.row_count,
            sql::Fact::ConnectionId => i64::try_from(connection_id).unwrap_or(i64::MAX),
            sql::Fact::WarningCount => i64::from(self.warnings),
            sql::Fact::ErrorCount => i64::from(self.errors),
        }
    }
}
