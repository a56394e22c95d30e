//! Words with a meaning to the proxy, and the lookup that finds them.
//!
//! [`Kw`] has a variant for each word that some rule acts on. Every other keyword or built-in function that can stand before a parenthesis
//! is [`Kw::Known`] or a similar variant. The lookup is a hash table built at compile time. Its key is the word's case-folded first eight
//! bytes and its length.

use crate::builtins::BUILTINS;

macro_rules! keywords {
    ($($variant:ident $text:literal)*) => {
        /// A word with a role.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Kw {
            /// Not a known word.
            None,
            /// A keyword or built-in function without a role of its own.
            Known,
            /// A function that is built in on MySQL alone.
            OfMySql,
            /// A function that is built in on MariaDB alone.
            OfMariaDb,
            /// A function that is built in where `(` touches its name.
            Touching,
            /// The same on MariaDB; on MySQL it is built in.
            TouchingOnMariaDb,
            /// [`Kw::Touching`] on MySQL; on MariaDB it is not built in.
            TouchingOfMySql,
            /// [`Kw::Touching`] on MariaDB; on MySQL it is not built in.
            TouchingOfMariaDb,
            $($variant,)*
        }

        impl Kw {
            pub(crate) const ALL: &[Kw] = &[
                Kw::None, Kw::Known, Kw::OfMySql, Kw::OfMariaDb, Kw::Touching, Kw::TouchingOnMariaDb, Kw::TouchingOfMySql,
                Kw::TouchingOfMariaDb, $(Kw::$variant,)*
            ];
        }

        const ROLES: &[(&str, Kw)] = &[$(($text, Kw::$variant),)*];
    };
}

keywords! {
    Alter "alter" Analyze "analyze" And "and" As "as" Atomic "atomic" Backup "backup" Begin "begin"
    Between "between" By "by" Call "call" Cascade "cascade" Case "case" Chain "chain" Char "char"
    Character "character" Charset "charset" Check "check" Collate "collate" Commit "commit"
    Committed "committed" Connection "connection" ConnectionId "connection_id" Consistent "consistent"
    Count "count" Create "create" Data "data" Database "database" Deallocate "deallocate" Default "default"
    Delayed "delayed" Delete "delete" Desc "desc" Describe "describe" Diagnostics "diagnostics"
    Distinct "distinct" Div "div" Do "do" Drop "drop" Dual "dual" Dumpfile "dumpfile" Else "else"
    ErrorCount "error_count" Errors "errors" Event "event" Execute "execute" Exists "exists"
    Explain "explain" Export "export" False "false" Flush "flush" For "for" Force "force"
    FoundRows "found_rows" From "from" Function "function" Get "get" GetLock "get_lock" Global "global"
    Grant "grant" Handler "handler" Hard "hard" Having "having" HighPriority "high_priority"
    Identity "identity" If "if" Ignore "ignore" Immediate "immediate" Import "import" In "in"
    Index "index" Insert "insert" Install "install" Instance "instance" Into "into" Isolation "isolation"
    Join "join" Key "key" Kill "kill" LastInsertId "last_insert_id" Level "level" Like "like"
    Limit "limit" Load "load" Local "local" Lock "lock" Loop "loop" LowPriority "low_priority" Names "names"
    No "no" Not "not" Null "null" Offset "offset" On "on" Only "only" Optimize "optimize" Or "or"
    Outfile "outfile" Package "package" Partition "partition" Password "password" Persist "persist"
    PersistOnly "persist_only" Prepare "prepare" Previous "previous" Procedure "procedure"
    PseudoThreadId "pseudo_thread_id" Query "query" Read "read" Recursive "recursive"
    References "references" Release "release" ReleaseAllLocks "release_all_locks"
    ReleaseLock "release_lock" Rename "rename" Repair "repair" Repeat "repeat" Repeatable "repeatable"
    Replace "replace" Resignal "resignal" Restrict "restrict" Return "return" Returning "returning"
    Revoke "revoke" Role "role" Rollback "rollback" Row "row" RowCount "row_count" Savepoint "savepoint"
    Select "select" Serializable "serializable" Session "session" Set "set" Share "share" Show "show"
    Signal "signal" Snapshot "snapshot" Soft "soft" SqlCalcFoundRows "sql_calc_found_rows" Start "start"
    Statement "statement" Table "table" Tables "tables" Temporary "temporary" Then "then" To "to"
    Transaction "transaction" Trigger "trigger" True "true" Truncate "truncate"
    Uncommitted "uncommitted" Uninstall "uninstall" Union "union" Unlock "unlock" Update "update"
    Use "use" User "user" Value "value" Values "values" Variables "variables" View "view"
    WarningCount "warning_count" Warnings "warnings" When "when" Where "where" While "while" With "with"
    Work "work" Write "write" Xa "xa" Xml "xml"
    // Tables of variables in information_schema and performance_schema.
    VariableTable "session_variables" VariableTable2 "global_variables" VariableTable3 "system_variables"
    VariableTable4 "variables_by_thread" VariableTable5 "user_variables"
    VariableTable6 "user_variables_by_thread" VariableTable7 "variables_info"
    // Built-in functions whose value cannot collide with an AUTO_INCREMENT value by mistake.
    Now "now" CurrentTimestamp "current_timestamp" CurrentDate "current_date" CurrentTime "current_time"
    Curdate "curdate" Curtime "curtime" Sysdate "sysdate" Localtime "localtime"
    Localtimestamp "localtimestamp" UtcTimestamp "utc_timestamp" UtcDate "utc_date" UtcTime "utc_time"
    Uuid "uuid"
}

