//! The budget of the plain path: a point select that finds an idle backend allocates nothing, in text or prepared. One that shares a
//! connection with others (`mysql-pipeline_depth`) allocates what waits in its place.
//!
//! The proxy runs inside this process, under an allocator that counts the allocations of the worker's thread. Run with
//! `ALLOCATIONS_TRACE=1` to see their places.
//!
//! Locks are not counted here. The proxy has these:
//! * `Shared::sessions` (login, KILL),
//! * `UserShared::secrets` (login),
//! * `ServerShared::last_error` (a connect that failed),
//! * the mailboxes (clients that come, backends that change workers).
//!
//! A statement that finds an idle backend on its own worker takes none of them. Its only access to data of other threads is one relaxed
//! load, whether other workers wait. Locks of the runtime, never contended, are not counted either.

// An allocator cannot be written without `unsafe`; this one passes each call on to the system's, unchanged.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

#[path = "common/in_process.rs"]
mod in_process;

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use in_process::InProcess;
use lab::client::{Encoding, Param, Prepared};
use lab::tidegate::Builder;
use lab::{Client, ConnectOptions, Mariadb, Options, Server, Tidegate};

/// The thread that is counted; 0 while none is.
static COUNTED_THREAD: AtomicI32 = AtomicI32::new(0);
static COUNT: AtomicU64 = AtomicU64::new(0);
static TRACE: AtomicBool = AtomicBool::new(false);
static TRACES: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// This thread's id; 0 before it is known.
    static ID: Cell<i32> = const { Cell::new(0) };
    /// This thread is writing a trace, which allocates too.
    static TRACING: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Called for each allocation, and each reallocation.
fn note() {
    let counted = COUNTED_THREAD.load(Ordering::Relaxed);
    if counted == 0 || own_id() != counted || TRACING.get() {
        return;
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    if TRACE.load(Ordering::Relaxed) {
        TRACING.set(true);
        *TRACES.lock().unwrap().entry(Backtrace::force_capture().to_string()).or_default() += 1;
        TRACING.set(false);
    }
}

fn own_id() -> i32 {
    if ID.get() == 0 {
        ID.set(rustix::thread::gettid().as_raw_nonzero().get());
    }
    ID.get()
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The id of the thread of this name, from `/proc/self/task` (proc(5)).
fn thread_id(name: &str) -> i32 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let found = tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name));
    let ids: Vec<i32> = found.map(|task| task.file_name().to_str().unwrap().parse().unwrap()).collect();
    assert_eq!(ids.len(), 1, "threads named {name}");
    ids[0]
}

/// The data plane with one worker.
fn start(server: &Server, more: impl FnOnce(Builder) -> Builder) -> InProcess {
    let builder = Tidegate::builder().backend(0, server).app_user().variable("threads", 1).variable("pipeline_depth", 1);
    InProcess::start("inprocess", more(builder), None)
}

/// One that traces what goes wrong, but no statement by chance.
fn tracing(server: &Server) -> InProcess {
    // No receiver has to run at this address: with a ratio of 0 no spans are sent.
    start(server, |b| b.variable("trace_endpoint", "http://127.0.0.1:9").variable("trace_sample_ratio", "0"))
}

fn connect(proxy: &InProcess, capabilities: wire::Capabilities) -> Client {
    let options = ConnectOptions::tcp(&proxy.address, "app", "app-pass").database("test");
    Client::connect(&ConnectOptions { capabilities, ..options }).unwrap()
}

/// Statements that are run before, and while, allocations are counted.
const WARM: u64 = 500;
const COUNTED: u64 = 1000;
/// Allocations that the sweeps and timers of that time may cost, in all.
const CONSTANT: u64 = 20;

/// Counts the worker's allocations while `work` runs.
fn count(work: impl FnOnce()) -> u64 {
    COUNT.store(0, Ordering::SeqCst);
    COUNTED_THREAD.store(thread_id("worker-0"), Ordering::SeqCst);
    work();
    COUNTED_THREAD.store(0, Ordering::SeqCst);
    COUNT.load(Ordering::SeqCst)
}

