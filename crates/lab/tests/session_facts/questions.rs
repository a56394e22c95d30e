//! What a server forgets of a session's last statement when the proxy asks it something. The proxy reads that first, so
//! `questions.tsv`, which a unit test of the proxy keeps, must name it all.

use crate::common::{Peer, World};
use lab::Flavor;

const QUESTIONS: &str = include_str!("../../../proxy/src/session/questions.tsv");

/// A fact, what gives it a value, and how it is read.
const FACTS: [(&str, &str, &str); 4] = [
    ("Warnings", "SELECT 1 + 'no number'", "SHOW WARNINGS"),
    ("RowCount", "INSERT INTO t(s) VALUES('a'), ('b'), ('c')", "SELECT ROW_COUNT()"),
    ("FoundRows", "SELECT s FROM t LIMIT 2", "SELECT FOUND_ROWS()"),
    ("InsertId", "INSERT INTO t(s) VALUES('d')", "SELECT LAST_INSERT_ID()"),
];

fn ask(peer: &mut Peer, sent: &str) {
    // A refusal is an answer, too.
    let answered = match sent.strip_prefix("InitDb ") {
        Some(schema) => peer.init_db(schema),
        None if sent == "Some(Ping)" => peer.ping(),
        None => peer.query(sent),
    };
    answered.unwrap();
}

/// The fact's value after its statement, with a question in between or without.
fn read(world: &World, (_, statement, reads): (&str, &str, &str), question: Option<&str>) -> Vec<Vec<Option<String>>> {
    let mut peer = world.connect();
    peer.exec_all(&[
        "DROP TABLE IF EXISTS t",
        "CREATE TABLE t(id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(9))",
        "INSERT INTO t(s) VALUES('x'), ('y'), ('z')",
    ]);
    peer.query(statement).unwrap();
    if let Some(question) = question {
        ask(&mut peer, question);
    }
    peer.query(reads).unwrap().table().unwrap()
}

fn names_what_is_forgotten(flavor: Flavor) {
    let world = World::direct(flavor);
    let (mut asked, mut forgotten) = (0, 0);
    for line in QUESTIONS.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [flavors, name, sent, clobbers] = columns[..] else { panic!("{line}") };
        if !flavors.split(',').any(|one| one.eq_ignore_ascii_case(flavor.name())) {
            continue;
        }
        asked += 1;
        for fact in FACTS {
            let is_kept = read(&world, fact, Some(sent)) == read(&world, fact, None);
            forgotten += usize::from(!is_kept);
            let is_named = clobbers.split(',').any(|one| one == fact.0);
            assert!(is_kept || is_named, "{}: {name} ({sent}) makes the server forget {}", flavor.name(), fact.0);
        }
    }
    // Nearly every question ends ROW_COUNT() and FOUND_ROWS(): a test that sees less sees nothing.
    assert!(asked > 10 && forgotten > asked, "{asked} questions for {}, which make it forget {forgotten} facts", flavor.name());
}

lab::each!(names_what_is_forgotten);
