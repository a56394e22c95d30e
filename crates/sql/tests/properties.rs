//! Property tests: any bytes are accepted, and the key and the digest text agree.

use proptest::prelude::*;
use sql::*;

fn modes() -> impl Strategy<Value = LexMode> {
    let multi_byte = prop_oneof![
        3 => Just(MultiByte::Plain),
        1 => Just(MultiByte::Sjis),
        1 => Just(MultiByte::Gbk),
        1 => Just(MultiByte::Big5),
        1 => Just(MultiByte::Gb18030),
        1 => Just(MultiByte::Latin1),
        1 => Just(MultiByte::Cp866),
    ];
    let modes = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), multi_byte);
    modes.prop_map(|(ansi_quotes, no_backslash_escapes, oracle, brackets, multi_byte)| LexMode {
        brackets,
        ansi_quotes,
        no_backslash_escapes,
        oracle,
        multi_byte,
        ..LexMode::default()
    })
}

/// Text made of the pieces that lexers trip over.
fn sqlish() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &[&str] = &[
        " ",
        " ",
        " ",
        "\n",
        ",",
        ",",
        ",",
        "(",
        ")",
        "(",
        ")",
        ";",
        "'",
        "\"",
        "`",
        "\\",
        "@",
        "@@",
        ".",
        "?",
        "=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "#",
        "-- ",
        "--",
        "/*",
        "*/",
        "/*!",
        "/*!40101 ",
        "/*M!",
        ":=",
        "1",
        "2",
        "0x1F",
        "1.5",
        "1e-5",
        ".5",
        "2024_x",
        "'a'",
        "\"b\"",
        "`c`",
        "'it''s'",
        "x'41'",
        "n'x'",
        "a",
        "t1",
        "NULL",
        "SELECT",
        "SET",
        "INSERT",
        "INTO",
        "VALUES",
        "UPDATE",
        "FOR",
        "FROM",
        "WITH",
        "AS",
        "CREATE",
        "PROCEDURE",
        "TEMPORARY",
        "TABLE",
        "DROP",
        "KILL",
        "USE",
        "BEGIN",
        "LAST_INSERT_ID",
        "FOUND_ROWS",
        "GET_LOCK",
        "SESSION",
        "NAMES",
        "@a",
        "@@session.b",
        "PREPARE",
        "LIMIT",
        "AND",
        "\u{e9}",
        "\u{81}",
        "\u{a5}",
        "\0",
        "(1,2,3,4,5)",
        "(1,2,3,4,5,6)",
        "1,2,3,4,5",
        ",",
    ];
    prop::collection::vec(prop::sample::select(PIECES), 0..40)
        .prop_map(|pieces| pieces.concat().into_bytes().into_iter().filter(|byte| *byte != HALF).collect())
}

/// Without it some of the pieces are one byte, the first of a character of two.
const HALF: u8 = 0xc2;

fn texts() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => sqlish(), 1 => prop::collection::vec(any::<u8>(), 0..80)]
}

/// Text of parts that mostly have a shape.
fn plain_texts() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &[&str] = &[
        " ",
        " ",
        "\n",
        "\t",
        ",",
        "(",
        ")",
        ";",
        "=",
        "<",
        ">",
        "+",
        "-",
        "*",
        "%",
        "!",
        ":",
        "?",
        "$",
        "|",
        "&",
        "{",
        ".",
        "'",
        "`",
        "'a'",
        "''",
        "'it''s'",
        "`c 1`",
        "x'41'",
        "n'x 2'",
        "_utf8'a'",
        "1",
        "23",
        "456",
        "1.5",
        "0x1F",
        "0b1",
        "1e5",
        "2024_x",
        "t.",
        ".b",
        "t.1",
        "a",
        "t1",
        "SELECT",
        "SET",
        "INSERT",
        "INTO",
        "VALUES",
        "UPDATE",
        "FOR",
        "FROM",
        "LIMIT",
        "IN",
        "NEXT",
        "VALUE",
        "KILL",
        "USE",
        "BEGIN",
        "CREATE",
        "PROCEDURE",
        "LAST_INSERT_ID",
        "(1,2,3,4,5)",
        "\u{e9}",
        ":=",
        "SLEEP(5)",
    ];
    prop::collection::vec(prop::sample::select(PIECES), 0..30).prop_map(|pieces| pieces.concat().into_bytes())
}

fn text(sql: &[u8]) -> String {
    String::from_utf8_lossy(&digest(sql, &DigestOptions::default())).into_owned()
}

fn digest(sql: &[u8], opts: &DigestOptions) -> Vec<u8> {
    let mut out = Vec::new();
    digest_text(sql, opts, &mut out);
    out
}

/// A statement with slots for literals and blanks; the same shape with other fillings.
fn shape() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &[&str] = &[
        "L",
        "L",
        "L",
        ",L",
        ",L",
        ",L",
        ",L",
        ",-L",
        ",(",
        "(",
        "),(",
        ")",
        "=",
        "=-",
        "+",
        "-",
        "*",
        " ",
        "a",
        "select",
        "IN",
        "(L,L,L,L,L)",
        ",(L,L,L,L,L,L)",
        ",(-L,L,L,L,L,L,L)",
        " , ",
        "/* x */",
        ".b",
        "?",
        "x'41'",
        "/*! ",
        "*/",
        "`n`",
        ":=",
        "!",
        "@v",
        "\"q\"",
    ];
    prop::collection::vec(prop::sample::select(PIECES), 0..30).prop_map(|pieces| pieces.join(" ").into_bytes())
}

