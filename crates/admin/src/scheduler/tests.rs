use super::*;
use model::stats::{Reading, StatsSource, Value};
use std::path::Path;

fn job(id: i64, text: String) -> Job {
    Job { id, interval: Duration::from_millis(100), filename: "/bin/sh".into(), args: vec!["-c".into(), text] }
}

/// The value of a column in the first row of the table.
fn shown(board: &Board, column: &str) -> Option<Value> {
    let table = board.tables()[0];
    let index = table.columns.iter().position(|c| c.name == column).unwrap();
    board.rows(table, Reading::Keep).first().map(|row| row[index].clone())
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}

fn count(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn rows_of_the_table() {
    let text = r#"scheduler = ( { id=1, interval_ms=500, filename="/a", arg1="x", arg3="z" }, { id=2, active=0, interval_ms=100, filename="/b" } )"#;
    let (config, _) = model::parse(text, "test.cnf").unwrap();
    let expected = Job { id: 1, interval: Duration::from_millis(500), filename: "/a".into(), args: vec!["x".into()] };
    assert_eq!(Job::read(&config), [expected]);
}

#[test]
fn runs_again_and_shows_what_came_of_it() {
    block_on(async {
        let (board, dir) = (Arc::new(Board::default()), tempfile::tempdir().unwrap());
        let runs = dir.path().join("runs");
        let mut scheduler = Scheduler::new(Arc::clone(&board));
        scheduler.apply(vec![job(7, format!("echo x >> {}; echo said; exit 5", runs.display()))]);
        wait_until("three runs", || count(&runs) >= 3).await;
        wait_until("the end is shown", || shown(&board, "last_exit") == Some(Value::Integer(5))).await;
        assert_eq!(shown(&board, "last_output"), Some("said\n".into()));
        assert_eq!((shown(&board, "id"), shown(&board, "filename")), (Some(Value::Integer(7)), Some("/bin/sh".into())));
        scheduler.apply(Vec::new());
        wait_until("the row is gone", || shown(&board, "id").is_none()).await;
        scheduler.stop().await;
    });
}

#[test]
fn runs_of_a_row_never_overlap_even_over_a_change() {
    block_on(async {
        let (board, dir) = (Arc::new(Board::default()), tempfile::tempdir().unwrap());
        let path = dir.path().display();
        let text = format!("mkdir {path}/lock || echo overlap >> {path}/bad; sleep 0.25; rmdir {path}/lock; echo x >> {path}/runs");
        let mut scheduler = Scheduler::new(Arc::clone(&board));
        scheduler.apply(vec![job(1, text.clone())]);
        wait_until("it runs", || shown(&board, "running") == Some(Value::Integer(1))).await;
        scheduler.apply(vec![job(1, format!("{text}; true"))]);
        wait_until("three runs", || count(&dir.path().join("runs")) >= 3).await;
        assert_eq!(count(&dir.path().join("bad")), 0);
        scheduler.stop().await;
    });
}

/// The process before has not finished its run: this one waits for that.
#[test]
fn what_runs_elsewhere_is_not_begun() {
    block_on(async {
        let board = Arc::new(Board::default());
        board.set_elsewhere([1]);
        let mut scheduler = Scheduler::new(Arc::clone(&board));
        scheduler.apply(vec![job(1, "true".into()), job(2, "exec sleep 1000".into())]);
        wait_until("the other one", || board.running() == [2]).await;
        assert_eq!(shown(&board, "runs"), Some(Value::Integer(0)));
        board.set_elsewhere([]);
        wait_until("it to run", || shown(&board, "runs").is_some_and(|runs| runs > Value::Integer(0))).await;
        scheduler.stop().await;
    });
}

#[test]
fn a_load_leaves_unchanged_rows_alone() {
    block_on(async {
        let board = Arc::new(Board::default());
        let mut scheduler = Scheduler::new(Arc::clone(&board));
        scheduler.apply(vec![job(1, "true".into())]);
        wait_until("it ran", || shown(&board, "runs").is_some_and(|runs| runs > Value::Integer(0))).await;
        scheduler.apply(vec![job(1, "true".into())]);
        tokio::task::yield_now().await;
        assert!(shown(&board, "runs").unwrap() > Value::Integer(0));
        scheduler.stop().await;
    });
}

#[test]
fn the_shutdown_ends_what_runs() {
    block_on(async {
        let (board, dir) = (Arc::new(Board::default()), tempfile::tempdir().unwrap());
        let pid_file = dir.path().join("pid");
        let mut scheduler = Scheduler::new(Arc::clone(&board));
        scheduler.apply(vec![job(1, format!("echo $$ > {}; exec sleep 1000", pid_file.display()))]);
        wait_until("it runs", || count(&pid_file) == 1).await;
        let pid = std::fs::read_to_string(&pid_file).unwrap();
        scheduler.stop().await;
        assert!(!Path::new("/proc").join(pid.trim()).exists());
        assert_eq!(shown(&board, "id"), None);
    });
}
