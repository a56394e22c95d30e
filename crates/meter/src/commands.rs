//! Statements by command: the classes of `stats_mysql_commands_counters`, which of them a statement belongs to, and
//! what is counted for each. The names are ProxySQL's.

use serde::{Deserialize, Serialize};
use sql::{Facts, Kind, LexMode, Lexer, TokenKind};

/// A class's number: its place in [`NAMES`].
pub type Command = u8;

macro_rules! commands {
    ($($konst:ident)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)] // named as they are shown
        #[derive(Clone, Copy)]
        enum Class { $($konst,)* }

        /// The classes in the order of the table.
        pub const NAMES: &[&str] = &[$(stringify!($konst),)*];
    };
}

commands! {
    ALTER_TABLE ALTER_VIEW ANALYZE_TABLE BEGIN CALL CHANGE_MASTER COMMIT CREATE_DATABASE CREATE_INDEX CREATE_TABLE
    CREATE_TEMPORARY CREATE_TRIGGER CREATE_USER CREATE_VIEW DEALLOCATE DELETE DESCRIBE DROP_DATABASE DROP_INDEX
    DROP_TABLE DROP_TRIGGER DROP_USER DROP_VIEW EXECUTE EXPLAIN FLUSH GRANT INSERT KILL LOAD LOCK_TABLE OPTIMIZE
    PREPARE PURGE RELEASE_SAVEPOINT RENAME_TABLE RESET_MASTER RESET_SLAVE REPLACE REVOKE ROLLBACK
    ROLLBACK_SAVEPOINT SAVEPOINT SELECT SELECT_FOR_UPDATE SET SHOW_TABLE_STATUS SHOW START_TRANSACTION
    TRUNCATE_TABLE UNLOCK_TABLES UPDATE USE UNKNOWN
}

/// Kinds that are one class, whatever the rest of the statement.
const OF_KIND: &[(Kind, Class)] = &[
    (Kind::Insert, Class::INSERT),
    (Kind::Replace, Class::REPLACE),
    (Kind::Update, Class::UPDATE),
    (Kind::Delete, Class::DELETE),
    (Kind::Set, Class::SET),
    (Kind::SetTransaction, Class::SET),
    (Kind::SetStatement, Class::SET),
    (Kind::SetRole, Class::SET),
    (Kind::SetPassword, Class::SET),
    (Kind::Use, Class::USE),
    (Kind::Commit, Class::COMMIT),
    (Kind::Rollback, Class::ROLLBACK),
    (Kind::Savepoint, Class::SAVEPOINT),
    (Kind::RollbackTo, Class::ROLLBACK_SAVEPOINT),
    (Kind::ReleaseSavepoint, Class::RELEASE_SAVEPOINT),
    (Kind::Call, Class::CALL),
    (Kind::ShowWarnings, Class::SHOW),
    (Kind::ShowErrors, Class::SHOW),
    (Kind::ShowCountWarnings, Class::SHOW),
    (Kind::ShowCountErrors, Class::SHOW),
    (Kind::CreateTemporaryTable, Class::CREATE_TEMPORARY),
    (Kind::DropTable, Class::DROP_TABLE),
    (Kind::LockTables, Class::LOCK_TABLE),
    (Kind::UnlockTables, Class::UNLOCK_TABLES),
    (Kind::Flush, Class::FLUSH),
    (Kind::Prepare, Class::PREPARE),
    (Kind::Execute, Class::EXECUTE),
    (Kind::Deallocate, Class::DEALLOCATE),
    (Kind::Kill, Class::KILL),
    (Kind::LoadData, Class::LOAD),
];

