//! Operators' orders about roles: SWITCHOVER, FAILBACK, ACCEPT CLUSTER, PAUSE, RESUME, DRAIN, UNDRAIN, ADOPT, and about HEALING.
//!
//! An order takes as long as its work does. It runs on a thread of its own while the engine serves other administrators. Only a few may run
//! at a time.

use std::sync::Arc;
use std::time::Duration;

use model::fleet::{HealOrder, Operator, StandingOrder, Told};
use model::{HostgroupId, ServerAddr};

use super::explain::explained;
use super::{Answer, Command, open, refuse};
use crate::engine::statement::Statement;
use crate::engine::{Ask, Engine};
use crate::reply::Reply;
use crate::sharing::{Shared, Sharing};

pub(super) const COMMANDS: &[Command] = &[
    open("SWITCHOVER", order).help(
        "SWITCHOVER HOSTGROUP n TO 'host:port' [TIMEOUT ms] [WAIT FOR READ_ONLY]",
        "Makes a server the writer of a cluster, or leaves everything as it was. Replication needs \
         mysql-switchover_manages_read_only, or somebody who sets read_only while sessions wait (WAIT FOR READ_ONLY). The old writer and the \
         replicas then follow the new writer, unless mysql-switchover_repoints is false. A server that does not follow is named in a \
         warning.",
        "SWITCHOVER HOSTGROUP 0 TO '10.0.0.2:3306'",
    ),
    open("FAILBACK", order).help("FAILBACK HOSTGROUP n", "Lets the preferred server become writer again.", "FAILBACK HOSTGROUP 0"),
    open("ACCEPT", order).help(
        "ACCEPT CLUSTER HOSTGROUP n [FROM 'host:port']",
        "Accepts servers that were refused as members of another cluster.",
        "ACCEPT CLUSTER HOSTGROUP 0",
    ),
    open("PAUSE", order).help("PAUSE HOSTGROUP n", "Holds new work of a hostgroup in order. Open transactions go on.", "PAUSE HOSTGROUP 0"),
    open("RESUME", order).help("RESUME HOSTGROUP n", "Ends PAUSE HOSTGROUP.", "RESUME HOSTGROUP 0"),
    open("DRAIN", order).help(
        "DRAIN SERVER 'host:port' [TIMEOUT ms]",
        "Gives a server no new work, and returns when nothing runs there.",
        "DRAIN SERVER '10.0.0.2:3306'",
    ),
    open("ADOPT", order).help(
        "ADOPT SERVER 'host:port'",
        "Takes back a server that does not follow its writer, though somebody stopped it or attempts failed (mysql_healing, mode rejoin).",
        "ADOPT SERVER '10.0.0.2:3306'",
    ),
    open("REJOIN", order).help(
        "REJOIN SERVER 'host:port'",
        "Makes a server follow its writer now, if it is proved to have nothing that the writer lacks; with a row in mysql_healing of any mode. \
         A former writer is closed first. A server with other transactions is refused, with the commands that rebuild it.",
        "REJOIN SERVER '10.0.0.2:3306'",
    ),
    open("SUSPEND", order).help(
        "SUSPEND HEALING [HOSTGROUP n] [FOR s SECONDS]",
        "This proxy promotes no server and takes none back (mysql_healing), also after a restart.",
        "SUSPEND HEALING HOSTGROUP 0 FOR 3600 SECONDS",
    ),
    open("RESUME HEALING", order).help(
        "RESUME HEALING [HOSTGROUP n]",
        "Ends SUSPEND HEALING of a cluster, or of all clusters.",
        "RESUME HEALING",
    ),
    open("HEAL", order).help(
        "HEAL HOSTGROUP n [TO 'host:port'] [FORCE LOSING k] [DRY RUN]",
        "Promotes a server in place of a dead writer, by the plan of mode full, with a row in mysql_healing of any mode. FORCE LOSING takes \
         the number of would_lose in stats_tidegate_healing. DRY RUN shows the plan, and changes nothing.",
        "HEAL HOSTGROUP 0 TO '10.0.0.2:3306'",
    ),
    open("ACKNOWLEDGE", order).help(
        "ACKNOWLEDGE HEALING HOSTGROUP n",
        "Lets another promotion follow the last one within block_ms, and lets plans that failed begin again (mysql_healing, mode full).",
        "ACKNOWLEDGE HEALING HOSTGROUP 0",
    ),
    open("UNDRAIN", order).help("UNDRAIN SERVER 'host:port'", "Ends DRAIN SERVER.", "UNDRAIN SERVER '10.0.0.2:3306'"),
];

