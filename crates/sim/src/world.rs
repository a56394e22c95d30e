//! One run: a world made from a seed, broken, mended, and looked at.

use crate::chaos::Chaos;
use crate::client::{Client, Reader, Terms};
use crate::fleet::Fleet;
use crate::lack::Lack;
use crate::net::{Network, ProxysView};
use crate::oracle::Oracle;
use crate::prober::{Keeper, Prober};
use crate::proxies::Proxies;
use crate::random::Random;
use crate::server::{Flavor, Server};
use crate::trace::Trace;
use model::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The violations: none, in a good world.
    pub violations: Vec<String>,
    /// The events, if a trace was asked for.
    pub trace: Vec<String>,
    /// How often what happened.
    pub counts: BTreeMap<&'static str, u64>,
}

/// When all clients must have come to their end, counted from the moment when all was mended.
const ENDS_WITHIN: Duration = Duration::from_secs(300);
/// When nothing of a client that has left may be left.
const QUIET_WITHIN: Duration = Duration::from_secs(15);
/// Added to the seed for the choices of upgrades, so that they do not change the other choices.
const UPGRADING: u64 = 0x7570_6772_6164_6521;
/// Clients that only read, where reads share connections.
const CROWD: u16 = 8;
/// How often it is looked at whether a healthy writer is visible.
const CALM_LOOKS: Duration = Duration::from_millis(10);

/// How a world is run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Costs memory: for a failed seed.
    pub is_traced: bool,
    /// The missing parts.
    pub without: Vec<Lack>,
    /// The proxy's process stays, even in worlds with upgrades.
    pub is_never_upgraded: bool,
}

/// Blocks until the world has ended, in virtual time.
pub fn run(seed: u64, settings: &Settings) -> Outcome {
    let checks: Vec<_> =
        settings.without.iter().filter_map(|lack| if let Lack::Check(check) = lack { Some(*check) } else { None }).collect();
    proxy::sim::do_without(&checks);
    let built = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build_local(Default::default());
    match built {
        Ok(runtime) => runtime.block_on(async { World::new(seed, settings).run().await }),
        Err(e) => Outcome { violations: vec![format!("no runtime: {e}")], ..Outcome::default() },
    }
}

/// The draws for a world.
#[derive(Debug)]
struct Plan {
    servers: usize,
    flavor: Flavor,
    clients: usize,
    readers: usize,
    workers: u64,
    max_connections: u64,
    hold_ms: u64,
    read_only_interval: u64,
    grace_ms: u64,
    replays: bool,
    delay_ms: u64,
    run_ms: u64,
    is_peaceful: bool,
    terms: Terms,
    /// How often another process takes the proxy's place.
    upgrades: u64,
    /// `mysql-pipeline_depth`.
    pipeline_depth: u64,
}

impl Plan {
    fn draw(random: &mut Random) -> Self {
        let clients = usize::try_from(random.within(1..=8)).unwrap_or(1);
        let is_crowded = random.chance(25);
        let hold_ms = *random.pick(&[2000, 10_000]);
        let read_only_interval = *random.pick(&[200, 1000]);
        let replays = random.chance(40);
        Self {
            servers: usize::try_from(random.within(2..=3)).unwrap_or(2),
            flavor: *random.pick(&[Flavor::MySql, Flavor::MariaDb]),
            clients,
            readers: random.index(4),
            workers: random.within(1..=3),
            max_connections: if is_crowded { random.within(1..=3) } else { 40 },
            hold_ms,
            read_only_interval,
            grace_ms: *random.pick(&[500, 5000]),
            replays,
            delay_ms: *random.pick(&[0, 1, 4]),
            run_ms: random.within(2000..=20_000),
            is_peaceful: random.chance(15),
            terms: Terms {
                hold_ms,
                liveness_ms: 4000 + 2 * read_only_interval,
                is_crowded,
                replays,
                pause_ms: *random.pick(&[5, 40, 200]),
            },
            upgrades: 0,
            pipeline_depth: 1,
        }
    }

    /// Every third world is upgraded. It has choices of its own for that, so that all else is drawn as without.
    fn draw_upgrades(&mut self, random: &mut Random) {
        if random.chance(33) {
            self.upgrades = random.within(1..=4);
            if random.chance(30) {
                // Sessions rest after a second.
                self.terms.pause_ms = 3000;
            }
        }
    }