/// Classes by the statement's words: the first, and the first of the others that is one of those named (none named: any).
const OF_WORDS: &[(&str, &[&str], Class)] = &[
    ("BEGIN", &[], Class::BEGIN),
    ("START", &["TRANSACTION"], Class::START_TRANSACTION),
    ("START", &[], Class::UNKNOWN),
    ("SHOW", &["TABLE", "STATUS"], Class::SHOW_TABLE_STATUS),
    ("SHOW", &[], Class::SHOW),
    ("EXPLAIN", &[], Class::EXPLAIN),
    ("DESCRIBE", &[], Class::DESCRIBE),
    ("DESC", &[], Class::DESCRIBE),
    ("ANALYZE", &["TABLE", "TABLES"], Class::ANALYZE_TABLE),
    ("ANALYZE", &[], Class::EXPLAIN),
    ("ALTER", &["TABLE"], Class::ALTER_TABLE),
    ("ALTER", &["VIEW"], Class::ALTER_VIEW),
    ("CREATE", &["DATABASE", "SCHEMA"], Class::CREATE_DATABASE),
    ("CREATE", &["INDEX"], Class::CREATE_INDEX),
    ("CREATE", &["TABLE"], Class::CREATE_TABLE),
    ("CREATE", &["TRIGGER"], Class::CREATE_TRIGGER),
    ("CREATE", &["USER"], Class::CREATE_USER),
    ("CREATE", &["VIEW"], Class::CREATE_VIEW),
    ("DROP", &["DATABASE", "SCHEMA"], Class::DROP_DATABASE),
    ("DROP", &["INDEX"], Class::DROP_INDEX),
    ("DROP", &["TRIGGER"], Class::DROP_TRIGGER),
    ("DROP", &["USER"], Class::DROP_USER),
    ("DROP", &["VIEW"], Class::DROP_VIEW),
    ("CHANGE", &[], Class::CHANGE_MASTER),
    ("FLUSH", &[], Class::FLUSH),
    ("GRANT", &[], Class::GRANT),
    ("REVOKE", &[], Class::REVOKE),
    ("OPTIMIZE", &[], Class::OPTIMIZE),
    ("PURGE", &[], Class::PURGE),
    ("RENAME", &["TABLE", "TABLES"], Class::RENAME_TABLE),
    ("RESET", &["MASTER"], Class::RESET_MASTER),
    ("RESET", &["SLAVE", "REPLICA"], Class::RESET_SLAVE),
    ("TRUNCATE", &[], Class::TRUNCATE_TABLE),
];

/// Words that name what a CREATE, an ALTER or a DROP is about: the first of them decides.
const OBJECTS: &[&str] = &[
    "TABLE",
    "TABLES",
    "VIEW",
    "INDEX",
    "DATABASE",
    "SCHEMA",
    "TRIGGER",
    "USER",
    "PROCEDURE",
    "FUNCTION",
    "EVENT",
    "SERVER",
    "SEQUENCE",
    "ROLE",
    "MASTER",
    "SLAVE",
    "REPLICA",
    "TRANSACTION",
];

/// Words read at most: an object's word stands behind OR REPLACE, ALGORITHM=, DEFINER=, SQL SECURITY, ...
const MAX_WORDS: usize = 16;

/// The class of a statement. Reads words only where the kind is not enough: nothing is allocated otherwise.
pub(crate) fn classify(kind: Kind, facts: Facts, sql: &[u8], lex: LexMode) -> Command {
    if kind == Kind::Select {
        let locks = facts.contains(Facts::LOCKING_READ);
        return if locks { Class::SELECT_FOR_UPDATE } else { Class::SELECT } as Command;
    }
    let class = OF_KIND.iter().find(|(k, _)| *k == kind).map(|(_, class)| *class);
    class.unwrap_or_else(|| by_words(sql, lex)) as Command
}

fn by_words(sql: &[u8], lex: LexMode) -> Class {
    let words = words(sql, lex);
    let Some((first, rest)) = words.split_first() else { return Class::UNKNOWN };
    let object = rest.iter().find(|word| OBJECTS.contains(&word.as_str()));
    let fits = |wanted: &[&str]| match wanted {
        [] => true,
        // The only class of two words.
        ["TABLE", "STATUS"] => rest.first().is_some_and(|w| w == "TABLE") && rest.get(1).is_some_and(|w| w == "STATUS"),
        wanted => object.is_some_and(|o| wanted.contains(&o.as_str())),
    };
    OF_WORDS.iter().find(|(word, wanted, _)| first == word && fits(wanted)).map_or(Class::UNKNOWN, |(_, _, class)| *class)
}

/// The first words in upper case, without names in quotes and values.
fn words(sql: &[u8], lex: LexMode) -> Vec<String> {
    let mut lexer = Lexer::new(sql, lex);
    let mut words = Vec::new();
    for _ in 0..MAX_WORDS {
        let token = lexer.token();
        match token.kind {
            TokenKind::End => break,
            TokenKind::Word => words.push(String::from_utf8_lossy(token.text(sql)).to_ascii_uppercase()),
            _ => {}
        }
    }
    words
}

/// Upper bounds of the buckets, us (exclusive); the last bucket has none.
pub(crate) const BUCKETS_US: [u64; 11] = [100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000];

/// What is counted for one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSums {
    /// Statements.
    pub count: u64,
    /// Their durations, us.
    pub sum_us: u64,
    /// Statements by bucket of their duration.
    pub buckets: [u64; BUCKETS_US.len() + 1],
}

