//! Orders of an operator on real servers: a promotion in mode `advise`, a return by hand, extra transactions that are saved in a file and
//! brought back, the programs that a plan runs, and the steps that are kept of all this.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::healing::{addrs, healed, looking, start_servers, words};
use common::{LIMIT, Running, WRITERS, addr};
use lab::flavor::Installation;
use lab::replication::{position, promote};
use lab::{Flavor, Server, wait};
use model::Secret;
use model::fleet::{HealOrder, Operator, Program, ProgramEnd, Programs};
use monitor::{Account, ErrantDump, dump_errant};

/// Records the programs that it is to run. The one that is named fails.
#[derive(Debug, Default)]
struct Recorder {
    ran: Mutex<Vec<Program>>,
    fails: Mutex<Option<String>>,
}

impl Programs for Recorder {
    fn run(&self, program: Program, _stop: model::fleet::Running<()>) -> model::fleet::Running<ProgramEnd> {
        let fails = self.fails.lock().unwrap().as_ref() == program.command.first();
        self.ran.lock().unwrap().push(program);
        Box::pin(async move { ProgramEnd { fault: fails.then(|| "it ended with code 1".to_owned()), output: String::new() } })
    }

    fn check(&self, _program: &Program) -> Result<(), String> {
        Ok(())
    }
}

struct Bed {
    servers: Vec<Server>,
    running: Running,
    programs: Arc<Recorder>,
}

impl Bed {
    fn start(flavor: Flavor, replicas: usize, healing: &str) -> Self {
        let servers = start_servers(flavor, replicas, &[]);
        let hook = |moment: &str, more: &str| format!("{{ writer_hostgroup=10, moment=\"{moment}\", command=\"{moment} now\"{more} }}");
        let hooks = [hook("before", ", required=1"), hook("fence", ", required=1"), hook("after", "")].join(", ");
        let more = format!("admin_variables = {{ healing_hooks_dir=\"/hooks\" }}\nmysql_healing_hooks = ( {hooks} )");
        let healing = format!(", dead_ms=1000, apply_ms=3000{healing}");
        let running = Running::start(&healed(&addrs(&servers), &looking(800), &healing, &more));
        let programs = Arc::new(Recorder::default());
        running.monitor.keep_programs(programs.clone());
        let bed = Self { servers, running, programs };
        bed.running.wait_writer(&bed.servers[0]);
        bed.running.wait_row("stats_tidegate_healing", |row| row["verdict"] == "alive");
        bed
    }

    fn wait_dead(&self) {
        self.running.wait_cluster(2 * LIMIT, "a verdict", |row| row["verdict"] == "dead");
    }

    fn heal(&self, to: Option<&Server>, losing: Option<u64>) -> Result<String, String> {
        self.running.monitor.heal(&HealOrder { hostgroup: WRITERS, to: to.map(addr), losing }, "ann")
    }

    fn ran(&self) -> Vec<String> {
        self.programs.ran.lock().unwrap().iter().map(|program| program.command.join(" ")).collect()
    }
}

