use super::*;
use capture::records;

const MYSQL: &str = "/usr/sbin/mysqld, Version: 9.7.4 (MySQL Community Server - GPL). started with:
Tcp port: 3306  Unix socket: /tmp/mysqld.sock
Time                 Id Command    Argument
# Time: 2026-11-28T10:00:00.500000Z
# User@Host: app[app] @ localhost [127.0.0.1]  Id:     8
# Query_time: 0.250000  Lock_time: 0.000001 Rows_sent: 1  Rows_examined: 1
use shop;
SET timestamp=1795860000;
SELECT 'a;
b' FROM t;
# Time: 2026-11-28T10:00:01.000000Z
# User@Host: app[app] @ localhost [127.0.0.1]  Id:     9
# Query_time: 0.100000  Lock_time: 0.000001 Rows_sent: 0  Rows_examined: 0
SET last_insert_id=3,insert_id=7,timestamp=1795860000;
INSERT INTO t VALUES (NULL);
# Time: 2026-11-28T10:00:02.000000Z
# User@Host: app[app] @ localhost [127.0.0.1]  Id:     8
# Query_time: 0.000010  Lock_time: 0.000000 Rows_sent: 0  Rows_examined: 0
use other;
SET timestamp=1795860002;
# administrator command: Quit;
";

const MARIADB: &str = "# Time: 261128 10:00:00
# User@Host: app[app] @ localhost [127.0.0.1]
# Thread_id: 8  Schema: shop  QC_hit: No
# Query_time: 0.001000  Lock_time: 0.000050  Rows_sent: 1  Rows_examined: 1
# Rows_affected: 0  Bytes_sent: 60
SET timestamp=1795860000;
SELECT 1;
# User@Host: root[root] @ localhost []
# Thread_id: 9  Schema:   QC_hit: No
# Query_time: 0.002000  Lock_time: 0.000050  Rows_sent: 1  Rows_examined: 1
SET timestamp=1795860000;
SET PASSWORD FOR app = PASSWORD('secret');
# User@Host: app[app] @ localhost [127.0.0.1]
# Thread_id: 8  Schema: other  QC_hit: No
# Query_time: 0.001000  Lock_time: 0.000050  Rows_sent: 1  Rows_examined: 1
SET timestamp=1795860005;
COMMIT;
";

/// A line for each record.
fn read(log: &[u8]) -> Result<Vec<String>> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), log)?;
    let Some(mut reader) = LogReader::open(file.path())? else { return Ok(Vec::new()) };
    let mut lines = Vec::new();
    loop {
        match reader.step()? {
            Step::Frame(frame) => lines.extend(records(&frame).map(|record| shown(&record.unwrap()))),
            Step::End(_) => return Ok(lines),
            Step::CutOff { .. } => unreachable!(),
        }
    }
}

fn shown(record: &Record<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match record {
        Record::Session(start) => format!("{} begins: {} in '{}'", start.session, text(start.user), text(start.schema)),
        Record::End { session } => format!("{session} ends"),
        Record::Gap(_) => "gap".to_owned(),
        Record::Command(command) => {
            let Timing { after, seq, time_us, .. } = command.timing;
            assert!(after < seq && command.reply.is_none());
            let what = match &command.what {
                What::Query(sql) => text(sql),
                What::InitDb(schema) => format!("enters {}", text(schema)),
                What::Withheld { why, digest } => format!("{}: {}", why.name(), text(digest)),
                other => format!("{other:?}"),
            };
            format!("{} {after}<{seq} {time_us} us: {what}", command.session)
        }
    }
}