impl CommandSums {
    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        since.count = since.count.saturating_sub(earlier.count);
        since.sum_us = since.sum_us.saturating_sub(earlier.sum_us);
        since.buckets.iter_mut().zip(earlier.buckets).for_each(|(mine, theirs)| *mine = mine.saturating_sub(theirs));
        since
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.buckets.iter_mut().zip(other.buckets).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// What is counted for all classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTable(Vec<CommandSums>);

impl Default for CommandTable {
    fn default() -> Self {
        Self(vec![CommandSums::default(); NAMES.len()])
    }
}

impl CommandTable {
    /// One more of this command, which took so long (us).
    pub fn count(&mut self, command: Command, time_us: u64) {
        let Some(sums) = self.0.get_mut(usize::from(command)) else { return };
        sums.count += 1;
        sums.sum_us = sums.sum_us.saturating_add(time_us);
        let bucket = BUCKETS_US.iter().take_while(|bound| time_us >= **bound).count();
        if let Some(count) = sums.buckets.get_mut(bucket) {
            *count += 1;
        }
    }

    /// Adds what another worker counted.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.add(theirs));
    }

    /// Adds what another process counted of the class with this name; one that is not known here is passed over.
    pub fn add_named(&mut self, name: &str, sums: &CommandSums) {
        let known = NAMES.iter().zip(&mut self.0).find(|(known, _)| **known == name);
        known.into_iter().for_each(|(_, mine)| mine.add(sums));
    }

    /// Each command by its name, in the order of the table.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &CommandSums)> {
        NAMES.iter().copied().zip(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(sql: &str) -> &'static str {
        let analysis = sql::analyze(sql.as_bytes(), LexMode::default());
        NAMES[usize::from(classify(analysis.kind, analysis.facts, sql.as_bytes(), LexMode::default()))]
    }

    #[test]
    fn statements_have_proxysqls_classes() {
        let cases = [
            ("select 1", "SELECT"),
            ("/* x */ (SELECT 1)", "SELECT"),
            ("SELECT * FROM t FOR UPDATE", "SELECT_FOR_UPDATE"),
            ("insert into t values (1)", "INSERT"),
            ("BEGIN", "BEGIN"),
            ("start transaction read only", "START_TRANSACTION"),
            ("ROLLBACK TO a", "ROLLBACK_SAVEPOINT"),
            ("release savepoint a", "RELEASE_SAVEPOINT"),
            ("CREATE OR REPLACE ALGORITHM=MERGE VIEW v AS SELECT 1", "CREATE_VIEW"),
            ("create unique index i on t (a)", "CREATE_INDEX"),
            ("CREATE TABLE `index` (a INT)", "CREATE_TABLE"),
            ("CREATE TEMPORARY TABLE t (a INT)", "CREATE_TEMPORARY"),
            ("CREATE SCHEMA s", "CREATE_DATABASE"),
            ("CREATE PROCEDURE p() DROP TABLE t", "UNKNOWN"),
            ("CREATE USER u", "CREATE_USER"),
            ("DROP TABLE IF EXISTS t", "DROP_TABLE"),
            ("drop database d", "DROP_DATABASE"),
            ("DROP INDEX i ON t", "DROP_INDEX"),
            ("alter table t add index i (a)", "ALTER_TABLE"),
            ("ANALYZE TABLE t", "ANALYZE_TABLE"),
            ("SHOW TABLE STATUS LIKE 'x'", "SHOW_TABLE_STATUS"),
            ("show full tables", "SHOW"),
            ("DESC t", "DESCRIBE"),
            ("EXPLAIN SELECT 1", "EXPLAIN"),
            ("truncate t", "TRUNCATE_TABLE"),
            ("GRANT SELECT ON *.* TO u", "GRANT"),
            ("revoke all on a.b from u", "REVOKE"),
            ("FLUSH TABLES WITH READ LOCK", "FLUSH"),
            ("RESET MASTER", "RESET_MASTER"),
            ("CHANGE MASTER TO MASTER_HOST='x'", "CHANGE_MASTER"),
            ("LOAD DATA INFILE 'x' INTO TABLE t", "LOAD"),
            ("DEALLOCATE PREPARE s", "DEALLOCATE"),
            ("rename table a to b", "RENAME_TABLE"),
            ("XA START 'x'", "UNKNOWN"),
            ("", "UNKNOWN"),
        ];
        for (sql, expected) in cases {
            assert_eq!(class(sql), expected, "{sql}");
        }
    }

    #[test]
    fn buckets_are_exclusive_upper_bounds() {
        let mut table = CommandTable::default();
        for time_us in [0, 99, 100, 9_999_999, 10_000_000, u64::MAX] {
            table.count(0, time_us);
        }
        table.count(200, 1);
        let sums = table.0[0];
        assert_eq!((sums.count, sums.buckets), (6, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]));
        let mut sum = CommandTable::default();
        sum.add(&table);
        sum.add(&table);
        assert_eq!(sum.0[0].buckets[11], 4);
    }

    #[test]
    fn there_are_as_many_classes_as_proxysql_has() {
        assert_eq!(NAMES.len(), 54);
        assert_eq!(NAMES.last(), Some(&"UNKNOWN"));
    }
}