fn fill(shape: &[u8], literals: &[&str]) -> Vec<u8> {
    let mut next = literals.iter().cycle();
    let mut out = Vec::new();
    for &byte in shape {
        match byte {
            b'L' => out.extend_from_slice(next.next().unwrap_or(&"1").as_bytes()),
            byte => out.push(byte),
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_text_and_its_shape_say_the_same(sql in prop_oneof![texts(), plain_texts()], mode in modes(), values in 0usize..5) {
        if let Some(shape) = shape_of(&sql, mode) {
            let grouping = Grouping { values, ..Grouping::default() };
            prop_assert_eq!(analyze_with(&shape, mode, grouping), analyze_with(&sql, mode, grouping));
            prop_assert_eq!(shape_of(&shape, mode), Some(shape));
        }
    }

    #[test]
    fn an_analysis_in_turns_is_that_of_one_pass(sql in texts(), mode in modes(), values in 0usize..5, turns in prop::collection::vec(0usize..40, 1..9)) {
        let grouping = Grouping { values, ..Grouping::default() };
        let mut reading = AnalysisInTurns::new(&sql, mode, grouping);
        let mut turns = turns.iter().cycle();
        let found = loop {
            if let Some(found) = reading.turn(*turns.next().unwrap()) {
                break found;
            }
        };
        prop_assert_eq!(found, analyze_with(&sql, mode, grouping));
    }

    #[test]
    fn nothing_panics(sql in texts(), mode in modes(), id in any::<u64>()) {
        analyze(&sql, mode);
        parse_set(&sql, mode);
        parse_set_transaction(&sql, mode);
        parse_use(&sql, mode);
        parse_kill(&sql, mode, id);
        parse_transaction(&sql, mode);
        temporary_tables(&sql, mode);
        lock_names(&sql, mode);
        prepared_name(&sql, mode);
        single_fact_select(&sql, mode);
        substitute_facts(&sql, mode, |_| Some(1));
        insert_id_is_certain(&sql, mode, id);
        first_comment(&sql, mode);
        for flags in 0..16u8 {
            let on = |bit: u8| flags & bit != 0;
            let opts = DigestOptions {
                lowercase: on(1), replace_null: on(2), no_digits: on(4), keep_comment: on(8), lex: mode,
                max_query_length: 16 + sql.len() / 2, ..DigestOptions::default()
            };
            prop_assert!(digest(&sql, &opts).len() <= opts.max_query_length);
        }
    }

    #[test]
    fn verbs_do_not_panic(verb in prop::sample::select(vec!["SET ", "KILL ", "USE ", "INSERT INTO t ", "INSERT INTO t VALUES (", "DROP TABLE ", "CREATE TEMPORARY TABLE ", "SELECT ", "SET @@"]), sql in texts(), mode in modes()) {
        let sql = [verb.as_bytes(), &sql].concat();
        analyze(&sql, mode);
        parse_set(&sql, mode);
        parse_use(&sql, mode);
        parse_kill(&sql, mode, 1);
        temporary_tables(&sql, mode);
        insert_id_is_certain(&sql, mode, 1);
        substitute_facts(&sql, mode, |_| Some(-1));
    }

    #[test]
    fn tokens_cover_the_text_in_order(sql in texts(), mode in modes()) {
        let mut lexer = Lexer::new(&sql, mode);
        let mut at = 0;
        loop {
            let token = lexer.token();
            prop_assert!(token.start >= at && token.end <= sql.len());
            if token.kind == TokenKind::End { break; }
            prop_assert!(token.end > token.start);
            at = token.end;
        }
    }

    #[test]
    fn digest_is_idempotent(sql in texts()) {
        let once = text(&sql);
        // The text that now follows `--` may make it a comment, and `...2` holds a number.
        prop_assert!(once.contains("--") || once.contains("...2") || text(once.as_bytes()) == once, "{once:?} -> {:?}", text(once.as_bytes()));
    }

    #[test]
    fn literals_do_not_matter(shape in shape(), mode in modes()) {
        let one = fill(&shape, &["1"]);
        let other = fill(&shape, &["'it''s'", "0x1F", "1.5e3", "''", "42", "'a b, (c)'"]);
        prop_assert_eq!(analyze(&one, mode).digest, analyze(&other, mode).digest);
        prop_assert_eq!(digest(&one, &DigestOptions::default()), digest(&other, &DigestOptions::default()));
    }

    /// Equal keys mean equal texts: compare a text with versions of it that often share its key.
    #[test]
    fn key_decides_digest_text(left in texts(), cut in any::<prop::sample::Index>(), piece in prop::sample::select(vec![" ", ",1", "-", "+ ", ",(1,2,3,4,5)", "/**/", "1", "''", ".", "(", ")", "/*!", "*/"])) {
        let at = cut.index(left.len() + 1);
        let right = [&left[..at], piece.as_bytes(), &left[at..]].concat();
        let mode = LexMode::default();
        if analyze(&left, mode).digest == analyze(&right, mode).digest {
            prop_assert_eq!(text(&left), text(&right));
        }
    }

    #[test]
    fn split_parts_are_statements(sql in texts(), mode in modes()) {
        let parts: Vec<&[u8]> = split(&sql, mode).collect();
        let analysis = analyze(&sql, mode);
        prop_assert_eq!(parts.is_empty(), analysis.kind == Kind::Empty);
        prop_assert_eq!(parts.len() > 1, analysis.facts.contains(Facts::MULTI));
        if let Some(first) = parts.first() {
            // Alone, a final `--` is a comment.
            let same = first.ends_with(b"--") || analyze(first, mode).kind == analysis.kind;
            prop_assert!(same, "{:?}", analysis);
        }
        let mut rest: &[u8] = &sql;
        for part in parts {
            let found = rest.windows(part.len()).position(|window| window == part);
            prop_assert!(found.is_some());
            rest = &rest[found.unwrap_or(0) + part.len()..];
        }
    }
}
