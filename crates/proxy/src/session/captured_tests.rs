use super::*;
use crate::captures::CapturePlan;
use crate::session::bed::{Bed, error, numbered, ok, ok_open, packet_of, result_of};
use ::capture::{Header, records};
use wire::charset::Flavor;

/// A session with a server that answers, and a capture that wants it. Its file is in the directory.
fn bed(change: impl FnOnce(&mut CapturePlan)) -> (Bed, Arc<Run>, tempfile::TempDir) {
    let (bed, dir) = (Bed::new("").on(Flavor::MariaDb), tempfile::tempdir().unwrap());
    let mut plan = CapturePlan {
        name: "test".into(),
        seconds: 3600,
        max_bytes: 1 << 30,
        percent: 100.0,
        users: Vec::new(),
        key: None,
        directory: dir.path().to_owned(),
        queue_bytes: 1 << 20,
        reserve_percent: 0,
        workers: 1,
    };
    change(&mut plan);
    let run = bed.worker.shared.captures.start(plan, &Header::default(), bed.worker.shared.clock).unwrap();
    (bed, run, dir)
}

/// Ends the capture; what its file has.
fn file(bed: &Bed, run: &Run) -> Vec<u8> {
    bed.worker.shared.captures.shut_down();
    let file = std::fs::read(run.path.get().unwrap()).unwrap();
    let mut reader = ::capture::Reader::open(&file[..], None).unwrap();
    let mut all = Vec::new();
    while let ::capture::Step::Frame(frame) = reader.step().unwrap() {
        all.extend(frame);
    }
    all
}

/// What each record says, in a word or two.
fn shown(frame: &[u8]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let reply = |command: &::capture::Command<'_>| match &command.reply {
        None => String::new(),
        Some(Answer { error: Some(code), .. }) => format!(" -> error {code}"),
        Some(answer) => format!(" -> {} rows, {} affected", answer.rows, answer.affected),
    };
    let show = |record: Record<'_>| match record {
        Record::Session(start) => format!("session of {} in {}", text(start.user), text(start.schema)),
        Record::Command(command) => match command.what {
            What::Query(sql) => text(sql) + &reply(&command),
            What::InitDb(schema) => format!("init_db {}", text(schema)),
            What::Reset(_) => "reset".to_owned(),
            What::Withheld { why, digest } => format!("{}: {}", why.name(), text(digest)),
            ref other => format!("{other:?}"),
        },
        Record::Gap(gap) => format!("gap: {}", gap.why.name()),
        Record::End { .. } => "end".to_owned(),
    };
    records(frame).map(|record| show(record.unwrap())).collect()
}

