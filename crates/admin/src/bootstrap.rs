//! The start: decides which configuration holds, before anything runs by it.
//!
//! As in ProxySQL, an existing database wins over the file. A file that was edited since is named in a notice. The configuration must
//! compile; otherwise the start fails, names every fault, and leaves the files as they were.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use model::config::diff::Sheet;
use model::config::inert;
use model::config::shared::with_shared;
use model::config::text::to_text;
use model::control::DataPlane;
use model::fleet::Operator;
use model::stats::StatsSource;
use model::{Config, ConfigError, Scope, SecretFiles, Snapshot};
use rusqlite::{OptionalExtension, params};
use shared_config::{ProxyLine, new_id};

use crate::clock::now;
use crate::commands::execute;
use crate::commands::show::collation_rows;
use crate::engine::{Engine, first_runtime, innocent_rules};
use crate::error::AdminError;
use crate::handle::{EngineHandle, channel};
use crate::history::starts;
use crate::live::Live;
use crate::process::Process;
use crate::remarks::LOGGED;
use crate::sharing::peers::{self, Peers};
use crate::sharing::{BehindModules, Sharing, differing};
use crate::store::modules::{everything, merge};
use crate::store::past;
use crate::store::rows::{read, transaction, write};
use crate::store::standing::{self, Kept};
use crate::store::{self, DISK_FILE, Store, import, layout};
use crate::take_over::{Frozen, TakenOver};
use crate::watch;

/// Which source holds when there are two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precedence {
    /// The database if it is there, else the file.
    #[default]
    Database,
    /// `--initial`: the file. The database is renamed to `proxysql.db.bak`.
    Initial,
    /// `--reload`: the file's rows are laid over the database's.
    Reload,
    /// `--declarative`: the file, at every start and whenever it changes.
    Declarative,
}

/// The sources of the configuration.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// The directory of `proxysql.db`. It is there.
    pub datadir: PathBuf,
    /// The configuration file, for LOAD ... FROM CONFIG, if there is one.
    pub config_file: Option<PathBuf>,
    /// The file's content; defaults without a file.
    pub file: Config,
    /// The source that wins if there are two.
    pub precedence: Precedence,
    /// Finds what only the data plane knows to be wrong: patterns.
    pub faults: Option<fn(&Snapshot) -> Vec<ConfigError>>,
}

/// A configuration that may run, and the databases that it is in.
#[derive(Debug)]
pub struct Bootstrap {
    /// As stored: values that stand in files are not in it.
    pub config: Arc<Config>,
    /// The compiled configuration, with the content of files.
    pub snapshot: Arc<Snapshot>,
    /// Notices for the operator, one line each.
    pub notices: Vec<String>,
    /// Nothing was saved in the database before this start.
    pub is_first: bool,
    store: Store,
    options: EngineOptions,
    operator: Option<Operates>,
    secrets: SecretFiles,
    /// The state of the process before, for a process that takes over.
    given: Option<TakenOver>,
}

/// The party that carries out orders about roles.
struct Operates(Arc<dyn Operator>);

impl std::fmt::Debug for Operates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Operator")
    }
}

/// Finds the configuration that holds, and saves it in the database if it is not there yet.
pub fn bootstrap(options: EngineOptions) -> Result<Bootstrap, AdminError> {
    let lock = store::lock(&options.datadir)?;
    bootstrap_locked(options, lock)
}

