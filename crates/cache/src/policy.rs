//! What the operator wants of the cache: settings of the process, and what a rule says of a statement.

use model::settings::MysqlVariables;

const MEBIBYTE: u64 = 1 << 20;

/// The `query_cache_*` settings. The default is the settings' own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Most memory, bytes; 0 switches the cache off.
    pub size_bytes: usize,
    /// Largest result that is kept, bytes.
    pub max_entry_bytes: usize,
    /// After this share of its life (1..=99 percent) one session refreshes an entry; anything else is off.
    pub soft_ttl_pct: u64,
    /// How long one session waits for another to fetch the same result, ms; 0 does not wait.
    pub wait_ms: u64,
    /// Whether results with warnings are kept.
    pub keeps_warnings: bool,
    /// Whether empty results are kept when the rule says nothing.
    pub keeps_empty: bool,
}

impl CacheSettings {
    /// The settings among all variables.
    pub fn of(vars: &MysqlVariables) -> Self {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            size_bytes: size(vars.query_cache_size_MB.saturating_mul(MEBIBYTE)),
            max_entry_bytes: size(vars.query_cache_max_entry_bytes),
            soft_ttl_pct: vars.query_cache_soft_ttl_pct,
            wait_ms: vars.query_cache_wait_ms,
            keeps_warnings: vars.query_cache_handle_warnings != 0,
            keeps_empty: vars.query_cache_stores_empty_result,
        }
    }

    /// The share of its life after which an entry is refreshed, percent.
    pub(super) fn refresh_at(&self) -> Option<u64> {
        Some(self.soft_ttl_pct).filter(|percent| (1..100).contains(percent))
    }
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self::of(&MysqlVariables::default())
    }
}

/// What the rule that matched a statement says about its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// `cache_ttl`: how long it may be answered, ms; 0 is not at all.
    pub ttl_ms: u64,
    /// `cache_empty_result`: whether an empty result is kept; None leaves it to the settings.
    pub keeps_empty: Option<bool>,
    /// Results that were asked for before that (process clock, ms) are not given: rights have changed since.
    pub since_ms: u64,
}
