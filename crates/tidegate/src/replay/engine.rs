//! The second pass over a file: hands each session's commands to its thread, at their time, and no further ahead than memory allows.

use super::gate::{Gate, Ticket};
use super::judge::Judge;
use super::plan::{FilePlan, open};
use super::progress::{At, Ended, Progress, Reached, ReachedBySession};
use super::said::{Follower, Known, Said, turn_of};
use super::session::Player;
use super::target::Target;
use anyhow::{Context, Result};
use capture::seal::PrivateKey;
use capture::{Order, Record, Step, Turns, records};
use rehearsal::Answer;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Bytes of commands that wait in all sessions of a file.
const MAX_WAITING: u64 = 64 << 20;
/// Most sessions of a file at a time.
const MAX_SESSIONS: usize = 10_000;
/// How far ahead of its time a command is read, us.
const AHEAD_US: u64 = 2_000_000;
/// How often a thread that waits looks whether it still has to.
const LOOK: Duration = Duration::from_millis(20);
const STACK: usize = 512 << 10;

/// What all replays of a run share.
pub(super) struct Run<'a> {
    pub target: &'a Target,
    pub judge: &'a Judge,
    pub known: &'a Known,
    pub key: Option<&'a PrivateKey>,
    /// 0: as fast as the order allows.
    pub speed: f64,
    pub keeps_order: bool,
    pub reads_only: bool,
    pub pins: bool,
    /// Answers are compared with those of an earlier replay.
    pub has_base: bool,
    /// Longest pause, us.
    pub idle_us: u64,
    /// What is compared, us since the capture's begin.
    pub from_us: u64,
    pub until_us: u64,
    pub is_stopped: &'a AtomicBool,
    /// Commands that were dealt with.
    pub ended: &'a AtomicU64,
    /// Where it is kept how far the replay came.
    pub progress: Option<&'a Progress>,
    /// How far it came before it was interrupted.
    pub reached: &'a Reached,
}

/// A command, or the begin of a session, on its way to the session's thread.
pub(super) struct Job {
    /// The record, encoded.
    pub record: Box<[u8]>,
    /// When it is due, us since the replay's begin.
    pub due_us: u64,
    /// Before --from sessions are only set up.
    pub is_compared: bool,
    /// What its statement is.
    pub said: Option<Arc<Said>>,
    /// What it waits for.
    pub ticket: Option<Ticket>,
}

/// One replay of one file.
pub(super) struct Stage<'a> {
    pub file: usize,
    pub plan: &'a FilePlan,
    pub target: &'a Target,
    pub judge: &'a Judge,
    pub known: &'a Known,
    pub gate: Gate,
    pub reads_only: bool,
    pub pins: bool,
    pub has_base: bool,
    run: &'a Run<'a>,
    began: Instant,
    waiting: AtomicU64,
}

impl<'a> Stage<'a> {
    /// Nothing has begun.
    pub(super) fn new(run: &'a Run<'a>, file: usize, plan: &'a FilePlan) -> Self {
        Self {
            file,
            plan,
            target: run.target,
            judge: run.judge,
            known: run.known,
            gate: Gate::new(run.keeps_order.then(|| Order::new(plan.seqs.clone(), Turns::new(plan.turns.clone())))),
            reads_only: run.reads_only,
            pins: run.pins,
            has_base: run.has_base,
            run,
            began: Instant::now(),
            waiting: AtomicU64::new(0),
        }
    }

    /// Replays the file.
    ///
    /// # Errors
    /// It cannot be read any more.
    pub(super) fn play(&self) -> Result<()> {
        let mut reader = open(&self.plan.path, self.run.key).with_context(|| self.plan.path.display().to_string())?;
        std::thread::scope(|scope| {
            let mut hands = Hands {
                stage: self,
                scope,
                sessions: HashMap::new(),
                follower: Follower::default(),
                shift_us: 0,
                high_us: None,
                resumed_at_us: None,
            };
            // The first pass has said how it ends.
            while let Ok(Step::Frame(frame)) = reader.step() {
                for record in records(&frame).map_while(Result::ok) {
                    if self.is_stopped() {
                        return Ok(());
                    }
                    hands.give(&record);
                }
            }
            Ok(())
        })
    }

    /// How far a session came before the replay was interrupted.
    pub(super) fn reached(&self, session: u64) -> Option<ReachedBySession> {
        self.run.reached.session(self.file, session)
    }

    /// Whether a command started out of order before the replay was interrupted.
    pub(super) fn was_out_of_order(&self, seq: u64) -> bool {
        self.run.reached.was_out_of_order(self.file, seq)
    }

    /// A command that may commit is about to be sent.
    pub(super) fn begins(&self, session: u64, seq: u64) -> Result<()> {
        self.keep(|progress| progress.begins(At { file: self.file, session, seq }))
    }

    /// A command has ended.
    pub(super) fn note_end(&self, session: u64, seq: u64, answer: Option<(&Answer, u64)>, ended: Ended) -> Result<()> {
        self.keep(|progress| progress.ended(At { file: self.file, session, seq }, answer, ended))
    }

    /// A session is given up.
    pub(super) fn gives_up(&self, session: u64) -> Result<()> {
        self.keep(|progress| progress.gives_up(self.file, session))
    }

    /// Keeps how far the replay came. Where that fails it ends, for what is not kept could run twice.
    fn keep(&self, put: impl FnOnce(&Progress) -> Result<()>) -> Result<()> {
        self.run.progress.map_or(Ok(()), put).inspect_err(|_| {
            self.run.is_stopped.store(true, Ordering::Relaxed);
            self.gate.stop();
        })
    }

