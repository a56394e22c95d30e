//! Points one server at the new writer and watches it, or puts it back to its old source.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::Server;
use topology::CheckKind;

use super::super::control::Control;
use super::super::gate::Gate;
use super::super::heal_lock::{self, HealLock};
use super::super::promote::Tenure;
use super::super::replication;
use super::channel::{self, Channel, Node};
use super::judge::{self, Move, Part, Progress, Scene, Was};
use super::semi_sync::SemiSync;
use crate::monitor::Monitor;
use crate::statements::{self, Credentials, Place, Pointing};

/// Longest until a server that was pointed elsewhere follows; and until it is put back.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// Longest that putting back waits for an applier to end its transaction: MariaDB stops no earlier.
const PUT_BACK_LIMIT: Duration = Duration::from_secs(60);
/// Longest that it takes once the monitor stops.
const STOPPING_LIMIT: Duration = Duration::from_secs(5);
/// A source that lacks the requested GTIDs says so within this time of the connect.
pub(super) const SETTLED: Duration = Duration::from_millis(100);
/// Time between looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The work for one server.
pub(super) struct Job {
    pub(super) pointer: Pointer,
    pub(super) new_server: Arc<Server>,
    /// To judge it again just before.
    pub(super) scene: Arc<Scene>,
}

/// Points a server at another one, watches it, and puts it back.
pub(in crate::operator) struct Pointer {
    pub(in crate::operator) monitor: Arc<Monitor>,
    pub(in crate::operator) server: Arc<Server>,
    /// Whom it follows then.
    pub(in crate::operator) new: Node,
    pub(in crate::operator) to: Move,
    /// The channel whose retry interval and TLS options a new channel gets.
    pub(in crate::operator) taken: Channel,
    pub(in crate::operator) credentials: Option<Credentials>,
    /// Its settings, if it was a source and becomes a replica.
    pub(in crate::operator) semi_sync: Option<SemiSync>,
    /// It has to follow for so long without an error.
    pub(in crate::operator) settles: Duration,
    /// By which it is pointed, if a promotion does it: each statement asks whether it may.
    pub(in crate::operator) tenure: Option<Tenure>,
    /// Its locks, if it is taken back without a tenure. Each statement asks whether the server takes writes.
    pub(in crate::operator) returning: Option<Returning>,
}

/// The locks under which a server is taken back. They are taken again before it is put back: a healer may be at work there meanwhile.
pub(in crate::operator) struct Returning {
    pub(in crate::operator) lock: HealLock,
    /// The connection that holds them while the server is pointed.
    pub(in crate::operator) connection: u64,
}

impl Returning {
    /// Takes the locks on a new connection, once the earlier one has ended. [`NotBack::Left`] if another one has them, or the server
    /// takes writes.
    async fn take(&self, server: &mut Control) -> Result<(), NotBack> {
        heal_lock::end(server, heal_lock::ANY, self.connection).await?;
        if let Some(busy) = self.lock.take(server, None).await? {
            return Err(NotBack::Left(busy));
        }
        if Gate::of(server).await?.is_open() {
            return Err(NotBack::Left(format!("{} takes writes", server.addr)));
        }
        Ok(())
    }
}

impl Job {
    /// Points the server; why it does not follow, and what became of it.
    pub(super) async fn run(&self) -> Result<(), String> {
        let why = match self.pointer.limited(self.point_and_watch()).await {
            Ok(()) => return Ok(()),
            Err(Untouched(why)) => return Err(why),
            Err(Touched(why)) => why,
        };
        Err(self.pointer.undo(why).await)
    }

    async fn point_and_watch(&self) -> Result<(), NotDone> {
        let pointer = &self.pointer;
        let mut server = pointer.open(&pointer.server).await.map_err(Untouched)?;
        self.is_still(&mut server).await.map_err(Untouched)?;
        if pointer.to.is_old {
            self.has_no_more(&mut server).await.map_err(Untouched)?;
        }
        pointer.point_and_watch(&mut server).await.map_err(Touched)
    }

    /// An error when it would not be pointed any more: sessions were waited for since it was judged, and an operator may have acted.
    async fn is_still(&self, server: &mut Control) -> Result<(), String> {
        let pointer = &self.pointer;
        let channels = channel::all(&server.channels().await?);
        let part = if pointer.to.is_old {
            judge::old_writer(&self.scene, &channels, &pointer.taken, pointer.credentials.is_some())
        } else {
            Ok(judge::replica(&self.scene, &channels))
        };
        match part {
            Ok(Part::Moves(to)) if to == pointer.to => Ok(()),
            _ => Err("its replication was changed meanwhile".to_owned()),
        }
    }