impl Kw {
    /// A keyword or built-in function that no rule acts on.
    #[inline]
    pub(crate) fn has_no_role(self) -> bool {
        (Kw::Known as u8..=Kw::TouchingOfMariaDb as u8).contains(&(self as u8))
    }

    /// The name of a table or view that shows variables.
    pub(crate) fn is_variable_table(self) -> bool {
        use Kw::*;
        matches!(self, VariableTable | VariableTable2 | VariableTable3 | VariableTable4 | VariableTable5 | VariableTable6 | VariableTable7)
    }

    /// A `+` or `-` after this word is a sign, not an operator between two values.
    #[inline]
    pub(crate) fn precedes_value(self) -> bool {
        use Kw::*;
        matches!(
            self,
            And | Between
                | By
                | Case
                | Default
                | Distinct
                | Div
                | Do
                | Else
                | Having
                | In
                | Like
                | Limit
                | Not
                | Offset
                | On
                | Or
                | Return
                | Select
                | Set
                | Then
                | When
                | Where
        )
    }

    /// `NOW()` and its like: constant per statement and no plausible AUTO_INCREMENT value.
    pub(crate) fn is_stamp_function(self) -> bool {
        use Kw::*;
        matches!(
            self,
            Now | CurrentTimestamp
                | CurrentDate
                | CurrentTime
                | Curdate
                | Curtime
                | Sysdate
                | Localtime
                | Localtimestamp
                | UtcTimestamp
                | UtcDate
                | UtcTime
                | Uuid
        )
    }
}

const SLOTS: usize = 4096;
const SHIFT: u32 = 64 - 12;
const CASE_BITS: u64 = 0x2020_2020_2020_2020;
/// The longest word that the table holds.
const LONGEST: usize = 40;

#[derive(Clone, Copy)]
struct Entry {
    head: u64,
    name: &'static [u8],
    kw: Kw,
}

const ENTRY_COUNT: usize = {
    let mut count = ROLES.len();
    let mut group = 0;
    while group < BUILTINS.len() {
        count += BUILTINS[group].1.len();
        group += 1;
    }
    count
};

/// The word at this place of all, roles first.
const fn word_at(mut at: usize) -> (&'static str, Kw) {
    if at < ROLES.len() {
        return ROLES[at];
    }
    at -= ROLES.len();
    let mut group = 0;
    while at >= BUILTINS[group].1.len() {
        at -= BUILTINS[group].1.len();
        group += 1;
    }
    (BUILTINS[group].1[at], BUILTINS[group].0)
}

