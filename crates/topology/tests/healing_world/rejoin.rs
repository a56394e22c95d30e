//! Takes one server back, step by step as `monitor`'s `operator/rejoin`: a former writer is closed and its clients are ended; then the
//! product compares it with the writer, and only a server that is proved clean is pointed there.

use topology::healing::{Holding, Proof, prove};
use topology::{Fork, GtidSet, ServerId};

use crate::look::Sight;
use crate::mind::Healer;
use crate::network::Control;
use crate::numbers::{Flavor, set};
use crate::sabotage::Sabotage;
use crate::server::{Gate, Server};
use crate::world::{addr, place_of};

const ANSWER_MS: u64 = 10_000;
const STANDS_STILL_MS: u64 = 500;
const FOLLOWS_MS: u64 = 10_000;
/// A server that was pointed at the writer is watched for so long.
const WATCHED_MS: u64 = 10_000;

/// A server to take back.
#[derive(Debug)]
pub(crate) struct Rejoin {
    pub(crate) server: usize,
    pub(crate) writer: usize,
    pub(crate) has_followers: bool,
    pub(crate) has_replicas: bool,
    pub(crate) has_stepped_down: bool,
    pub(crate) others: Vec<ServerId>,
    pub(crate) is_former: bool,
    pub(crate) fork: Option<Fork>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Follows,
    Stays,
    Postponed(String),
    Failed(String),
}

impl Outcome {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Follows => "taken back",
            Self::Stays => "stays out",
            Self::Postponed(_) => "postponed",
            Self::Failed(_) => "not taken back",
        }
    }
}

enum NotYet {
    Postponed(String),
    Failed(String),
}

