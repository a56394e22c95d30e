//! The engine: one thread that owns the databases and executes one statement after the other.
//!
//! It knows no command: what carries out a statement is given to [`Engine::run`]. What changes the configuration
//! in force goes through [`Engine::adopt`]: checked whole, applied whole, or not at all.

pub(crate) mod hints;
mod loads;
mod orders;
pub(crate) mod sql;
mod take;
pub(crate) mod variables;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use model::config::Row;
use model::config::shared::to_shared_text;
use model::control::DataPlane;
use model::fleet::Operator;
use model::{About, Config, ConfigError, HostgroupId, Remark, RowName, SecretFiles, Snapshot};
use rusqlite::Connection;
use shared_config::Standing;

use crate::clock::{now, now_ms};
use crate::error::{AdminError, READ_ONLY};
use crate::handle::{Job, Jobs, Wake};
use crate::history::{History, healing};
use crate::live::Live;
use crate::process::{Process, Stop};
use crate::remarks;
use crate::reply::{Reply, Role, SessionInfo};
use crate::sharing::peers::{self, Descent, Peers};
use crate::sharing::{BehindModules, Draft, Sharing, described};
pub(crate) use crate::statement;
use crate::store::modules::Module;
use crate::store::{Store, past};
use crate::take_over::{Frozen, Successor, TakenOver};
pub(crate) use loads::first_runtime;
use orders::{Orders, Work};
use statement::Statement;

/// The act after the answer was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Nothing,
    /// End the process.
    Shutdown(Stop),
    /// End the process and start it again.
    Restart,
}

/// A statement and its session, as commands get them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// The session's role.
    pub who: Role,
    pub session: &'a SessionInfo,
    pub statement: &'a Statement,
}

/// The origin of a configuration, for log and history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct By<'a> {
    pub user: &'a str,
    /// The client's address.
    pub peer: &'a str,
    pub text: &'a str,
}

/// A configuration without faults, ready to be put in force.
pub(crate) struct Checked {
    /// The compiled form that workers read.
    pub snapshot: Arc<Snapshot>,
    /// The configuration with the content of files.
    whole: Arc<Config>,
    secrets: SecretFiles,
}

/// What carries out a statement of a session. Every fault is a reply.
pub(crate) type Execute = fn(&mut Engine, Role, &SessionInfo, &[u8]) -> Reply;

/// Everything that the thread owns.
pub(crate) struct Engine {
    pub store: Store,
    /// The tables that are computed.
    pub live: Arc<Live>,
    pub plane: Arc<dyn DataPlane>,
    pub process: Arc<dyn Process>,
    /// The configuration file, if there is one.
    pub config_file: Option<PathBuf>,
    /// `PROXYSQL READONLY` and `READWRITE`, until the next LOAD of the admin variables.
    pub read_only: Option<bool>,
    /// The act that the present statement asks for after its answer.
    pub after: After,
    /// The party that carries out orders about roles, if there is one.
    pub operator: Option<Arc<dyn Operator>>,
    /// Whether another process is about to take over.
    pub frozen: Frozen,
    /// This proxy's part in a shared configuration.
    pub sharing: Option<Arc<Sharing>>,
    /// This proxy among peers that share without etcd.
    pub peers: Option<Arc<Peers>>,
    /// Modules of memory that are based on a revision which is no longer in force.
    pub behind: BehindModules,
    /// Whether the configuration file is the truth, so that nothing else can be.
    pub is_declarative: bool,
    /// The secrets from files that the configuration in force names.
    secrets: SecretFiles,
    orders: Orders,
    jobs: Jobs,
    history: History,
    clock: tokio::runtime::Runtime,
}

impl Engine {
    /// An engine whose databases and live tables are ready.
    pub(crate) fn new(
        store: Store,
        live: Arc<Live>,
        plane: Arc<dyn DataPlane>,
        process: Arc<dyn Process>,
        config_file: Option<PathBuf>,
        jobs: Jobs,
        clock: tokio::runtime::Runtime,
    ) -> Self {
        let settings = live.runtime.lock().unwrap_or_else(PoisonError::into_inner).config.clone();
        let history = History::new(&settings.admin, now_ms());
        store.guard.make_way_for(jobs.administrators.clone());
        store.facts.name_version(variables::version(&*process));
        let (after, orders) = (After::Nothing, Orders::default());
        let frozen = Frozen::default();
        Self {
            store,
            live,
            plane,
            process,
            config_file,
            read_only: None,
            after,
            operator: None,
            frozen,
            sharing: None,
            peers: None,
            behind: BehindModules::default(),
            is_declarative: false,
            secrets: SecretFiles::default(),
            orders,
            jobs,
            history,
            clock,
        }
    }