static ENTRIES: [Entry; ENTRY_COUNT] = {
    let mut entries = [Entry { head: 0, name: b"", kw: Kw::None }; ENTRY_COUNT];
    let mut at = 0;
    while at < ENTRY_COUNT {
        let (name, kw) = word_at(at);
        let name = name.as_bytes();
        assert!(name.len() <= LONGEST);
        entries[at] = Entry { head: fold(const_head(name), name.len()), name, kw };
        at += 1;
    }
    entries
};

/// Index into `ENTRIES` plus one; zero is an empty slot.
static TABLE: [u16; SLOTS] = {
    let mut table = [0u16; SLOTS];
    let mut at = 0;
    while at < ENTRY_COUNT {
        let mut slot = slot_of(ENTRIES[at].head, ENTRIES[at].name.len());
        while table[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        table[slot] = at as u16 + 1;
        at += 1;
    }
    table
};

const fn const_head(name: &[u8]) -> u64 {
    let mut head = 0u64;
    let mut at = 0;
    while at < name.len() && at < 8 {
        head |= (name[at] as u64) << (8 * at);
        at += 1;
    }
    head
}

const fn mask(len: usize) -> u64 {
    if len >= 8 { u64::MAX } else { (1u64 << (8 * len)) - 1 }
}

const fn fold(head: u64, len: usize) -> u64 {
    (head | CASE_BITS) & mask(len)
}

const fn slot_of(head: u64, len: usize) -> usize {
    ((head ^ ((len as u64) << 59)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> SHIFT) as usize
}

/// The first eight bytes of `sql[start..start + len]`, little-endian, missing ones zero.
#[inline]
pub(crate) fn head_at(sql: &[u8], start: usize, len: usize) -> u64 {
    let rest = sql.get(start..).unwrap_or_default();
    if let Some(chunk) = rest.first_chunk::<8>() {
        return u64::from_le_bytes(*chunk) & mask(len);
    }
    const_head(rest.get(..len).unwrap_or(rest))
}

/// The case-folded form of [`head_at`]'s result.
#[inline]
pub(crate) fn fold_head(head: u64, len: usize) -> u64 {
    fold(head, len)
}

/// The keyword `word`, given its first bytes from [`head_at`].
#[inline(always)]
pub(crate) fn lookup_with(head: u64, word: &[u8]) -> Kw {
    let len = word.len();
    if len > LONGEST {
        return Kw::None;
    }
    let folded = fold(head, len);
    let mut slot = slot_of(folded, len);
    loop {
        let index = usize::from(TABLE[slot]);
        if index == 0 {
            return Kw::None;
        }
        let entry = &ENTRIES[index - 1];
        if entry.head == folded && entry.name.len() == len && same_tail(entry.name, word) {
            return entry.kw;
        }
        slot = (slot + 1) % SLOTS;
    }
}

#[inline]
fn same_tail(name: &[u8], word: &[u8]) -> bool {
    name.len() <= 8 || name[8..].eq_ignore_ascii_case(&word[8..])
}

/// The keyword `word`, in any letter case; [`Kw::None`] for other words.
pub(crate) fn lookup(word: &[u8]) -> Kw {
    lookup_with(head_at(word, 0, word.len()), word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_any_case() {
        assert_eq!(lookup(b"SeLeCt"), Kw::Select);
        assert_eq!(lookup(b"SQL_CALC_FOUND_ROWS"), Kw::SqlCalcFoundRows);
        assert_eq!(lookup(b"sql_calc_found_rowz"), Kw::None);
        assert_eq!(lookup(b"concat_ws"), Kw::Known);
        assert_eq!(lookup(b"my_function"), Kw::None);
        assert_eq!(lookup(b""), Kw::None);
    }

    #[test]
    fn every_word_is_found_and_unique() {
        for (at, entry) in ENTRIES.iter().enumerate() {
            assert_eq!(lookup(entry.name), entry.kw, "{:?}", String::from_utf8_lossy(entry.name));
            let first = ENTRIES.iter().position(|other| other.name == entry.name);
            assert_eq!(first, Some(at), "{:?} twice", String::from_utf8_lossy(entry.name));
        }
    }
}