impl From<String> for NotYet {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// See the module.
pub(crate) async fn run(healer: &Healer, rejoin: &Rejoin) -> Outcome {
    if std::mem::replace(&mut healer.mind.borrow_mut().is_claimed, true) {
        return Outcome::Postponed("other work is under way".to_owned());
    }
    let outcome = match prepare(healer, rejoin).await {
        Err(NotYet::Postponed(why)) => Outcome::Postponed(why),
        Err(NotYet::Failed(why)) => Outcome::Failed(why),
        Ok(None) => Outcome::Stays,
        Ok(Some((server, _writer))) => follow(healer, rejoin, &server).await,
    };
    healer.mind.borrow_mut().is_claimed = false;
    outcome
}

/// Everything before the channel is touched; None if the server is not proved clean.
async fn prepare(healer: &Healer, rejoin: &Rejoin) -> Result<Option<(Control, Control)>, NotYet> {
    let writer = healer.world.connect(healer.number, rejoin.writer, ANSWER_MS).await?;
    let server = healer.world.connect(healer.number, rejoin.server, ANSWER_MS).await?;
    for one in [&writer, &server] {
        if !one.lock(ANSWER_MS).await? {
            return Err(NotYet::Postponed("another proxy is at work".to_owned()));
        }
    }
    still_writes(healer, rejoin, &writer).await?;
    let early = if healer.world.lacks(Sabotage::ReadBeforeClosing) { Some(sight(&server).await?) } else { None };
    if rejoin.is_former {
        if !rejoin.has_followers && (rejoin.has_replicas || !rejoin.has_stepped_down) {
            return Err(NotYet::Postponed("no replica that answers follows the writer".to_owned()));
        }
        close(&server).await?;
        still_writes(healer, rejoin, &writer).await?;
        let end = |server: &mut Server| {
            server.sessions += 1;
            server.release();
        };
        server.on(ANSWER_MS, end).await?;
    } else if server.on(ANSWER_MS, |server| server.gate).await? == Gate::Open {
        return Err(NotYet::Failed("it is writable".to_owned()));
    }
    if compare(healer, rejoin, &server, &writer, early).await? != Proof::Clean {
        return Ok(None);
    }
    if rejoin.is_former {
        server.on(ANSWER_MS, |server| server.semi.is_source = false).await?;
    }
    still_writes(healer, rejoin, &writer).await?;
    let gate = server.on(ANSWER_MS, |server| server.gate).await?;
    if gate == Gate::Open {
        return Err(NotYet::Failed("another program has opened it".to_owned()));
    }
    Ok(Some((server, writer)))
}

/// A remembered writer is no writer: it must say so, and the proxy must see no other one.
async fn still_writes(healer: &Healer, rejoin: &Rejoin, writer: &Control) -> Result<(), NotYet> {
    if healer.world.lacks(Sabotage::ActOnAnOldRecord) {
        return Ok(());
    }
    if healer.world.state.borrow().proxies[healer.number].writers() != [rejoin.writer] {
        return Err(NotYet::Postponed("another server writes now".to_owned()));
    }
    match writer.on(ANSWER_MS, |server| server.gate).await? {
        Gate::Open => Ok(()),
        _ => Err(NotYet::Postponed("the writer is read-only now".to_owned())),
    }
}

pub(crate) async fn close(server: &Control) -> Result<(), String> {
    let place = server.server;
    server
        .tell(ANSWER_MS, move |state, now_ms| {
            state.note_closed(place, now_ms);
            let one = &mut state.servers[place];
            one.gate = if one.flavor == Flavor::MySql { Gate::Closed } else { Gate::ReadOnly };
        })
        .await?;
    Ok(())
}

async fn sight(control: &Control) -> Result<Sight, String> {
    let place = control.server;
    control.tell(ANSWER_MS, move |state, now_ms| state.sight(place, now_ms)).await
}

/// The server first, when its GTIDs stand still; then the writer, so that what it has by then counts.
async fn compare(healer: &Healer, rejoin: &Rejoin, server: &Control, writer: &Control, early: Option<Sight>) -> Result<Proof, NotYet> {
    let mut has = sight(server).await?;
    loop {
        healer.world.clock.sleep(STANDS_STILL_MS).await;
        let before = std::mem::replace(&mut has, sight(server).await?);
        if !rejoin.is_former || before.executed == has.executed {
            break;
        }
    }
    let has = early.unwrap_or(has);
    let new = sight(writer).await?;
    let purged = writer.on(ANSWER_MS, |server| set(&server.purged_numbers().text(server.flavor))).await?;
    if healer.world.lacks(Sabotage::CompareNumbersOnly) && has.version.is_mariadb {
        let last = |set: &GtidSet| set.position().rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
        return Ok(if last(&has.received()) <= last(&new.executed) { Proof::Clean } else { Proof::Extra(has.executed) });
    }
    let (has, new) = (holding(&has), Holding { purged, ..holding(&new) });
    Ok(prove(&has, &new, rejoin.fork.as_ref(), &rejoin.others, rejoin.is_former))
}

fn holding(sight: &Sight) -> Holding {
    Holding {
        id: sight.id.clone(),
        version: sight.version,
        executed: sight.received(),
        purged: sight.purged.clone(),
        tells: true,
        is_strict: sight.is_strict,
    }
}

async fn follow(healer: &Healer, rejoin: &Rejoin, server: &Control) -> Outcome {
    let (writer, is_former, place) = (rejoin.writer, rejoin.is_former, rejoin.server);
    let pointed = server
        .tell(ANSWER_MS, move |state, now_ms| {
            let was = state.servers[place].link.as_ref().map(|link| link.source);
            state.note_pointed(place, writer, now_ms);
            let one = &mut state.servers[place];
            one.link.iter_mut().for_each(|link| link.stop());
            one.change(writer, is_former);
            one.start();
            was
        })
        .await;
    let was = match pointed {
        Ok(was) => was,
        Err(why) => return Outcome::Failed(why),
    };
    let Err(why) = healer.settles(server, FOLLOWS_MS, WATCHED_MS).await else { return Outcome::Follows };
    let back = move |server: &mut Server| match was {
        None => server.link = None,
        Some(source) => {
            server.link.iter_mut().for_each(|link| link.stop());
            server.change(source, false);
            server.start();
        }
    };
    let undone = match healer.world.connect(healer.number, place, ANSWER_MS).await {
        Ok(control) => control.on(ANSWER_MS, back).await,
        Err(why) => Err(why),
    };
    Outcome::Failed(format!("{why}; put back: {undone:?} ({})", place_of(&addr(place)) + 1))
}
