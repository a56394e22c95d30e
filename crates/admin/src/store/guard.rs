//! Which accesses a statement may make, checked while SQLite prepares it, and how long it may run.
//!
//! The engine sets the [`Level`] before it prepares a session's statement. Its own statements run at [`Level::Internal`].

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use model::config::TABLES;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use crate::error::AdminError;

/// The origin of the statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// The engine's own.
    Internal,
    /// An administrator's session.
    Admin,
    /// An administrator's while `admin-read_only` is set.
    ReadOnly,
    /// One of a login that may only read statistics.
    Stats,
}

const LEVELS: [Level; 4] = [Level::Internal, Level::Admin, Level::ReadOnly, Level::Stats];
/// How long an administrator waits for a statement of a login that may only read statistics, ms.
const PATIENCE_MS: u64 = 500;
/// Steps of SQLite's machine between two looks at the clock.
const STEPS: i32 = 10_000;
/// PRAGMAs that only read.
const PRAGMAS: &[&str] = &[
    "collation_list",
    "compile_options",
    "database_list",
    "foreign_key_list",
    "freelist_count",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "page_count",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
];

/// The level and deadline of the statement at hand.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    level: AtomicU8,
    /// Milliseconds after `start`; 0 is never.
    deadline_ms: AtomicU64,
    /// When the statement at hand began, the same.
    began_ms: AtomicU64,
    start: OnceLock<Instant>,
    /// Whether the statement at hand was prepared for more than reading.
    asked_to_change: AtomicBool,
    /// Administrators' statements that are on their way.
    waiting: OnceLock<Arc<AtomicUsize>>,
}

impl Guard {
    /// From now on statements are `level`'s and may run for `limit`.
    pub(crate) fn enter(&self, level: Level, limit: Option<Duration>) {
        self.asked_to_change.store(false, Relaxed);
        self.began_ms.store(self.now_ms(), Relaxed);
        let index = LEVELS.iter().position(|other| *other == level).unwrap_or_default();
        self.level.store(u8::try_from(index).unwrap_or_default(), Relaxed);
        let deadline = limit.map_or(0, |limit| self.now_ms().saturating_add(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)).max(1));
        self.deadline_ms.store(deadline, Relaxed);
    }

    /// Statements of statistics' logins give way to those of administrators, which are counted here.
    pub(crate) fn make_way_for(&self, administrators: Arc<AtomicUsize>) {
        let _ = self.waiting.set(administrators);
    }

    /// Back to the engine's own statements.
    pub(crate) fn leave(&self) {
        self.enter(Level::Internal, None);
    }

    /// Whether statements prepared since [`Guard::enter`] do more than read. SQLite reports every access while it prepares.
    pub(crate) fn was_asked_to_change(&self) -> bool {
        self.asked_to_change.load(Relaxed)
    }

    fn note(&self, action: &AuthAction<'_>) {
        let resets = matches!(action, AuthAction::Read { table_name, .. } if table_name.to_ascii_lowercase().ends_with("_reset"));
        if resets || !reads(action) {
            self.asked_to_change.store(true, Relaxed);
        }
    }

    fn level(&self) -> Level {
        LEVELS.get(usize::from(self.level.load(Relaxed))).copied().unwrap_or(Level::Stats)
    }

    fn is_late(&self) -> bool {
        let (deadline, now) = (self.deadline_ms.load(Relaxed), self.now_ms());
        deadline != 0 && now > deadline || self.is_in_the_way() && now > self.began_ms.load(Relaxed) + PATIENCE_MS
    }

    /// Whether a statement of a login that may only read statistics keeps an administrator waiting.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.level() == Level::Stats && self.waiting.get().is_some_and(|waiting| waiting.load(Relaxed) > 0)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Puts the guard before every statement of `db`.
pub(super) fn install(db: &mut Connection, guard: &Arc<Guard>) -> Result<(), AdminError> {
    let (asked, clock) = (guard.clone(), guard.clone());
    db.authorizer(Some(move |context: AuthContext<'_>| {
        asked.note(&context.action);
        decide(asked.level(), &context)
    }))?;
    db.progress_handler(STEPS, Some(move || clock.is_late()))?;
    Ok(())
}

fn decide(level: Level, context: &AuthContext<'_>) -> Authorization {
    let is_allowed = match level {
        Level::Internal => true,
        Level::Admin => reads(&context.action) || changes(&context.action),
        Level::ReadOnly | Level::Stats => reads(&context.action),
    };
    if is_allowed { Authorization::Allow } else { Authorization::Deny }
}

fn reads(action: &AuthAction<'_>) -> bool {
    match action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => !function_name.eq_ignore_ascii_case("load_extension"),
        AuthAction::Pragma { pragma_name, .. } => PRAGMAS.iter().any(|name| name.eq_ignore_ascii_case(pragma_name)),
        _ => false,
    }
}

/// The changes that an administrator may make. Tables of the configuration cannot be dropped or altered; files, modules and transactions
/// are the engine's.
fn changes(action: &AuthAction<'_>) -> bool {
    match action {
        AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::CreateVtable { .. }
        | AuthAction::DropVtable { .. }
        | AuthAction::Pragma { .. }
        | AuthAction::Function { .. }
        | AuthAction::Transaction { .. }
        | AuthAction::Savepoint { .. }
        | AuthAction::Unknown { .. } => false,
        AuthAction::DropTable { table_name } | AuthAction::AlterTable { table_name, .. } => !is_ours(table_name),
        _ => true,
    }
}

fn is_ours(table: &str) -> bool {
    let own = ["global_variables", "global_settings", super::layout::HISTORY_TABLE, super::layout::SHARED_TABLE];
    TABLES.iter().map(|table| table.name).chain(own).any(|name| name.eq_ignore_ascii_case(table))
}