    /// The configuration that the proxy is given.
    fn snapshot(&self) -> Result<Snapshot, String> {
        let mut servers = String::new();
        for id in 0..self.servers {
            let (comma, hostgroup) = if id == 0 { ("", 0) } else { (",", 1) };
            let max = self.max_connections;
            let _ = write!(servers, "{comma}{{ address=\"db{id}\" port=3306 hostgroup={hostgroup} max_connections={max} }}");
        }
        let text = format!(
            r#"mysql_variables = {{ threads={} have_ssl=false connect_timeout_server_max={} monitor_read_only_interval={}
                                  demotion_grace_ms={} transaction_replay={} pipeline_depth={}
                                  pipeline_max_statement_us=1000000 pipeline_late_ms=20 }}
            mysql_servers = ( {servers} )
            mysql_users = ( {{ username="app" password="secret" default_hostgroup=0 }},
                            {{ username="ro" password="secret" default_hostgroup=1 }} )
            mysql_replication_hostgroups = ( {{ writer_hostgroup=0 reader_hostgroup=1 comment="" }} )"#,
            self.workers, self.hold_ms, self.read_only_interval, self.grace_ms, self.replays, self.pipeline_depth
        );
        let shown = |errors: Vec<model::ConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let (config, _) = model::parse(&text, "sim.cnf").map_err(shown)?;
        Snapshot::compile(&config).map_err(shown)
    }
}

struct World {
    seed: u64,
    random: Random,
    upgrading: Random,
    plan: Plan,
    oracle: Rc<Oracle>,
    trace: Trace,
    network: Arc<Network>,
    fleet: Rc<Fleet>,
    tells_layouts: bool,
}

impl World {
    fn new(seed: u64, settings: &Settings) -> Self {
        let mut random = Random::new(seed);
        let mut plan = Plan::draw(&mut random);
        let mut upgrading = Random::new(seed ^ UPGRADING);
        if !settings.is_never_upgraded {
            plan.draw_upgrades(&mut upgrading);
        }
        // In every other world reads share connections; all else is drawn as without.
        plan.pipeline_depth = if seed % 2 == 1 { 8 } else { 1 };
        let oracle = Rc::new(Oracle::new(plan.grace_ms));
        let trace = Trace::new(settings.is_traced);
        trace.note(|| format!("seed {seed}: {plan:?}"));
        let network = Network::new(plan.servers, plan.delay_ms, random.fork());
        let moved = Rc::new(Notify::new());
        let server = |id: usize, random: Random| {
            Server::new(id, plan.flavor, Arc::clone(&network), Rc::clone(&oracle), trace.clone(), Rc::clone(&moved), random)
        };
        let servers = (0..plan.servers).map(|id| server(id, random.fork())).collect();
        let fleet = Fleet::new(servers, Arc::clone(&network), Rc::clone(&moved), Rc::clone(&oracle), trace.clone(), random.fork());
        fleet.servers.iter().for_each(|s| s.state().waits_for_replica = !settings.without.contains(&Lack::SemiSync));
        let tells_layouts = !settings.without.contains(&Lack::Layouts);
        Self { seed, random, upgrading, plan, oracle, trace, network, fleet, tells_layouts }
    }

    async fn run(mut self) -> Outcome {
        let oracle = Rc::clone(&self.oracle);
        tokio::select! {
            biased;
            () = oracle.found.notified() => {}
            result = self.play() => if let Err(text) = result {
                self.oracle.violation(text);
            },
        }
        for (id, server) in self.fleet.servers.iter().enumerate() {
            let (_, most) = self.network.open(id);
            // One more of each process may be there for a KILL, in each hostgroup that the server is in.
            let processes = 1 + self.plan.upgrades.min(1);
            if u64::from(most) > (self.plan.max_connections + processes) * 2 {
                self.oracle.violation(format!("limits: {most} connections to db{id}, max_connections is {}", self.plan.max_connections));
            }
            let _ = server;
        }
        Outcome { violations: self.oracle.violations(), trace: self.trace.lines(), counts: self.oracle.counts() }
    }