/// Mode `advise`: nothing is done until an operator says so; refusals change nothing; a program that fails has the plan undone.
fn an_operator_promotes(flavor: Flavor) {
    let bed = Bed::start(flavor, 2, "");
    let [old, heir, other] = &bed.servers[..] else { panic!("three") };
    let told = bed.heal(None, None).unwrap_err();
    assert!(told.contains("only a dead writer is replaced, and the writer answers") && told.contains("nothing was changed"), "{told}");
    old.sql("INSERT INTO test.t VALUES (1, 'first')").unwrap();
    for replica in [heir, other] {
        lab::replication::wait_for(replica, &position(old).unwrap()).unwrap();
    }
    old.kill9();
    bed.wait_dead();
    let told = bed.heal(None, Some(17)).unwrap_err();
    assert!(told.contains("would lose 0 transactions, not 17"), "{told}");
    let told = bed.heal(Some(old), None).unwrap_err();
    assert!(told.contains("is not a server beside the writer"), "{told}");
    let dry = bed.running.monitor.explain_heal(&HealOrder { hostgroup: WRITERS, to: Some(addr(other)), losing: None }).unwrap();
    assert!(dry[0].step == "allowed" && dry.iter().any(|row| row.step == "open" && row.server == addr(other).to_string()), "{dry:#?}");

    *bed.programs.fails.lock().unwrap() = Some("fence".to_owned());
    let told = bed.heal(Some(other), None).unwrap_err();
    assert!(told.contains("hook fence (fence): it ended with code 1") && told.contains("everything is as it was"), "{told}");
    assert_eq!(bed.ran(), ["before now", "fence now"]);
    for replica in [heir, other] {
        let closed = replica.scalar("SELECT @@global.read_only").unwrap();
        assert_eq!(closed.as_deref(), Some("1"), "{}", replica.address());
    }
    *bed.programs.fails.lock().unwrap() = None;
    bed.wait_dead();
    let told = bed.heal(Some(other), Some(0)).unwrap();
    println!("{told}");
    assert!(told.starts_with(&format!("{} was promoted in place of {}", addr(other), addr(old))), "{told}");
    bed.running.wait_writer(other);
    assert_eq!(bed.ran()[2..], ["before now", "fence now", "after now"]);
    let last = bed.programs.ran.lock().unwrap().last().unwrap().clone();
    let named = |name: &str| last.environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    assert_eq!(named("TIDEGATE_NEW_WRITER_PORT"), Some(other.port().to_string()));
    assert_eq!(named("TIDEGATE_OLD_WRITER_PORT"), Some(old.port().to_string()));
    assert!(last.directory == "/hooks" && last.limit == Duration::from_secs(10));

    let steps: Vec<_> = bed.running.monitor.healed_steps().into_iter().map(|(_, step)| step).collect();
    let lines: Vec<String> =
        steps.iter().map(|step| format!("{} {} {}: {} | {}", step.plan, step.server, step.step, step.statement, step.result)).collect();
    println!("{lines:#?}");
    let has = |plan: &str, server: &Server, text: &str| {
        steps.iter().any(|step| step.plan == plan && step.server == addr(server) && step.statement.contains(text) && step.result == "ok")
    };
    assert!(has("promotion", heir, words(heir, "STOP SLAVE '' IO_THREAD", "STOP REPLICA IO_THREAD")));
    assert!(has("undo", heir, words(heir, "START SLAVE '' IO_THREAD", "START REPLICA IO_THREAD")));
    assert!(has("promotion", other, "SET GLOBAL read_only = IF("));
    assert!(has("promotion", heir, &format!("_PORT={}", other.port())), "it was pointed at the new writer");
    assert!(!lines.iter().any(|line| line.contains("repl-pass")), "no password");
    let numbers: std::collections::BTreeSet<_> = steps.iter().map(|step| step.number).collect();
    assert_eq!(numbers.len(), 2, "two plans");
}

#[test]
fn an_operator_promotes_mariadb() {
    an_operator_promotes(Flavor::Mariadb);
}

#[test]
fn an_operator_promotes_mysql() {
    an_operator_promotes(Flavor::Mysql);
}

fn piped(mut from: Command, mut into: Command) {
    let shown = from.output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    // What a human does where the old numbers of GTIDs are not wanted.
    let text = String::from_utf8_lossy(&shown.stdout);
    let kept: String = text.lines().filter(|line| !line.contains("gtid_seq_no")).map(|line| format!("{line}\n")).collect();
    let mut client = into.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(kept.as_bytes()).unwrap();
    let done = client.wait_with_output().unwrap();
    assert!(done.status.success(), "{}\n{kept}", String::from_utf8_lossy(&done.stderr));
}

