//! The dialect: accepted text, errors with their places, and arbitrary bytes, which must not break the parser.
#![allow(clippy::unwrap_used)] // tests, helpers included, may panic

use std::collections::BTreeMap;
use std::path::Path;

use model::libconfig::{self, Entry, Includes, MAX_DEPTH, NoIncludes, Node, Value};
use proptest::prelude::*;

/// Files in memory.
struct Files(BTreeMap<&'static str, String>);

impl Includes for Files {
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        let file = path.to_str().and_then(|path| self.0.get(path));
        file.map(|text| text.clone().into_bytes()).ok_or_else(|| "no such file".to_owned())
    }
}

fn read(text: &[u8]) -> Result<Vec<Entry>, String> {
    libconfig::parse(text, "f", &mut NoIncludes).map_err(|error| error.to_string())
}

fn read_with(main: &str, files: &[(&'static str, &str)]) -> Result<Vec<Entry>, String> {
    let mut files = Files(files.iter().map(|(name, text)| (*name, (*text).to_owned())).collect());
    libconfig::parse(main.as_bytes(), "d/main", &mut files).map_err(|error| error.to_string())
}

fn only_value(text: &str) -> Value {
    let mut entries = read(text.as_bytes()).unwrap();
    assert_eq!(entries.len(), 1, "{text}");
    entries.remove(0).node.value
}

#[test]
fn scalars() {
    let text = |s: &str| Value::Text(s.to_owned());
    let cases = [
        ("a=1", Value::Integer(1)),
        ("a = -12L;", Value::Integer(-12)),
        ("a : +5LL,", Value::Integer(5)),
        ("a=0x1Ff", Value::Integer(511)),
        ("a=0X10L", Value::Integer(16)),
        ("a=9223372036854775807", Value::Integer(i64::MAX)),
        ("a=1.5e-3", Value::Float("1.5e-3".into())),
        ("a=.5", Value::Float(".5".into())),
        ("a=-2E+4", Value::Float("-2E+4".into())),
        ("a=TRUE", Value::Boolean(true)),
        ("a=False", Value::Boolean(false)),
        (r#"a="x""#, text("x")),
        (r#"a="x" "y" /* z */ "w""#, text("xyw")),
        ("a=\"x\"\n  \"y\"", text("xy")),
        (r#"a="\\ \" \n\t\r\f \x41 \d \x4""#, text("\\ \" \n\t\r\u{c} A \\d \\x4")),
        ("a=\"two\nlines\"", text("two\nlines")),
        ("a=\"# no // comment\"", text("# no // comment")),
        ("a=\"ünï\"", text("ünï")),
        (r#"a="é\xff" "x""#, Value::Bytes(b"\xc3\xa9\xffx".to_vec())),
        (r#"a="\xc3" "\xa9""#, text("é")),
        ("\u{feff}a=1", Value::Integer(1)),
        ("# c\n// c\n/* c \n */ a=1 # c", Value::Integer(1)),
    ];
    for (source, expected) in cases {
        assert_eq!(only_value(source), expected, "{source}");
    }
}

#[test]
fn containers_and_separators() {
    for source in ["g={a=1;b=2;}", "g:{a:1,b:2}", "g={a=1 b=2};", "g={\na=1\nb=2\n}", "g={;;a=1;;b=2,}"] {
        let Value::Group(entries) = only_value(source) else { panic!("{source}") };
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "b"], "{source}");
    }
    for source in ["l=(1,2)", "l=( 1 2 )", "l=(1,2,)", "l=(1,,2)"] {
        let Value::List(nodes) = only_value(source) else { panic!("{source}") };
        assert_eq!(nodes.len(), 2, "{source}");
    }
    assert!(matches!(only_value("l=[]"), Value::Array(nodes) if nodes.is_empty()));
    assert!(matches!(only_value("l=({a=(1,[2])},{})"), Value::List(nodes) if nodes.len() == 2));
}

#[test]
fn positions_are_of_lines_and_columns() {
    let entries = read(b"a=1\n  bb = \"x\n y\" ; c=( 7 )").unwrap();
    let places: Vec<String> = entries.iter().map(|e| format!("{} {}", e.at, e.node.at)).collect();
    assert_eq!(places, ["f:1:1 f:1:3", "f:2:3 f:2:8", "f:3:7 f:3:9"]);
}

#[test]
fn faults_say_where() {
    let deep = format!("a={}", "(".repeat(MAX_DEPTH + 1));
    let cases: &[(&[u8], &str)] = &[
        (b"a=", "f:1:2: expected a value, but the file ends"),
        (b"a", "f:1:1: expected '=' or ':' after the name, but the file ends"),
        (b"a 1", "f:1:3: expected '=' or ':' after the name"),
        (b"=1", "f:1:1: expected a name"),
        (b"a=b", "f:1:3: expected a value"),
        (b"\n a={b=1", "f:2:7: expected '}', but the file ends"),
        (b"a=(1", "f:1:4: expected ')', but the file ends"),
        (b"a=[1)", "f:1:5: expected a value"),
        (b"a={b=1)", "f:1:7: expected a name"),
        (b"}", "f:1:1: expected a name"),
        (b"a=\"x", "f:1:3: string is never closed"),
        (b"a=1 /* x", "f:1:5: comment is never closed"),
        (b"a=1 $", "f:1:5: unexpected character '$'"),
        (b"a=1\n\xff", "f:2:1: unexpected character '\\xff'"),
        (b"a=1x", "f:1:3: '1x' is not a number"),
        (b"a=1LLL", "f:1:3: '1LLL' is not a number"),
        (b"a=-", "f:1:3: '-' is not a number"),
        (b"a=-inf", "f:1:3: '-inf' is not a number"),
        (b"a=0x", "f:1:3: '0x' is not a number"),
        (b"a=0x+1", "f:1:3: '0x' is not a number"),
        (b"a=9223372036854775808", "f:1:3: '9223372036854775808' is not a number"),
        (b"@includ \"x\"", "f:1:1: unexpected character '@'"),
        (b"@include x", "f:1:1: expected a file name in quotes after @include"),
        (b"@include \"x\"", "f:1:10: cannot read 'x': files cannot be included here"),
        (deep.as_bytes(), "f:1:35: nested deeper than 32"),
    ];
    for (source, message) in cases {
        assert_eq!(read(source).unwrap_err(), *message, "{}", source.escape_ascii());
    }
}

#[test]
fn includes_stand_for_their_tokens() {
    let entries = read_with(
        "@include \"sub/x\"\nl=( @include \"rows\" )",
        &[("d/sub/x", "a=1; @include \"y\""), ("d/sub/y", "b=2"), ("d/rows", "{}, {}")],
    )
    .unwrap();
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "l"]);
    assert_eq!(entries[1].at.to_string(), "d/sub/y:1:1");
}

#[test]
fn includes_are_bounded() {
    let cycle = read_with("@include \"x\"", &[("d/x", "\n@include \"main\""), ("d/main", "")]);
    assert_eq!(cycle.unwrap_err(), "d/x:2:10: 'main' includes itself");
    let missing = read_with("@include \"x\"", &[]);
    assert_eq!(missing.unwrap_err(), "d/main:1:10: cannot read 'x': no such file");
    let names = ["d/0", "d/1", "d/2", "d/3", "d/4", "d/5", "d/6", "d/7", "d/8", "d/9", "d/10"];
    let chain: Vec<(&str, String)> = names.iter().enumerate().map(|(i, name)| (*name, format!("@include \"{}\"", i + 1))).collect();
    let chain: Vec<_> = chain.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let deep = read_with("@include \"0\"", &chain);
    assert_eq!(deep.unwrap_err(), "d/9:1:10: files included deeper than 10");
    let many = "@include \"e\"\n".repeat(1_001);
    assert_eq!(read_with(&many, &[("d/e", "")]).unwrap_err(), "d/main:1001:10: more than 1000 files included");
}

/// Writes a value as libconfig text.
fn write(value: &Value) -> String {
    match value {
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(text) => text.clone(),
        Value::Text(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        Value::Bytes(bytes) => format!("\"{}\"", bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>()),
        Value::Group(entries) => {
            format!("{{{}}}", entries.iter().map(|e| format!("{}={};", e.name, write(&e.node.value))).collect::<String>())
        }
        Value::List(nodes) => format!("({})", write_all(nodes)),
        Value::Array(nodes) => format!("[{}]", write_all(nodes)),
    }
}

fn write_all(nodes: &[Node]) -> String {
    nodes.iter().map(|node| write(&node.value)).collect::<Vec<_>>().join(",")
}

fn node(value: Value) -> Node {
    let at = model::libconfig::Position { file: "".into(), line: 0, column: 0 };
    Node { value, at }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![any::<bool>().prop_map(Value::Boolean), any::<i64>().prop_map(Value::Integer), any::<String>().prop_map(Value::Text),];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let entry = ("[a-zA-Z*][-a-zA-Z0-9_*]{0,8}x", inner.clone()).prop_map(|(name, value)| {
            let node = node(value);
            Entry { name, at: node.at.clone(), node }
        });
        let nodes = || prop::collection::vec(inner.clone().prop_map(node), 0..5);
        prop_oneof![
            prop::collection::vec(entry, 0..5).prop_map(Value::Group),
            nodes().prop_map(Value::List),
            nodes().prop_map(Value::Array),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
    }

    #[test]
    fn any_tokens_are_answered(
        tokens in prop::collection::vec(
            prop::sample::select(vec![
                "a", "=", ":", "{", "}", "(", ")", "[", "]", ";", ",", "\"", "\\", "\\x", "0x", "1", "e", "-", ".",
                "@include", " ", "\n", "/*", "*/", "#", "//", "true", "mysql_servers", "mysql_variables", "threads",
            ]),
            0..80,
        )
    ) {
        let text = tokens.concat();
        let _ = read(text.as_bytes());
        let _ = model::parse(&text, "f");
    }

    #[test]
    fn what_is_written_is_read(value in any_value()) {
        let text = format!("a={}", write(&value));
        let entries = read(text.as_bytes()).unwrap();
        prop_assert_eq!(write(&entries[0].node.value), write(&value));
    }
}