/// The same under the data directory's [`store::lock`], which the caller has.
pub fn bootstrap_locked(options: EngineOptions, lock: OwnedFd) -> Result<Bootstrap, AdminError> {
    let disk = options.datadir.join(DISK_FILE);
    refuse_blank(&options)?;
    let (was_there, edited) = (disk.exists(), modified_after(options.config_file.as_deref(), &disk));
    // One that cannot be read is named when it is opened.
    let is_blank = store::is_blank(&disk).unwrap_or(false);
    let is_initial = options.precedence == Precedence::Initial;
    if is_initial && !(is_blank && backup(&disk).exists()) {
        set_aside(&disk)?;
    }
    let is_first = is_blank || is_initial;
    let store = Store::open(&options.datadir, lock.into())?;
    let mut notices = store.notices.clone();
    if is_blank && was_there && !is_initial {
        notices.push(blank_database(&disk, &options));
    }
    let from_file = is_first || options.precedence == Precedence::Declarative;
    let is_import = !from_file && import::is_due(&store.admin)?;
    let tolerated = if from_file { Vec::new() } else { import::tolerated(&store.admin)? };
    let is_refused = options.file.globals.strict && !tolerated.is_empty();
    if is_import && options.precedence == Precedence::Database || is_refused {
        // Before anything in it changes.
        refuse_faulty(&store, &options, &disk)?;
    }
    notices.extend(tolerated.iter().filter_map(ConfigError::tolerated).map(|told| format!("{DISK_FILE}: {told}")));
    let taken = take(&store, &options, &disk, from_file, &mut notices);
    let (config, secrets, snapshot) = match taken {
        Err(error) if !from_file => {
            refuse_faulty(&store, &options, &disk)?;
            return Err(error);
        }
        taken => taken?,
    };
    name_instance(&store, &config.globals.uuid)?;
    if from_file || options.precedence == Precedence::Reload {
        // The last that is written: until then the database counts as none.
        save(&store, &config, &options)?;
    } else {
        notices.extend(ignored_file(&store, &options, edited)?);
    }
    if !from_file {
        // Faults of a file are reported when it is read.
        notices.extend(crate::remarks::inert(&config).iter().map(ToString::to_string));
    }
    let advice = if is_import { inert::advice(&config) } else { inert::exposure(&config) };
    notices.extend(advice.iter().map(ToString::to_string));
    fill_collations(&store)?;
    Ok(Bootstrap { config, snapshot, notices, is_first, store, options, operator: None, secrets, given: None })
}

/// The same for a process that takes over from another one. `layers` is that process's state, and `lock` its lock of the data directory.
///
/// # Errors
/// This version cannot run by the configuration.
pub fn take_over(options: EngineOptions, layers: &[u8], lock: OwnedFd) -> Result<Bootstrap, AdminError> {
    let refused = |why: String| AdminError::Refused(format!("the configuration of the process before: {why}"));
    let given: TakenOver = handover::decode(layers).map_err(|e| refused(e.to_string()))?;
    let (config, _) = model::parse(&given.runtime, "the configuration of the process before").map_err(AdminError::Config)?;
    let config = Arc::new(Config { globals: options.file.globals.clone(), ..config });
    let known = SecretFiles::recall(&config, &given.secrets);
    let (secrets, snapshot) = compile(&config, &known)?;
    match options.faults.map(|find| find(&snapshot)).unwrap_or_default() {
        errors if errors.is_empty() => {}
        errors => return Err(AdminError::Config(errors)),
    }
    let store = Store::open(&options.datadir, lock.into())?;
    let mut notices = store.notices.clone();
    notices.extend(import::upgrade(&store.admin, &options.datadir.join(DISK_FILE))?);
    create_memory(&store)?;
    transaction(&store.admin, || given.fill(&store.admin))?;
    fill_collations(&store)?;
    let given = Some(given);
    Ok(Bootstrap { config, snapshot, notices, is_first: false, store, options, operator: None, secrets, given })
}

fn create_memory(store: &Store) -> Result<(), AdminError> {
    layout::create_config(&store.admin, "main")?;
    layout::create_history(&store.admin)?;
    for db in [&store.admin, &store.stats] {
        db.execute_batch("CREATE TABLE information_schema.dual (dummy VARCHAR); INSERT INTO information_schema.dual VALUES ('X')")?;
    }
    Ok(())
}

/// The shared configuration laid over this proxy's own database. Unchanged if it shares nothing, or never had a revision.
fn over_disk(store: &Store, own: Config, options: &EngineOptions, notices: &mut Vec<String>) -> Result<Config, AdminError> {
    let is_among_peers = peers::is_on(&own);
    if !Sharing::is_on(&own) && !is_among_peers {
        return Ok(own);
    }
    let (db, kept) = (&store.admin, standing::recall(&store.admin));
    let taken = kept.map_err(|error| error.to_string()).and_then(|kept| match kept {
        None => Ok(None),
        // It is of the other way to share.
        Some(kept) if kept.descent.is_some() != is_among_peers => Ok(None),
        Some(kept) => {
            let name = format!("revision {} of the shared configuration", kept.standing.number);
            let config = with_shared(&kept.text, &name, &own).map_err(|errors| AdminError::Config(errors).to_string())?;
            Ok(Some(if is_among_peers { peers::with_modules(&own, &config, &peers::shared_modules(&own)) } else { config }))
        }
    });
    match taken {
        Ok(Some(config)) => {
            transaction(db, || write(db, "main", &everything(), &config))?;
            if options.precedence == Precedence::Reload {
                notices.extend(unused_file(store, options, &config)?);
            }
            Ok(config)
        }
        Ok(None) => Ok(own),
        Err(why) => {
            notices.push(format!("{DISK_FILE}: {why}; the tables that are saved there hold until etcd answers"));
            db.execute(&format!("DELETE FROM disk.{}", layout::SHARED_TABLE), [])?;
            Ok(own)
        }
    }
}

