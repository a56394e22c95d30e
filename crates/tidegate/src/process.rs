//! Administrators' acts on the process, as the admin engine asks for them.

use crate::cli::{Cli, program_name};
use crate::upgrade::{self, Leaving, Successor};
use ::admin::{Process, Stop};
use anyhow::{Context, Result};
use model::control::DataPlane;
use model::{Config, Listen};
use monitor::Monitor;
use proxy::Control;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Events for the main task.
pub(crate) enum Event {
    /// The proxy stops.
    Shutdown(Stop),
    /// End, and start again.
    Restart,
    /// Hand over to this process, and say when it is in charge.
    Upgrade(Box<Successor>, mpsc::Sender<()>),
}

/// The engine's end: requests go to the main task, which alone ends things.
pub(crate) struct Requests {
    control: Arc<Control>,
    monitor: Arc<Monitor>,
    cli: Cli,
    leaving: Arc<Leaving>,
    sender: UnboundedSender<Event>,
}

impl Requests {
    /// The engine's end and the main task's.
    pub(crate) fn new(
        control: Arc<Control>,
        monitor: Arc<Monitor>,
        cli: Cli,
        leaving: Arc<Leaving>,
    ) -> (Arc<Self>, UnboundedReceiver<Event>) {
        let (sender, receiver) = unbounded_channel();
        (Arc::new(Self { control, monitor, cli, leaving, sender }), receiver)
    }

    fn send(&self, event: Event) {
        // The main task has gone: the process ends already.
        let _ = self.sender.send(event);
    }
}

impl Process for Requests {
    fn shutdown(&self, how: Stop) {
        self.send(Event::Shutdown(how));
    }

    fn could_restart(&self, runtime: &Config) -> Result<(), String> {
        program().map_err(|e| format!("{e:#}"))?;
        let (options, _) = crate::start_options(&self.cli.again()).map_err(|e| format!("{e:#}"))?;
        let (config, snapshot) = ::admin::foresee(&options).map_err(|e| e.to_string())?;
        let listen = |config: &Config| Listen::parse_list(&config.admin.mysql_ifaces).map_err(|e| format!("admin-mysql_ifaces: {e}"));
        self.control.could_start(&snapshot, &options.datadir, &listen(&config)?, &listen(runtime)?)
    }

    fn upgrade(&self, given: ::admin::Successor) -> Result<String, String> {
        let program = given.program.clone().map_or_else(program, Ok).map_err(|e| format!("{e:#}"))?;
        if !self.leaving.wait(Duration::from_millis(given.upgrade_timeout_ms)) {
            let why = "the previous process still has sessions or scripts, which end within mysql-drain_timeout: upgrade again after that";
            return Err(why.to_owned());
        }
        let successor = upgrade::begin(&program, &self.cli, &self.control, &self.monitor, given).map_err(|e| format!("{e:#}"))?;
        let text = format!("process {} is taking over", successor.id());
        let (in_charge, said) = mpsc::channel();
        self.send(Event::Upgrade(Box::new(successor), in_charge));
        // No answer: this process was told to stop meanwhile, or the new one is gone.
        said.recv()
            .map(|()| text)
            .map_err(|_| "the new process does not take over: this process got a stop signal, or the new process has ended".to_owned())
    }

    fn reopen_log(&self) {
        crate::log::reopen();
    }

    fn restart(&self) -> Result<(), String> {
        self.send(Event::Restart);
        Ok(())
    }

    fn start(&self) -> Result<(), String> {
        self.control.resume().map_err(|_| self.control.is_ready().err().unwrap_or_else(|| "ProxySQL already started".to_owned()))
    }

    fn stop(&self) -> Result<(), String> {
        self.control.stop_serving()
    }
}

/// This program's file, or the one that has taken its place since: a restart is for that, too.
pub(crate) fn program() -> Result<PathBuf> {
    /// How Linux marks the name of a file that is no more.
    const GONE: &[u8] = b" (deleted)";
    let path = std::env::current_exe().context("this program's path")?;
    let path = match path.as_os_str().as_bytes().strip_suffix(GONE) {
        Some(name) if !path.exists() => PathBuf::from(OsStr::from_bytes(name)),
        _ => path,
    };
    anyhow::ensure!(path.is_file(), "{} no longer exists", path.display());
    Ok(path)
}

/// Replaces this process by a new one with the same name and command line, without options for a single start.
pub(crate) fn start_again(cli: &Cli) -> Result<()> {
    let error = std::process::Command::new(program()?).arg0(program_name()).args(cli.again().arguments()).exec();
    Err(error).context("restart")
}
