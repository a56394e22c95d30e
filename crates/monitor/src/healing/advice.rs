//! What an operator is told: the plan as statements in the words of each server, and what is amiss. Nothing is sent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use model::fleet::HealingStep;
use model::snapshot::{HealingMode, Promotion};
use model::{HostgroupId, ServerAddr};
use topology::healing::{Act, Blocked, Choice, Facts, Replica, ServerVersion, Step, Verdict, choose};

use super::board::Seen;
use super::rejoin;
use crate::client::Version;
use crate::monitor::Monitor;
use crate::statements::{self, Place, Pointing};

/// Longest wait for the first look at a cluster.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// LOAD waits at most so long for a look at what was loaded: a server that is down does not hold it up. The tables have the rest.
const REMARKS: Duration = Duration::from_millis(250);

impl Monitor {
    /// See [`model::fleet::Operator::explain_healing`].
    pub(crate) fn explain(&self, hostgroup: HostgroupId, dies: Option<&ServerAddr>) -> Result<Vec<HealingStep>, String> {
        let snapshot = self.snapshot();
        let row = snapshot.healing.get(&hostgroup).filter(|row| row.mode != HealingMode::Off);
        if row.is_none() {
            return Err(format!("no advice is given for hostgroup {hostgroup}: add a row with this writer_hostgroup to mysql_healing"));
        }
        if !super::wanted(&snapshot).any(|writer| writer == hostgroup) {
            return Err(format!("hostgroup {hostgroup} is not a writer_hostgroup of mysql_replication_hostgroups, or the monitor is off"));
        }
        let Some(seen) = self.healing.seen(hostgroup, Instant::now() + FIRST_LOOK) else {
            return Err(format!("the servers of hostgroup {hostgroup} have not been looked at yet: try again in a moment"));
        };
        explain(&seen, dies)
    }

    /// See [`model::fleet::Operator::healing_remarks`].
    pub(crate) fn remarks_on_healing(&self) -> Vec<(HostgroupId, String)> {
        let snapshot = self.snapshot();
        let clusters: Vec<HostgroupId> = super::wanted(&snapshot).collect();
        let until = Instant::now() + REMARKS;
        clusters.into_iter().filter_map(|writer| self.healing.seen(writer, until)).flat_map(|seen| remarks(&seen)).collect()
    }
}

/// What keeps a cluster from being healed, and what makes it worse.
fn remarks(seen: &Seen) -> Vec<(HostgroupId, String)> {
    let writer = seen.policy.writer;
    let blocked = seen.choice.plan.as_ref().err().map(|blocked| (writer, format!("nobody could take over now: {blocked}")));
    // Why nobody may has the reasons already.
    let is_told = matches!(seen.choice.plan, Err(Blocked::Nobody(_)));
    let wanted = seen.choice.servers.iter().filter(|one| !is_told && !one.is_eligible && one.promotion != Promotion::Never);
    let unfit = wanted.map(|one| (writer, format!("{} could not take over: {}", one.addr, one.why_not)));
    // The same of several servers is one remark.
    let mut notes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for replica in &seen.facts.replicas {
        replica.notes.iter().for_each(|note| notes.entry(note).or_default().push(replica.addr.to_string()));
    }
    let notes = notes.into_iter().map(|(note, servers)| (writer, format!("{}: {note}", servers.join(", "))));
    let acks = seen.acks.iter().flat_map(|acks| acks.stopped.iter().chain(&acks.faults)).map(|fault| (writer, fault.clone()));
    blocked.into_iter().chain(unfit).chain(acks).chain(notes).collect()
}

fn explain(seen: &Seen, dies: Option<&ServerAddr>) -> Result<Vec<HealingStep>, String> {
    let Some(primary) = &seen.facts.primary else { return Ok(vec![say("blocked", None, Verdict::Unknown.meaning().to_owned())]) };
    let is_primary = dies.is_none_or(|dies| dies.is_same(&primary.addr));
    if is_primary {
        let healer = seen.healer.as_ref().map(|healer| {
            let epoch = seen.epoch.map(|epoch| format!("; epoch {epoch} in etcd")).unwrap_or_default();
            say("healer", None, format!("{healer} promotes, and no other proxy{epoch}"))
        });
        return Ok(healer.into_iter().chain(steps(&seen.facts, &seen.choice)).chain(rejoin::steps(seen)).collect());
    }
    let dies = dies.cloned().unwrap_or_else(no_server);
    let Some(place) = seen.facts.replicas.iter().position(|replica| replica.addr.is_same(&dies)) else {
        return Err(format!("{dies} is not a server of hostgroup {}", seen.policy.writer));
    };
    let mut facts = seen.facts.clone();
    if let Some(replica) = facts.replicas.get_mut(place) {
        *replica = Replica {
            declared: replica.declared,
            is_written_as_writer: replica.is_written_as_writer,
            weight: replica.weight,
            ..Replica::silent(replica.addr.clone(), "it is supposed to be dead")
        };
    }
    let then = choose(&facts, &seen.policy);
    let (step, why) = match seen.verdict {
        Verdict::Alive => ("keep", "it still writes, so nobody is promoted".to_owned()),
        Verdict::Dead => ("dead", Verdict::Dead.meaning().to_owned()),
        verdict => ("keep", format!("nobody is promoted: {}", verdict.meaning())),
    };
    Ok(vec![say(step, Some(&primary.addr), why), say("then", None, then.line(&primary.addr, seen.verdict == Verdict::Dead))])
}

