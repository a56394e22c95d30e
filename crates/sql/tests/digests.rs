//! The digest corpus.

use sql::{DigestOptions, Grouping, LexMode, MultiByte, digest_text, first_comment, spooky_hash64};

fn digest(sql: &str, opts: &DigestOptions) -> String {
    let mut out = Vec::new();
    digest_text(sql.as_bytes(), opts, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn double_quotes_are_names_under_ansi_quotes() {
    let ansi = DigestOptions { lex: LexMode { ansi_quotes: true, ..LexMode::default() }, ..DigestOptions::default() };
    for (sql, under, without) in [
        ("SELECT \"a\" FROM \"t\" WHERE b = 'x'", "SELECT \"a\" FROM \"t\" WHERE b = ?", "SELECT ? FROM ? WHERE b = ?"),
        ("SELECT \"a\" FROM \"u\" WHERE b = 'x'", "SELECT \"a\" FROM \"u\" WHERE b = ?", "SELECT ? FROM ? WHERE b = ?"),
        ("SELECT \"it's 5\".\"a\" , 7", "SELECT \"it's 5\".\"a\",?", "SELECT ?.?,?"),
        ("SELECT \"a\\\", 7 FROM t", "SELECT \"a\\\",? FROM t", "SELECT ?"),
        ("SELECT \"unfinished", "SELECT ?", "SELECT ?"),
    ] {
        assert_eq!((digest(sql, &ansi).as_str(), digest(sql, &DigestOptions::default()).as_str()), (under, without), "{sql}");
    }
}

#[test]
fn default_options() {
    let cases = [
        ("SELECT c FROM sbtest1 WHERE id=42", "SELECT c FROM sbtest1 WHERE id=?"),
        ("  SELECT\t\n 1 ;  ", "SELECT ?"),
        ("SELECT /* a */ 1", "SELECT ?"),
        ("SELECT/* a */1", "SELECT ?"),
        ("SELECT 1 -- x\n+ 2 # y", "SELECT ?+?"),
        ("/*!40101 SET NAMES utf8 */;", "SET NAMES utf8"),
        ("SELECT/*!50000 SQL_NO_CACHE */ 1", "SELECT SQL_NO_CACHE ?"),
        ("SELECT 'a''b', \"c\\\"d\", 'e\\'f'", "SELECT ?,?,?"),
        ("SELECT t1.c2, 1.5, .5, 1e-5, 0x1F FROM t1", "SELECT t1.c2,?,?,?,? FROM t1"),
        ("SELECT * FROM 2024_sales", "SELECT * FROM 2024_sales"),
        ("SELECT NULL", "SELECT NULL"),
        ("SELECT a. .5, a. 5", "SELECT a. ?,a. 5"),
        ("SELECT a FROM t WHERE b = -5 AND c=+3", "SELECT a FROM t WHERE b = ? AND c=?"),
        ("SELECT a - 5, a-5, -5, (-5)", "SELECT a -?,a-?,?,(?)"),
        ("SELECT 5 + 6 * a", "SELECT ?+?* a"),
        ("SELECT f( a , 'b' )", "SELECT f(a,?)"),
        ("SELECT COUNT( * ) FROM t", "SELECT COUNT(*) FROM t"),
        ("... IN (1,2,3)", "... IN (?,?,?)"),
        ("... IN (1,2,3,4)", "... IN (?,?,?,?)"),
        ("... IN (1,2,3,4,5)", "... IN (?,?,?,...)"),
        ("... IN (1, -2 ,'3', 4, 5,6,  7 )", "... IN (?,?,?,...)"),
        ("... IN (1,2,3,4,5,a,6)", "... IN (?,?,?,...,a,?)"),
        ("SELECT 1,2,3,4,5,6", "SELECT ?,?,?,?,?,?"),
        ("INSERT INTO t VALUES (1,2),(3,4),(5,6)", "INSERT INTO t VALUES (?,?),(?,?),(?,?)"),
        ("SELECT 1; SELECT 2;", "SELECT ?; SELECT ?"),
        ("SELECT 'unfinished", "SELECT ?"),
        ("SELECT `a'b`, 'c'", "SELECT `a'b`,?"),
        ("SELECT @a, @@b", "SELECT @a,@@b"),
        ("SELECT @a.1, @a. 1, @.5, @1", "SELECT @a.1,@a. ?,@.5,@1"),
        ("INSERT INTO t VALUES (NULL,NULL)", "INSERT INTO t VALUES (NULL,NULL)"),
        ("/*! a; */ /* b */ c */ d", "a; */ c */ d"),
        (
            "/*! CREATE TRIGGER t BEFORE INSERT ON u FOR EACH ROW BEGIN a; b; END */ /* c */",
            "CREATE TRIGGER t BEFORE INSERT ON u FOR EACH ROW BEGIN a; b; END",
        ),
        ("", ""),
    ];
    for (sql, want) in cases {
        assert_eq!(digest(sql, &DigestOptions::default()), want, "{sql}");
    }
}

#[test]
fn rows_are_grouped() {
    let row = "(1,2,3,4,5)";
    let folded = "(?,?,?,...)";
    for count in 1..15 {
        let sql = format!("INSERT INTO t VALUES {}", vec![row; count].join(" , "));
        let kept = vec![folded; count.min(10)].join(",");
        let more = if count > 10 { ",..." } else { "" };
        assert_eq!(digest(&sql, &DigestOptions::default()), format!("INSERT INTO t VALUES {kept}{more}"));
    }
    let opts = DigestOptions { grouping: Grouping { values: 1, rows: 2 }, ..DigestOptions::default() };
    assert_eq!(digest("VALUES (1,2,3),(1,2,3),(1,2,3),(1,2,3) x", &opts), "VALUES (?,...),(?,...),... x");
    let opts = DigestOptions { grouping: Grouping { values: 1, rows: 0 }, ..DigestOptions::default() };
    assert_eq!(digest("VALUES (1,2,3),(1,2,3)", &opts), "VALUES (?,...),(?,...)");
}

#[test]
fn options() {
    let lower = DigestOptions { lowercase: true, ..DigestOptions::default() };
    assert_eq!(digest("SELECT A FROM T", &lower), "select a from t");
    let null = DigestOptions { replace_null: true, ..DigestOptions::default() };
    assert_eq!(digest("SELECT NULL, null, nullable, a.null_x", &null), "SELECT ?,?,nullable,a.null_x");
    let digits = DigestOptions { no_digits: true, ..DigestOptions::default() };
    assert_eq!(digest("SELECT c12 FROM t1_2", &digits), "SELECT c? FROM t?_?");
    let keep = DigestOptions { keep_comment: true, ..DigestOptions::default() };
    assert_eq!(digest("SELECT /* a 1 */ 1", &keep), "SELECT /* a 1 */ ?");
    let short = DigestOptions { max_query_length: 16, ..DigestOptions::default() };
    assert_eq!(digest("SELECT aaaaaaaaaaaaaaaaaaaaaaaa", &short), "SELECT aaaaaaaaa");
    let long_list = format!("SELECT a IN ({})", vec!["1"; 100_000].join(","));
    assert_eq!(digest(&long_list, &DigestOptions::default()), "SELECT a IN (?,?,?,...)");
}

#[test]
fn published_digest() {
    let text = digest("SELECT c FROM sbtest1 WHERE id=1", &DigestOptions::default());
    assert_eq!(spooky_hash64(text.as_bytes(), 0), 0xBF00_1A0C_1378_1C1D);
}

#[test]
fn comments() {
    let first = |sql: &'static str| first_comment(sql.as_bytes(), LexMode::default()).map(|text| std::str::from_utf8(text).unwrap());
    assert_eq!(first("SELECT 1"), None);
    assert_eq!(first("/* hostgroup=1 */ SELECT 1 /* b */"), Some("hostgroup=1"));
    assert_eq!(first("SELECT '/* a */', `/* b */` /*c*/"), Some("c"));
    assert_eq!(first("/*!40101 SET x=1 */ /* y */"), Some("y"));
    assert_eq!(first("-- /* a */\n/* b */"), Some("b"));
    assert_eq!(first("/* open"), None);
}

#[test]
fn blanks_of_single_byte_character_sets() {
    let opts = DigestOptions { lex: LexMode { multi_byte: MultiByte::Latin1, ..LexMode::default() }, ..DigestOptions::default() };
    for (sql, expected) in [
        (b"DELETE\xa0FROM\xa0t\xa0WHERE a=5\xa0--\xa0x".as_slice(), b"DELETE FROM t WHERE a=?".as_slice()),
        (b"SELECT @a\xa0,\xe4", b"SELECT @a,\xe4"),
    ] {
        let mut out = Vec::new();
        digest_text(sql, &opts, &mut out);
        assert_eq!(out, expected, "{}", sql.escape_ascii());
    }
    assert_eq!(first_comment(b"SELECT\xa01\xa0/* a */", opts.lex), Some(b"a".as_slice()));
}
