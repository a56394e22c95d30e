//! Prepared statements: long data, cursors, and what several statements of one client have with each other.

use super::common::{Peer, World};
use lab::ConnectOptions;
use lab::client::{Execution, Outcome, Param, Prepared};
use wire::StatusFlags;

const NUMBERS: &str = "SELECT n FROM numbers WHERE n > ? ORDER BY n";

pub(super) fn prepared_statements(world: &World) {
    for capabilities in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
        let mut peer = world.connect_with(&world.options().capabilities(capabilities));
        let mut other = world.connect();
        let statement = peer.prepare("SELECT ? AS a, LENGTH(?) AS b, ? IS NULL AS c").unwrap();
        assert_eq!((statement.params.len(), statement.columns.len()), (3, 3));
        for i in 0..3 {
            let length = 100_000 * (i + 1);
            peer.send_long_data(&statement, 1, "x".repeat(length - 1).as_bytes()).unwrap();
            peer.send_long_data(&statement, 1, b"y").unwrap();
            let reply = peer.execute(&statement, &[Param::Int(7), Param::Long, Param::Null]).unwrap();
            let row = reply.table().unwrap().remove(0);
            assert_eq!(row, [Some("7".to_owned()), Some(length.to_string()), Some("1".to_owned())]);
            peer.reset_statement(&statement).unwrap();
            other.disturb();
            let params = [Param::Int(8), Param::Text("abc".to_owned()), Param::Int(1)];
            peer.execute(&statement, &params).unwrap().check().unwrap();
            other.disturb();
            let again = peer.execute_with(&statement, &params, Execution { reuse_types: true, cursor: false }).unwrap();
            assert_eq!(again.table().unwrap()[0][1].as_deref(), Some("3"));
        }
        peer.close_statement(&statement).unwrap();
        assert_eq!(peer.execute(&statement, &[Param::Null, Param::Null, Param::Null]).unwrap().err().unwrap().code, 1243);
        // Many more statements than a connection keeps.
        let many: Vec<_> = (0..60).map(|i| peer.prepare(format!("SELECT {i} + ?")).unwrap()).collect();
        for (i, statement) in many.iter().enumerate() {
            let reply = peer.execute(statement, &[Param::Int(1000)]).unwrap();
            assert_eq!(reply.scalar().unwrap(), Some((1000 + i).to_string()));
        }
        let error = peer.prepare("SELECT * FROM missing WHERE x = ?").unwrap_err();
        assert_eq!(error.code(), Some(1146));
        let mut wrong = statement.clone();
        wrong.id = 0x00ff_ffff;
        assert!(matches!(peer.reset_statement(&wrong).unwrap(), Outcome::Err(error) if error.code == 1243));
    }
}

pub(super) fn cursors(world: &World) {
    for capabilities in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
        let mut peer = world.connect_with(&world.options().capabilities(capabilities));
        let mut other = world.connect();
        let statement = peer.prepare("SELECT 1 AS i UNION ALL SELECT 2 UNION ALL SELECT 3").unwrap();
        let opened = peer.execute_with(&statement, &[], Execution { cursor: true, reuse_types: false }).unwrap();
        let set = opened.rows().unwrap();
        assert!(set.rows.is_empty());
        let first = peer.fetch(&statement, &set.columns, 2).unwrap();
        assert_eq!(first.rows.len(), 2);
        other.disturb();
        assert_eq!(peer.get("SELECT 'between'"), "between");
        let rest = peer.fetch(&statement, &set.columns, 2).unwrap();
        assert_eq!(rest.field(0, "i").as_deref(), Some("3"));
        assert!(rest.end.unwrap().status.contains(StatusFlags::LAST_ROW_SENT));
        // Executed while its cursor is open: MySQL itself answers with columns alone.
        if world.proxy.is_some() {
            peer.execute_with(&statement, &[], Execution { cursor: true, reuse_types: false }).unwrap();
            assert_eq!(peer.execute(&statement, &[]).unwrap().rows().unwrap().rows.len(), 3);
            assert_eq!(peer.get("SELECT 'after'"), "after");
        }
        let plain = peer.prepare("SELECT 5").unwrap();
        peer.execute(&plain, &[]).unwrap().rows().unwrap();
        let error = peer.fetch(&plain, &[], 1).unwrap().end.unwrap_err();
        assert_eq!((error.code, error.message.ends_with('.')), (1421, world.is_mysql()));
        // An abandoned cursor.
        peer.execute_with(&statement, &[], Execution { cursor: true, reuse_types: false }).unwrap();
        peer.close_statement(&statement).unwrap();
        peer.disturb();
    }
}