fn no_server() -> ServerAddr {
    ServerAddr { host: "".into(), port: 0 }
}

/// A row that says something and sends nothing.
pub(super) fn say(step: &str, server: Option<&ServerAddr>, text: String) -> HealingStep {
    let server = server.map(ToString::to_string).unwrap_or_default();
    HealingStep { step: step.to_owned(), server, statement: format!("-- {text}"), undo: String::new() }
}

pub(super) fn steps(facts: &Facts, choice: &Choice) -> Vec<HealingStep> {
    match &choice.plan {
        Err(blocked) => {
            let out = choice.servers.iter().filter(|one| !one.is_eligible);
            let out = out.map(|one| say("out", Some(&one.addr), one.why_not.clone()));
            std::iter::once(say("blocked", None, blocked.to_string())).chain(out).collect()
        }
        Ok(plan) => {
            let seconds = plan.about_ms.div_ceil(1_000);
            let lost = if plan.lost.gtids.is_empty() { String::new() } else { format!(": {}", plan.lost.gtids) };
            let summary = format!("{} takes over in about {seconds} s, {}{lost}: {}", plan.candidate, plan.lost, plan.because);
            let first = say("choose", Some(&plan.candidate), summary);
            std::iter::once(first).chain(plan.steps.iter().map(|step| written(facts, step))).collect()
        }
    }
}

/// A step in the words of its server.
fn written(facts: &Facts, step: &Step) -> HealingStep {
    let words = Words(version(facts, &step.server));
    let (name, statement, undo) = match &step.act {
        Act::Freeze { channel } => ("freeze", statements::stop_receiver(&words.0, channel), statements::start_receiver(&words.0, channel)),
        Act::Fetch { channel, from, before, position, limit_ms } => {
            let wait = words.wait(position, *limit_ms).unwrap_or_else(|| format!("/* wait until it has all that {from} has */"));
            let all = [words.point(channel, from), wait, statements::stop_receiver(&words.0, channel)];
            ("fetch", all.join("; "), words.point(channel, before))
        }
        Act::Apply { position, limit_ms } => {
            ("apply", words.wait(position, *limit_ms).unwrap_or_else(|| "-- nothing to wait for".to_owned()), String::new())
        }
        Act::Close => ("close, if it answers", words.close().to_owned(), OPEN.to_owned()),
        Act::TakeOff { channel, before } => {
            let undo = [words.change(channel, before), statements::start(&words.0, channel)].join("; ");
            ("take off", words.take_off(channel), format!("{undo} -- with the account and the TLS options of before"))
        }
        Act::Open => ("open", OPEN.to_owned(), "-- none: clients write from here on".to_owned()),
        Act::Follow { channel, source, before } => ("follow", words.point(channel, source), words.point(channel, before)),
        Act::Leave { why } => return say("leave", Some(&step.server), why.clone()),
    };
    HealingStep { step: name.to_owned(), server: step.server.to_string(), statement, undo }
}

/// MySQL ends `super_read_only` with it.
const OPEN: &str = "SET GLOBAL read_only=0";

/// How a server of this version is spoken to.
pub(super) struct Words(Version);

impl Words {
    pub(super) fn of(facts: &Facts, server: &ServerAddr) -> Self {
        Self(version(facts, server))
    }

    /// Points a server at the writer and starts it. A former writer goes on behind its own transactions.
    pub(super) fn follow(&self, name: &str, source: &ServerAddr, is_former: bool) -> String {
        let place = if is_former { Place::Demoted } else { Place::Kept };
        let to = Pointing { name, source, retry_s: None, credentials: None, tls: &[], place };
        [statements::stop(&self.0, name), statements::point(&self.0, &to), statements::start(&self.0, name)].join("; ")
    }

    fn change(&self, name: &str, source: &ServerAddr) -> String {
        statements::point(&self.0, &Pointing { name, source, retry_s: None, credentials: None, tls: &[], place: Place::Kept })
    }

    /// Points a channel that runs. MySQL forgets what it received if the applier is stopped too; MariaDB changes no source beside an
    /// applier.
    fn point(&self, name: &str, source: &ServerAddr) -> String {
        let (stop, start) = if self.0.is_mariadb {
            (statements::stop(&self.0, name), statements::start(&self.0, name))
        } else {
            (statements::stop_receiver(&self.0, name), statements::start_receiver(&self.0, name))
        };
        [stop, self.change(name, source), start].join("; ")
    }

