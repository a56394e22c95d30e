use super::*;
use capture::{Header, Params, Timing, Trailer, Writer};

const USERS: &str = "mysql_users=\n(\n { username=\"app\", password=\"x\", default_hostgroup=1 }\n)\n";
const HOSTGROUPS: &str = "mysql_servers=\n(\n { address=\"a\", hostgroup=1 },\n { address=\"b\", hostgroup=2 }\n)\n";

fn file(text: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn judge(rules: &str) -> Configuration {
    let file = file(format!("{HOSTGROUPS}{USERS}{rules}").as_bytes());
    Configuration::load(file.path()).unwrap()
}

fn rules(rows: &str) -> String {
    format!("mysql_query_rules=\n(\n{rows}\n)\n")
}

const SPLIT: &str = " { rule_id=1, active=1, match_digest=\"^SELECT\", destination_hostgroup=2, apply=1 }";

fn command(session: u64, what: What<'_>) -> Record<'_> {
    Record::Command(Command { session, timing: Timing { seq: 1, ..Timing::default() }, what, reply: None })
}

fn begin(session: u64, user: &str) -> Record<'_> {
    Record::Session(SessionStart { session, user: user.as_bytes(), schema: b"shop", capabilities: 0, setup: Vec::new() })
}

/// The lines of statements of one session.
fn page(new: &str, old: Option<&str>, records: &[Record<'_>]) -> Vec<String> {
    let mut ways = Ways { config: judge(new), base: old.map(judge), sessions: HashMap::new(), found: Found::default() };
    let mut bytes = Vec::new();
    records.iter().for_each(|record| record.encode(&mut bytes));
    let (mut writer, mut out) = Writer::new(&Header::default(), None).unwrap();
    writer.feed(&bytes, &mut out).unwrap();
    out.extend(writer.finish(&Trailer::default()).unwrap());
    let captured = file(&out);
    assert_eq!(ways.follow(captured.path(), None).unwrap(), None);
    let old = old.map(|_| Path::new("old.cnf"));
    ways.found.page(old.is_some(), Path::new("new.cnf"), old).into_iter().map(|(part, text)| format!("{part} {text}")).collect()
}

fn has(lines: &[String], part: &str) -> bool {
    lines.iter().any(|line| line.contains(part))
}

#[test]
fn digests_that_go_elsewhere_are_listed() {
    let records = [
        begin(7, "app"),
        command(7, What::Query(b"SELECT a FROM t WHERE id = 1")),
        command(7, What::Query(b"SELECT a FROM t WHERE id = 2")),
        command(7, What::Query(b"UPDATE t SET a = 1")),
    ];
    let lines = page(&rules(SPLIT), Some(""), &records);
    assert_eq!(lines[0], "route 3 statements of 2 digests, 1 sessions, by new.cnf in place of old.cnf");
    assert_eq!(lines[1], "elsewhere 2 statements of 1 digests");
    assert!(lines[2].starts_with("way 2 times, user 'app', hostgroup 1 -> hostgroup 2: 0x"), "{lines:?}");
    assert!(lines[2].ends_with("SELECT a FROM t WHERE id = ?") && lines.len() == 3, "{lines:?}");
    let all = page(&rules(SPLIT), None, &records);
    assert!(has(&all, "1 times, user 'app', hostgroup 1: ") && has(&all, "2 times, user 'app', hostgroup 2: "), "{all:?}");
    assert_eq!(page(&rules(SPLIT), Some(&rules(SPLIT)), &records)[1], "elsewhere 0 statements of 0 digests");
}

#[test]
fn a_transaction_stays_where_it_began() {
    for (before, after) in [
        ("BEGIN", "COMMIT"),
        ("START TRANSACTION", "ROLLBACK"),
        ("SET autocommit = 0", "SET @@session.autocommit = ON"),
        ("BEGIN", "CREATE TABLE u (a INT)"),
    ] {
        let mut records = vec![begin(7, "app"), command(7, What::Query(before.as_bytes()))];
        // With autocommit off, what comes first begins it.
        records.push(command(7, What::Query(b"UPDATE t SET a = 1")));
        records.push(command(7, What::Query(b"SELECT a FROM t")));
        records.push(command(7, What::Query(b"COMMIT")));
        records.push(command(7, What::Query(after.as_bytes())));
        records.push(command(7, What::Query(b"SELECT b FROM t")));
        let lines = page(&rules(SPLIT), None, &records);
        let at = |text: &str, hostgroup: &str| lines.iter().any(|line| line.ends_with(text) && line.contains(hostgroup));
        assert!(at("SELECT a FROM t", "hostgroup 1:") && at("SELECT b FROM t", "hostgroup 2:"), "{before}: {lines:?}");
    }
}

#[test]
fn a_session_keeps_user_schema_and_statements() {
    let by_schema = rules(" { rule_id=1, active=1, schemaname=\"other\", destination_hostgroup=2, apply=1 }");
    let run = || What::Execute { statement: 3, params: Params::default() };
    let records = [
        begin(7, "app"),
        begin(8, "stranger"),
        command(7, What::Prepare { statement: 3, text: b"SELECT a FROM t" }),
        command(7, run()),
        command(7, What::InitDb(b"other")),
        command(7, run()),
        command(7, What::Query(b"USE shop")),
        command(7, What::Query(b"SELECT 1 + 1")),
        command(7, What::CloseStatement(3)),
        command(7, run()),
        command(8, What::Query(b"SELECT 1")),
    ];
    let lines = page(&by_schema, None, &records);
    for part in [
        "1 times, user 'app', hostgroup 1: 0x",
        "1 times, user 'app', hostgroup 2: 0x",
        "1 times, user 'stranger', no such user: ",
        "missing 0 commands were not captured, 1 executions have no text",
    ] {
        assert!(has(&lines, part), "{part}: {lines:?}");
    }
}

#[test]
fn what_rules_do_on_the_way_is_named() {
    let rows = rules(
        " { rule_id=1, active=1, match_digest=\"^SELECT a\", cache_ttl=5000, apply=1 },
 { rule_id=2, active=1, match_digest=\"^DELETE\", error_msg=\"never\", apply=1 },
 { rule_id=3, active=1, match_pattern=\"^UPDATE t\", replace_pattern=\"UPDATE u\", apply=1 }",
    );
    let records = [
        begin(7, "app"),
        command(7, What::Query(b"SELECT a FROM t")),
        command(7, What::Query(b"DELETE FROM t")),
        command(7, What::Query(b"UPDATE t SET a = 1")),
    ];
    let lines = page(&rows, Some(""), &records);
    for part in
        ["hostgroup 1 -> hostgroup 1, cached 5000 ms: ", "hostgroup 1 -> refused: never: ", "hostgroup 1 -> hostgroup 1, rewritten: "]
    {
        assert!(has(&lines, part), "{part}: {lines:?}");
    }
}

#[test]
fn a_configuration_that_routes_nothing_is_refused() {
    let load = |text: &str| Configuration::load(file(text.as_bytes()).path()).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(load(HOSTGROUPS).contains("has no row of mysql_users"));
    let broken = rules(" { rule_id=1, active=1, match_digest=\"(\", destination_hostgroup=2, apply=1 }");
    assert!(load(&format!("{HOSTGROUPS}{USERS}{broken}")).contains("is not usable"));
    assert!(Configuration::load(Path::new("/nowhere.cnf")).is_err());
}
