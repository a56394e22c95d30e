//! `tidegate check FILE`: is a configuration usable, and does it do what its author thinks?

use anyhow::{Result, bail};
use model::config::inert;
use model::remark::Places;
use model::{Config, ConfigError, SecretFiles, Snapshot};
use routing::{Options, RuleSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Prints every fault and every remark; fails when there is a fault. `is_strict` makes faults of what else is passed over.
pub(crate) fn check(file: &Path, is_strict: bool) -> Result<()> {
    let loaded = if is_strict { model::config::load_strictly(file) } else { model::load(file) };
    let (config, notices) = match loaded {
        Ok(loaded) => loaded,
        Err(errors) => return refuse(file, &errors),
    };
    let snapshot = match Snapshot::compile(&config) {
        Ok(snapshot) => snapshot,
        Err(errors) => return refuse(file, &errors),
    };
    let errors: Vec<_> = patterns(&snapshot).into_iter().map(|error| model::snapshot::located(error, &config)).collect();
    if !errors.is_empty() {
        return refuse(file, &errors);
    }
    // The machine that it is checked on need not be the one that it is for.
    let secrets = SecretFiles::read(&config, &SecretFiles::default()).err().unwrap_or_default();
    let faults = model::config::faults(&notices);
    let notices = notices.iter().filter(|notice| !notice.is_fault).map(ToString::to_string);
    let notices: Vec<String> = notices.chain(blank_database(&config)).collect();
    for notice in &notices {
        println!("note: {notice}");
    }
    for fault in &faults {
        println!("warning: {fault}");
    }
    let mut remarks = model::config::remarks::references(&config, &snapshot);
    remarks.extend(routing::lint(&snapshot));
    remarks.extend(admin::remarks::scripts(&config));
    // Settings without effect are notes already.
    remarks.extend(inert::advice(&config));
    let remarks = model::remark::by_kind(remarks);
    for error in &secrets {
        println!("warning: {error}: the proxy does not start without it");
    }
    let places = Places::of(&config);
    for remark in &remarks {
        let at = places.find(remark).map_or_else(|| file.display().to_string(), |origin| origin.to_string());
        println!("warning: {at}: {remark}");
    }
    let blank = "it sets no variable and no table; --declarative refuses it";
    let of_file: Vec<String> =
        config.is_blank().then(|| format!("{}: {blank}", file.display())).into_iter().chain(readable_by_all(file, &config)).collect();
    for warning in &of_file {
        println!("warning: {warning}");
    }
    let warnings = faults.len() + secrets.len() + remarks.len() + of_file.len();
    println!("{}: usable, {} note(s), {warnings} warning(s)", file.display(), notices.len());
    Ok(())
}

/// That everybody on the machine may read a file with passwords.
pub(crate) fn readable_by_all(path: &Path, config: &Config) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let has_passwords =
        !config.rows("mysql_users").is_empty() || config.admin.admin_credentials != Config::default().admin.admin_credentials;
    (mode & 0o004 != 0 && has_passwords).then(|| format!("{} holds passwords and is readable for everybody: chmod o-r", path.display()))
}

/// Patterns of rules that cannot be used.
pub(crate) fn patterns(snapshot: &Snapshot) -> Vec<ConfigError> {
    RuleSet::compile(&snapshot.rules, Options::from_variables(&snapshot.vars)).err().unwrap_or_default()
}

/// The data directory's database, if it exists and does not count.
fn blank_database(config: &Config) -> Option<String> {
    let disk = Path::new(&config.globals.datadir).join(admin::DISK_FILE);
    match disk.exists().then(|| admin::looks_blank(&disk))? {
        Ok(true) => Some(format!("{}: no configuration was saved in it, so the next start uses the file", disk.display())),
        // The start itself names the fault.
        Ok(false) | Err(_) => None,
    }
}

fn refuse(file: &Path, errors: &[ConfigError]) -> Result<()> {
    for error in errors {
        println!("error: {error}");
    }
    bail!("{} is not usable: {} error(s)", file.display(), errors.len())
}
