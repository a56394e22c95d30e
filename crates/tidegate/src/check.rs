//! `tidegate check FILE`: is a configuration usable, and does it do what its author thinks?

use anyhow::{Result, bail};
use model::Snapshot;
use routing::{Options, RuleSet};
use std::path::Path;

/// Prints every fault and every remark; fails when there is a fault.
pub fn check(file: &Path) -> Result<()> {
    let (config, notices) = match model::load(file) {
        Ok(loaded) => loaded,
        Err(errors) => return refuse(file, &errors),
    };
    let snapshot = match Snapshot::compile(&config) {
        Ok(snapshot) => snapshot,
        Err(errors) => return refuse(file, &errors),
    };
    if let Err(errors) = RuleSet::compile(&snapshot.rules, Options::from_variables(&snapshot.vars)) {
        let errors: Vec<_> = errors.into_iter().map(|error| model::snapshot::located(error, &config)).collect();
        return refuse(file, &errors);
    }
    for notice in &notices {
        println!("note: {notice}");
    }
    let lints = routing::lint(&snapshot);
    for lint in &lints {
        println!("warning: {}: mysql_query_rules, rule_id={}, column {}: {}", file.display(), lint.rule_id, lint.column, lint.text);
    }
    println!("{}: usable, {} note(s), {} warning(s)", file.display(), notices.len(), lints.len());
    Ok(())
}

fn refuse(file: &Path, errors: &[model::ConfigError]) -> Result<()> {
    for error in errors {
        println!("error: {error}");
    }
    bail!("{} is not usable: {} error(s)", file.display(), errors.len())
}
