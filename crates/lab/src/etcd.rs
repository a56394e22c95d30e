//! Real etcd: one member or several, on loopback or in a network of its own.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use crate::certs::ServerFiles;
use crate::dirs;
use crate::error::{IoContext, LabError};
use crate::network::Site;
use crate::port::Port;
use crate::process::Process;
use crate::wait;

const LIMIT: Duration = Duration::from_secs(30);

/// How its members are started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Members; 0 means 1.
    pub members: usize,
    /// Serve TLS with these files.
    pub tls: Option<&'a ServerFiles>,
    /// Seconds that an unused token lives.
    pub token_ttl_s: Option<u32>,
    /// Run all of it there, where it listens at both addresses.
    pub site: Option<&'a Arc<Site>>,
}

struct Member {
    process: Process,
    arguments: Vec<String>,
    client: Port,
    _peer: Port,
    dir: PathBuf,
}

/// Running members of one etcd. Killed and their files removed when dropped.
pub struct Etcd {
    members: Vec<Member>,
    scheme: &'static str,
    ca: Option<PathBuf>,
    site: Option<Arc<Site>>,
}

impl Etcd {
    /// Starts it, and waits until each member answers.
    pub fn start(options: Options<'_>) -> Result<Self, LabError> {
        let count = options.members.max(1);
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let ports = (0..count).map(|_| Ok((Port::reserve()?, Port::reserve()?))).collect::<Result<Vec<_>, LabError>>()?;
        let peer = |port: &Port| format!("http://127.0.0.1:{}", port.number());
        let cluster: Vec<String> = ports.iter().enumerate().map(|(n, (_, own))| format!("e{n}={}", peer(own))).collect();
        let mut members = Vec::new();
        for (n, (client, own)) in ports.into_iter().enumerate() {
            let dir = dirs::instance("etcd")?;
            let url = |host: &str| format!("{scheme}://{host}:{}", client.number());
            let (listens, host) = options.site.map_or(("127.0.0.1", "127.0.0.1"), |site| ("0.0.0.0", site.host()));
            let mut arguments: Vec<String> = ["--name", &format!("e{n}"), "--data-dir", &dir.join("data").display().to_string()]
                .into_iter()
                .chain(["--listen-client-urls", &url(listens), "--advertise-client-urls", &url(host)])
                .chain(["--listen-peer-urls", &peer(&own), "--initial-advertise-peer-urls", &peer(&own)])
                .chain(["--initial-cluster", &cluster.join(","), "--heartbeat-interval", "50", "--election-timeout", "500"])
                .map(str::to_owned)
                .collect();
            if let Some(certs) = options.tls {
                arguments.extend([
                    "--cert-file".into(),
                    certs.certificate.display().to_string(),
                    "--key-file".into(),
                    certs.key.display().to_string(),
                ]);
            }
            if let Some(seconds) = options.token_ttl_s {
                arguments.extend(["--auth-token-ttl".into(), seconds.to_string()]);
            }
            let process = launch(&dir, &arguments, options.site)?;
            members.push(Member { process, arguments, client, _peer: own, dir });
        }
        let etcd = Self { members, scheme, ca: options.tls.map(|certs| certs.ca.clone()), site: options.site.cloned() };
        etcd.wait_ready()?;
        Ok(etcd)
    }

    /// Waits until every member answers.
    pub fn wait_ready(&self) -> Result<(), LabError> {
        for n in 0..self.members.len() {
            wait::until("etcd answers", LIMIT, || self.ctl(n, &["endpoint", "health"]).ok())?;
        }
        Ok(())
    }

    /// The URLs, as `admin-shared_config_endpoints` takes them.
    pub fn endpoints(&self) -> String {
        let urls: Vec<String> = (0..self.members.len()).map(|n| self.endpoint(n)).collect();
        urls.join(",")
    }

