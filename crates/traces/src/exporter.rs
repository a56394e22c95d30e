//! The queue of records, and the thread that sends them.
//!
//! A batch that a receiver cannot take now (429, 502, 503, 504, no connection, no answer) is sent again a few times, then dropped. A
//! refused batch is dropped at once. Spans are never sent twice on purpose, but a receiver that answers too late may have them twice. The
//! thread runs from the first time that an endpoint is set until the process ends.

use crate::context::{Parent, TraceId};
use crate::policy::{Outcome, Policy, Why};
use crate::record::Record;
use crate::settings::{Environment, Settings, pairs};
use crate::spans;
use http_client::Line;
use model::MysqlVariables;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Statements that are sent at once.
const BATCH: usize = 256;
/// How long the first record waits for more.
const LINGER: Duration = Duration::from_millis(500);
/// How often a batch is sent at most.
const TRIES: u32 = 4;
/// First pause between two times; doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause that a receiver may ask for.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long the last batches may take when the process ends.
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// How often is said that spans are lost.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// The fates of spans and batches so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Spans that a receiver has taken.
    pub exported: u64,
    /// Spans dropped because the queue was full, or because they go nowhere any more.
    pub dropped: u64,
    /// Spans lost with a batch that no receiver took, or that a receiver rejected.
    pub failed: u64,
    /// Statements that were not traced because of the limit of a second.
    pub limited: u64,
    /// Batches that were sent again.
    pub batches_retried: u64,
    /// Batches that were given up.
    pub batches_failed: u64,
    /// Spans of statements that wait to be sent.
    pub waiting: u64,
}

#[derive(Default)]
struct Counters {
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    limited: AtomicU64,
    batches_retried: AtomicU64,
    batches_failed: AtomicU64,
}

#[derive(Default)]
struct Queue {
    records: VecDeque<Record>,
    most: usize,
    target: Option<Arc<Settings>>,
    is_stopping: bool,
}

#[derive(Default)]
struct Inner {
    policy: Policy,
    queue: Mutex<Queue>,
    /// There is something to send, a whole batch, or the end.
    wakeup: Notify,
    counters: Counters,
}

/// See the module. One for the process.
#[derive(Default)]
pub struct Exporter {
    inner: Arc<Inner>,
    environment: OnceLock<Environment>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Exporter {
    /// Begins to trace as the variables say, and the environment where they say nothing.
    pub fn start(&self, environment: Environment, vars: &MysqlVariables) {
        let _ = self.environment.set(environment);
        self.configure(vars);
    }

    /// The variables may have changed. Does nothing before [`Exporter::start`].
    pub fn configure(&self, vars: &MysqlVariables) {
        let Some(environment) = self.environment.get() else { return };
        let target = Settings::read(vars, environment).unwrap_or_else(|why| {
            tracing::error!("tracing is off: {why}");
            None
        });
        let policy = &self.inner.policy;
        if target.is_none() {
            policy.switch_off();
        }
        let is_on = target.is_some();
        {
            let mut queue = self.inner.queue();
            queue.most = usize::try_from(vars.trace_queue_size).unwrap_or(usize::MAX);
            if queue.target.as_deref() != target.as_ref() {
                queue.target = target.map(Arc::new);
            }
        }
        if is_on && self.has_thread() {
            let ratio = vars.trace_sample_ratio.parse().unwrap_or(0.0);
            policy.switch_on(ratio, vars.trace_slow_ms.saturating_mul(1000), vars.trace_max_per_second, vars.trace_unsampled_parents);
        }
    }

    /// Whether it runs by now.
    fn has_thread(&self) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let inner = Arc::clone(&self.inner);
            match std::thread::Builder::new().name("traces".to_owned()).spawn(move || inner.run()) {
                Ok(handle) => *thread = Some(handle),
                Err(e) => tracing::error!("tracing is off: cannot start the thread: {e}"),
            }
        }
        thread.is_some()
    }

    /// Whether anything is traced.
    pub fn is_on(&self) -> bool {
        self.inner.policy.is_on()
    }

    /// Whether this statement is traced, and why. `now_us` is any clock that moves on; `random` is asked for a number where chance decides.
    pub fn keeps(&self, parent: Option<&Parent>, outcome: Outcome, now_us: u64, random: impl FnOnce() -> u64) -> Option<Why> {
        let why = self.inner.policy.wants(parent, outcome, random)?;
        let is_within_limit = self.inner.policy.is_within_limit(now_us);
        if !is_within_limit {
            self.inner.counters.limited.fetch_add(1, Ordering::Relaxed);
        }
        is_within_limit.then_some(why)
    }

    /// Puts a statement into the queue, or drops it when that is full.
    pub fn write(&self, record: Record) {
        let mut queue = self.inner.queue();
        if queue.records.len() >= queue.most {
            drop(queue);
            return self.inner.dropped(&[record]);
        }
        queue.records.push_back(record);
        let is_due = matches!(queue.records.len(), 1 | BATCH);
        drop(queue);
        if is_due {
            self.inner.wakeup.notify_one();
        }
    }

    /// The counts since the start, for metrics.
    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.inner.counters;
        Counts {
            exported: load(&counters.exported),
            dropped: load(&counters.dropped),
            failed: load(&counters.failed),
            limited: load(&counters.limited),
            batches_retried: load(&counters.batches_retried),
            batches_failed: load(&counters.batches_failed),
            waiting: self.inner.queue().records.iter().map(spans::count).sum(),
        }
    }

    /// Sends what waits, if a receiver takes it at once, and ends the thread.
    pub fn stop(&self) {
        self.inner.policy.switch_off();
        let Some(handle) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        self.inner.queue().is_stopping = true;
        self.inner.wakeup.notify_one();
        let deadline = Instant::now() + STOP_WITHIN;
        while !handle.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if handle.is_finished() {
            let _ = handle.join();
        }
    }
}