/// A notice if the file would change shared settings: the shared configuration wins.
fn unused_file(store: &Store, options: &EngineOptions, config: &Config) -> Result<Option<String>, AdminError> {
    let db = &store.admin;
    transaction(db, || everything().iter().try_for_each(|part| merge(db, &options.file, part).map(drop)))?;
    let with_file = read(db, "main", &everything(), config)?;
    transaction(db, || write(db, "main", &everything(), config))?;
    let modules: Vec<&str> = differing(&Sheet::of(config), &Sheet::of(&with_file)).iter().map(|module| module.words).collect();
    let path = options.config_file.as_ref().map_or_else(|| "the file".to_owned(), |path| path.display().to_string());
    Ok((!modules.is_empty()).then(|| {
        format!(
            "{path}: --reload changes nothing in {}, which the shared configuration owns. LOAD ... FROM CONFIG, then LOAD ... TO \
             RUNTIME, makes the file's content a new revision for all proxies",
            modules.join(", ")
        )
    }))
}

fn refuse_blank(options: &EngineOptions) -> Result<(), AdminError> {
    match &options.config_file {
        _ if options.precedence == Precedence::Declarative && Sharing::is_on(&options.file) => Err(AdminError::declarative_and_shared()),
        _ if options.precedence != Precedence::Declarative || !options.file.is_blank() => Ok(()),
        Some(path) => Err(AdminError::blank(path)),
        None => Err(AdminError::Refused("--declarative needs a configuration file".to_owned())),
    }
}

/// The configuration that a start with these options would use, or the reason why it would fail. Changes nothing. May be called while the
/// database is in use.
pub fn foresee(options: &EngineOptions) -> Result<(Arc<Config>, Arc<Snapshot>), AdminError> {
    refuse_blank(options)?;
    store::could_open(&options.datadir)?;
    let disk = options.datadir.join(DISK_FILE);
    let mut config = options.file.clone();
    if options.precedence != Precedence::Initial && disk.exists() {
        let is_blank = store::looks_blank(&disk).map_err(|error| AdminError::file(&disk, AdminError::from(error)))?;
        if !is_blank && options.precedence != Precedence::Declarative {
            config = stored(options, &disk)?;
        }
    }
    let config = Arc::new(config);
    let (_, snapshot) = compile(&config, &SecretFiles::default())?;
    match options.faults.map(|find| find(&snapshot)).unwrap_or_default() {
        errors if errors.is_empty() => {}
        errors => return Err(AdminError::Config(errors)),
    }
    crate::outside::could_read(&config).map_err(AdminError::Refused)?;
    Ok((config, snapshot))
}

/// A database's configuration, with the file's variables over it if the options say so.
fn stored(options: &EngineOptions, disk: &Path) -> Result<Config, AdminError> {
    let named = |error: AdminError| AdminError::file(disk, error);
    let db = store::look_at(disk).map_err(named)?;
    let (mut config, errors) = import::look_through(&db, options.file.globals.strict).map_err(named)?;
    if !errors.is_empty() {
        return Err(AdminError::Database(disk.display().to_string(), errors.iter().map(ToString::to_string).collect()));
    }
    if options.precedence == Precedence::Reload {
        let is_given = |setting: &model::Setting| options.file.given.contains(&setting.full_name());
        for (setting, value) in options.file.mysql.iter().filter(|(setting, _)| is_given(setting)) {
            let _ = config.mysql.set(setting.name, &value);
        }
        for (setting, value) in options.file.admin.iter().filter(|(setting, _)| is_given(setting)) {
            let _ = config.admin.set(setting.name, &value);
        }
    }
    Ok(config)
}