    /// The URL of one member.
    pub fn endpoint(&self, n: usize) -> String {
        self.endpoint_at(n, self.site.as_ref().map_or("127.0.0.1", |site| site.host()))
    }

    /// The same by another address of its host.
    pub fn endpoint_at(&self, n: usize, host: &str) -> String {
        format!("{}://{host}:{}", self.scheme, self.members[n].client.number())
    }

    /// Runs etcdctl against one member. Returns its output.
    pub fn ctl(&self, n: usize, arguments: &[&str]) -> Result<String, LabError> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.endpoint(n))).arg("--command-timeout=3s").args(arguments);
        if let Some(ca) = &self.ca {
            command.arg(format!("--cacert={}", ca.display()));
        }
        let output = command.output().context(|| "etcdctl".to_owned())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(text) } else { Err(LabError::Protocol(format!("etcdctl {}: {text}", arguments.join(" ")))) }
    }

    /// Sets a key to any bytes.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<(), LabError> {
        let what = || "etcdctl put".to_owned();
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.endpoint(0))).args(["put", key]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context(what)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(value).context(what)?;
        }
        if child.wait().context(what)?.success() { Ok(()) } else { Err(LabError::Protocol(format!("etcdctl put {key} failed"))) }
    }

    /// Kills a member as a crash would.
    pub fn kill9(&self, n: usize) {
        self.members[n].process.kill9();
    }

    /// Stops a member in the middle of whatever it does.
    pub fn freeze(&self, n: usize) {
        self.members[n].process.freeze();
    }

    /// Lets it go on.
    pub fn thaw(&self, n: usize) {
        self.members[n].process.signal(Signal::CONT);
    }

    /// Starts a member again that was killed; `wiped` without its data.
    pub fn start_again(&mut self, n: usize, wiped: bool) -> Result<(), LabError> {
        let member = &mut self.members[n];
        member.process.kill9();
        if wiped {
            fs::remove_dir_all(member.dir.join("data")).context(|| "remove etcd's data".to_owned())?;
        }
        member.process = launch(&member.dir, &member.arguments, self.site.as_ref())?;
        self.wait_ready()
    }
}

impl Etcd {
    /// Saves a snapshot to a file.
    pub fn save(&self, file: &Path) -> Result<(), LabError> {
        self.ctl(0, &["snapshot", "save", &file.display().to_string()]).map(drop)
    }

    /// Starts every member from a snapshot, as an operator does after a loss.
    pub fn restore(&mut self, file: &Path) -> Result<(), LabError> {
        for member in &mut self.members {
            member.process.kill9();
            fs::remove_dir_all(member.dir.join("data")).context(|| "remove etcd's data".to_owned())?;
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(file);
            for name in ["--name", "--data-dir", "--initial-cluster", "--initial-advertise-peer-urls"] {
                command.args(member.arguments.iter().skip_while(|argument| *argument != name).take(2));
            }
            let output = command.output().context(|| "etcdctl snapshot restore".to_owned())?;
            if !output.status.success() {
                return Err(LabError::Protocol(format!("etcdctl snapshot restore: {}", String::from_utf8_lossy(&output.stderr))));
            }
        }
        for member in &mut self.members {
            member.process = launch(&member.dir, &member.arguments, self.site.as_ref())?;
        }
        self.wait_ready()
    }
}

fn launch(dir: &std::path::Path, arguments: &[String], site: Option<&Arc<Site>>) -> Result<Process, LabError> {
    let mut command = Command::new("etcd");
    command.args(arguments);
    if let Some(site) = site {
        command = site.enter(&command);
    }
    Process::start("etcd", &command, &dir.join("log"))
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &self.members {
            if std::thread::panicking() {
                let log = member.process.log();
                let tail: Vec<&str> = log.lines().rev().take(5).collect();
                eprintln!("---- the end of {}'s log, backwards\n{}", member.dir.display(), tail.join("\n"));
            }
            member.process.kill9();
            let _ = fs::remove_dir_all(&member.dir);
        }
    }
}