/// Runs `statement` until all is warm, then counts the worker's allocations over [`COUNTED`] more.
fn assert_none(name: &str, mut statement: impl FnMut(u64)) {
    (0..WARM).for_each(&mut statement);
    let count = count(|| (0..COUNTED).for_each(&mut statement));
    for (trace, times) in std::mem::take(&mut *TRACES.lock().unwrap()) {
        println!("{name}: {times} times\n{trace}");
    }
    println!("{name}: {count} allocations in {COUNTED} statements");
    assert!(count < CONSTANT, "{name}: {count} allocations in {COUNTED} statements");
}

fn point_select(client: &mut Client, row: u64) {
    let id = row % 100 + 1;
    let got = client.scalar(format!("SELECT word FROM words WHERE id = {id}")).unwrap();
    assert_eq!(got, Some(format!("word {id}")));
}

fn execute(client: &mut Client, statement: &Prepared, row: u64) {
    let id = row % 100 + 1;
    let reply = client.execute(statement, &[Param::UInt(id)]).unwrap();
    assert_eq!(reply.scalar().unwrap(), Some(format!("word {id}")));
}

/// One test, one proxy: there must be one thread of the worker's name.
#[test]
fn nothing_is_allocated_on_the_plain_path() {
    TRACE.store(std::env::var_os("ALLOCATIONS_TRACE").is_some(), Ordering::SeqCst);
    let server = Mariadb::start(&Options::new()).unwrap();
    server.sql("CREATE TABLE test.words (id INT PRIMARY KEY, word VARCHAR(20))").unwrap();
    server.sql("INSERT INTO test.words SELECT seq, CONCAT('word ', seq) FROM test.seq_1_to_100").unwrap();
    let proxy = start(&server, |b| b);
    let mut clients = [connect(&proxy, ConnectOptions::MODERN), connect(&proxy, ConnectOptions::MODERN)];

    assert!(count(|| drop(connect(&proxy, ConnectOptions::MODERN))) > 0, "a login allocates: nothing was counted");
    TRACES.lock().unwrap().clear();
    assert_none("text, one client", |row| point_select(&mut clients[0], row));
    let mut classic = connect(&proxy, ConnectOptions::CLASSIC);
    assert_none("text, a client that wants EOF packets", |row| point_select(&mut classic, row));
    let mut crowd: Vec<Client> = (0..8).map(|_| connect(&proxy, ConnectOptions::CLASSIC)).collect();
    // One backend for each session, so that no session waits for one.
    for word in ["BEGIN", "ROLLBACK"] {
        crowd.iter_mut().for_each(|client| drop(client.run(word).unwrap()));
    }
    assert_none("text, clients that want EOF packets, eight at once", |row| {
        crowd.iter_mut().for_each(|client| client.send_query(format!("SELECT word FROM words WHERE id = {}", row % 100 + 1)).unwrap());
        crowd.iter_mut().for_each(|client| assert!(client.recv_reply(Encoding::Text).unwrap().rows().is_ok()));
    });
    assert_none("text, two clients in turn", |row| point_select(&mut clients[(row % 2) as usize], row));
    let statements = clients.each_mut().map(|client| client.prepare("SELECT word FROM words WHERE id = ?").unwrap());
    assert_none("prepared, one client", |row| execute(&mut clients[0], &statements[0], row));
    assert_none("prepared, two clients in turn", |row| {
        let who = (row % 2) as usize;
        execute(&mut clients[who], &statements[who], row);
    });
    drop((clients, classic, crowd, proxy));
    let proxy = tracing(&server);
    let mut client = connect(&proxy, ConnectOptions::MODERN);
    assert_none("text, while traces are on", |row| point_select(&mut client, row));
    let statement = client.prepare("SELECT word FROM words WHERE id = ?").unwrap();
    assert_none("prepared, while traces are on", |row| execute(&mut client, &statement, row));
}