/// Extra transactions keep a server out, whatever the operator says; they are saved in a file, and a human brings them back by the flavor's
/// own program. A clean server is taken back by order.
fn extra_transactions_are_brought_back(flavor: Flavor) {
    let bed = Bed::start(flavor, 1, "");
    let [old, heir] = &bed.servers[..] else { panic!("two") };
    heir.sql(words(heir, "STOP SLAVE IO_THREAD", "STOP REPLICA IO_THREAD")).unwrap();
    old.sql("INSERT INTO test.t VALUES (2, 'lost')").unwrap();
    old.sql(&format!("INSERT INTO test.t VALUES {}", (100..600).map(|id| format!("({id}, 'many')")).collect::<Vec<_>>().join(",")))
        .unwrap();
    old.sql("UPDATE test.t SET by_whom = 'again' WHERE id = 100").unwrap();
    old.kill9();
    promote(heir).unwrap();
    bed.running.wait_writer(heir);
    heir.sql("INSERT INTO test.t VALUES (50, 'heir')").unwrap();
    old.restart().unwrap();
    let account = Account { user: "repl".to_owned(), password: Secret::from("repl-pass"), use_ssl: false };
    let dump = ErrantDump { server: addr(old), writer: addr(heir), account, limit: 1 << 20 };
    let refused = |dump: &ErrantDump| dump_errant(dump, &mut Vec::new()).unwrap_err();
    old.sql(words(old, "SET GLOBAL read_only=0", "SET GLOBAL read_only=0")).unwrap();
    let told = dump_errant(&dump, &mut Vec::new());
    println!("{told:?}");
    assert!(told.unwrap_err().contains("it takes writes, so more could come"));

    // It is closed first, and stays out.
    wait::until("the old writer to be seen", LIMIT, || {
        let rows = bed.running.table("stats_tidegate_healing_servers");
        rows.iter().any(|row| row["port"] == old.port().to_string() && row["role"] != "unknown").then_some(())
    })
    .unwrap();
    let told = bed.running.monitor.rejoin(&addr(old), None).unwrap_err();
    println!("{told}");
    assert!(told.contains("it has transactions that") && told.contains("tidegate errant dump"), "{told}");
    assert!(told.contains(words(old, "mariadb-backup", "CLONE INSTANCE")), "{told}");
    let closed = old.scalar(words(old, "SELECT @@global.read_only", "SELECT @@global.super_read_only")).unwrap();
    assert_eq!(closed.as_deref(), Some("1"));
    let told = bed.running.monitor.rejoin(&addr(old), Some(3)).unwrap_err();
    assert!(told.contains("nothing was changed, and the 3 transactions are still there"), "{told}");

    assert!(refused(&ErrantDump { limit: 500, ..dump.clone() }).contains("more than 500 bytes"));
    assert!(refused(&ErrantDump { writer: addr(old), ..dump.clone() }).contains("is the same server"));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let dumped = dump_errant(&dump, &mut file).unwrap();
    println!("{dumped:?}");
    assert_eq!((dumped.transactions, dumped.is_mariadb), (3, flavor == Flavor::Mariadb));
    file.flush().unwrap();
    let here = Installation::find(flavor).unwrap();
    let mut shown = here.binlog_command();
    if flavor == Flavor::Mysql {
        shown.arg("--skip-gtids");
    }
    shown.arg(file.path());
    let mut client = here.client_command();
    client.arg("--user=root").arg(format!("--socket={}", heir.socket().display()));
    piped(shown, client);
    let sum = "SELECT GROUP_CONCAT(CONCAT(id, by_whom) ORDER BY id) FROM (SELECT * FROM test.t WHERE id <> 50 AND id < 160) t";
    assert_eq!(heir.scalar(sum).unwrap(), old.scalar(sum).unwrap());
    assert_eq!(heir.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("502"));
}

#[test]
fn extra_transactions_are_brought_back_mariadb() {
    extra_transactions_are_brought_back(Flavor::Mariadb);
}

#[test]
fn extra_transactions_are_brought_back_mysql() {
    extra_transactions_are_brought_back(Flavor::Mysql);
}

/// In mode `advise` nobody takes a clean former writer back but an operator.
fn an_operator_takes_a_server_back(flavor: Flavor) {
    let bed = Bed::start(flavor, 1, "");
    let [old, heir] = &bed.servers[..] else { panic!("two") };
    old.kill9();
    promote(heir).unwrap();
    bed.running.wait_writer(heir);
    heir.sql("INSERT INTO test.t VALUES (50, 'heir')").unwrap();
    old.restart().unwrap();
    let told = wait::until("the order", 2 * LIMIT, || bed.running.monitor.rejoin(&addr(old), None).ok());
    let told = told.unwrap_or_else(|_| panic!("{:?}", bed.running.monitor.rejoin(&addr(old), None)));
    assert_eq!(told, format!("{} follows {}", addr(old), addr(heir)));
    lab::replication::wait_for(old, &position(heir).unwrap()).unwrap();
    let steps = bed.running.monitor.healed_steps();
    let has = |text: &str| steps.iter().any(|(_, step)| step.plan == "rejoin" && step.statement.contains(text));
    assert!(has("_PASSWORD='***'") && has("read_only") && !has("repl-pass"), "{steps:#?}");
}

#[test]
fn an_operator_takes_a_server_back_mariadb() {
    an_operator_takes_a_server_back(Flavor::Mariadb);
}

#[test]
fn an_operator_takes_a_server_back_mysql() {
    an_operator_takes_a_server_back(Flavor::Mysql);
}