/// An order with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Order {
    Switchover { hostgroup: HostgroupId, to: ServerAddr, timeout_ms: Option<u64>, is_by_hand: bool },
    Failback(HostgroupId),
    Accept { hostgroup: HostgroupId, from: Option<ServerAddr> },
    Pause(HostgroupId),
    Resume(HostgroupId),
    Drain { server: ServerAddr, timeout_ms: Option<u64> },
    Undrain(ServerAddr),
    Adopt(ServerAddr),
    Rejoin { server: ServerAddr, discarding: Option<u64> },
    SuspendHealing { hostgroup: Option<HostgroupId>, limit: Option<Duration> },
    ResumeHealing(Option<HostgroupId>),
    AcknowledgeHealing(HostgroupId),
    Heal(HealOrder),
    ExplainHeal(HealOrder),
}

impl Order {
    /// The lasting effect of this order, and whether it begins or ends; None if it leaves none.
    fn standing(&self) -> Option<(StandingOrder, bool)> {
        match self {
            Self::Pause(hostgroup) => Some((StandingOrder::Paused(*hostgroup), true)),
            Self::Resume(hostgroup) => Some((StandingOrder::Paused(*hostgroup), false)),
            Self::Drain { server, .. } => Some((StandingOrder::Drained(server.clone()), true)),
            Self::Undrain(server) => Some((StandingOrder::Drained(server.clone()), false)),
            Self::Switchover { .. } | Self::Failback(_) | Self::Accept { .. } | Self::Adopt(_) => None,
            Self::SuspendHealing { .. } | Self::ResumeHealing(_) | Self::AcknowledgeHealing(_) => None,
            Self::Heal(_) | Self::ExplainHeal(_) | Self::Rejoin { .. } => None,
        }
    }

    /// Carries it out here and, where a configuration is shared, everywhere.
    fn give(&self, operator: &dyn Operator, sharing: Option<&Sharing>, by: &str) -> Result<Told, String> {
        if let Some((order, holds)) = self.standing() {
            let share = || sharing.map(|sharing| sharing.share_order(&order, holds)).unwrap_or_default();
            return self.stand(operator, (&order, holds), by, share);
        }
        let outcome = self.carry_out(operator, by);
        match self {
            Self::Failback(hostgroup) if outcome.is_ok() => warned(outcome, sharing.and_then(|sharing| sharing.share_failback(*hostgroup))),
            _ => outcome,
        }
    }

    /// An order that lasts. If it holds here already, or holds no more, it is shared all the same: etcd may have missed it.
    fn stand(
        &self,
        operator: &dyn Operator,
        (order, holds): (&StandingOrder, bool),
        by: &str,
        share: impl FnOnce() -> Shared,
    ) -> Result<Told, String> {
        if matches!(self, Self::Drain { .. }) {
            // Nothing new goes there from any proxy, while this one waits for what runs.
            operator.stand(order, true)?;
            let warning = share().warning;
            return warned(self.carry_out(operator, by), warning.map(repeated));
        }
        let outcome = self.carry_out(operator, by);
        if outcome.is_err() && operator.standing().contains(order) != holds {
            return outcome;
        }
        let Shared { is_changed, warning } = share();
        let followed = |why: String| Told::from(format!("{why}. It was not so in etcd: the other proxies follow now"));
        let outcome = if is_changed { outcome.or_else(|why| Ok(followed(why))) } else { outcome };
        warned(outcome, warning.map(repeated))
    }