#[test]
fn a_slow_log_of_mysql() {
    let start = 1_u64 << 40;
    let lines = read(MYSQL.as_bytes()).unwrap();
    let expected = [
        format!("{} begins: app in 'shop'", start + 8),
        format!("{} 0<3 250000 us: SELECT 'a;\nb' FROM t", start + 8),
        format!("{} begins: app in 'shop'", start + 9),
        format!("{} 4<6 0 us: SET insert_id=7", start + 9),
        format!("{} 4<7 100000 us: INSERT INTO t VALUES (NULL)", start + 9),
        format!("{} ends", start + 9),
        format!("{} 8<9 0 us: enters other", start + 8),
        format!("{} ends", start + 8),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_slow_log_of_mariadb() {
    let lines = read(MARIADB.as_bytes()).unwrap();
    let expected = [
        "8 begins: app in 'shop'",
        "8 0<3 1000 us: SELECT 1",
        "9 begins: root in ''",
        "9 0<7 2000 us: password: SET PASSWORD FOR app = PASSWORD(?)",
        "9 ends",
        "8 8<9 0 us: enters other",
        "8 8<11 1000 us: COMMIT",
        "8 ends",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn events_as_json() {
    let log = r#"{"client":"127.0.0.1:1","digest":"0x1","duration_us":5,"event":"COM_QUERY","hostgroup_id":0,"query":"USE b","schemaname":"a","starttime_timestamp_us":100,"thread_id":7,"username":"app"}
{"duration_us":5,"event":"COM_QUERY","last_insert_id":9,"query":"INSERT INTO t VALUES (1)","schemaname":"b","starttime_timestamp_us":200,"thread_id":7,"username":"app"}
{"duration_us":5,"event":"COM_STMT_PREPARE","query":"SELECT ?","schemaname":"b","starttime_timestamp_us":250,"thread_id":7,"username":"app"}
{"duration_us":5,"event":"COM_STMT_EXECUTE","query":"SELECT ?","schemaname":"b","starttime_timestamp_us":300,"thread_id":7,"username":"app"}
"#;
    let expected = [
        "7 begins: app in 'a'",
        "7 0<3 5 us: USE b",
        "7 4<6 0 us: SET insert_id=9",
        "7 4<7 5 us: INSERT INTO t VALUES (1)",
        "7 12<15 5 us: form: SELECT ?",
        "7 ends",
    ];
    assert_eq!(read(log.as_bytes()).unwrap(), expected);
    assert_eq!(read(format!("{log}{{\"brok").as_bytes()).unwrap(), expected, "it is being written");
    assert!(read(format!("{{broken\n{log}").as_bytes()).is_err());
}

#[test]
fn events_in_binary_form() {
    let record = |event: u8, hostgroup: Option<u64>, begin_us: u64, text: &str| {
        let mut body = vec![event];
        let (number, bytes) = (wire::codec::put_lenenc, wire::codec::put_lenenc_bytes);
        number(&mut body, 7);
        ["app", "shop", "127.0.0.1:1"].iter().for_each(|name| bytes(&mut body, name.as_bytes()));
        number(&mut body, hostgroup.unwrap_or(u64::MAX));
        if hostgroup.is_some() {
            bytes(&mut body, b"db1:3306");
        }
        [begin_us, begin_us + 5].iter().for_each(|us| number(&mut body, *us));
        if event != 0 {
            number(&mut body, 1);
        }
        [0, 0, 0, 0x1234].iter().for_each(|value| number(&mut body, *value));
        bytes(&mut body, text.as_bytes());
        [&(body.len() as u64).to_le_bytes()[..], &body].concat()
    };
    let whole = [record(0, Some(1), 100, "SELECT 1"), record(16, Some(1), 200, "SELECT ?"), record(0, None, 300, "COMMIT")].concat();
    let expected = ["7 begins: app in 'shop'", "7 0<3 5 us: SELECT 1", "7 4<7 5 us: form: SELECT ?", "7 8<11 5 us: COMMIT", "7 ends"];
    assert_eq!(read(&whole).unwrap(), expected);
    // One that is written still.
    assert_eq!(read(&whole[..whole.len() - 3]).unwrap().last().unwrap(), "7 ends");
}

#[test]
fn other_files_are_no_logs() {
    for bytes in [&b"no capture"[..], b"TGCAPTUR\x01\0\0\0\0", b"{\"a\": 1}", b""] {
        assert!(read(bytes).unwrap().is_empty());
    }
}

/// A log that was copied while the server wrote it.
#[test]
fn a_slow_log_that_ends_within_a_statement() {
    let cut = MARIADB.replace("COMMIT;\n", "DELETE FROM t\n");
    let lines = read(cut.as_bytes()).unwrap();
    assert!(lines.iter().any(|line| line.ends_with("us: SELECT 1")) && !lines.iter().any(|line| line.contains("DELETE")), "{lines:?}");
}

#[test]
fn a_statement_may_have_a_line_like_a_head() {
    let log = MARIADB.replace("SELECT 1;", "SELECT '\n# Time: 1\nmysqld started with:\n';");
    let lines = read(log.as_bytes()).unwrap();
    assert_eq!(lines[1], "8 0<3 1000 us: SELECT '\n# Time: 1\nmysqld started with:\n'");
}

/// The CALL has an entry of its own.
#[test]
fn statements_of_stored_programs_are_left_out() {
    let log = MARIADB.replacen("# Rows_affected: 0", "# Stored_routine: shop.p\n# Rows_affected: 0", 1);
    let lines = read(log.as_bytes()).unwrap();
    assert!(!lines.iter().any(|line| line.contains("SELECT 1")), "{lines:?}");
}