    /// An error if the old writer wrote transactions that the new one lacks: privileged users can write despite `read_only`. MySQL would
    /// let it follow without an error.
    async fn has_no_more(&self, old: &mut Control) -> Result<(), String> {
        let mut new = self.pointer.open(&self.new_server).await?;
        match replication::own_writes_missing(old, &mut new).await? {
            0 => Ok(()),
            lacks => Err(format!("it was written to after it was closed, and has {lacks} transactions that {} lacks", self.scene.new.addr)),
        }
    }
}

impl Pointer {
    /// Within twice [`LIMIT`], and for as long as the monitor runs.
    pub(in crate::operator) async fn limited(&self, work: impl Future<Output = Result<(), NotDone>>) -> Result<(), NotDone> {
        let mut stopping = self.monitor.stopping.subscribe();
        let limit = LIMIT * 2 + self.settles;
        tokio::select! {
            outcome = work => outcome,
            () = tokio::time::sleep(limit) => Err(Touched(format!("it has not answered in {} s", limit.as_secs()))),
            _ = stopping.wait_for(|stop| *stop) => Err(Touched("the monitor stops".to_owned())),
        }
    }

    /// Puts a server back that does not follow. Returns `why` with what became of it.
    pub(in crate::operator) async fn undo(&self, why: String) -> String {
        undone(&why, self.put_back_in_time().await, self.to.was.as_ref())
    }

    /// A monitor that stops does not leave a server between two sources: it waits for this a little.
    async fn put_back_in_time(&self) -> Result<(), NotBack> {
        let mut stopping = self.monitor.stopping.subscribe();
        let stopped = async {
            let _ = stopping.wait_for(|stop| *stop).await;
            tokio::time::sleep(STOPPING_LIMIT).await;
        };
        tokio::select! {
            outcome = self.put_back() => outcome,
            () = tokio::time::sleep(PUT_BACK_LIMIT) => Err(format!("it has not answered in {} s", PUT_BACK_LIMIT.as_secs()).into()),
            () = stopped => Err("the monitor stops".to_owned().into()),
        }
    }

    pub(in crate::operator) async fn open(&self, server: &Arc<Server>) -> Result<Control, String> {
        let mut control = Control::open(&self.monitor, server, Instant::now() + LIMIT * 2).await?;
        // Alone, another connection of the same promotion has the lock.
        if let Some(tenure) = self.tenure.as_ref().filter(|tenure| tenure.is_shared()) {
            tenure.take_lock(&mut control, true).await?;
        }
        Ok(control)
    }

    /// An error if this proxy may not promote any more.
    pub(in crate::operator) fn holds(&self) -> Result<(), String> {
        self.tenure.as_ref().map_or(Ok(()), Tenure::holds)
    }

    async fn may_change(&self, server: &mut Control) -> Result<(), String> {
        if let Some(tenure) = &self.tenure {
            return tenure.may_change(server).await;
        }
        if self.returning.is_some() && Gate::of(server).await?.is_open() {
            return Err(format!("{} takes writes: its channels are left alone", server.addr));
        }
        Ok(())
    }

    async fn tell(&self, server: &mut Control, sql: &str, what: &str) -> Result<(), String> {
        self.may_change(server).await?;
        server.tell(sql, what).await
    }

    /// Whether stopping the receiver is enough, so that the applier is not waited for. MariaDB changes no source while an applier runs.
    fn is_receiver_alone(&self, server: &Control) -> bool {
        !self.to.is_old && self.to.was.as_ref().is_some_and(|was| was.runs) && !server.version().is_mariadb
    }

    /// Everything that touches the server.
    pub(in crate::operator) async fn point_and_watch(&self, server: &mut Control) -> Result<(), String> {
        self.point(server).await?;
        self.watch(server).await?;
        // At once, not with the next check: whether it is a stray.
        let _ = server.look(CheckKind::Sources).await;
        Ok(())
    }

    async fn point(&self, server: &mut Control) -> Result<(), String> {
        let name = &self.to.name;
        let (is_receiver_alone, version) = (self.is_receiver_alone(server), server.version().clone());
        if self.to.was.is_some() {
            let stop = if is_receiver_alone { statements::stop_receiver(&version, name) } else { statements::stop(&version, name) };
            self.tell(server, &stop, "its channel is stopped").await?;
        }
        if let Some(semi_sync) = self.semi_sync.filter(|_| self.to.is_old) {
            semi_sync.set_follower(server).await?;
        }
        self.may_change(server).await?;
        server.change(&self.pointing()).await?;
        let start = if is_receiver_alone { statements::start_receiver(&version, name) } else { statements::start(&version, name) };
        self.tell(server, &start, "its channel is started").await
    }