async fn query(bed: &mut Bed, sql: &str, reply: Vec<u8>) {
    bed.answers(&[reply]);
    bed.serve(Command::Query, sql.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn commands_become_records_with_their_answers() {
    let (mut bed, run, _dir) = bed(|_| {});
    query(&mut bed, "SELECT a FROM t", result_of(&[&["1"], &["2"]])).await;
    let mut changed = ok();
    changed.affected_rows = 3;
    query(&mut bed, "UPDATE t SET a = 'x'", packet_of(&changed)).await;
    query(&mut bed, "SELECT b FROM t", packet_of(&error(1054))).await;
    bed.serve(Command::Ping, &[]).await.unwrap();
    bed.capture_ends();
    let found = shown(&file(&bed, &run));
    let expected = [
        "session of anna in shop",
        "SELECT a FROM t -> 2 rows, 0 affected",
        "UPDATE t SET a = 'x' -> 0 rows, 3 affected",
        "SELECT b FROM t -> error 1054",
        "end",
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn ends_are_numbered_in_their_order() {
    let (mut bed, run, _dir) = bed(|_| {});
    for _ in 0..3 {
        query(&mut bed, "SELECT a FROM t", result_of(&[&["1"]])).await;
    }
    let file = file(&bed, &run);
    let timings = records(&file).filter_map(|record| match record.unwrap() {
        Record::Command(command) => Some((command.timing.after, command.timing.seq)),
        _ => None,
    });
    assert_eq!(timings.collect::<Vec<_>>(), [(0, 1), (1, 2), (2, 3)]);
}

#[tokio::test]
async fn passwords_are_in_no_file() {
    // Connections are renewed beside a session that changes accounts.
    tokio::task::LocalSet::new().run_until(statements_with_passwords()).await;
}

async fn statements_with_passwords() {
    for sql in [
        "SET PASSWORD = 'S3cret'",
        "CREATE USER u IDENTIFIED BY 'S3cret'",
        "SELECT id FROM users WHERE password = 'S3cret'",
        "UPDATE users SET password = 'S3cret'",
    ] {
        let (mut bed, run, _dir) = bed(|_| {});
        query(&mut bed, sql, packet_of(&ok())).await;
        let file = file(&bed, &run);
        assert!(!file.windows(6).any(|part| part == b"S3cret"), "{sql}");
        let found = shown(&file);
        assert!(found.len() == 2 && found[1].starts_with("password: "), "{found:?}");
        assert_eq!(run.withheld().find(|(why, _)| *why == Withheld::Password), Some((Withheld::Password, 1)));
    }
}

/// A prepared statement, and long data for its first parameter.
async fn long_data(bed: &mut Bed, text: &str, data: &[u8]) {
    bed.answers(&[numbered(&[[&[0][..], &71u32.to_le_bytes(), &[0; 7]].concat()])]);
    bed.serve(Command::StmtPrepare, text.as_bytes()).await.unwrap();
    bed.serve(Command::StmtSendLongData, &[&[1, 0, 0, 0, 0, 0][..], data].concat()).await.unwrap();
}

#[tokio::test]
async fn long_data_of_a_password_is_in_no_file() {
    for (text, expected) in [("UPDATE users SET password = ?", "password: "), ("UPDATE notes SET text = ?", "LongData")] {
        let (mut bed, run, _dir) = bed(|_| {});
        long_data(&mut bed, text, b"S3cret").await;
        let file = file(&bed, &run);
        let found = shown(&file);
        assert!(found.last().is_some_and(|last| last.starts_with(expected)), "{found:?}");
        assert_eq!(file.windows(6).any(|part| part == b"S3cret"), expected == "LongData");
    }
}

#[tokio::test]
async fn long_data_beyond_the_queue_is_a_gap() {
    let (mut bed, run, _dir) = bed(|plan| plan.queue_bytes = 2000);
    long_data(&mut bed, "UPDATE notes SET text = ?", &[b'x'; 3000]).await;
    assert!(run.hold(2000), "nothing is held any more");
    assert_eq!(shown(&file(&bed, &run)).last().map(String::as_str), Some("gap: memory"));
}

#[test]
fn user_variables_with_passwords_are_known() {
    let has = |name: &str, value: &str| assigns_password(name, value.as_bytes(), LexMode::default());
    assert!(has("db_password", "'S3cret'") && has("p", "'S3cret'") && has("said", "'SET PASSWORD = 1'"));
    assert!(!has("kept", "'plain'"));
}

#[test]
fn a_shape_is_remembered_unless_strings_are_looked_into() {
    for (text, expected) in [("SELECT 'a'", false), ("select 1; set @a = 'b'", true), ("SELECT 1; EXECUTE s", true), ("(PREPARE)", true)] {
        assert_eq!(has_word_of_statements(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn of_a_long_text_the_head_is_read() {
    let text = format!("INSERT INTO t VALUES (17, '{}')", "S3cret".repeat(30_000));
    let head = digest_of_head(text.as_bytes(), LexMode::default());
    assert!(is_long(text.as_bytes()) && head.starts_with(b"INSERT INTO t") && head.len() < HEAD, "{}", head.escape_ascii());
    assert!(!head.windows(6).any(|part| part == b"S3cret"));
}

#[tokio::test]
async fn a_capture_begins_between_transactions() {
    let (mut bed, run, _dir) = bed(|_| {});
    bed.client.status = StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS;
    bed.pin(&[PinReason::Transaction]);
    query(&mut bed, "UPDATE t SET a = 1", packet_of(&ok_open())).await;
    query(&mut bed, "COMMIT", packet_of(&ok())).await;
    query(&mut bed, "SELECT a FROM t", result_of(&[&["1"]])).await;
    assert_eq!(run.missed.load(Ordering::Relaxed), 2);
    assert_eq!(shown(&file(&bed, &run)), ["session of anna in shop", "SELECT a FROM t -> 1 rows, 0 affected"]);
}

#[tokio::test]
async fn what_does_not_fit_is_a_gap_and_the_session_begins_again() {
    let (mut bed, run, _dir) = bed(|plan| plan.queue_bytes = 2000);
    let long = format!("SELECT '{}'", "x".repeat(3000));
    query(&mut bed, &long, result_of(&[&["1"]])).await;
    query(&mut bed, "SELECT a FROM t", result_of(&[&["1"]])).await;
    let found = shown(&file(&bed, &run));
    let expected = ["session of anna in shop", "gap: queue full", "session of anna in shop", "SELECT a FROM t -> 1 rows, 0 affected"];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn other_users_are_not_captured() {
    let (mut bed, run, _dir) = bed(|plan| plan.users = vec!["bert".into()]);
    query(&mut bed, "SELECT a FROM t", result_of(&[&["1"]])).await;
    assert_eq!(shown(&file(&bed, &run)), Vec::<String>::new());
}
