//! Modules of `main` that are behind: the base of their edits is a revision no longer in force.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Config;
use model::config::diff::{Sheet, VARIABLES, diff};
use model::config::shared::is_local;
use serde::{Deserialize, Serialize};

use crate::error::AdminError;
use crate::store::modules::{MODULES, Module};

/// The base of a module of `main` that is behind: a revision no longer in force.
#[derive(Debug, Clone)]
pub(crate) struct Behind {
    pub number: u64,
    /// The configuration that was in force then.
    pub base: Arc<Config>,
}

/// The same, for a process that takes over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptBehind {
    module: String,
    number: u64,
    base: String,
}

/// Modules of `main` that are behind, by their words.
#[derive(Debug, Clone, Default)]
pub(crate) struct BehindModules(pub BTreeMap<&'static str, Behind>);

impl BehindModules {
    /// Whether all of these may be loaded.
    ///
    /// # Errors
    /// The first that is behind.
    pub(crate) fn refuse(&self, modules: &[&'static Module], now: impl Fn() -> String) -> Result<(), AdminError> {
        let Some((module, behind)) = modules.iter().find_map(|module| Some((module, self.0.get(module.words)?))) else {
            return Ok(());
        };
        let now = now();
        Err(AdminError::Refused(format!(
            "the shared configuration is at {now}, and {} in memory is based on {}: nothing was changed. CONFIG DIFF SHARED shows the \
             differences, CONFIG REBASE lays your changes over it",
            module.words, behind.number
        )))
    }

    /// For a process that takes over.
    pub(crate) fn keep(&self) -> Vec<KeptBehind> {
        let one = |(module, behind): (&&str, &Behind)| KeptBehind {
            module: (*module).to_owned(),
            number: behind.number,
            base: model::config::text::to_text(&behind.base),
        };
        self.0.iter().map(one).collect()
    }

    /// Restores the modules from the process before.
    pub(crate) fn recall(kept: &[KeptBehind]) -> Self {
        let one = |kept: &KeptBehind| {
            let module = MODULES.iter().find(|module| module.words == kept.module)?;
            let (base, _) = model::config::parse(&kept.base, "the base of what is in memory").ok()?;
            Some((module.words, Behind { number: kept.number, base: Arc::new(base) }))
        };
        Self(kept.iter().filter_map(one).collect())
    }
}

/// Modules in which two configurations differ, but for local variables.
pub(crate) fn differing(left: &Sheet, right: &Sheet) -> Vec<&'static Module> {
    let is_shared = |name: &str| model::Setting::by_full_name(name).is_none_or(|setting| !is_local(setting));
    let mut found: Vec<&'static Module> = Vec::new();
    for difference in diff(left, right) {
        let of_module = |module: &&Module| {
            if difference.table == VARIABLES {
                let name = difference.key.strip_prefix("variable_name=").unwrap_or_default();
                let module = module.part.variables;
                module.is_some_and(|module| name.split('-').next() == Some(module)) && is_shared(name)
            } else {
                module.part.tables.contains(&difference.table)
            }
        };
        if let Some(module) = MODULES.iter().find(of_module).filter(|module| !found.iter().any(|one| one.words == module.words)) {
            found.push(module);
        }
    }
    found
}
