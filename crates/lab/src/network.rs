//! Networks that can be cut: a namespace for each server, with two links.
//!
//! One link leads to this machine and carries SQL; its address is the server's host. The other leads to a bridge that the servers share,
//! for the traffic between them. Each can be removed alone: packets then vanish without a notice, as with a switch that died. Needs root
//! and `ip` (package iproute2); [`Network::possible`] tells. The namespaces are removed with the [`Network`]. Those of a process that was
//! killed are removed by the next one.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{IoContext, LabError};

/// Names begin with this, then the process id, so that leftovers can be told.
const PREFIX: &str = "tgl";

/// A bridge and the sites on it. Sites live as long as any server uses them.
#[derive(Debug)]
pub struct Network {
    /// In order; hosts are `10.<net>.<n>.2`, groups `10.<net>.0.1<n>`.
    pub sites: Vec<Arc<Site>>,
    bridge: Arc<Bridge>,
}

/// A namespace for one server.
#[derive(Debug)]
pub struct Site {
    namespace: String,
    host: String,
    group_host: String,
    /// This machine's end of the link that carries SQL.
    near: String,
    /// The bridge's end of the link between servers.
    port: String,
    bridge: Arc<Bridge>,
}

#[derive(Debug)]
struct Bridge {
    name: String,
}

impl Network {
    /// Whether this process may make networks here: found out by making a bridge and removing it.
    pub fn possible() -> bool {
        let name = format!("{PREFIX}{}try", std::process::id());
        let made = run(&["netns", "list"]).is_ok() && run(&["link", "add", &name, "type", "bridge"]).is_ok();
        made && run(&["link", "del", &name]).is_ok()
    }

    /// A network of `count` sites, at most 9.
    pub fn new(count: usize) -> Result<Network, LabError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        remove_leftovers();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}{}x{number}", PREFIX, std::process::id());
        // 10.64.0.0 to 10.127.0.0: by process, so that parallel ones rarely clash; a clash is an error of `ip`.
        let net = 64 + (std::process::id().wrapping_mul(7).wrapping_add(number)) % 64;
        let bridge = Arc::new(Bridge { name: format!("{id}b") });
        run(&["link", "add", &bridge.name, "type", "bridge"])?;
        run(&["link", "set", &bridge.name, "up"])?;
        let sites = (1..=count).map(|n| Site::new(&id, net, n, &bridge).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        for site in &sites {
            site.know(&sites)?;
        }
        Ok(Network { sites, bridge })
    }

    /// Gives this machine an address among the sites, too: what reaches a site at [`Site::group_host`] is cut by [`Site::cut_from_group`].
    pub fn join(&self) -> Result<(), LabError> {
        let Some(site) = self.sites.first() else { return Ok(()) };
        let net = site.group_host.rsplit_once('.').map_or("", |(net, _)| net);
        run(&["addr", "add", &format!("{net}.1/24"), "dev", &self.bridge.name]).map(drop)
    }
}

impl Site {
    fn new(id: &str, net: u32, n: usize, bridge: &Arc<Bridge>) -> Result<Site, LabError> {
        let site = Site {
            namespace: format!("{id}n{n}"),
            host: format!("10.{net}.{n}.2"),
            group_host: format!("10.{net}.0.1{n}"),
            near: format!("{id}v{n}"),
            port: format!("{id}g{n}"),
            bridge: Arc::clone(bridge),
        };
        let (namespace, near, port) = (&*site.namespace, &*site.near, &*site.port);
        run(&["netns", "add", namespace])?;
        run(&["link", "add", near, "type", "veth", "peer", "name", "sql", "netns", namespace])?;
        run(&["link", "add", port, "type", "veth", "peer", "name", "peers", "netns", namespace])?;
        run(&["addr", "add", &format!("10.{net}.{n}.1/24"), "dev", near])?;
        run(&["link", "set", near, "up"])?;
        run(&["link", "set", port, "up", "master", &bridge.name])?;
        run(&["-n", namespace, "addr", "add", &format!("{}/24", site.host), "dev", "sql"])?;
        run(&["-n", namespace, "addr", "add", &format!("{}/24", site.group_host), "dev", "peers"])?;
        for device in ["lo", "sql", "peers"] {
            run(&["-n", namespace, "link", "set", device, "up"])?;
        }
        Ok(site)
    }

