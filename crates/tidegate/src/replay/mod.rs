//! `tidegate replay`: sends captured traffic to a server, compares the answers with those of the original, and prints a verdict.
//!
//! Files are read twice: first what they have ([`plan`]), then each session's commands go to a thread with a connection of its own
//! ([`session`]), which keeps the order rule ([`gate`]). Each answer is judged ([`judge`]); the page is that of a rehearsal. With a report, a
//! file beside it ([`progress`]) says how far the replay came, so that it can be resumed. What another configuration would do with the
//! files' statements is a matter of [`route`].

mod engine;
mod gate;
mod judge;
mod keys;
mod logs;
mod options;
mod page;
mod plan;
mod progress;
mod report;
mod route;
mod said;
mod session;
mod target;

pub(crate) use options::ReplayOptions;

use anyhow::{Context, Result, bail};
use capture::seal::PrivateKey;
use engine::{Run, Stage};
use judge::Judge;
use options::OrderBy;
use plan::FilePlan;
use progress::{Progress, Reached};
use rehearsal::verdict::Word;
use report::{Base, Report};
use said::Known;
use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use target::{ServerIdentity, Target};
use tokio::signal::unix::{SignalKind, signal};

/// How often progress is shown on a terminal, and elsewhere.
const SHOW: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];
const TICK: Duration = Duration::from_millis(100);

/// Carries it out.
pub(crate) fn run(options: &ReplayOptions) -> ExitCode {
    match replay(options) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("tidegate: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn replay(options: &ReplayOptions) -> Result<u8> {
    if let Some(name) = &options.keygen {
        return keys::generate(name).map(|()| 0);
    }
    if let Some(config) = &options.route {
        return route::route(options, config).map(|()| 0);
    }
    if options.times > 1 && !options.reads_only {
        bail!("--times repeats reads only: add --reads-only");
    }
    let key = options.key.as_deref().map(keys::read_private).transpose()?;
    let known = Known::default();
    let files = options.files.iter().map(|path| FilePlan::read(path, key.as_ref(), &known)).collect::<Result<Vec<_>>>()?;
    files.iter().filter_map(FilePlan::fault).for_each(|fault| eprintln!("tidegate: {fault}"));
    let target = options.to.as_ref().map(|address| keys::target(options, address)).transpose()?;
    let server = target.as_ref().map(Target::server).transpose()?;
    let Some((target, server)) = target.zip(server).filter(|_| !options.dry_run) else {
        page::dry_run(&files).iter().for_each(|(part, text)| println!("{part:<10} {text}"));
        return Ok(0);
    };
    let base = options.against.as_deref().map(|path| Base::open(path, &files)).transpose()?;
    let has_base = base.is_some();
    let (report, progress, reached) = recorder(options, &files, (&target, &server))?;
    let judge = Judge::new(report, base, options.show_literals);
    let ran = Ran {
        options,
        files: &files,
        target: &target,
        key: key.as_ref(),
        known: &known,
        judge: &judge,
        has_base,
        progress: progress.as_ref(),
        reached: &reached,
    };
    let outcome = ran.play()?;
    let lines = page::page(options, &files, &server.version, &judge, &outcome);
    lines.lines.iter().for_each(|(part, text)| println!("{part:<10} {text}"));
    if let Some(report) = judge.take_report() {
        report.finish(&judge.findings().tally, &lines.lines).context("the report cannot be written")?;
    }
    match progress {
        Some(_) if outcome.is_interrupted => eprintln!("tidegate: the same command with --resume goes on"),
        Some(progress) => progress.finish()?,
        None => {}
    }
    Ok(match lines.word {
        Word::Safe => 0,
        Word::NotEnough => 2,
        Word::NotSafe => 1,
    })
}

/// Where answers are kept, and how far an interrupted replay came.
fn recorder(
    options: &ReplayOptions,
    files: &[FilePlan],
    (target, server): (&Target, &ServerIdentity),
) -> Result<(Option<Report>, Option<Progress>, Reached)> {
    let Some(path) = options.report.as_deref() else { return Ok((None, None, Reached::default())) };
    if options.times > 1 {
        if options.resume {
            bail!("a replay with --times cannot be resumed");
        }
        return Ok((Some(Report::create(path, files)?), None, Reached::default()));
    }
    let terms = options.terms(files, server, target);
    if options.resume {
        let (progress, reached, report) = Progress::resume(path, &terms, files)?;
        return Ok((Some(report), Some(progress), reached));
    }
    let progress = Progress::create(path, &terms)?;
    match Report::create(path, files) {
        Ok(report) => Ok((Some(report), Some(progress), Reached::default())),
        Err(e) => progress.finish().and(Err(e)),
    }
}

/// How the replay itself went.
pub(crate) struct Outcome {
    /// How long it took.
    pub took: Duration,
    /// An operator ended it.
    pub is_interrupted: bool,
    /// Commands that started out of order.
    pub out_of_order: u64,
}

/// A replay of all files.
struct Ran<'a> {
    options: &'a ReplayOptions,
    files: &'a [FilePlan],
    target: &'a Target,
    key: Option<&'a PrivateKey>,
    known: &'a Known,
    judge: &'a Judge,
    has_base: bool,
    progress: Option<&'a Progress>,
    reached: &'a Reached,
}

