use super::*;
use capture::{Command, Gap, GapReason, Reader, Record, Step, Timing, What, records};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn plan(directory: &Path) -> CapturePlan {
    CapturePlan {
        name: "friday".into(),
        seconds: 3600,
        max_bytes: 1 << 30,
        percent: 100.0,
        users: Vec::new(),
        key: None,
        directory: directory.join("captures"),
        queue_bytes: 1 << 20,
        reserve_percent: 0,
        workers: 2,
    }
}

fn query(run: &Run, session: u64, text: &[u8]) -> bool {
    let after = run.ends_so_far();
    let timing = Timing { after, seq: run.count_end(), begin_us: 1, time_us: 2 };
    run.push(usize::try_from(session % 2).unwrap(), &Record::Command(Command { session, timing, what: What::Query(text), reply: None }))
}

/// Waits until the file is complete; a thread that does not end fails the test.
fn finish(desk: &Desk) {
    desk.shut_down();
    assert!(desk.runs().iter().all(|run| run.is_written()));
}

/// How many commands the file has, and why it ended.
fn read(run: &Run) -> (usize, String) {
    let file = fs::read(run.path.get().unwrap()).unwrap();
    let (mut reader, mut count) = (Reader::open(&file[..], None).unwrap(), 0);
    loop {
        match reader.step().unwrap() {
            Step::Frame(frame) => count += records(&frame).filter(|read| matches!(read, Ok(Record::Command(_)))).count(),
            Step::End(trailer) => return (count, trailer.reason),
            Step::CutOff { at } => return (count, format!("cut off at {at}")),
        }
    }
}

#[test]
fn what_is_pushed_is_in_the_file_that_only_the_owner_reads() {
    let dir = tempfile::tempdir().unwrap();
    let desk = Arc::new(Desk::default());
    let run = desk.start(plan(dir.path()), &Header::default(), Clock::new()).unwrap();
    assert_eq!(desk.running(), 1);
    assert!(desk.start(plan(dir.path()), &Header::default(), Clock::new()).is_err_and(|e| e.contains("one runs at a time")));
    assert!((0..1000).all(|session| query(&run, session, b"SELECT 1")));
    assert!(desk.stop("monday").is_err());
    desk.stop("friday").unwrap();
    assert_eq!(desk.running(), 0);
    finish(&desk);
    assert_eq!(read(&run), (1000, "CAPTURE STOP".to_owned()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(run.path.get().unwrap()), mode(&dir.path().join("captures"))), (0o600, 0o700));
    assert!(!query(&run, 1, b"SELECT 2"), "it has ended");
    let next = desk.start(plan(dir.path()), &Header::default(), Clock::new()).unwrap();
    assert!(next.file().ends_with("friday.00002.tgcap") && next.number == 2, "{}", next.file());
    finish(&desk);
    assert_eq!(next.stopped(), Some(&Stop::Shutdown));
}

#[test]
fn a_full_queue_takes_gaps_only() {
    let plan = CapturePlan { queue_bytes: 100, ..plan(Path::new("/nowhere")) };
    let run = Run::new(plan, 1, &Header::default());
    assert!(query(&run, 1, b"SELECT 1") && !query(&run, 1, &[b'x'; 100]));
    let held = run.queued_bytes();
    assert!(run.push(1, &Record::Gap(Gap { session: 1, why: GapReason::QueueFull })));
    assert!(run.queued_bytes() > held);
    assert_eq!(run.commands.load(Ordering::Relaxed), 1);
    run.count_gap(GapReason::QueueFull);
    assert_eq!(run.gaps().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), [(GapReason::QueueFull, 1)]);
}

#[test]
fn limits_end_a_capture() {
    for (change, reason) in
        [((|plan: &mut CapturePlan| plan.seconds = 0) as fn(&mut CapturePlan), Stop::Time), (|plan| plan.max_bytes = 1, Stop::Size)]
    {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan(dir.path());
        change(&mut plan);
        let desk = Arc::new(Desk::default());
        let run = desk.start(plan, &Header::default(), Clock::new()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !run.is_written() && Instant::now() < deadline {
            run.wait(Duration::from_millis(5));
        }
        assert_eq!((run.stopped(), desk.running()), (Some(&reason), 0));
        assert_eq!(read(&run), (0, reason.text()));
    }
}

/// A capture whose thread runs here, until it ends.
fn write_here(run: &Arc<Run>, file: fs::File) {
    let (writer, _) = Writer::new(&Header::default(), None).unwrap();
    thread::write(&Desk::default(), run, Clock::new(), (file, writer));
}

#[test]
fn a_disk_that_fills_up_ends_a_capture() {
    let dir = tempfile::tempdir().unwrap();
    let run = Arc::new(Run::new(CapturePlan { reserve_percent: 101, ..plan(dir.path()) }, 1, &Header::default()));
    fs::create_dir(&run.plan.directory).unwrap();
    write_here(&run, fs::File::create(dir.path().join("file")).unwrap());
    assert_eq!(run.stopped(), Some(&Stop::Disk));
}

#[test]
fn a_file_that_could_not_be_written_has_no_trailer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "").unwrap();
    let run = Arc::new(Run::new(plan(dir.path()), 1, &Header::default()));
    // Noise does not become shorter: some of it is written before the end.
    let noise: Vec<u8> = (0..900_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert!(query(&run, 1, &noise));
    run.end(Stop::Ordered);
    write_here(&run, fs::File::open(&path).unwrap());
    assert!(run.reason().starts_with("CAPTURE STOP; write error: "), "{}", run.reason());
    assert!(run.is_written() && !run.is_written_so_far());
}

#[test]
fn a_place_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("captures"), "a file").unwrap();
    let desk = Arc::new(Desk::default());
    let begun = desk.start(plan(dir.path()), &Header::default(), Clock::new());
    assert!(begun.is_err_and(|e| e.contains("cannot write")));
    assert_eq!((desk.running(), desk.runs().len()), (0, 0));
    let full = CapturePlan { reserve_percent: 101, directory: dir.path().join("others"), ..plan(dir.path()) };
    assert!(desk.start(full, &Header::default(), Clock::new()).is_err_and(|e| e.contains("of the disk")));
}

#[test]
fn sessions_are_chosen_by_user_and_share() {
    let all = Run::new(plan(Path::new("/nowhere")), 1, &Header::default());
    let some = CapturePlan { users: vec!["anna".into()], percent: 50.0, ..plan(Path::new("/nowhere")) };
    let some = Run::new(some, 1, &Header::default());
    let count = |run: &Run, user: &str| (0..1000).filter(|id| run.wants(*id, user)).count();
    assert_eq!((count(&all, "bert"), count(&some, "bert")), (1000, 0));
    assert!((400..600).contains(&count(&some, "anna")));
}