    /// The thread took a job of so many bytes.
    pub(super) fn taken(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes as u64, Ordering::AcqRel);
    }

    /// A command was dealt with.
    pub(super) fn ended(&self) {
        self.run.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// A moment of the file's clock, Unix s.
    pub(super) fn unix_s(&self, us: u64) -> u64 {
        let header = &self.plan.header;
        header.started_unix_us.saturating_add(us).saturating_sub(header.started_us) / 1_000_000
    }

    fn is_stopped(&self) -> bool {
        self.run.is_stopped.load(Ordering::Relaxed)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Waits until a time; false if the replay was interrupted.
    pub(super) fn wait_until(&self, due_us: u64) -> bool {
        loop {
            if self.is_stopped() {
                self.judge.skip("interrupted");
                return false;
            }
            let left = Duration::from_micros(due_us.saturating_sub(self.now_us()));
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Waits until there is room for more. A session may wait for a command that was not read yet: then there is.
    fn wait_for_room(&self) {
        while self.waiting.load(Ordering::Acquire) > MAX_WAITING && self.gate.is_busy() && !self.is_stopped() {
            std::thread::sleep(LOOK);
        }
    }
}

/// Who has which session.
struct Hands<'scope, 'a> {
    stage: &'scope Stage<'a>,
    scope: &'scope Scope<'scope, 'a>,
    sessions: HashMap<u64, Sender<Job>>,
    follower: Follower,
    /// Pauses that were cut, us.
    shift_us: u64,
    /// When the latest command ended so far, us of the file's clock.
    high_us: Option<u64>,
    /// When the first command began that had not run before the replay was interrupted: us of the replay.
    resumed_at_us: Option<f64>,
}

impl<'scope, 'a> Hands<'scope, 'a> {
    fn give(&mut self, record: &Record<'_>) {
        match record {
            Record::Session(start) => self.begin(start.session),
            Record::End { session } => {
                self.sessions.remove(session);
                return self.follower.forget(*session);
            }
            Record::Gap(gap) => {
                self.stage.judge.give_up("gap in the capture", gap.why.name());
                self.sessions.remove(&gap.session);
                return;
            }
            Record::Command(_) => {}
        }
        let (due_us, is_compared) = self.time_of(record);
        let (said, ticket) = match record {
            Record::Command(command) => {
                let said = self.follower.said(command, self.stage.known);
                let turn = turn_of(command, said.as_deref());
                (said, Some(Ticket { timing: command.timing, turn }))
            }
            _ => (None, None),
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let size = bytes.len() as u64;
        let job = Job { record: bytes.into(), due_us, is_compared, said, ticket };
        let sender = self.sessions.get(&record.session());
        self.stage.waiting.fetch_add(size, Ordering::AcqRel);
        if sender.is_none_or(|sender| sender.send(job).is_err()) {
            self.stage.waiting.fetch_sub(size, Ordering::AcqRel);
            if let Some(ticket) = ticket {
                self.stage.judge.skip("session not replayed");
                self.stage.gate.leave(ticket);
                self.stage.ended();
            }
        }
        self.stage.wait_for_room();
    }

    fn begin(&mut self, session: u64) {
        self.sessions.remove(&session);
        if self.sessions.len() >= MAX_SESSIONS {
            return self.give_up(session, &format!("more than {MAX_SESSIONS} sessions at a time"));
        }
        let ((sender, receiver), stage) = (channel(), self.stage);
        let thread = std::thread::Builder::new().name("session".to_owned()).stack_size(STACK);
        match thread.spawn_scoped(self.scope, move || Player::new(stage).play(&receiver)) {
            Ok(_) => drop(self.sessions.insert(session, sender)),
            Err(e) => self.give_up(session, &format!("cannot start a thread: {e}")),
        }
    }

    fn give_up(&self, session: u64, error: &str) {
        let kept = self.stage.gives_up(session);
        self.stage.judge.give_up("too many sessions", &kept.map_or_else(|e| format!("{e:#}"), |()| error.to_owned()));
    }

    /// When a command is due, us since the replay's begin, and whether it is compared.
    fn time_of(&mut self, record: &Record<'_>) -> (u64, bool) {
        let Record::Command(command) = record else { return (0, false) };
        let (run, header) = (self.stage.run, &self.stage.plan.header);
        let begin_us = command.timing.begin_us;
        let high_us = *self.high_us.get_or_insert(self.stage.plan.span_us.0);
        self.shift_us += begin_us.saturating_sub(high_us).saturating_sub(run.idle_us);
        self.high_us = Some(high_us.max(begin_us.saturating_add(command.timing.time_us)));
        let since_us = begin_us.saturating_sub(header.started_us);
        let is_compared = (run.from_us..run.until_us).contains(&since_us);
        if run.speed == 0.0 || !is_compared {
            return (0, is_compared);
        }
        let first_us = self.stage.plan.span_us.0.max(header.started_us.saturating_add(run.from_us));
        let is_done = self.stage.reached(command.session).is_some_and(|reached| Some(command.timing.seq) <= reached.done);
        if is_done {
            return (0, is_compared);
        }
        let at_us = begin_us.saturating_sub(first_us).saturating_sub(self.shift_us) as f64 / run.speed;
        let resumed_at_us = *self.resumed_at_us.get_or_insert(if run.reached.commands > 0 { at_us } else { 0.0 });
        let due_us = (at_us - resumed_at_us) as u64;
        // What is far ahead is not read yet.
        self.stage.wait_until(due_us.saturating_sub(AHEAD_US));
        (due_us, is_compared)
    }
}
