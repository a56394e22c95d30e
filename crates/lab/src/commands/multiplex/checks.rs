//! LAST_INSERT_ID() in every form, on sessions that share few backends: each must return the value of a private connection.
//!
//! The expected value needs no second connection: it is the id of the session's own last insert, from its OK packet.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use lab::client::Param;
use lab::differential::Rng;
use lab::{Client, LabError, Server, Tidegate};

/// Forms whose first field is the id.
const FORMS: &[&str] = &[
    "SELECT LAST_INSERT_ID()",
    "SELECT LAST_INSERT_ID();",
    "select last_insert_id() as id",
    "SELECT LAST_INSERT_ID() id FROM DUAL",
    "SELECT LAST_INSERT_ID() + 0, 'more'",
    "SELECT @@identity",
    "SELECT @@last_insert_id",
    "SELECT @@session.identity AS i LIMIT 1",
    "SELECT (SELECT LAST_INSERT_ID())",
    "SELECT seq FROM ids WHERE seq = LAST_INSERT_ID()",
    "SELECT CAST(LAST_INSERT_ID() AS CHAR)",
    "/* comment */ SELECT IFNULL(LAST_INSERT_ID(), 0)",
];

/// The counts of the checks.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) checks: u64,
    /// One line a wrong value.
    pub(super) wrong: Vec<String>,
}

pub(super) fn run(sessions: usize, backends: i64, checks: u64, seed: u64, server: &Server) -> Result<Outcome, LabError> {
    server.sql("CREATE TABLE test.ids(seq BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, k BIGINT UNIQUE, ref BIGINT UNSIGNED)")?;
    let proxy =
        Tidegate::builder().server_with(0, server.host(), server.port(), &[("max_connections", backends.into())]).app_user().start()?;
    let outcome = Mutex::new(Outcome::default());
    let share = checks.div_ceil(sessions.max(1) as u64);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..sessions as u64)
            .map(|number| {
                let (proxy, outcome) = (&proxy, &outcome);
                scope.spawn(move || session(proxy, outcome, number, share, Rng::part(seed, number)))
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| LabError::Protocol("a checking thread panicked".to_owned()))??;
        }
        Ok::<(), LabError>(())
    })?;
    Ok(outcome.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn session(proxy: &Tidegate, outcome: &Mutex<Outcome>, number: u64, checks: u64, mut rng: Rng) -> Result<(), LabError> {
    let mut client = proxy.connect_app()?;
    let prepared = client.prepare("SELECT LAST_INSERT_ID(), ? AS x")?;
    let (mut expected, mut wrong) = (0, Vec::new());
    for check in 0..checks {
        let insert = write(&mut client, &mut rng, number * 1_000_000 + check % 50, expected)?;
        expected = insert.unwrap_or(expected);
        let (form, seen) = if rng.one_in(4) {
            let reply = client.execute(&prepared, &[Param::Int(1)])?.check()?;
            ("(prepared) SELECT LAST_INSERT_ID(), ?", reply.scalar()?)
        } else {
            let form = *rng.pick(FORMS);
            (form, client.scalar(form)?)
        };
        // The one form that reads a table finds no row when the id is no row's.
        let no_row = seen.is_none() && form.contains("WHERE");
        if seen != Some(expected.to_string()) && !no_row {
            wrong.push(format!("session {number} check {check}: {form} gave {seen:?}, expected {expected}"));
        }
    }
    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
    outcome.checks += checks;
    outcome.wrong.append(&mut wrong);
    Ok(())
}

/// Changes (or does not change) the session's last insert id; gives the new one.
fn write(client: &mut Client, rng: &mut Rng, key: u64, current: u64) -> Result<Option<u64>, LabError> {
    let id = |reply: lab::client::Reply| reply.ok().map(|ok| ok.last_insert_id);
    match rng.below(8) {
        0 | 1 => id(client.run("INSERT INTO ids(ref) VALUES(1)")?).map(Some),
        2 => id(client.run("INSERT INTO ids(ref) VALUES(1), (2), (3)")?).map(Some),
        3 => {
            let reply = client.run("INSERT INTO ids(ref) VALUES(LAST_INSERT_ID())")?;
            let inserted = id(reply)?;
            let stored = client.scalar(format!("SELECT ref FROM ids WHERE seq = {inserted}"))?;
            if stored == Some(current.to_string()) {
                Ok(Some(inserted))
            } else {
                Err(LabError::Protocol(format!("INSERT of LAST_INSERT_ID() stored {stored:?}, expected {current}")))
            }
        }
        4 => {
            let text = format!("INSERT INTO ids(k, ref) VALUES({key}, 0) ON DUPLICATE KEY UPDATE seq = LAST_INSERT_ID(seq), ref = ref + 1");
            id(client.run(text)?).map(Some)
        }
        5 => {
            client.run(format!("SELECT LAST_INSERT_ID({key})"))?;
            Ok(Some(key))
        }
        6 => {
            client.run("SELECT COUNT(*) FROM ids WHERE seq < 10")?;
            Ok(None)
        }
        _ => {
            client.run("UPDATE ids SET ref = ref + 1 WHERE seq = 1")?;
            Ok(None)
        }
    }
}