    fn take_off(&self, name: &str) -> String {
        [statements::stop(&self.0, name), statements::forget(&self.0, name)].join("; ")
    }

    pub(super) fn close(&self) -> &'static str {
        if self.0.is_mariadb { "SET GLOBAL read_only=1" } else { "SET GLOBAL super_read_only=1" }
    }

    /// None without a position to wait for. A server's words are repeated only if nothing but a position is in them. A wait that ends
    /// without success is no error, and the next step would forget what was not applied. A limit of 0 waits for ever on MySQL.
    fn wait(&self, position: &str, limit_ms: u64) -> Option<String> {
        let is_plain = position.chars().all(|c| c.is_ascii_alphanumeric() || "-:,_".contains(c));
        if !is_plain || position.is_empty() {
            return None;
        }
        let wait = statements::wait(&self.0, position, limit_ms.div_ceil(1_000).max(1));
        Some(format!("{wait} /* must return 0, else stop here */"))
    }
}

fn version(facts: &Facts, server: &ServerAddr) -> Version {
    let of_replica = facts.replicas.iter().find(|replica| replica.addr == *server).map(|replica| replica.version);
    let of_primary = facts.primary.as_ref().map(|primary| primary.version);
    let ServerVersion { is_mariadb, number } = of_replica.or(of_primary).unwrap_or_default();
    Version { is_mariadb, number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_by(is_mariadb: bool, act: Act) -> (String, String) {
        let addr = ServerAddr { host: "b".into(), port: 3306 };
        let version = ServerVersion { is_mariadb, number: if is_mariadb { (10, 11, 6) } else { (9, 7, 0) } };
        let replica = Replica { version, ..Replica::silent(addr.clone(), "") };
        let facts = Facts { replicas: vec![replica], ..Facts::default() };
        let row = written(&facts, &Step { server: addr, act });
        (row.statement, row.undo)
    }

    #[test]
    fn steps_are_written_in_each_servers_words() {
        let server = |name: &str| ServerAddr { host: name.into(), port: 3306 };
        let freeze = || Act::Freeze { channel: String::new() };
        assert_eq!(written_by(true, freeze()), ("STOP SLAVE '' IO_THREAD".into(), "START SLAVE '' IO_THREAD".into()));
        assert_eq!(written_by(false, freeze()).0, "STOP REPLICA IO_THREAD FOR CHANNEL ''");
        let apply = |position: &str| Act::Apply { position: position.into(), limit_ms: 60_000 };
        assert_eq!(written_by(true, apply("0-1-7")).0, "SELECT MASTER_GTID_WAIT('0-1-7', 60) /* must return 0, else stop here */");
        assert_eq!(
            written_by(false, apply("aa:1-7")).0,
            "SELECT WAIT_FOR_EXECUTED_GTID_SET('aa:1-7', 60) /* must return 0, else stop here */"
        );
        for (limit_ms, seconds) in [(0, 1), (500, 1), (1_001, 2)] {
            let (does, _) = written_by(false, Act::Apply { position: "aa:1".into(), limit_ms });
            assert!(does.starts_with(&format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('aa:1', {seconds}) ")), "{does}");
        }
        let fetch = |position: &str| {
            let (channel, position) = (String::new(), position.to_owned());
            written_by(false, Act::Fetch { channel, from: server("c"), before: server("a"), position, limit_ms: 30_000 }).0
        };
        assert!(fetch("aa:1").contains("('aa:1', 30) /* must return 0, else stop here */; STOP REPLICA IO_THREAD"), "{}", fetch("aa:1"));
        assert!(fetch("").contains("; /* wait until it has all that c:3306 has */; STOP REPLICA IO_THREAD"), "{}", fetch(""));
        assert_eq!(written_by(true, apply("0-1-7') OR SLEEP(9) -- ")).0, "-- nothing to wait for");
        let off = Act::TakeOff { channel: String::new(), before: server("a") };
        let (does, undoes) = written_by(true, off);
        assert_eq!(does, "STOP SLAVE ''; RESET SLAVE '' ALL");
        assert!(undoes.starts_with("CHANGE MASTER '' TO MASTER_HOST='a', MASTER_PORT=3306; START SLAVE ''"), "{undoes}");
        let follow = Act::Follow { channel: String::new(), source: server("c"), before: server("a") };
        let (does, undoes) = written_by(false, follow);
        assert!(
            does.contains("CHANGE REPLICATION SOURCE TO SOURCE_HOST='c', SOURCE_PORT=3306 FOR CHANNEL ''; START REPLICA IO_THREAD"),
            "{does}"
        );
        assert!(undoes.contains("SOURCE_HOST='a'"), "{undoes}");
        assert_eq!(written_by(false, Act::Close).0, "SET GLOBAL super_read_only=1");
        assert_eq!(written_by(false, Act::Leave { why: "why".into() }).0, "-- why");
    }
}