    fn carry_out(&self, operator: &dyn Operator, by: &str) -> Result<Told, String> {
        match self {
            Self::Switchover { hostgroup, to, timeout_ms, is_by_hand: true } => operator.switchover_by_hand(*hostgroup, to, *timeout_ms),
            Self::Switchover { hostgroup, to, timeout_ms, is_by_hand: false } => operator.switchover(*hostgroup, to, *timeout_ms),
            Self::Failback(hostgroup) => operator.failback(*hostgroup).map(Told::from),
            Self::Accept { hostgroup, from } => operator.accept(*hostgroup, from.as_ref()).map(Told::from),
            Self::Pause(hostgroup) => operator.pause(*hostgroup, true).map(Told::from),
            Self::Resume(hostgroup) => operator.pause(*hostgroup, false).map(Told::from),
            Self::Drain { server, timeout_ms } => operator.drain(server, *timeout_ms).map(Told::from),
            Self::Undrain(server) => operator.undrain(server).map(Told::from),
            Self::Adopt(server) => operator.adopt(server).map(Told::from),
            Self::Rejoin { server, discarding } => operator.rejoin(server, *discarding).map(Told::from),
            Self::SuspendHealing { hostgroup, limit } => operator.suspend_healing(*hostgroup, *limit, by).map(Told::from),
            Self::ResumeHealing(hostgroup) => operator.resume_healing(*hostgroup).map(Told::from),
            Self::AcknowledgeHealing(hostgroup) => operator.acknowledge_healing(*hostgroup).map(Told::from),
            Self::Heal(order) => operator.heal(order, by).map(Told::from),
            Self::ExplainHeal(order) => operator.explain_heal(order).map(|_| Told::default()),
        }
    }
}

fn repeated(warning: String) -> String {
    format!("{warning}. Repeat it when etcd answers")
}

/// The outcome, good or bad, with a warning if there is one.
fn warned(outcome: Result<Told, String>, warning: Option<String>) -> Result<Told, String> {
    let Some(warning) = warning else { return outcome };
    match outcome {
        Ok(mut told) => {
            told.text.push_str(&format!("; WARNING: {warning}"));
            told.warnings.push(warning);
            Ok(told)
        }
        Err(why) => Err(format!("{why}; WARNING: {warning}")),
    }
}

fn order(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let order = match parse(ask.statement) {
        Ok(order) => order,
        Err(reason) => return refuse(reason),
    };
    let Some(operator) = engine.operator.clone() else {
        return refuse("the monitor does not run here, and commands about roles need it: set mysql-monitor_enabled");
    };
    let text = ask.statement.text.to_string();
    tracing::info!("{}@{}: {text}", ask.session.user, ask.session.peer);
    let (sharing, by) = (engine.sharing.clone(), ask.session.user.clone());
    engine.later(Box::new(move || answer((&operator, sharing.as_deref()), &order, &text, &by)))
}

fn answer((operator, sharing): (&Arc<dyn Operator>, Option<&Sharing>), order: &Order, text: &str, by: &str) -> Reply {
    if let Order::ExplainHeal(order) = order {
        return operator.explain_heal(order).map_or_else(Reply::refused, explained);
    }
    match order.give(operator.as_ref(), sharing, by) {
        Ok(told) => {
            tracing::info!("{}", told.text);
            Reply::Ok { affected: 0, insert_id: 0, info: told.text, warnings: told.warnings }
        }
        Err(reason) => {
            tracing::warn!("{text} failed: {reason}");
            Reply::refused(reason)
        }
    }
}

