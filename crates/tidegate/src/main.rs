//! The Tidegate program: command line, configuration, log, signals.

mod admin;
mod admin_login;
mod check;
mod cli;
mod errant;
mod init;
mod log;
mod made;
mod manual;
mod notify;
mod process;
mod rehearsal;
mod replay;
mod supervise;
mod top;
mod upgrade;

use ::admin::scheduler::Board;
use ::admin::{Bootstrap, EngineOptions, Precedence, Stop, bootstrap_locked, take_over};
use anyhow::{Context, Result, bail};
use clap::Parser;
use cli::{Cli, Command, Defaults};
use made::Made;
use model::Config;
use model::control::DataPlane;
use model::settings::MysqlVariables;
use monitor::Monitor;
use process::{Event, Requests};
use proxy::Inheritance;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use upgrade::{Leaving, Outcome, Predecessor, Seen};

/// One allocator in every build, so that measurements of memory hold for all of them. It returns memory within seconds after a peak; the
/// system's allocator keeps it for minutes.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.supervise && cli.command.is_none() {
        let cli = Cli { supervise: false, ..cli };
        return start_options(&cli).and_then(|(options, _)| supervise::supervise(&cli, &options.datadir)).unwrap_or_else(|e| {
            eprintln!("tidegate: {e:#}");
            ExitCode::FAILURE
        });
    }
    let outcome = match &cli.command {
        Some(Command::Check { file, strict }) => check::check(file, *strict),
        Some(Command::Init(options)) => init::init(options),
        Some(Command::Top(options)) => top::run(options),
        Some(Command::Errant(errant)) => errant::run(errant),
        Some(Command::Rehearsal(rehearsal)) => return rehearsal::run(rehearsal),
        Some(Command::Replay(options)) => return replay::run(options),
        Some(Command::Upgrade(options)) => upgrade::ask(options),
        Some(Command::Manual { directory }) => manual::write(directory),
        None if cli.take_over => Predecessor::meet().and_then(|before| run(&cli, Some(before))),
        None => run(&cli, None),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tidegate: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Serves, in the place of the process `before` if there is one, which hears why this one cannot.
fn run(cli: &Cli, mut before: Option<Predecessor>) -> Result<()> {
    match start(cli, &mut before) {
        Err(e) => {
            if let Some(before) = &before {
                before.fail(&format!("{e:#}"));
            }
            Err(e)
        }
        Ok(ended) => match ended {
            End::Stop => Ok(()),
            End::Restart => process::start_again(cli),
        },
    }
}

fn start(cli: &Cli, before: &mut Option<Predecessor>) -> Result<End> {
    let (options, notices) = start_options(cli)?;
    let (datadir, file) = (options.datadir.clone(), &options.file);
    if before.is_none() {
        made::refuse_by_accident(cli, options.config_file.as_deref(), &datadir)?;
    }
    let mut made = Made::directory(&datadir)?;
    let ending = log::start(cli, &file.globals.errorlog, &datadir)?;
    for notice in cli.passed_over.notes().iter().chain(&notices) {
        tracing::warn!("{notice}");
    }
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _file_limit = {
        let _entered = runtime.enter();
        survive_file_limit()?
    };
    let pidfile = PidFile::new(&file.globals.pidfile, &datadir);
    let found = match before {
        None => {
            let lock_file = ::admin::lock_file(&datadir);
            let is_new = !lock_file.exists();
            let lock = ::admin::lock(&datadir)?;
            made.locked(lock.try_clone().context("data directory")?, is_new.then_some(lock_file));
            made.watch(::admin::missing_files(&datadir).into_iter().chain(tls::server_files(&datadir)).chain(monitor::files(&datadir)));
            made.watch(pidfile.0.clone());
            // If another process uses the data directory, its pid file must stay.
            pidfile.write()?;
            bootstrap_locked(options, lock)
        }
        Some(before) => {
            let (layers, lock) = before.admin()?;
            take_over(options, &layers, lock)
        }
    };
    let found = found.context("configuration")?;
    if before.is_none() {
        made.watch(made::sockets(&found.config));
    }
    if found.is_first {
        made.filled(::admin::database_files(&datadir));
    }
    for notice in &found.notices {
        tracing::warn!("{notice}");
    }
    let end = runtime.block_on(serve(cli, found, &datadir, made, before, &pidfile))?;
    drop(runtime);
    drop(ending);
    Ok(end)
}

/// The sources of the configuration, the file's content, and notices for its author.
fn start_options(cli: &Cli) -> Result<(EngineOptions, Vec<String>)> {
    let (config_file, file, notices) = read_file(cli)?;
    let datadir = match (&cli.datadir, file.globals.datadir.as_str()) {
        (Some(datadir), _) => datadir.clone(),
        (None, "") => Path::new(Defaults::here().datadir).to_path_buf(),
        (None, datadir) => Path::new(datadir).to_path_buf(),
    };
    if cli.no_scripts {
        ::admin::scheduler::forbid();
    }
    let options = EngineOptions { datadir, config_file, file, precedence: precedence(cli), faults: Some(check::patterns) };
    Ok((options, notices))
}

/// The configuration file and its content; a default one need not exist.
fn read_file(cli: &Cli) -> Result<(Option<PathBuf>, Config, Vec<String>)> {
    let path = match &cli.config {
        Some(path) => path.clone(),
        None if Path::new(Defaults::here().config).exists() => PathBuf::from(Defaults::here().config),
        None => return Ok((None, Config::default(), Vec::new())),
    };
    match model::load(&path) {
        Ok((config, notices)) => {
            let mut notices: Vec<String> = notices.iter().map(ToString::to_string).collect();
            notices.extend(check::readable_by_all(&path, &config));
            if rustix::process::geteuid().is_root() {
                notices.push("the proxy runs as root: run it as a user of its own".to_owned());
            }
            Ok((Some(path), config, notices))
        }
        Err(errors) => {
            for e in &errors {
                eprintln!("{e}");
            }
            bail!("{} is not usable: {} error(s)", path.display(), errors.len());
        }
    }
}

fn precedence(cli: &Cli) -> Precedence {
    match (cli.initial, cli.reload, cli.declarative) {
        (true, ..) => Precedence::Initial,
        (_, true, _) => Precedence::Reload,
        (_, _, true) => Precedence::Declarative,
        _ => Precedence::Database,
    }
}

/// As long as it takes: a century, for clocks cannot count to [`Duration::MAX`].
const NO_LIMIT: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How the process ends.
enum End {
    Stop,
    Restart,
}

/// Runs until SIGTERM, SIGINT or an administrator's word; a second signal ends the drain.
async fn serve(
    cli: &Cli,
    found: Bootstrap,
    datadir: &Path,
    made: Made,
    before: &mut Option<Predecessor>,
    pidfile: &PidFile,
) -> Result<End> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut report = signal(SignalKind::user_defined1())?;
    let mut replace = signal(SignalKind::user_defined2())?;
    let monitor = Monitor::new();
    monitor.keep_in(datadir, !cli.initial);
    let (given, mut seen) = match before {
        Some(before) => before.plane()?,
        None => (Inheritance::default(), Seen { is_paused: cli.no_start, ..Seen::default() }),
    };
    if before.is_some() {
        monitor.keep_standings_here(false);
        seen.tell(&monitor);
    }
    let proxy = proxy::Proxy::take_over(found.snapshot.clone(), datadir, Some(monitor.clone()), given).await?;
    let control = proxy.control();
    control.use_address_book(monitor.clone());
    let watch = monitor.start(control.clone()).context("monitor")?;
    if seen.is_paused {
        let control = control.clone();
        // It waits for the listeners, which live on this thread.
        let _ = tokio::task::spawn_blocking(move || control.pause()).await;
    }
    let drained = std::mem::take(&mut seen.drained);
    if !drained.is_empty() {
        let monitor = monitor.clone();
        let done = tokio::task::spawn_blocking(move || monitor.drain_as_before(drained)).await;
        done?.map_err(anyhow::Error::msg)?;
    }
    let (leaving, board) = (Arc::<Leaving>::default(), Arc::<Board>::default());
    let (process, mut requests) = Requests::new(control.clone(), monitor.clone(), cli.clone(), leaving.clone());
    let (admin, engine) = admin::start(found, control.clone(), monitor.clone(), process, board.clone())?;
    made.stays();
    let tell_before = match before.take() {
        None => {
            tracing::info!("Tidegate {} is ready", cli::VERSION);
            notify::tell(notify::READY);
            None
        }
        Some(before) => {
            let tell = before.take_over(&control, &monitor, &seen, (&leaving, &board)).await?;
            monitor.keep_standings_here(true);
            pidfile.write()?;
            tracing::info!("Tidegate {} has taken over as process {}", cli::VERSION, std::process::id());
            notify::tell(&notify::taken_over());
            Some(tell)
        }
    };
    if let Err(e) = ::admin::sign(datadir) {
        tracing::warn!("cannot write the file that tidegate upgrade --datadir needs: {e}");
    }
    let asked = tokio::spawn(upgrade::serve(engine.clone()));
    share_descriptors(&proxy, control.snapshot().vars.max_connections);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut is_heir_in_charge = false;
    let event = loop {
        tokio::select! {
            _ = second.tick() => log::next_second(&control.snapshot().vars),
            _ = terminate.recv() => break Event::Shutdown(Stop::Drain),
            _ = interrupt.recv() => break Event::Shutdown(Stop::Drain),
            Some(event) = requests.recv() => {
                let Event::Upgrade(successor, in_charge) = event else { break event };
                let limit = Duration::from_millis(control.snapshot().vars.drain_timeout);
                let handed = monitor.clone();
                let _ = tokio::task::spawn_blocking(move || handed.keep_standings_here(false)).await;
                let stop = Notify::new();
                let mut is_stopped = false;
                let mut outcome = Box::pin(successor.hand_over(&proxy, &control, (limit, &board, &stop), in_charge));
                let outcome = loop {
                    tokio::select! {
                        // The new process is in charge before anything else is looked at.
                        biased;
                        outcome = &mut outcome => break outcome,
                        _ = second.tick() => {
                            log::next_second(&control.snapshot().vars);
                            continue;
                        }
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                    // The first signal leaves time for the last counts.
                    if std::mem::replace(&mut is_stopped, true) {
                        break Outcome::Over;
                    }
                    stop.notify_one();
                };
                match outcome {
                    Outcome::Over => {
                        is_heir_in_charge = true;
                        break Event::Shutdown(Stop::Now);
                    }
                    Outcome::Failed => {
                        monitor.keep_standings_here(true);
                        let _ = ::admin::sign(datadir);
                        // The new process may have announced itself before it failed.
                        if let Err(e) = pidfile.write() {
                            tracing::warn!("{e:#}");
                        }
                        notify::tell(&notify::taken_over());
                    }
                }
            }
            _ = replace.recv() => {
                let engine = engine.clone();
                tokio::spawn(async move {
                    if let Err(why) = upgrade::upgrade(&engine, "SIGUSR2", "").await {
                        tracing::error!("SIGUSR2: {why}");
                    }
                });
            }
            _ = report.recv() => {
                log::reopen();
                proxy.report();
            }
            // A terminal that closes, or a habit: no reason to end clients.
            _ = hangup.recv() => {
                log::reopen();
                tracing::info!("SIGHUP: the error log is reopened; SIGTERM stops the proxy");
            }
        }
    };
    let limit = match event {
        Event::Shutdown(Stop::Now) => Duration::ZERO,
        Event::Shutdown(Stop::Slow) => NO_LIMIT,
        Event::Shutdown(Stop::Drain) | Event::Restart | Event::Upgrade(..) => Duration::from_millis(control.snapshot().vars.drain_timeout),
    };
    tracing::info!("stopping");
    // A process that was to take over ends, and the asker gets an answer.
    requests.close();
    while requests.try_recv().is_ok() {}
    let mut restarts = matches!(event, Event::Restart);
    asked.abort();
    if let Some(tell) = &tell_before {
        tell();
    }
    if !restarts && !is_heir_in_charge {
        notify::tell(notify::STOPPING);
    }
    {
        let mut stopping = Box::pin(proxy.stop(limit));
        loop {
            tokio::select! {
                _ = &mut stopping => break,
                _ = second.tick() => {
                    log::next_second(&control.snapshot().vars);
                    continue;
                }
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if !std::mem::take(&mut restarts) {
                tracing::warn!("second stop signal: stopping at once");
                break;
            }
            tracing::info!("stop signal: the proxy does not start again");
        }
    }
    admin.stop();
    watch.stop();
    tracing::info!("stopped");
    Ok(if restarts { End::Restart } else { End::Stop })
}

/// The file with the process id; gone when the process stops cleanly.
struct PidFile(Option<PathBuf>);

impl PidFile {
    /// A name without a slash is in the data directory, an empty one is none.
    fn new(name: &str, datadir: &Path) -> Self {
        Self((!name.is_empty()).then(|| datadir.join(name)))
    }

    fn text() -> String {
        format!("{}\n", std::process::id())
    }

    fn write(&self) -> Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        std::fs::write(path, Self::text()).with_context(|| format!("pid file {}", path.display()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // It may be another process's by now.
        if let Some(path) = self.0.as_ref().filter(|path| std::fs::read_to_string(path).is_ok_and(|text| text == Self::text())) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A proxy needs a descriptor for each connection: as many as the system allows.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(e) = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised) {
        tracing::warn!("cannot raise the limit of open files: {e}");
    }
}

/// A file at the limit of files' sizes (RLIMIT_FSIZE) is one on a full disk: the write fails, and the process goes on.
fn survive_file_limit() -> std::io::Result<tokio::signal::unix::Signal> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

/// How many descriptors this process has open.
fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(64, |open| open.count() as u64)
}

/// Says how many clients may come with the descriptors that there are, where that is less than is configured.
fn share_descriptors(proxy: &proxy::Proxy, max_connections: u64) {
    let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current else { return };
    let most = proxy.share_descriptors(limit, open_files());
    if most >= max_connections {
        return;
    }
    let text = format!(
        "the limit of open files ({limit}) leaves room for {most} clients, but mysql-max_connections is {max_connections}: raise the limit, or \
         further clients get error 1040"
    );
    // The default was not asked for.
    if max_connections == MysqlVariables::default().max_connections {
        tracing::info!("{text}");
    } else {
        tracing::warn!("{text}");
    }
}