/// A new trace's id; None where the system gives no random bytes.
pub fn new_trace_id() -> Option<TraceId> {
    random_bytes()
}

fn random_bytes<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    (bytes != [0; N]).then_some(bytes)
}

/// The result of a request.
enum Sent {
    /// The receiver has it, but for so many spans that it rejected.
    Taken(u64),
    /// It may take it later; after this pause, if it names one.
    Later(String, Option<Duration>),
    /// It never will.
    Refused(String),
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dropped(&self, records: &[Record]) {
        self.counters.dropped.fetch_add(records.iter().map(spans::count).sum(), Ordering::Relaxed);
    }

    fn run(&self) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
            Ok(runtime) => runtime,
            Err(e) => {
                self.policy.switch_off();
                return tracing::error!("tracing is off: {e}");
            }
        };
        runtime.block_on(async {
            let mut sender = Sender { line: None, complained_at: None };
            while let Some((records, target)) = self.next().await {
                match target {
                    Some(target) => sender.send(self, &records, &target).await,
                    None => self.dropped(&records),
                }
            }
        });
    }

    /// The next batch and where it goes; None at the end.
    async fn next(&self) -> Option<(Vec<Record>, Option<Arc<Settings>>)> {
        let is_awaited = |at_least: usize| {
            let queue = self.queue();
            queue.records.len() < at_least && !queue.is_stopping
        };
        while is_awaited(1) {
            self.wakeup.notified().await;
        }
        let whole = async {
            while is_awaited(BATCH) {
                self.wakeup.notified().await;
            }
        };
        let _ = tokio::time::timeout(LINGER, whole).await;
        let mut queue = self.queue();
        let count = queue.records.len().min(BATCH);
        let records: Vec<Record> = queue.records.drain(..count).collect();
        (!records.is_empty() || !queue.is_stopping).then(|| (records, queue.target.clone()))
    }

    /// Waits; not when the process ends.
    async fn pause(&self, pause: Duration) {
        let ends = async {
            while !self.queue().is_stopping {
                self.wakeup.notified().await;
            }
        };
        let _ = tokio::time::timeout(pause, ends).await;
    }
}

struct Sender {
    line: Option<(Line, Arc<Settings>)>,
    complained_at: Option<Instant>,
}

impl Sender {
    /// Sends a batch until it is taken, refused, or was sent too often.
    async fn send(&mut self, inner: &Inner, records: &[Record], target: &Arc<Settings>) {
        let body = spans::request(records, target, || random_bytes().unwrap_or([1; 8])).encode_to_vec();
        let spans: u64 = records.iter().map(spans::count).sum();
        let (mut tries, mut pause) = (TRIES, PAUSE);
        let why = loop {
            tries -= 1;
            match self.post(&body, target).await {
                Sent::Taken(rejected) => {
                    let rejected = rejected.min(spans);
                    inner.counters.exported.fetch_add(spans - rejected, Ordering::Relaxed);
                    inner.counters.failed.fetch_add(rejected, Ordering::Relaxed);
                    if self.complained_at.take().is_some() {
                        tracing::info!("traces: {} accepts spans again", target.endpoint);
                    }
                    return;
                }
                Sent::Refused(why) => break why,
                Sent::Later(why, asked) => {
                    self.line = None;
                    if tries == 0 || inner.queue().is_stopping {
                        break why;
                    }
                    inner.counters.batches_retried.fetch_add(1, Ordering::Relaxed);
                    inner.pause(asked.map_or(pause, |asked| asked.min(MAX_PAUSE))).await;
                    pause *= 2;
                }
            }
        };
        let failed = inner.counters.failed.fetch_add(spans, Ordering::Relaxed).saturating_add(spans);
        inner.counters.batches_failed.fetch_add(1, Ordering::Relaxed);
        if self.complained_at.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
            self.complained_at = Some(Instant::now());
            tracing::warn!("traces: {} does not accept spans: {why}; the proxy drops and counts them ({failed} so far)", target.endpoint);
        }
    }

    /// Sends a request, once.
    async fn post(&mut self, body: &[u8], target: &Arc<Settings>) -> Sent {
        let is_fit = |(line, settings): &(Line, Arc<Settings>)| line.is_open() && Arc::ptr_eq(settings, target);
        let (line, _) = match self.line.take().filter(is_fit) {
            Some(open) => self.line.insert(open),
            None => match Line::open(&target.endpoint, &target.tls, target.timeout).await {
                Ok(line) => self.line.insert((line, Arc::clone(target))),
                Err(why) => return Sent::Later(why, None),
            },
        };
        let own = pairs(&target.headers.expose_text());
        let own = own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<(&str, &str)> = std::iter::once(("Content-Type", "application/x-protobuf")).chain(own).collect();
        let answer = match line.ask(&target.path, &headers, body.to_vec().into(), target.timeout).await {
            Ok(answer) => answer,
            Err(why) => return Sent::Later(why, None),
        };
        let asked = answer.headers().get("Retry-After").and_then(|value| value.to_str().ok()?.trim().parse().ok());
        match answer.status().as_u16() {
            200..=299 => {
                let said = ExportTraceServiceResponse::decode(answer.into_body()).ok().and_then(|said| said.partial_success);
                Sent::Taken(said.map_or(0, |said| u64::try_from(said.rejected_spans).unwrap_or(0)))
            }
            status @ (429 | 502..=504) => Sent::Later(format!("the receiver answers {status}"), asked.map(Duration::from_secs)),
            status => Sent::Refused(format!("the receiver answers {status}")),
        }
    }
}