fn parse(statement: &Statement) -> Result<Order, String> {
    let usage = super::form(statement);
    let wrong = |what: String| format!("{what}; the command is: {usage}");
    let hostgroup_at = |at: usize| match statement.word(at).parse() {
        Ok(number) if number <= HostgroupId::MAX => Ok(HostgroupId(number)),
        _ => Err(wrong(format!("'{}' is not a hostgroup number", statement.word(at)))),
    };
    let hostgroup = || hostgroup_at(2);
    let is_by_hand = statement.head.len() > 3 && statement.has(statement.head.len() - 3, "WAIT FOR READ_ONLY");
    let end = if is_by_hand { statement.head.len() - 3 } else { statement.head.len() };
    let timeout = |at: usize| match end.checked_sub(at) {
        Some(0) => Ok(None),
        Some(2) if statement.is(at, "TIMEOUT") => match statement.word(at + 1).parse() {
            Ok(ms) => Ok(Some(ms)),
            Err(_) => Err(wrong(format!("'{}' is not a number of ms", statement.word(at + 1)))),
        },
        _ => Err(wrong(format!("'{}' is not understood", statement.rest(at)))),
    };
    let server = |at: usize| address(statement, at).map_err(wrong);
    let ends_at = |count: usize| match statement.head.len() {
        length if length == count => Ok(()),
        _ => Err(wrong(format!("'{}' is not understood", statement.rest(count)))),
    };
    let of_hostgroup = |make: fn(HostgroupId) -> Order| Ok(make(hostgroup()?)).and_then(|order| ends_at(3).map(|()| order));
    match () {
        () if statement.has(0, "SWITCHOVER HOSTGROUP * TO *") => {
            let (to, next) = server(4)?;
            let timeout_ms = timeout(next)?;
            if timeout_ms == Some(0) {
                return Err(wrong("TIMEOUT 0 is too short for a switchover: give at least 1 ms".to_owned()));
            }
            Ok(Order::Switchover { hostgroup: hostgroup()?, to, timeout_ms, is_by_hand })
        }
        () if statement.has(0, "FAILBACK HOSTGROUP *") => of_hostgroup(Order::Failback),
        () if statement.has(0, "ACCEPT CLUSTER HOSTGROUP * FROM *") => {
            let (from, next) = server(5)?;
            ends_at(next)?;
            Ok(Order::Accept { hostgroup: hostgroup_at(3)?, from: Some(from) })
        }
        () if statement.has(0, "ACCEPT CLUSTER HOSTGROUP *") => {
            ends_at(4)?;
            Ok(Order::Accept { hostgroup: hostgroup_at(3)?, from: None })
        }
        () if statement.has(0, "SUSPEND HEALING") && !is_by_hand => {
            let (hostgroup, next) = if statement.is(2, "HOSTGROUP") { (Some(hostgroup_at(3)?), 4) } else { (None, 2) };
            let limit = match statement.head.len().checked_sub(next) {
                Some(0) => None,
                Some(3) if statement.has(next, "FOR * SECONDS") => match statement.word(next + 1).parse() {
                    Ok(seconds) => Some(Duration::from_secs(seconds)),
                    Err(_) => return Err(wrong(format!("'{}' is not a number of seconds", statement.word(next + 1)))),
                },
                _ => return Err(wrong(format!("'{}' is not understood", statement.rest(next)))),
            };
            Ok(Order::SuspendHealing { hostgroup, limit })
        }
        () if statement.has(0, "RESUME HEALING HOSTGROUP *") => {
            ends_at(4)?;
            Ok(Order::ResumeHealing(Some(hostgroup_at(3)?)))
        }
        () if statement.has(0, "RESUME HEALING") => ends_at(2).map(|()| Order::ResumeHealing(None)),
        () if statement.has(0, "ACKNOWLEDGE HEALING HOSTGROUP *") => {
            ends_at(4)?;
            Ok(Order::AcknowledgeHealing(hostgroup_at(3)?))
        }
        () if statement.has(0, "HEAL HOSTGROUP *") && !is_by_hand => heal(statement).map_err(wrong),
        () if statement.has(0, "PAUSE HOSTGROUP *") => of_hostgroup(Order::Pause),
        () if statement.has(0, "RESUME HOSTGROUP *") => of_hostgroup(Order::Resume),
        () if statement.has(0, "DRAIN SERVER *") && !is_by_hand => {
            let (server, next) = server(2)?;
            Ok(Order::Drain { server, timeout_ms: timeout(next)? })
        }
        () if statement.has(0, "UNDRAIN SERVER *") => {
            let (server, next) = server(2)?;
            ends_at(next)?;
            Ok(Order::Undrain(server))
        }
        () if statement.has(0, "REJOIN SERVER *") => {
            let (server, next) = server(2)?;
            let discarding = match statement.head.len().checked_sub(next) {
                Some(0) => None,
                Some(2) if statement.is(next, "DISCARDING") => Some(
                    statement
                        .word(next + 1)
                        .parse()
                        .map_err(|_| wrong(format!("'{}' is not a number of transactions", statement.word(next + 1))))?,
                ),
                _ => return Err(wrong(format!("'{}' is not understood", statement.rest(next)))),
            };
            Ok(Order::Rejoin { server, discarding })
        }
        () if statement.has(0, "ADOPT SERVER *") => {
            let (server, next) = server(2)?;
            ends_at(next)?;
            Ok(Order::Adopt(server))
        }
        () => Err(wrong(format!("'{}' is not understood", statement.text))),
    }
}