/// Long data of one statement belong to it alone, though other statements have the same text.
pub(super) fn long_data_of_one_text(world: &World) {
    let mut peer = world.connect();
    peer.exec("CREATE TABLE long_data(a LONGTEXT, b VARCHAR(20))");
    let text = "INSERT INTO long_data(a, b) VALUES (?, ?)";
    let all: Vec<Prepared> = (0..3).map(|_| peer.prepare(text).unwrap()).collect();
    let execute = |peer: &mut Peer, at: usize, first: Param| {
        peer.execute(&all[at], &[first, Param::Text(at.to_string())]).unwrap().check().unwrap();
    };
    for round in ["a", "b"] {
        for (at, data) in [(0, "AAA"), (1, "BBB"), (0, "aaa")] {
            peer.send_long_data(&all[at], 0, format!("{data}{round}").as_bytes()).unwrap();
        }
        // One that has none, one whose data goes, and one that is prepared meanwhile.
        execute(&mut peer, 2, Param::Text("plain".to_owned()));
        let late = peer.prepare(text).unwrap();
        peer.send_long_data(&late, 0, b"nobody's").unwrap();
        assert!(matches!(peer.reset_statement(&late).unwrap(), Outcome::Ok(_)));
        peer.execute(&late, &[Param::Text("late".to_owned()), Param::Text("3".to_owned())]).unwrap().check().unwrap();
        peer.send_long_data(&late, 0, b"nobody's").unwrap();
        peer.close_statement(&late).unwrap();
        execute(&mut peer, 0, Param::Long);
        execute(&mut peer, 1, Param::Long);
        let stored = [["AAA", round, "aaa", round].concat(), ["BBB", round].concat(), "plain".to_owned(), "late".to_owned()];
        let rows = peer.table("SELECT a FROM long_data ORDER BY b");
        assert_eq!(rows.concat(), stored);
        // Used up.
        execute(&mut peer, 0, Param::Text("again".to_owned()));
        assert_eq!(peer.get("SELECT COUNT(*) FROM long_data WHERE a = 'again'"), "1");
        peer.exec("DELETE FROM long_data");
    }
    world.connect().disturb();
}

/// The next rows of this statement's cursor; the number of the error if it has none.
fn fetched(peer: &mut Peer, statement: &Prepared, count: u32) -> Result<Vec<i64>, u16> {
    let set = peer.fetch(statement, &statement.columns, count).unwrap();
    let rows = (0..set.rows.len()).map(|row| set.field(row, "n").unwrap().parse().unwrap()).collect();
    set.end.map(|_| rows).map_err(|error| error.code)
}

fn open(peer: &mut Peer, statement: &Prepared, above: i64) {
    let set = peer.execute_with(statement, &[Param::Int(above)], Execution { cursor: true, reuse_types: false }).unwrap();
    assert!(set.rows().unwrap().rows.is_empty());
}

/// Numbers from 1 to 9, which all cursors read.
fn with_numbers(world: &World) -> Peer {
    let mut peer = world.connect();
    peer.exec("CREATE TABLE IF NOT EXISTS numbers(n INT PRIMARY KEY)");
    peer.exec("REPLACE INTO numbers VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9)");
    peer
}

/// A cursor belongs to one statement, though other statements have the same text.
pub(super) fn cursors_of_one_text(world: &World) {
    for capabilities in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
        with_numbers(world);
        let mut peer = world.connect_with(&world.options().capabilities(capabilities));
        let [first, second] = [(); 2].map(|()| peer.prepare(NUMBERS).unwrap());
        open(&mut peer, &first, 0);
        assert_eq!(fetched(&mut peer, &first, 2), Ok(vec![1, 2]));
        // Without a cursor, beside that of the other.
        let plain = peer.execute(&second, &[Param::Int(7)]).unwrap();
        assert_eq!(plain.table().unwrap().concat(), [Some("8".to_owned()), Some("9".to_owned())]);
        assert_eq!(fetched(&mut peer, &first, 1), Ok(vec![3]));
        // Two that are open at once, and each is read on.
        open(&mut peer, &second, 4);
        assert_eq!(fetched(&mut peer, &second, 1), Ok(vec![5]));
        assert_eq!(fetched(&mut peer, &first, 2), Ok(vec![4, 5]));
        assert_eq!(fetched(&mut peer, &second, 1), Ok(vec![6]));
        // A third is prepared, executed, reset and closed.
        let third = peer.prepare(NUMBERS).unwrap();
        assert_eq!(fetched(&mut peer, &third, 1), Err(1421));
        open(&mut peer, &third, 8);
        assert!(matches!(peer.reset_statement(&third).unwrap(), Outcome::Ok(_)));
        assert_eq!(fetched(&mut peer, &third, 1), Err(1421));
        peer.close_statement(&third).unwrap();
        assert_eq!(fetched(&mut peer, &first, 9), Ok(vec![6, 7, 8, 9]));
        assert_eq!(fetched(&mut peer, &second, 2), Ok(vec![7, 8]));
        peer.close_statement(&first).unwrap();
        assert_eq!(fetched(&mut peer, &second, 9), Ok(vec![9]));
        world.connect().disturb();
    }
}