    /// Works until every handle is gone. `execute` carries out a statement.
    pub(crate) fn run(mut self, execute: Execute) {
        loop {
            self.note_memory();
            let wait = self.history.wait(&self.runtime().admin, now_ms());
            match self.jobs.next_within(&self.clock, wait) {
                Wake::Statement(job) => {
                    self.keep_healed_steps();
                    self.serve(job, execute);
                }
                Wake::Time => {}
                Wake::End => {
                    self.keep_healed_steps();
                    self.sharing.iter().for_each(|sharing| sharing.stop());
                    return;
                }
            }
            self.sample();
        }
    }

    /// Takes the samples that are due, between statements.
    fn sample(&mut self) {
        if self.frozen.is_set() {
            return;
        }
        let settings = self.runtime();
        let step = AssertUnwindSafe(|| self.history.step(&self.store.stats, &self.live, &*self.plane, &settings.admin, now_ms()));
        if catch_unwind(step).is_err() {
            self.after_panic();
        }
        self.keep_healed_steps();
    }

    /// Moves what plans did into the history.
    fn keep_healed_steps(&self) {
        let Some(operator) = self.operator.as_ref().filter(|_| !self.frozen.is_set()) else { return };
        if let Err(error) = healing::save(&self.store.stats, &**operator, &self.runtime().admin) {
            tracing::warn!("steps of healing were not put into the history: {error}");
        }
    }

    /// Notes how much memory the databases take.
    fn note_memory(&self) {
        match self.store.memory_bytes() {
            Ok(bytes) => self.live.note_memory(bytes),
            Err(error) => tracing::debug!("the size of the admin interface's databases: {error}"),
        }
    }

    fn serve(&mut self, job: Job, execute: Execute) {
        self.after = After::Nothing;
        // A fault of ours costs one statement, not the way in.
        let outcome = catch_unwind(AssertUnwindSafe(|| execute(self, job.who, &job.session, &job.sql)));
        let reply = outcome.unwrap_or_else(|_| self.after_panic());
        self.orders.answer(reply, job.answer);
        match self.after {
            After::Nothing => {}
            After::Shutdown(how) => self.process.shutdown(how),
            After::Restart => {
                if let Err(reason) = self.process.restart() {
                    tracing::error!("restart: {reason}");
                }
            }
        }
    }

    /// Answers the present statement by `work`, on a thread of its own. The reply returned here counts only if `work` is refused.
    pub(crate) fn later(&mut self, work: Work) -> Result<Reply, AdminError> {
        self.orders.give(work).map_err(AdminError::Refused)?;
        Ok(Reply::done())
    }

    /// The state for a process that takes over.
    pub(crate) fn successor(&self, program: Option<PathBuf>) -> Result<Successor, AdminError> {
        let runtime = self.live.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = (&self.behind, self.sharing.as_deref());
        let layers = TakenOver::of(&runtime.config, &runtime.checksums, &self.store.admin, self.read_only, shared, &self.secrets)?;
        let failed = |e: &dyn std::fmt::Display| AdminError::Refused(e.to_string());
        let layers = handover::encode(&layers).map_err(|e| failed(&e))?;
        let lock = self.store.lock().map_err(|e| failed(&e))?;
        let upgrade_timeout_ms = runtime.config.admin.upgrade_timeout;
        Ok(Successor { program, layers, lock, upgrade_timeout_ms, frozen: self.frozen.clone() })
    }

    fn after_panic(&self) -> Reply {
        tracing::error!("the admin engine failed at a statement");
        self.store.guard.leave();
        self.store.facts.leave();
        for db in [&self.store.admin, &self.store.stats].into_iter().filter(|db| !db.is_autocommit()) {
            let _ = db.execute_batch("ROLLBACK");
        }
        Reply::refused("internal error; the log says more")
    }

    /// Each role has a connection of its own.
    pub(crate) fn connection(&self, who: Role) -> &Connection {
        match who {
            Role::Admin => &self.store.admin,
            Role::Stats => &self.store.stats,
        }
    }