/// A first start that was cut off left it: it does not count.
fn blank_database(disk: &Path, options: &EngineOptions) -> String {
    let used = options.config_file.as_ref().map_or("defaults are".to_owned(), |path| format!("{} is", path.display()));
    format!("{}: the database holds no configuration, so {used} used, as at a first start", disk.display())
}

/// Makes the tables that are missing, and finds the configuration that holds.
fn take(
    store: &Store,
    options: &EngineOptions,
    disk: &Path,
    from_file: bool,
    notices: &mut Vec<String>,
) -> Result<(Arc<Config>, SecretFiles, Arc<Snapshot>), AdminError> {
    notices.extend(import::upgrade(&store.admin, disk)?);
    create_memory(store)?;
    let config = Arc::new(if from_file { of_file(store, options)? } else { of_database(store, options, notices)? });
    let (secrets, snapshot) = compile(&config, &SecretFiles::default())?;
    let find = options.faults.filter(|_| !from_file);
    match find.map(|find| find(&snapshot)).unwrap_or_default() {
        errors if errors.is_empty() => Ok((config, secrets, snapshot)),
        errors => Err(AdminError::Config(errors)),
    }
}

/// Reads secrets from files, except those in `known`, and compiles what workers read.
fn compile(config: &Arc<Config>, known: &SecretFiles) -> Result<(SecretFiles, Arc<Snapshot>), AdminError> {
    let secrets = SecretFiles::read(config, known).map_err(AdminError::Config)?;
    let snapshot = Snapshot::compile(&secrets.laid_over(config)).map_err(AdminError::Config)?;
    Ok((secrets, Arc::new(snapshot)))
}

/// Refuses a database with faults and names all of them. Faults of patterns and references are searched in the other rows.
fn refuse_faulty(store: &Store, options: &EngineOptions, disk: &Path) -> Result<(), AdminError> {
    let (config, mut errors) =
        import::look_through(&store.admin, options.file.globals.strict).map_err(|error| AdminError::file(disk, error))?;
    errors.extend(Snapshot::compile(&config).err().unwrap_or_default());
    let patterns = options.faults.zip(innocent_rules(&config, &errors)).map(|(find, snapshot)| find(&snapshot));
    errors.extend(patterns.unwrap_or_default());
    let faults: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if faults.is_empty() { Ok(()) } else { Err(AdminError::Database(disk.display().to_string(), faults)) }
}

fn backup(disk: &Path) -> PathBuf {
    disk.with_extension("db.bak")
}

fn set_aside(disk: &Path) -> Result<(), AdminError> {
    let failed = |error: std::io::Error| AdminError::file(disk, error);
    if disk.exists() {
        fs::rename(disk, backup(disk)).map_err(failed)?;
    }
    let journal = disk.with_extension("db-journal");
    if journal.exists() {
        fs::rename(&journal, disk.with_extension("db.bak-journal")).map_err(failed)?;
    }
    Ok(())
}

fn modified_after(file: Option<&Path>, disk: &Path) -> bool {
    let when = |path: &Path| fs::metadata(path).and_then(|known| known.modified()).ok();
    file.and_then(when).zip(when(disk)).is_some_and(|(file, disk)| file > disk)
}

/// Defaults and the file. The rows pass through memory, where rows without an id get one.
fn of_file(store: &Store, options: &EngineOptions) -> Result<Config, AdminError> {
    let db = &store.admin;
    transaction(db, || write(db, "main", &everything(), &options.file))?;
    let base = Config {
        globals: options.file.globals.clone(),
        mysql: options.file.mysql.clone(),
        admin: options.file.admin.clone(),
        ..Config::default()
    };
    read(db, "main", &everything(), &base)
}

/// The database, and over it the file where that is asked for. Variables that this version does not know are left out of memory.
fn of_database(store: &Store, options: &EngineOptions, notices: &mut Vec<String>) -> Result<Config, AdminError> {
    let db = &store.admin;
    transaction(db, || {
        write(db, "main", &everything(), &Config::default())?;
        for part in everything() {
            for name in part.tables {
                db.execute_batch(&format!("INSERT INTO main.{name} SELECT * FROM disk.{name} ORDER BY rowid"))?;
            }
        }
        take_variables(store, notices)
    })?;
    if options.precedence == Precedence::Reload {
        transaction(db, || everything().iter().try_for_each(|part| merge(db, &options.file, part).map(drop)))?;
    }
    let own = read(db, "main", &everything(), &Config { globals: options.file.globals.clone(), ..Config::default() })?;
    over_disk(store, own, options, notices)
}