impl Ran<'_> {
    fn play(&self) -> Result<Outcome> {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (options, began) = (self.options, Instant::now());
        let (is_stopped, ended) = (Arc::new(AtomicBool::new(false)), AtomicU64::new(0));
        stop_on_signal(Arc::clone(&is_stopped))?;
        let run = Run {
            target: self.target,
            judge: self.judge,
            known: self.known,
            key: self.key,
            speed: options.speed,
            keeps_order: options.order == OrderBy::Seen,
            reads_only: options.reads_only,
            pins: !options.no_pin,
            has_base: self.has_base,
            idle_us: us(options.idle),
            from_us: options.from.map_or(0, us),
            until_us: options.until.map_or(u64::MAX, us),
            is_stopped: &is_stopped,
            ended: &ended,
            progress: self.progress,
            reached: self.reached,
        };
        let copies = (0..options.times).flat_map(|_| self.files.iter().enumerate());
        let stages: Vec<Stage<'_>> = copies.map(|(number, plan)| Stage::new(&run, number, plan)).collect();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| self.watch(&stages, &ended, &is_stopped, &is_over));
            let plays: Vec<_> = stages.iter().map(|stage| scope.spawn(|| stage.play())).collect();
            for play in plays {
                if let Err(e) = play.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the replay failed"))) {
                    self.judge.give_up("replay failed", &format!("{e:#}"));
                }
            }
            is_over.store(true, Ordering::Relaxed);
            let _ = watch.join();
        });
        let out_of_order = self.reached.out_of_order() + stages.iter().map(|stage| stage.gate.out_of_order()).sum::<u64>();
        Ok(Outcome { took: began.elapsed(), is_interrupted: is_stopped.load(Ordering::Relaxed), out_of_order })
    }

    /// Shows progress, breaks jams, and lets all go once the replay is interrupted.
    fn watch(&self, stages: &[Stage<'_>], ended: &AtomicU64, is_stopped: &AtomicBool, is_over: &AtomicBool) {
        let all = self.files.iter().map(|file| file.commands).sum::<u64>() * u64::from(self.options.times);
        let is_terminal = stderr().is_terminal();
        let (began, mut shown_at) = (Instant::now(), Instant::now());
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            let now = Instant::now();
            stages.iter().for_each(|stage| stage.gate.look(now));
            if is_stopped.load(Ordering::Relaxed) {
                stages.iter().for_each(|stage| stage.gate.stop());
            }
            if now.duration_since(shown_at) >= SHOW[usize::from(!is_terminal)] {
                shown_at = now;
                let text = page::progress(ended.load(Ordering::Relaxed), all, self.reached.commands, now.duration_since(began));
                let _ = if is_terminal { write!(stderr(), "\r{text}\x1b[K") } else { writeln!(stderr(), "{text}") };
            }
        }
        if is_terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// The first SIGINT or SIGTERM ends the replay with a report, the second one at once.
fn stop_on_signal(is_stopped: Arc<AtomicBool>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if is_stopped.swap(true, Ordering::Relaxed) {
                    std::process::exit(1);
                }
                eprintln!("tidegate: ending after the statements that run; once more ends at once, without a report");
            }
        });
    })?;
    Ok(())
}