/// Both with one statement, and with another of its text.
pub(super) fn long_data_and_cursors(world: &World) {
    let mut peer = with_numbers(world);
    let text = "SELECT n, CAST(? AS CHAR) AS s FROM numbers WHERE n > 5 ORDER BY n";
    let [first, second] = [(); 2].map(|()| peer.prepare(text).unwrap());
    let cursor = Execution { cursor: true, reuse_types: false };
    for _ in 0..2 {
        peer.send_long_data(&first, 0, b"one").unwrap();
        peer.send_long_data(&second, 0, b"two").unwrap();
        peer.execute_with(&first, &[Param::Long], cursor).unwrap().check().unwrap();
        assert_eq!(fetched(&mut peer, &first, 1), Ok(vec![6]));
        let whole = peer.execute(&second, &[Param::Long]).unwrap();
        assert_eq!(whole.table().unwrap()[3], [Some("9".to_owned()), Some("two".to_owned())]);
        let rest = peer.fetch(&first, &first.columns, 9).unwrap();
        assert_eq!((rest.rows.len(), rest.field(2, "s").as_deref()), (3, Some("one")));
        peer.execute_with(&first, &[Param::Text("plain".to_owned())], cursor).unwrap().check().unwrap();
        let plain = peer.fetch(&first, &first.columns, 9).unwrap();
        assert_eq!((plain.rows.len(), plain.field(0, "s").as_deref()), (4, Some("plain")));
        // Data for the next execution comes while the cursor is read.
        peer.execute_with(&first, &[Param::Text("read".to_owned())], cursor).unwrap().check().unwrap();
        peer.send_long_data(&first, 0, b"ne").unwrap();
        assert_eq!(fetched(&mut peer, &first, 1), Ok(vec![6]));
        peer.send_long_data(&first, 0, b"xt").unwrap();
        peer.execute_with(&first, &[Param::Long], cursor).unwrap().check().unwrap();
        let next = peer.fetch(&first, &first.columns, 9).unwrap();
        assert_eq!((next.rows.len(), next.field(0, "s").as_deref()), (4, Some("next")));
        peer.execute_with(&first, &[Param::Text("read".to_owned())], cursor).unwrap().check().unwrap();
        // Servers forget it with the cursor's last row.
        peer.send_long_data(&first, 0, b"forgotten").unwrap();
        assert_eq!(fetched(&mut peer, &first, 9), Ok(vec![6, 7, 8, 9]));
        let forgotten = peer.execute(&first, &[Param::Long]).unwrap().err().unwrap().code;
        assert_eq!(forgotten, if world.is_mysql() { 1835 } else { 1210 });
    }
    world.connect().disturb();
}

/// A statement with a cursor or long data stays on its connection, however many statements are prepared after it.
pub(super) fn more_than_a_connection_keeps(world: &World) {
    let mut peer = with_numbers(world);
    let with_cursor = peer.prepare(NUMBERS).unwrap();
    let with_data = peer.prepare("SELECT ? AS s").unwrap();
    open(&mut peer, &with_cursor, 0);
    assert_eq!(fetched(&mut peer, &with_cursor, 1), Ok(vec![1]));
    peer.send_long_data(&with_data, 0, b"first ").unwrap();
    for i in 0..60 {
        let statement = peer.prepare(format!("SELECT {i} + ?")).unwrap();
        assert_eq!(peer.execute(&statement, &[Param::Int(1000)]).unwrap().scalar().unwrap(), Some((1000 + i).to_string()));
    }
    // Beyond the bytes that a connection keeps.
    let long = "x".repeat(3 << 20);
    for i in 0..3 {
        let statement = peer.prepare(format!("SELECT {i} + ? + LENGTH('{long}')")).unwrap();
        peer.execute(&statement, &[Param::Int(1)]).unwrap().check().unwrap();
    }
    peer.send_long_data(&with_data, 0, b"second").unwrap();
    assert_eq!(peer.execute(&with_data, &[Param::Long]).unwrap().scalar().unwrap().as_deref(), Some("first second"));
    assert_eq!(fetched(&mut peer, &with_cursor, 9), Ok((2..=9).collect()));
    // As many cursors as statements.
    let all: Vec<Prepared> = (0..40).map(|i| peer.prepare(format!("SELECT n FROM numbers WHERE n > ? AND {i} = {i}")).unwrap()).collect();
    all.iter().for_each(|statement| open(&mut peer, statement, 3));
    for (at, statement) in all.iter().enumerate() {
        assert_eq!(fetched(&mut peer, statement, 2), Ok(vec![4, 5]), "statement {at}");
    }
    all.iter().for_each(|statement| peer.close_statement(statement).unwrap());
    world.connect().disturb();
}