fn take_variables(store: &Store, notices: &mut Vec<String>) -> Result<(), AdminError> {
    let db = &store.admin;
    let mut foreign: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, value) in import::stored_variables(db)? {
        match model::Setting::by_full_name(&name) {
            Some(setting) => {
                import::take_variable(db, setting, value)?;
            }
            None => {
                if let Some(module) = model::config::foreign_module(&name) {
                    *foreign.entry(module).or_default() += 1;
                }
                let retired = model::settings::retired_by_full_name(&name);
                notices.extend(retired.map(|why| format!("{DISK_FILE}: global_variables, variable_name={name}: {why}")));
            }
        }
    }
    let skipped = |(module, count)| format!("{DISK_FILE}: global_variables: {count} of {module}: not part of this proxy, left on disk");
    notices.extend(foreign.into_iter().map(skipped));
    Ok(())
}

/// Writes the configuration to disk and notes which file it came from.
fn save(store: &Store, config: &Config, options: &EngineOptions) -> Result<(), AdminError> {
    let db = &store.admin;
    transaction(db, || {
        write(db, "main", &everything(), config)?;
        write(db, "disk", &everything(), config)?;
        db.execute("INSERT OR REPLACE INTO disk.global_settings VALUES ('config_file_text', ?1)", [to_text(&options.file)])?;
        db.execute("INSERT OR REPLACE INTO disk.global_settings VALUES ('saved_at', ?1)", [now().to_string()])?;
        Ok(())
    })
}

/// A notice when there is a file that says something else than it did when the database was made.
fn ignored_file(store: &Store, options: &EngineOptions, is_newer: bool) -> Result<Option<String>, AdminError> {
    let Some(path) = &options.config_file else {
        return Ok(None);
    };
    let sql = "SELECT variable_value FROM disk.global_settings WHERE variable_name = 'config_file_text'";
    let known: Option<String> = store.admin.query_row(sql, [], |row| row.get(0)).optional()?;
    let has_changed = known.map_or(is_newer, |known| known != to_text(&options.file));
    let notice = || {
        format!(
            "{} was edited after {DISK_FILE} was made, but the proxy uses the database. --reload lays the file over it, --initial \
             starts from the file, CONFIG DIFF FILE shows the differences",
            path.display()
        )
    };
    Ok(has_changed.then(notice))
}

/// The instance's UUID: as configured, else as it was, else a new one.
fn name_instance(store: &Store, configured: &str) -> Result<(), AdminError> {
    let db = &store.admin;
    if !configured.is_empty() {
        db.execute("INSERT OR REPLACE INTO disk.global_settings VALUES ('uuid', ?1)", [configured])?;
        return Ok(());
    }
    // Version 4, RFC 9562.
    let sql = "INSERT OR IGNORE INTO disk.global_settings SELECT 'uuid', LOWER(SUBSTR(h, 1, 8) || '-' || SUBSTR(h, 9, 4) || '-4' || \
               SUBSTR(h, 14, 3) || '-' || SUBSTR('89AB', 1 + (RANDOM() & 3), 1) || SUBSTR(h, 18, 3) || '-' || SUBSTR(h, 21)) \
               FROM (SELECT HEX(RANDOMBLOB(16)) AS h)";
    db.execute(sql, [])?;
    Ok(())
}

fn fill_collations(store: &Store) -> Result<(), AdminError> {
    let db = &store.admin;
    transaction(db, || {
        let mut put = db.prepare("INSERT OR IGNORE INTO main.mysql_collations VALUES (?1, ?2, ?3, ?4)")?;
        collation_rows().try_for_each(|(id, name, charset, default)| put.execute(params![id, name, charset, default]).map(drop))?;
        Ok(())
    })
}

impl Bootstrap {
    /// Sets the party that carries out SWITCHOVER and the other orders.
    #[must_use]
    pub fn with_operator(self, operator: Arc<dyn Operator>) -> Self {
        Self { operator: Some(Operates(operator)), ..self }
    }

    /// The revision of the shared configuration that this starts by.
    fn kept(&self) -> Result<Option<Kept>, AdminError> {
        if Sharing::is_on(&self.config) || peers::is_on(&self.config) {
            Ok(standing::recall(&self.store.admin)?.filter(|kept| kept.descent.is_some() == peers::is_on(&self.config)))
        } else {
            Ok(None)
        }
    }