    /// Whether administrators may change nothing now.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.unwrap_or_else(|| self.runtime().admin.read_only)
    }

    /// Whether a command may rewrite the configuration.
    ///
    /// # Errors
    /// Administrators may change nothing now. The proxy's own sessions, which have no client's address, may.
    pub(crate) fn refuse_read_only(&self, ask: &Ask<'_>) -> Result<(), AdminError> {
        let is_own = ask.session.peer.is_empty();
        if self.is_read_only() && !is_own { Err(AdminError::Refused(READ_ONLY.to_owned())) } else { Ok(()) }
    }

    /// The configuration in force.
    pub(crate) fn runtime(&self) -> Arc<Config> {
        self.live.runtime.lock().unwrap_or_else(PoisonError::into_inner).config.clone()
    }

    /// Sets the values that `@@name` answers in the statement at hand.
    pub(crate) fn describe_variables(&self, who: Role, session: &SessionInfo) -> Result<(), AdminError> {
        let mut variables = variables::variables(self, session);
        if who == Role::Admin {
            for module in ["mysql", "admin"] {
                let own = crate::store::rows::variables(&self.store.admin, "main", module)?;
                variables
                    .extend(own.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), String::from_utf8_lossy(&value).into_owned())));
            }
        }
        let counters = self.live.read_stats("stats_mysql_global", model::stats::Reading::Keep).unwrap_or_default();
        variables.extend(counters.iter().filter_map(|row| Some((text(row.first()?).to_ascii_lowercase(), text(row.get(1)?)))));
        self.store.facts.describe(who, variables);
        Ok(())
    }

    /// Checks a configuration, with patterns of rules and files with secrets. Changes nothing.
    pub(crate) fn check(&self, config: &Arc<Config>) -> Result<Checked, AdminError> {
        let all_of = |mut errors: Vec<_>| {
            let rules = innocent_rules(config, &errors).map(Arc::new);
            errors.extend(rules.and_then(|rules| self.plane.check(&rules).err()).unwrap_or_default());
            AdminError::Config(errors)
        };
        let secrets = SecretFiles::read(config, &self.secrets).map_err(all_of)?;
        let whole = secrets.laid_over(config);
        let snapshot = Arc::new(Snapshot::compile(&whole).map_err(all_of)?);
        self.plane.check(&snapshot).map_err(AdminError::Config)?;
        Ok(Checked { snapshot, whole, secrets })
    }

    /// Takes the secrets in force, and logs which files have changed or failed.
    pub(crate) fn hold(&mut self, secrets: SecretFiles) {
        for (is_fault, line) in secrets.news(&self.secrets) {
            if is_fault { tracing::warn!("{line}") } else { tracing::info!("{line}") }
        }
        self.live.note_secrets(secrets.counts());
        self.secrets = secrets;
    }

    /// `PROXYSQL RELOAD SECRETS`: reads the files again that the configuration in force names, and uses their content. A file that cannot
    /// be read keeps its old content and is named in the answer.
    pub(crate) fn reload_secrets(&mut self) -> Result<Reply, AdminError> {
        let checked = self.check(&self.runtime())?;
        if checked.secrets.differs(&self.secrets) {
            self.plane.apply(checked.snapshot).map_err(AdminError::Config)?;
            self.jobs.publish(checked.whole);
        }
        let (count, faulty) = checked.secrets.counts();
        self.hold(checked.secrets);
        let info = match faulty {
            0 => format!("{count} files with secrets are read"),
            _ => format!("{faulty} of {count} files with secrets cannot be read and keep their earlier content in force: see the log"),
        };
        Ok(Reply::Ok { affected: 0, insert_id: 0, info, warnings: Vec::new() })
    }

    /// Whether these modules of memory may be loaded.
    ///
    /// # Errors
    /// One is based on a revision of the shared configuration that is no longer in force.
    pub(crate) fn refuse_behind(&mut self, modules: &[&'static Module]) -> Result<(), AdminError> {
        // SQL may have brought memory up to date.
        self.caught_up()?;
        match place(&self.runtime()) {
            None => Ok(()),
            Some(_) => self.behind.refuse(modules, || self.shared_now()),
        }
    }

    /// The revision that is shared now, for people.
    fn shared_now(&self) -> String {
        let head = self.sharing.as_ref().and_then(|sharing| sharing.seen().head.clone());
        let descent = self.peers.as_ref().and_then(|peers| peers.descent());
        head.map(|head| described(&head.manifest)).or_else(|| descent.map(|descent| peers::described(&descent))).unwrap_or_default()
    }

    /// Puts `config` in force, of which `modules` were loaded. A shared configuration is published first. On an error nothing has changed.
    /// The answer has remarks for the operator.
    pub(crate) fn adopt(&mut self, config: Config, modules: &[&'static Module], ask: &Ask<'_>) -> Result<Reply, AdminError> {
        let config = Arc::new(config);
        let checked = self.check(&config)?;
        self.could_follow(&config, modules)?;
        let published = self.publish(&config, ask)?;
        let by = By { user: &ask.session.user, peer: &ask.session.peer, text: &ask.statement.text };
        let is_elsewhere = self.is_elsewhere(&config);
        let reply = self.put_in_force(&config, checked, modules, &by);
        if is_elsewhere && reply.is_ok() {
            self.stands_nowhere();
        } else if reply.is_ok() && peers::is_on(&config) {
            self.descend(&config, ask, &[], modules, false);
        }
        let Some(standing) = published else { return reply };
        match reply {
            Ok(reply) => {
                self.stands_at(&standing, modules);
                Ok(reply)
            }
            Err(why) => Err(self.not_in_force(&standing, &why)),
        }
    }

    /// Whether the admin variables of `config` could be in force after a start.
    ///
    /// # Errors
    /// The admin variable that the ports or the sharing do not understand.
    pub(crate) fn could_read(&self, config: &Config) -> Result<(), AdminError> {
        crate::outside::could_read(config).map_err(AdminError::Refused)?;
        if self.is_declarative && Sharing::is_on(config) {
            return Err(AdminError::declarative_and_shared());
        }
        Ok(())
    }

    /// Whether the ports and the sharing could follow `config`, of which `modules` are loaded. Asked before the configuration is shared.
    ///
    /// # Errors
    /// The admin variable that they could not follow.
    pub(crate) fn could_follow(&self, config: &Config, modules: &[&'static Module]) -> Result<(), AdminError> {
        if !modules.iter().any(|module| module.is_for_admin()) {
            return Ok(());
        }
        self.could_read(config)?;
        // The ports follow on another thread, when a failure could no longer refuse the LOAD.
        crate::outside::could_follow(&self.runtime(), config).map_err(AdminError::Refused)
    }

    /// Whether `config` is shared in another place than the configuration in force, or only one of them is shared.
    pub(crate) fn is_elsewhere(&self, config: &Config) -> bool {
        place(&self.runtime()) != place(config)
    }

    /// The error if this proxy cannot put a revision in force that it has published. From now on it follows the revision as others do.
    pub(crate) fn not_in_force(&self, standing: &Standing, why: &AdminError) -> AdminError {
        self.sharing.iter().for_each(|sharing| sharing.follows_itself());
        AdminError::Refused(format!(
            "revision {} is shared, but this proxy cannot put it in force and keeps its configuration: {why}",
            standing.number
        ))
    }

    /// Makes the loaded configuration a new revision, if peers share without etcd; see [`Peers::descend`].
    pub(crate) fn descend(&mut self, config: &Config, ask: &Ask<'_>, others: &[Descent], modules: &[&'static Module], is_ordered: bool) {
        let Some(peers) = self.peers.clone() else { return };
        let draft = draft(ask, peers::text_of(config));
        if let Some(descent) = peers.descend(config, draft, others, is_ordered) {
            self.descends_from(Some(descent), modules);
        }
    }

    /// Publishes the configuration before it is in force, if it is shared.
    fn publish(&self, config: &Config, ask: &Ask<'_>) -> Result<Option<Standing>, AdminError> {
        let runtime = self.runtime();
        match &self.sharing {
            // A LOAD that joins, leaves or changes the shared place is in force here only.
            Some(sharing) if Sharing::is_on(&runtime) && !self.is_elsewhere(config) => sharing.publish(draft(ask, to_shared_text(config))),
            _ => Ok(None),
        }
    }

    /// Puts a configuration in force that was checked. On an error nothing has changed.
    pub(crate) fn put_in_force(
        &mut self,
        config: &Arc<Config>,
        checked: Checked,
        modules: &[&'static Module],
        by: &By<'_>,
    ) -> Result<Reply, AdminError> {
        let loaded: Vec<_> = modules.iter().map(|module| module.part).collect();
        let Checked { snapshot, whole, secrets } = checked;
        let found = remarks::after_load(config, &snapshot, &*self.plane, &loaded);
        let is_for_admin = modules.iter().any(|module| module.is_for_admin());
        if is_for_admin {
            let opened = self.plane.log_tls_keys(&config.admin.ssl_keylog_file);
            opened.map_err(|why| AdminError::Refused(format!("admin-ssl_keylog_file: {why}")))?;
        }
        let of_healing = |config: &Config| {
            let admin = &config.admin;
            (admin.healing_max_clusters, admin.shared_config_endpoints.is_empty(), admin.healing_hooks_dir.clone())
        };
        let is_other_brake = of_healing(&self.runtime()) != of_healing(config);
        let is_for_plane = modules.iter().any(|module| module.is_for_plane()) || is_other_brake || secrets.differs(&self.secrets);
        let mut notes = if is_for_plane { self.plane.apply(Arc::clone(&snapshot)).map_err(AdminError::Config)? } else { Vec::new() };
        if modules.iter().all(|module| module.part.variables != Some("mysql")) {
            // Remarks about variables: pending ones are no news of this LOAD.
            notes.clear();
        }
        if is_for_admin {
            self.read_only = None;
        }
        tracing::info!("{}@{}: {}", by.user, by.peer, by.text);
        for remark in found.iter().take(remarks::LOGGED) {
            tracing::warn!("{remark}");
        }
        {
            let mut runtime = self.live.runtime.lock().unwrap_or_else(PoisonError::into_inner);
            runtime.config = config.clone();
            loads::count(&mut runtime, modules, now());
        }
        self.jobs.publish(whole);
        self.hold(secrets);
        if let Err(error) = past::remember(&self.store.admin, config, by.user, by.text) {
            tracing::warn!("cannot add the configuration in force to CONFIG HISTORY: {error}");
            notes.push(format!("not kept for CONFIG ROLLBACK: {error}"));
        }
        let is_for_servers = loaded.iter().any(|part| part.tables.contains(&"mysql_servers"));
        let frozen = is_for_servers.then(|| remarks::standstill(&snapshot, &self.plane.placements())).flatten();
        let found: Vec<Remark> = found.into_iter().chain(is_for_servers.then(|| self.healing_remarks()).into_iter().flatten()).collect();
        let stays: Vec<String> = frozen.into_iter().chain(is_for_servers.then(|| self.paused()).flatten()).collect();
        Ok(remarks::told(notes, Some(stays.join("; ")).filter(|stays| !stays.is_empty()), &found))
    }
}

impl Engine {
    /// What the servers say against being healed, now that they may be asked.
    fn healing_remarks(&self) -> Vec<Remark> {
        let all = self.operator.as_ref().map(|operator| operator.healing_remarks()).unwrap_or_default();
        let remark = |(writer, text): (HostgroupId, String)| Remark {
            table: "mysql_healing",
            row: RowName::numbered("writer_hostgroup", writer.0),
            column: "mode",
            about: About::Advice,
            text,
        };
        all.into_iter().map(remark).collect()
    }
}

/// The place of the shared configuration, if there is one.
fn place(config: &Config) -> Option<(String, String)> {
    match () {
        () if Sharing::is_on(config) => Some((config.admin.shared_config_prefix.clone(), config.admin.shared_config_cluster.clone())),
        () if peers::is_on(config) => Some(Default::default()),
        () => None,
    }
}

/// A revision of this text, made by the statement at hand.
pub(crate) fn draft(ask: &Ask<'_>, text: String) -> Draft {
    Draft { text, author: ask.session.user.clone(), command: ask.statement.text.clone() }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?})", self.live)
    }
}

fn text(value: &model::stats::Value) -> String {
    match value {
        model::stats::Value::Null => String::new(),
        model::stats::Value::Integer(number) => number.to_string(),
        model::stats::Value::Text(text) => text.clone(),
    }
}

/// The rules of a faulty configuration that are not to blame so far: they compile by themselves, and may have other faults.
pub(crate) fn innocent_rules(config: &Config, errors: &[ConfigError]) -> Option<Snapshot> {
    let is_to_blame = |row: &&Row| errors.iter().any(|error| error.at.as_ref() == Some(&row.at));
    let rules: Vec<Row> = config.rows("mysql_query_rules").iter().filter(|row| !is_to_blame(row)).cloned().collect();
    let rules = Config { mysql: config.mysql.clone(), tables: [("mysql_query_rules", rules)].into(), ..Config::default() };
    Snapshot::compile(&rules).ok()
}