    /// Fixes the other sites' addresses in the namespace: otherwise a cut shows as "no route to host" after some seconds.
    fn know(&self, all: &[Arc<Site>]) -> Result<(), LabError> {
        for other in all.iter().filter(|other| other.namespace != self.namespace) {
            let link = run(&["-n", &other.namespace, "-o", "link", "show", "peers"])?;
            let address = link.split("link/ether ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
            self.neighbour(&other.group_host, address)?;
        }
        Ok(())
    }

    /// The server's address for clients.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The server's address for other servers.
    pub fn group_host(&self) -> &str {
        &self.group_host
    }

    /// Cuts it off from the other servers, or joins it again. Clients still reach it.
    pub fn cut_from_group(&self, cut: bool) -> Result<(), LabError> {
        if cut { run(&["link", "set", &self.port, "nomaster"]) } else { run(&["link", "set", &self.port, "master", &self.bridge.name]) }
            .map(drop)
    }

    /// Makes the site deaf, or ends that: packets to it vanish, its own packets arrive. `all` are the sites of its network. Followed by
    /// [`Site::cut_from_group`], the server's last messages were heard, and it never learns of the cut.
    pub fn deafen(&self, all: &[Arc<Site>], deaf: bool) -> Result<(), LabError> {
        for other in all.iter().filter(|other| other.namespace != self.namespace) {
            if deaf { other.neighbour(&self.group_host, "02:00:00:00:00:01")? } else { other.know(all)? }
        }
        Ok(())
    }

    fn neighbour(&self, host: &str, address: &str) -> Result<(), LabError> {
        run(&["-n", &self.namespace, "neigh", "replace", host, "lladdr", address, "dev", "peers", "nud", "permanent"]).map(drop)
    }

    /// Cuts it off from clients, or joins it again: connections stay, nothing answers.
    pub fn cut_from_clients(&self, cut: bool) -> Result<(), LabError> {
        // Inside the namespace, so that this machine keeps its route, and packets vanish.
        run(&["-n", &self.namespace, "link", "set", "sql", if cut { "down" } else { "up" }]).map(drop)
    }

    /// The same command, run inside the namespace.
    pub fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.namespace]).arg(command.get_program()).args(command.get_args());
        inside.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        inside
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = run(&["link", "del", &self.near]);
        let _ = run(&["link", "del", &self.port]);
        let _ = run(&["netns", "del", &self.namespace]);
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = run(&["link", "del", &self.name]);
    }
}

/// Runs `ip`. Returns its output.
fn run(args: &[&str]) -> Result<String, LabError> {
    let what = || format!("ip {}", args.join(" "));
    let output = Command::new("ip").args(args).output().context(what)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::io(what(), std::io::Error::other(said)))
}

/// Removes namespaces and links of processes that are gone.
fn remove_leftovers() {
    let listed = |args: &[&str]| run(args).unwrap_or_default();
    let names = listed(&["netns", "list"]);
    for namespace in names.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| is_leftover(name)) {
        let _ = run(&["netns", "del", namespace]);
    }
    let links = listed(&["-o", "link", "show"]);
    let names = links.lines().filter_map(|line| line.split_whitespace().nth(1)).filter_map(|name| name.split(['@', ':']).next());
    for link in names.filter(|name| is_leftover(name)) {
        let _ = run(&["link", "del", link]);
    }
}

/// Whether the process in a name of ours has gone.
fn is_leftover(name: &str) -> bool {
    let pid = name.strip_prefix(PREFIX).map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    pid.is_some_and(|pid| !pid.is_empty() && !Path::new(&format!("/proc/{pid}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_processes_that_are_gone_are_leftovers() {
        let alive = format!("{PREFIX}{}x0n1", std::process::id());
        assert!(!is_leftover(&alive) && !is_leftover("eth0") && !is_leftover(PREFIX));
        assert!(is_leftover(&format!("{PREFIX}4194399x0n1")));
    }
}