/// `HEAL HOSTGROUP n [TO 'h:p'] [FORCE LOSING k] [DRY RUN]`
fn heal(statement: &Statement) -> Result<Order, String> {
    let hostgroup = match statement.word(2).parse() {
        Ok(number) if number <= HostgroupId::MAX => HostgroupId(number),
        _ => return Err(format!("'{}' is not a hostgroup number", statement.word(2))),
    };
    let (mut order, mut at) = (HealOrder { hostgroup, to: None, losing: None }, 3);
    if statement.is(at, "TO") {
        let (to, next) = address(statement, at + 1)?;
        (order.to, at) = (Some(to), next);
    }
    if statement.has(at, "FORCE LOSING *") {
        let count = statement.word(at + 2);
        order.losing = Some(count.parse().map_err(|_| format!("'{count}' is not a number of transactions"))?);
        at += 3;
    }
    let is_dry = statement.has(at, "DRY RUN");
    at += if is_dry { 2 } else { 0 };
    if statement.head.len() != at {
        return Err(format!("'{}' is not understood", statement.rest(at)));
    }
    Ok(if is_dry { Order::ExplainHeal(order) } else { Order::Heal(order) })
}

/// The server named at token `at`, in quotes or bare, and where the next token is. A name without a port has 3306; one that
/// begins with a slash is a socket.
pub(super) fn address(statement: &Statement, at: usize) -> Result<(ServerAddr, usize), String> {
    let (text, next) = match statement.head.get(at) {
        Some(token) if token.is_quoted => (token.text.clone(), at + 1),
        Some(token) if statement.is(at + 1, ":") => (format!("{}:{}", token.text, statement.word(at + 2)), at + 3),
        Some(token) => (token.text.clone(), at + 1),
        None => return Err("no server is named".to_owned()),
    };
    let bad = || format!("'{text}' is not host:port");
    if text.starts_with('/') {
        return Ok((ServerAddr { host: text.as_str().into(), port: 0 }, next));
    }
    let is_bare_v6 = text.matches(':').count() > 1 && !text.starts_with('[');
    let (host, port) = match text.rsplit_once(':').filter(|_| !is_bare_v6) {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?),
        None => (text.as_str(), 3306),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(bad());
    }
    Ok((ServerAddr { host: host.into(), port }, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Result<Order, String> {
        parse(&Statement::parse(sql))
    }

    fn db(host: &str, port: u16) -> ServerAddr {
        ServerAddr { host: host.into(), port }
    }

    /// Hostgroup 10 is paused, or is not. A drain does not end.
    struct Fake {
        is_paused: bool,
    }

    impl Operator for Fake {
        fn switchover(&self, _: HostgroupId, _: &ServerAddr, _: Option<u64>) -> Result<Told, String> {
            Ok(Told::default())
        }

        fn failback(&self, _: HostgroupId) -> Result<String, String> {
            Ok(String::new())
        }

        fn accept(&self, _: HostgroupId, _: Option<&ServerAddr>) -> Result<String, String> {
            Ok(String::new())
        }

        fn pause(&self, hostgroup: HostgroupId, is_paused: bool) -> Result<String, String> {
            match hostgroup.0 {
                10 if is_paused == self.is_paused => Err("nothing to do".to_owned()),
                10 => Ok("done".to_owned()),
                _ => Err("there is no such hostgroup".to_owned()),
            }
        }

        fn drain(&self, _: &ServerAddr, _: Option<u64>) -> Result<String, String> {
            Err("still in use".to_owned())
        }

        fn undrain(&self, _: &ServerAddr) -> Result<String, String> {
            Err("not drained".to_owned())
        }

        fn standing(&self) -> Vec<StandingOrder> {
            self.is_paused.then_some(StandingOrder::Paused(HostgroupId(10))).into_iter().collect()
        }
    }

    /// The answer, and whether the order was shared. `etcd` is true where it changes there, and None where it does not answer.
    fn given(order: &Order, is_paused: bool, etcd: Option<bool>) -> (Result<String, String>, bool) {
        let is_shared = std::cell::Cell::new(false);
        let (standing, holds) = order.standing().unwrap();
        let share = || {
            is_shared.set(true);
            Shared { is_changed: etcd == Some(true), warning: etcd.is_none().then(|| "only here".to_owned()) }
        };
        let outcome = order.stand(&Fake { is_paused }, (&standing, holds), "ann", share);
        (outcome.map(|told| told.text), is_shared.get())
    }

    #[test]
    fn an_order_that_etcd_missed_can_be_repeated() {
        let (pause, resume) = (Order::Pause(HostgroupId(10)), Order::Resume(HostgroupId(10)));
        let text = |text: &str| text.to_owned();
        let follow = || Ok(text("nothing to do. It was not so in etcd: the other proxies follow now"));
        for (order, is_paused) in [(&resume, true), (&pause, false)] {
            assert_eq!(given(order, is_paused, Some(true)), (Ok(text("done")), true));
            let warned = Ok(text("done; WARNING: only here. Repeat it when etcd answers"));
            assert_eq!(given(order, is_paused, None), (warned, true));
            assert_eq!(given(order, !is_paused, Some(true)), (follow(), true));
            assert_eq!(given(order, !is_paused, Some(false)), (Err(text("nothing to do")), true));
        }
        assert!(given(&Order::Undrain(db("db1", 3306)), false, Some(true)).0.is_ok());
        assert_eq!(given(&Order::Pause(HostgroupId(11)), false, Some(true)), (Err(text("there is no such hostgroup")), false));
        let drain = Order::Drain { server: db("db1", 3306), timeout_ms: Some(1) };
        assert_eq!(given(&drain, false, Some(true)), (Err(text("still in use")), true));
        let warned = Err(text("still in use; WARNING: only here. Repeat it when etcd answers"));
        assert_eq!(given(&drain, false, None), (warned, true));
    }

    #[test]
    fn every_form_is_understood() {
        let by = |to, timeout_ms, is_by_hand| Ok(Order::Switchover { hostgroup: HostgroupId(10), to, timeout_ms, is_by_hand });
        let to = |to, timeout_ms| by(to, timeout_ms, false);
        assert_eq!(read("SWITCHOVER HOSTGROUP 10 TO 'db2:3307' WAIT FOR READ_ONLY"), by(db("db2", 3307), None, true));
        assert_eq!(read("switchover hostgroup 10 to db2:3307 timeout 500 wait for read_only;"), by(db("db2", 3307), Some(500), true));
        assert_eq!(read("SWITCHOVER HOSTGROUP 10 TO 'db2:3307'"), to(db("db2", 3307), None));
        assert_eq!(read("switchover hostgroup 10 to db2.example:3307 timeout 500;"), to(db("db2.example", 3307), Some(500)));
        assert_eq!(read("SWITCHOVER HOSTGROUP 10 TO 'db2'"), to(db("db2", 3306), None));
        assert_eq!(read("SWITCHOVER HOSTGROUP 10 TO '[::1]:3307'"), to(db("::1", 3307), None));
        assert_eq!(read("SWITCHOVER HOSTGROUP 10 TO '/run/mysqld.sock'"), to(db("/run/mysqld.sock", 0), None));
        assert_eq!(read("FAILBACK HOSTGROUP 0"), Ok(Order::Failback(HostgroupId(0))));
        let accept = |from| Ok(Order::Accept { hostgroup: HostgroupId(7), from });
        assert_eq!(read("ACCEPT CLUSTER HOSTGROUP 7"), accept(None));
        assert_eq!(read("accept cluster hostgroup 7 from db1:3307"), accept(Some(db("db1", 3307))));
        assert_eq!(read("PAUSE HOSTGROUP 7"), Ok(Order::Pause(HostgroupId(7))));
        assert_eq!(read("RESUME HOSTGROUP 7"), Ok(Order::Resume(HostgroupId(7))));
        assert_eq!(read("DRAIN SERVER 'db1:3306' TIMEOUT 1"), Ok(Order::Drain { server: db("db1", 3306), timeout_ms: Some(1) }));
        assert_eq!(read("UNDRAIN SERVER db1:3306"), Ok(Order::Undrain(db("db1", 3306))));
        assert_eq!(read("adopt server 'db1:3307'"), Ok(Order::Adopt(db("db1", 3307))));
        let suspend = |hostgroup: Option<u32>, seconds: Option<u64>| {
            Ok(Order::SuspendHealing { hostgroup: hostgroup.map(HostgroupId), limit: seconds.map(Duration::from_secs) })
        };
        assert_eq!(read("SUSPEND HEALING"), suspend(None, None));
        assert_eq!(read("suspend healing for 60 seconds;"), suspend(None, Some(60)));
        assert_eq!(read("SUSPEND HEALING HOSTGROUP 7"), suspend(Some(7), None));
        assert_eq!(read("SUSPEND HEALING HOSTGROUP 7 FOR 3600 SECONDS"), suspend(Some(7), Some(3_600)));
        assert_eq!(read("RESUME HEALING"), Ok(Order::ResumeHealing(None)));
        assert_eq!(read("resume healing hostgroup 7"), Ok(Order::ResumeHealing(Some(HostgroupId(7)))));
        assert_eq!(read("ACKNOWLEDGE HEALING HOSTGROUP 7"), Ok(Order::AcknowledgeHealing(HostgroupId(7))));
        let rejoin = |discarding| Ok(Order::Rejoin { server: db("db1", 3307), discarding });
        assert_eq!(read("rejoin server db1:3307"), rejoin(None));
        assert_eq!(read("REJOIN SERVER 'db1:3307' DISCARDING 3"), rejoin(Some(3)));
        let heal = |to, losing| HealOrder { hostgroup: HostgroupId(7), to, losing };
        assert_eq!(read("HEAL HOSTGROUP 7"), Ok(Order::Heal(heal(None, None))));
        assert_eq!(read("heal hostgroup 7 to 'db2:3307';"), Ok(Order::Heal(heal(Some(db("db2", 3307)), None))));
        assert_eq!(read("HEAL HOSTGROUP 7 DRY RUN"), Ok(Order::ExplainHeal(heal(None, None))));
        assert_eq!(read("HEAL HOSTGROUP 7 FORCE LOSING 17"), Ok(Order::Heal(heal(None, Some(17)))));
        assert_eq!(
            read("HEAL HOSTGROUP 7 TO db2:3307 FORCE LOSING 0 DRY RUN"),
            Ok(Order::ExplainHeal(heal(Some(db("db2", 3307)), Some(0))))
        );
    }

    #[test]
    fn what_is_not_understood_is_named_with_the_right_form() {
        for (sql, named) in [
            ("SWITCHOVER HOSTGROUP ten TO 'db2:3307'", "'ten' is not a hostgroup number"),
            ("SWITCHOVER HOSTGROUP 1", "is not understood"),
            ("SWITCHOVER HOSTGROUP 1 TO 'db2:x'", "'db2:x' is not host:port"),
            ("SWITCHOVER HOSTGROUP 1 TO 'db2:1' TIMEOUT soon", "'soon' is not a number"),
            ("SWITCHOVER HOSTGROUP 1 TO 'db2:1' TIMEOUT 0", "too short for a switchover"),
            ("SWITCHOVER HOSTGROUP 1 TO 'db2:1' QUICKLY", "'QUICKLY' is not understood"),
            ("SWITCHOVER HOSTGROUP 1 TO WAIT FOR READ_ONLY", "'FOR READ_ONLY' is not understood"),
            ("DRAIN SERVER 'a:1' WAIT FOR READ_ONLY", "is not understood"),
            ("ACCEPT HOSTGROUP 1", "is not understood"),
            ("ACCEPT CLUSTER HOSTGROUP x", "'x' is not a hostgroup number"),
            ("ACCEPT CLUSTER HOSTGROUP 1 FROM 'a:0'", "is not host:port"),
            ("ACCEPT CLUSTER HOSTGROUP 1 FROM", "'FROM' is not understood"),
            ("PAUSE HOSTGROUP 1 NOW", "'NOW' is not understood"),
            ("PAUSE", "is not understood"),
            ("DRAIN SERVER ':1'", "is not host:port"),
            ("UNDRAIN SERVER 'a:1' TIMEOUT 5", "is not understood"),
            ("ADOPT SERVER 'a:1' NOW", "is not understood"),
            ("SUSPEND HEALING FOR ever SECONDS", "'ever' is not a number of seconds"),
            ("SUSPEND HEALING HOSTGROUP x", "'x' is not a hostgroup number"),
            ("SUSPEND HEALING HOSTGROUP 1 FOR 5", "'FOR 5' is not understood"),
            ("SUSPEND HOSTGROUP 1", "is not understood"),
            ("RESUME HEALING NOW", "'NOW' is not understood"),
            ("ACKNOWLEDGE HEALING", "is not understood"),
            ("REJOIN SERVER 'a:1' NOW", "'NOW' is not understood"),
            ("REJOIN SERVER 'a:1' DISCARDING all", "'all' is not a number of transactions"),
            ("HEAL HOSTGROUP 1 FORCE", "'FORCE' is not understood"),
            ("HEAL HOSTGROUP 1 FORCE LOSING all", "'all' is not a number of transactions"),
            ("HEAL HOSTGROUP 1 TO", "no server is named"),
            ("HEAL HOSTGROUP x", "'x' is not a hostgroup number"),
            ("FAILBACK HOSTGROUP 4294967295", "is not a hostgroup number"),
        ] {
            let reason = read(sql).unwrap_err();
            let verb = sql.split(' ').next().unwrap();
            assert!(reason.contains(named) && reason.contains(&format!("the command is: {verb}")), "{sql}: {reason}");
        }
    }
}