    /// This proxy's line for the other proxies that share its configuration.
    fn line(&self, version: String) -> Result<ProxyLine, AdminError> {
        let sql = "SELECT variable_value FROM disk.global_settings WHERE variable_name = 'uuid'";
        let uuid: Option<String> = self.store.admin.query_row(sql, [], |row| row.get(0)).optional()?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let address = self.config.admin.mysql_ifaces.clone();
        let port = model::Listen::parse_list(&address)
            .ok()
            .and_then(|all| all.into_iter().find_map(|listen| if let model::Listen::Tcp(tcp) = listen { Some(tcp.port()) } else { None }));
        let name = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        Ok(ProxyLine { uuid: uuid.unwrap_or_else(new_id), name, address, version, ..ProxyLine::default() })
    }

    /// Starts the engine on a thread of its own. It ends when the last handle is gone.
    pub fn start(
        self,
        plane: Arc<dyn DataPlane>,
        mut sources: Vec<Arc<dyn StatsSource>>,
        process: Arc<dyn Process>,
    ) -> Result<(EngineHandle, JoinHandle<()>), AdminError> {
        if let Err(error) = past::remember(&self.store.admin, &self.config, "", "start") {
            tracing::warn!("cannot add the configuration at the start to CONFIG HISTORY: {error}");
        }
        if let Err(error) = starts::note(&self.store.admin, &self.config.admin, &process.version(), self.given.is_some(), now()) {
            tracing::warn!("the time of the start was not put into the history: {error}");
        }
        let found = crate::remarks::all(&self.config, &self.snapshot, &*plane, Scope::Dead);
        for remark in found.iter().take(LOGGED) {
            tracing::warn!("{remark}");
        }
        if found.len() > LOGGED {
            tracing::warn!("{} more remarks on the configuration: CONFIG CHECK and SHOW WARNINGS", found.len() - LOGGED);
        }
        let failed = |error: std::io::Error| AdminError::Refused(format!("no thread for the admin engine: {error}"));
        let (handle, jobs) = channel(self.secrets.laid_over(&self.config));
        let operator = self.operator.as_ref().map(|operates| Arc::clone(&operates.0));
        let (frozen, kept, me) = (Frozen::default(), self.kept()?, self.line(process.version())?);
        let peers = Peers::new(&me, kept.as_ref().and_then(|kept| kept.descent.clone()), &self.config);
        let standing = kept.map(|kept| kept.standing).filter(|_| Sharing::is_on(&self.config));
        peers.start(handle.weak(), handle.runtime(), frozen.clone()).map_err(failed)?;
        let before = self.given.as_ref().map(|given| given.sharing.clone()).unwrap_or_default();
        let sharing = Sharing::start(me, (standing, before), handle.weak(), frozen.clone(), operator.clone()).map_err(failed)?;
        sources.push(sharing.clone());
        sources.push(peers.clone());
        let live = Arc::new(Live::new(plane.clone(), sources, first_runtime(self.config, self.given.as_ref()), process.version()));
        let handle =
            handle.with_audit(plane.clone()).with_numbers(live.numbers()).with_frozen(frozen.clone()).with_sharing(Arc::clone(&sharing));
        live.install(&self.store.admin, true)?;
        live.install(&self.store.stats, false)?;
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        let mut engine = Engine::new(self.store, live, plane, process, self.options.config_file.clone(), jobs, clock);
        engine.operator = operator;
        engine.frozen = frozen;
        engine.sharing = Some(sharing);
        engine.peers = Some(peers);
        engine.is_declarative = self.options.precedence == Precedence::Declarative;
        engine.behind = self.given.as_ref().map(|given| BehindModules::recall(&given.behind)).unwrap_or_default();
        engine.read_only = self.given.as_ref().and_then(|given| given.read_only);
        engine.hold(self.secrets);
        let truth = self.options.config_file.clone().filter(|_| engine.is_declarative);
        watch::start(truth, handle.weak(), handle.runtime()).map_err(failed)?;
        let thread = std::thread::Builder::new().name("admin-engine".to_owned()).spawn(move || engine.run(execute)).map_err(failed)?;
        Ok((handle, thread))
    }
}