    /// A channel that there is keeps its account and its options.
    pub(in crate::operator) fn pointing(&self) -> Pointing<'_> {
        let is_made = self.to.was.is_none();
        Pointing {
            name: &self.to.name,
            source: &self.new.addr,
            retry_s: self.taken.retry_s.filter(|_| is_made),
            credentials: self.credentials.as_ref().filter(|_| is_made),
            tls: if is_made { &self.taken.tls } else { &[] },
            place: if self.to.is_old { Place::Demoted } else { Place::Kept },
        }
    }

    async fn watch(&self, server: &mut Control) -> Result<(), String> {
        let begun = Instant::now();
        let mut follows_since: Option<Instant> = None;
        loop {
            self.holds()?;
            let channels = channel::all(&server.channels().await?);
            let own = channels.iter().find(|channel| channel.link.name.eq_ignore_ascii_case(&self.to.name));
            match judge::progress(own, &self.new) {
                Progress::Follows if follows_since.get_or_insert_with(Instant::now).elapsed() >= self.settles => return Ok(()),
                Progress::Follows => {}
                Progress::Failed(why) => return Err(why),
                Progress::UnderWay(why) if begun.elapsed() >= LIMIT => return Err(format!("after {} s {why}", LIMIT.as_secs())),
                Progress::UnderWay(_) => follows_since = None,
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// As it was, unless another program has pointed its channel elsewhere: then nothing is touched. A channel that had to be made is
    /// forgotten, so that the server is a stray: it must not be read from.
    async fn put_back(&self) -> Result<(), NotBack> {
        let mut server = self.open(&self.server).await?;
        if let Some(returning) = &self.returning {
            returning.take(&mut server).await?;
        }
        let name = &self.to.name;
        let version = server.version().clone();
        let channels = channel::all(&server.channels().await?);
        let own = channels.iter().find(|channel| channel.link.name.eq_ignore_ascii_case(name));
        judge::is_ours(own, &self.to, &self.new.addr)?;
        let is_receiver_alone = self.is_receiver_alone(&server);
        // An earlier STOP may still wait for the applier. This one ends after it, so no STOP hits the threads started below.
        let stop = if is_receiver_alone { statements::stop_receiver(&version, name) } else { statements::stop(&version, name) };
        self.tell(&mut server, &stop, "its channel is stopped").await?;
        match &self.to.was {
            None => self.tell(&mut server, &statements::forget(&version, name), "its channel is forgotten").await?,
            Some(was) => {
                let pointing = Pointing { name, source: &was.source, retry_s: None, credentials: None, tls: &[], place: Place::Kept };
                self.may_change(&mut server).await?;
                server.change(&pointing).await?;
                if was.runs {
                    self.tell(&mut server, &statements::start(&version, name), "its channel is started").await?;
                    self.see_put_back(&mut server, was).await?;
                }
            }
        }
        let _ = server.look(CheckKind::Sources).await;
        Ok(())
    }

    /// Its threads run, and receive from where they did.
    async fn see_put_back(&self, server: &mut Control, was: &Was) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            self.holds()?;
            let channels = channel::all(&server.channels().await?);
            let own = channels.iter().find(|channel| channel.link.name.eq_ignore_ascii_case(&self.to.name));
            match judge::is_put_back(own, was) {
                Ok(()) => return Ok(()),
                Err(why) if begun.elapsed() >= LIMIT => return Err(why),
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }
}

/// Why a server is not put back.
#[derive(Debug)]
enum NotBack {
    /// It is not this proxy's to change any more; why.
    Left(String),
    /// It may be between two sources.
    Failed(String),
}

impl From<String> for NotBack {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// `why` a server does not follow, with what became of it. `was` is its channel before.
fn undone(why: &str, outcome: Result<(), NotBack>, was: Option<&Was>) -> String {
    match (outcome, was) {
        (Ok(()), Some(was)) if was.runs => format!("{why}; it replicates from {} as before", was.source),
        (Ok(()), _) => format!("{why}; it replicates from nobody, as before"),
        (Err(NotBack::Left(left)), _) => format!("{why}; it was not put back: {left}. The healer continues from here"),
        (Err(NotBack::Failed(fault)), _) => format!("{why}; NOT PUT BACK: {fault}. Look at its replication yourself"),
    }
}

/// Why a server does not follow.
pub(in crate::operator) enum NotDone {
    /// Nothing was changed on it.
    Untouched(String),
    /// It has to be put back.
    Touched(String),
}

use NotDone::{Touched, Untouched};

#[cfg(test)]
mod tests {
    use super::*;
    use model::ServerAddr;

    #[test]
    fn a_server_that_a_healer_has_is_not_put_back() {
        let was = Was { source: ServerAddr { host: "a".into(), port: 1 }, runs: true };
        let told = |outcome| undone("no", outcome, Some(&was));
        assert_eq!(told(Ok(())), "no; it replicates from a:1 as before");
        assert_eq!(undone("no", Ok(()), None), "no; it replicates from nobody, as before");
        let left = told(Err(NotBack::Left("b:1 takes writes".to_owned())));
        assert_eq!(left, "no; it was not put back: b:1 takes writes. The healer continues from here");
        assert!(told(Err("no answer".to_owned().into())).starts_with("no; NOT PUT BACK: no answer."));
    }
}