    async fn play(&mut self) -> Result<(), String> {
        let snapshot = Arc::new(self.plan.snapshot()?);
        let keeper = Keeper::new();
        let network = Arc::new(ProxysView(Arc::clone(&self.network)));
        let role_keeper: Arc<dyn model::fleet::RoleKeeper> = Arc::<Keeper>::clone(&keeper);
        let (oracle, trace) = (Rc::clone(&self.oracle), self.trace.clone());
        let proxies = Proxies::start(snapshot, role_keeper, network, self.seed, oracle, trace)?;
        let prober = Prober {
            keeper,
            fleet: Rc::clone(&self.fleet),
            proxies: Rc::clone(&proxies),
            oracle: Rc::clone(&self.oracle),
            trace: self.trace.clone(),
            tells_layouts: self.tells_layouts,
        };
        tokio::task::spawn_local(Rc::new(prober).run());
        tokio::task::spawn_local(watch_calm(Rc::clone(&self.fleet), Rc::clone(&self.oracle)));
        // The first roles are known before anything happens.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let end = Instant::now() + Duration::from_millis(self.plan.run_ms);
        let clients = self.start_clients(&proxies, end);
        let upgrades = tokio::task::spawn_local(upgrade(Rc::clone(&proxies), self.upgrading.fork(), self.plan.upgrades, self.plan.run_ms));
        if !self.plan.is_peaceful {
            let chaos = Chaos { fleet: Rc::clone(&self.fleet), oracle: Rc::clone(&self.oracle), trace: self.trace.clone() };
            Rc::new(chaos).run(self.random.fork(), end).await;
        }
        self.trace.note(|| "everything is mended".to_owned());
        let all = async {
            for client in clients {
                let _ = client.await;
            }
        };
        tokio::time::timeout(ENDS_WITHIN, all).await.map_err(|_| "hang: clients do not come to their end".to_owned())?;
        upgrades.await.map_err(|e| e.to_string())??;
        self.check_quiet(&proxies).await;
        Ok(())
    }

    fn start_clients(&mut self, proxy: &Rc<Proxies>, end: Instant) -> Vec<tokio::task::JoinHandle<()>> {
        let mut started = Vec::new();
        for id in 0..self.plan.clients + self.plan.readers {
            let client = Client {
                id,
                writes: id < self.plan.clients,
                proxy: Rc::clone(proxy),
                network: Arc::clone(&self.network),
                oracle: Rc::clone(&self.oracle),
                trace: self.trace.clone(),
                random: self.random.fork(),
                terms: self.plan.terms,
            };
            started.push(tokio::task::spawn_local(client.run(end)));
        }
        let is_shared = self.plan.pipeline_depth > 1 && self.plan.terms.is_crowded;
        for id in (0..CROWD).filter(|_| is_shared) {
            let (network, oracle) = (Arc::clone(&self.network), Rc::clone(&self.oracle));
            let reader = Reader { id, proxy: Rc::clone(proxy), network, oracle };
            started.push(tokio::task::spawn_local(reader.run(end)));
        }
        started
    }

    /// Checks that no session is left, and that all acknowledged writes are there.
    async fn check_quiet(&self, proxy: &Proxies) {
        let deadline = Instant::now() + QUIET_WITHIN;
        let left = || proxy.frontends() + self.fleet.servers.iter().map(|s| s.open_transactions()).sum::<usize>();
        while left() > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if left() > 0 {
            let open: Vec<usize> = self.fleet.servers.iter().map(|s| s.open_transactions()).collect();
            self.oracle.violation(format!("what clients left behind: {} sessions, open transactions {open:?}", proxy.frontends()));
        }
        match self.fleet.primary.get() {
            Some(primary) => self.oracle.check_rows(&self.fleet.servers[primary].state().rows.clone()),
            None => self.oracle.violation("there is no primary at the end"),
        }
    }
}

/// Other processes take the proxy's place, one after the other, at any time.
async fn upgrade(proxies: Rc<Proxies>, mut random: Random, times: u64, within_ms: u64) -> Result<(), String> {
    for _ in 0..times {
        tokio::time::sleep(Duration::from_millis(random.within(1..=within_ms / times))).await;
        proxies.upgrade(random.fork()).await?;
    }
    Ok(())
}

async fn watch_calm(fleet: Rc<Fleet>, oracle: Rc<Oracle>) {
    loop {
        oracle.calm(fleet.is_calm());
        tokio::time::sleep(CALM_LOOKS).await;
    }
}
