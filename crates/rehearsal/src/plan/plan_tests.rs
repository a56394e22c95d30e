use super::*;
use proptest::prelude::*;

/// What servers answered for the same statements on the same data, by the name of the statement. The last one has lost the index `ix_c`.
const RECORDED: [(&str, &str); 4] = [
    ("10.11.19-MariaDB", include_str!("recorded/mariadb-10.11.txt")),
    ("11.8.9-MariaDB", include_str!("recorded/mariadb-11.8.txt")),
    ("9.7.4", include_str!("recorded/mysql-9.7-version-1.txt")),
    ("9.7.4", include_str!("recorded/mysql-9.7-version-2.txt")),
];

/// The recorded plans of a statement.
fn recorded(name: &str) -> [QueryPlan; 4] {
    RECORDED.map(|(version, all)| {
        let text = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
        QueryPlan::read(text.as_bytes(), version).unwrap()
    })
}

fn names() -> Vec<&'static str> {
    RECORDED[0].1.lines().map(|line| line.split(' ').next().unwrap()).collect()
}

#[test]
fn plans_of_real_servers_are_one_line() {
    for (name, expected) in [
        ("ref", ["t lookup ix_c ~1"; 4]),
        ("pk", ["t const PRIMARY ~1", "t const PRIMARY ~1", "t const PRIMARY ~1", "further tables"]),
        ("range", ["t full scan ~1k"; 4]),
        ("filesort", ["t range ix_c ~1; sorts"; 4]),
        ("group", ["t range ix_c ~100; sorts; temporary table"; 4]),
        ("join", ["t range ix_c ~10; u lookup ix_t ~1"; 4]),
        (
            "sub",
            [
                "t lookup ix_c ~1; u full scan ~1k",
                "t lookup ix_c ~1; u full scan ~1k",
                "t lookup ix_c ~1; u full scan ~1k",
                "t lookup ix_c ~1",
            ],
        ),
        ("depsub", ["t range ix_c ~1; u lookup ix_t ~1"; 4]),
        ("none", ["no table is read", "no table is read", "no table is read", "further tables"]),
        ("impossible", ["no table is read"; 4]),
        ("limit", ["t index scan ix_c ~1"; 4]),
        ("lost", ["t full scan ~1k"; 4]),
    ] {
        assert_eq!(recorded(name).map(|plan| plan.to_string()), expected, "{name}");
    }
    let left = recorded("left").map(|plan| plan.to_string());
    assert_eq!(left[2], "x range PRIMARY ~1; y full scan ~1k; sorts; temporary table");
    assert_eq!(left[3], "x range PRIMARY ~1; y full scan ~1k; sorts");
    assert_eq!(recorded("merge").map(|plan| plan.steps[0].key.clone().unwrap()), ["ix_c+PRIMARY"; 4]);
    assert_eq!(recorded("window").map(|plan| plan.sorts), [true; 4]);
    assert_eq!(recorded("derived").map(|plan| plan.steps.iter().map(|step| step.table.clone()).collect::<Vec<_>>()), [["t", "u"]; 4]);
    assert_eq!(recorded("cte").map(|plan| plan.steps.len()), [1; 4]);
}

#[test]
fn equal_plans_have_no_change_whatever_their_format() {
    for name in names() {
        let [mariadb, late_mariadb, blocks, tree] = recorded(name);
        for (one, other) in [(&mariadb, &late_mariadb), (&blocks, &tree), (&tree, &blocks), (&tree, &tree), (&mariadb, &mariadb)] {
            assert_eq!(one.changes(other), "", "{name}: {one} / {other}");
        }
    }
}

#[test]
fn no_literal_of_a_statement_is_in_its_plan() {
    for name in names() {
        for plan in recorded(name) {
            let text = format!("{plan} {plan:?}");
            assert!(!text.contains("4711") && !text.contains("secret") && !text.contains("3990"), "{text}");
        }
    }
}

#[test]
fn a_lost_index_is_named() {
    let (before, after) = (recorded("ref"), recorded("lost"));
    for (before, after) in before.iter().zip(&after) {
        let fate = if after.dialect == Dialect::MySqlTree { "not used" } else { "lost" };
        assert_eq!(before.changes(after), format!("index ix_c {fate}: full scan of t"));
        assert_eq!(after.changes(before), "index ix_c of t in place of full scan");
    }
    // The other family names it too. MySQL's version 2 does not tell which indexes are usable.
    assert_eq!(before[0].changes(&after[3]), "index ix_c not used: full scan of t");
    assert_eq!(before[2].changes(&after[1]), "index ix_c lost: full scan of t");
    assert_eq!(before[3].changes(&after[2]), "index ix_c lost: full scan of t");
}

/// An operation of MySQL's version 2 on the table `t`.
fn operation(access: &str, key: &str) -> String {
    format!(
        r#"{{"access_type": "index", "index_access_type": "{access}", "index_name": "{key}", "table_name": "t", "schema_name": "test", "estimated_rows": 5}}"#
    )
}

fn tree(root: &str) -> QueryPlan {
    QueryPlan::read(format!(r#"{{"query_plan": {root}}}"#).as_bytes(), "9.7.4").unwrap()
}

#[test]
fn operations_of_indexes_are_known() {
    for (access, expected) in [
        ("index_skip_scan", "t range ix_c ~1"),
        ("group_index_skip_scan", "t range ix_c ~1"),
        ("index_lookup", "t lookup ix_c ~1"),
        ("new_scan", "t read ix_c ~1"),
    ] {
        assert_eq!(tree(&operation(access, "ix_c")).to_string(), expected);
    }
    // Version 1 calls it sort_union.
    let merge = |way: &str| {
        let [one, other] = ["ix_c", "PRIMARY"].map(|key| operation("index_range_scan", key));
        tree(&format!(r#"{{"access_type": "{way}", "estimated_rows": 70, "inputs": [{one}, {other}]}}"#)).to_string()
    };
    assert_eq!(["index_merge", "rowid_union", "rowid_intersection"].map(merge), ["t index merge ix_c+PRIMARY ~10"; 3]);
}

#[test]
fn without_a_change_plans_are_the_same_only_if_they_tell_all() {
    for name in names() {
        let plans = recorded(name);
        let hides = matches!(name, "pk" | "none" | "cte" | "minmax" | "count") || plans[3].is_partial;
        assert_eq!(plans.each_ref().map(|plan| plan.likeness(plan) == Likeness::Whole), [true, true, true, !hides], "{name}");
        for (one, other) in [(0, 2), (2, 3), (3, 1)] {
            assert_eq!(plans[one].likeness(&plans[other]), Likeness::AsFarAsTold, "{name}");
        }
    }
    let unknown = plan(&[("t", "new_way", "ix_c", "", 5)], "");
    assert_eq!((unknown.changes(&unknown), unknown.likeness(&unknown)), (String::new(), Likeness::AsFarAsTold));
}

#[test]
fn a_derived_table_may_be_called_like_a_table() {
    let table = |more: &str| format!(r#"{{"table_name": "t", "access_type": "ALL", "rows_examined_per_scan": 5{more}}}"#);
    let read = |root: &str| QueryPlan::read(format!(r#"{{"query_block": {{"table": {root}}}}}"#).as_bytes(), "8.4.6").unwrap();
    let made_of = |block: &str| table(&format!(r#", "materialized_from_subquery": {{"query_block": {block}}}"#));
    // WITH t AS (SELECT ... FROM t) SELECT ... FROM t
    let base = format!(r#"{{"table": {}}}"#, table(""));
    assert_eq!(read(&made_of(&base)).to_string(), "t full scan ~1");
    // The recursive part of it reads the derived table, and a derived table in it another one.
    let recursive = |block: &str| format!(r#"{{"recursive": true, "table": {block}}}"#);
    assert_eq!(read(&made_of(&recursive(&table("")))).to_string(), "no table is read");
    assert_eq!(read(&made_of(&recursive(&made_of(&base)))).to_string(), "t full scan ~1");
    let both = format!(r#"{{"union_result": {{"query_specifications": [{base}, {}]}}}}"#, recursive(&table("")));
    assert_eq!(read(&made_of(&both)).to_string(), "t full scan ~1");
}

#[test]
fn tables_of_one_name_are_paired_by_how_they_are_read() {
    let (by_index, by_scan) = (("t", "ref", "ix_c", r#""ix_c""#, 5), ("t", "ALL", "", "", 5_000));
    let (before, after) = (plan(&[by_index, by_scan], ""), plan(&[by_scan, by_index], ""));
    assert_eq!((before.changes(&after), after.changes(&before)), (String::new(), String::new()));
    // Another step uses the index, or could.
    let scans = |possible| plan(&[by_scan, ("t", "ALL", "", possible, 5)], "");
    let uses = plan(&[("t", "ref", "ix_d", r#""ix_d""#, 5), by_index], "");
    let twice = plan(&[by_index, by_index], "");
    assert_eq!(twice.changes(&uses), "index ix_d of t in place of index ix_c");
    assert_eq!(before.changes(&scans(r#""ix_c""#)), "full scan of t in place of index ix_c");
    assert_eq!(before.changes(&scans("")), "index ix_c lost: full scan of t");
}

#[test]
fn an_index_that_is_one_of_very_many_is_not_lost() {
    let all: Vec<String> = (0..64).map(|n| format!("\"ix_{n}\"")).collect();
    let before = plan(&[("t", "ref", "ix_63", "", 5)], "");
    assert_eq!(before.changes(&plan(&[("t", "ALL", "", &all.join(","), 5)], "")), "full scan of t in place of index ix_63");
}

#[test]
fn the_order_of_a_join_is_compared_in_one_format_only() {
    let names = ["a", "b"];
    let tree = |names: [&str; 2]| {
        let inputs = names.map(|name| operation("index_lookup", "k").replace("\"t\"", &format!("\"{name}\"")));
        tree(&format!(r#"{{"access_type": "join", "inputs": [{}]}}"#, inputs.join(",")))
    };
    let blocks = plan(&names.map(|name| (name, "ref", "k", r#""k""#, 5)), "");
    assert_eq!([blocks.changes(&tree(["b", "a"])), tree(["b", "a"]).changes(&blocks)], ["", ""]);
    assert_eq!(tree(names).changes(&tree(["b", "a"])), "other join order: b then a");
}

#[test]
fn an_answer_in_another_character_set_is_read() {
    let text = b"{\"query_block\": {\"table\": {\"table_name\": \"gr\xF6\xDFe\", \"access_type\": \"ALL\", \"rows\": 5, \"attached_condition\": \"a = '\xE4'\"}}}";
    assert_eq!(QueryPlan::read(text, "11.8.9-MariaDB").unwrap().to_string(), "gr\u{FFFD}\u{FFFD}e full scan ~1");
}

/// A plan of MySQL's version 1 with these tables: name, access, index, indexes that were considered, rows.
fn plan(tables: &[(&str, &str, &str, &str, u64)], more: &str) -> QueryPlan {
    let table = |(name, access, key, possible, rows): &(&str, &str, &str, &str, u64)| {
        let key = if key.is_empty() { String::new() } else { format!(r#""key": "{key}","#) };
        format!(
            r#"{{"table": {{"table_name": "{name}", "access_type": "{access}", {key} "possible_keys": [{possible}], "rows_examined_per_scan": {rows}}}}}"#
        )
    };
    let tables: Vec<String> = tables.iter().map(table).collect();
    let text = format!(r#"{{"query_block": {{{more} "nested_loop": [{}]}}}}"#, tables.join(","));
    QueryPlan::read(text.as_bytes(), "8.4.6").unwrap()
}

#[test]
fn changes_are_said_in_words() {
    let t = |access, key, possible| plan(&[("t", access, key, possible, 5)], "");
    let base = t("ref", "ix_c", r#""ix_c""#);
    for (before, after, expected) in [
        (&base, t("ref", "ix_c", r#""ix_c""#), ""),
        (&base, t("ALL", "", ""), "index ix_c lost: full scan of t"),
        (&base, t("ALL", "", r#""ix_c""#), "full scan of t in place of index ix_c"),
        (&base, t("ref", "ix_d", r#""ix_d""#), "index ix_c lost: index ix_d of t"),
        (&base, t("ref", "ix_d", r#""ix_c", "ix_d""#), "index ix_d of t in place of index ix_c"),
        (&base, t("index", "ix_c", r#""ix_c""#), "index scan of t by index ix_c in place of lookup"),
        (&t("eq_ref", "PRIMARY", ""), t("ALL", "", ""), "full scan of t in place of key PRIMARY"),
        (&t("index", "ix_c", ""), t("ALL", "", ""), "full scan of t in place of index ix_c"),
        (&base, t("new_way", "ix_d", ""), ""),
        (&base, plan(&[("t", "ref", "ix_c", "", 5)], r#""using_filesort": true,"#), "sorts now"),
        (&base, plan(&[("t", "ref", "ix_c", "", 5)], r#""using_temporary_table": true,"#), "temporary table now"),
        (&base, plan(&[("t", "ref", "ix_c", "", 99)], ""), ""),
        (&base, plan(&[("t", "ref", "ix_c", "", 20_000)], ""), "estimates about 10k rows of t in place of 1"),
        (&base, plan(&[("t", "ref", "ix_c", "", 5), ("u", "ALL", "", "", 5)], ""), "reads u too"),
    ] {
        assert_eq!(before.changes(&after), expected, "{after}");
    }
    let join = |names: [&str; 3]| plan(&names.map(|name| (name, "ALL", "", "", 5)), "");
    assert_eq!(join(["a", "b", "c"]).changes(&join(["a", "c", "b"])), "other join order: a then c then b");
    let lost =
        |key: &str| plan(&["a", "b", "c", "d", "e", "f"].map(|name| (name, if key.is_empty() { "ALL" } else { "ref" }, key, "", 5)), "");
    assert!(lost("k").changes(&lost("")).ends_with("2 more changes"));
}

#[test]
fn tables_of_early_mariadb_share_a_name() {
    let text = br##"{"query_block": {"select_id": 1, "table": {"table_name": "a", "access_type": "ALL", "rows": 10},
                    "block-nl-join": {"table": {"table_name": "b", "access_type": "hash_ALL", "key": "#hash#$hj", "rows": 200}},
                    "table": {"table_name": "c", "access_type": "eq_ref", "key": "PRIMARY", "rows": 1}}}"##;
    let plan = QueryPlan::read(text, "10.5.9-MariaDB").unwrap();
    assert_eq!(plan.to_string(), "a full scan ~10; b full scan ~100; c lookup PRIMARY ~1");
}

#[test]
fn what_is_no_plan_is_none() {
    for text in ["", "{", "[]", "null", "5", "{}", r#"{"query_plan": 5"#, r#"{"query": "SELECT 1"}"#, "-> Table scan on t", "\u{0}"] {
        assert_eq!(QueryPlan::read(text.as_bytes(), "9.7.4"), None, "{text}");
    }
    let deep = format!(r#"{{"query_block": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(QueryPlan::read(deep.as_bytes(), "9.7.4"), None);
    assert_eq!(QueryPlan::read(&vec![b' '; MAX_JSON + 1], "9.7.4"), None);
}

#[test]
fn plans_are_bounded() {
    let names: Vec<String> = (0..100).map(|n| format!("{n}{}", "ä".repeat(500))).collect();
    let tables: Vec<(&str, &str, &str, &str, u64)> = names.iter().map(|name| (&**name, "ref", &**name, "", u64::MAX)).collect();
    let plan = plan(&tables, "");
    assert_eq!((plan.steps.len(), plan.is_partial), (MAX_STEPS, true));
    assert!(plan.to_string().chars().count() < 6_000 && plan.changes(&recorded("lost")[2]).len() < 2_000);
}

/// Objects that look like plans.
fn node() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec!["t", "<derived2>", "ALL", "index_merge", "rowid_union", "sort", "union(a,(b", "", "#hash"]);
    let leaf =
        prop_oneof![word.prop_map(|word| format!("\"{word}\"")), any::<f64>().prop_map(|n| format!("{n:?}")), Just("true".to_owned())];
    let field = prop::sample::select(vec![
        "query_block",
        "query_plan",
        "table",
        "table_name",
        "access_type",
        "key",
        "index_merge",
        "inputs",
        "schema_name",
        "rows",
        "materialized_from_subquery",
        "recursive",
        "filesort",
        "possible_keys",
        "nested_loop",
    ]);
    leaf.prop_recursive(8, 128, 6, move |inner| {
        let fields = prop::collection::vec((field.clone(), inner.clone()), 0..6);
        let object = fields.prop_map(|fields| {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            format!("{{{}}}", fields.join(","))
        });
        prop_oneof![object, prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(",")))]
    })
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(QueryPlan::read(&bytes, "9.7.4").is_none_or(|plan| plan.steps.len() <= MAX_STEPS));
    }

    #[test]
    fn whatever_looks_like_a_plan_is_read(one in node(), other in node()) {
        let read = |text: &str| QueryPlan::read(format!("{{\"query_block\":{text}}}").as_bytes(), "11.8-MariaDB")
            .or_else(|| QueryPlan::read(format!("{{\"query_plan\":{text}}}").as_bytes(), "9.7.4"));
        let tree = |text: &str| QueryPlan::read(format!("{{\"query_plan\":{text}}}").as_bytes(), "9.7.4");
        for (one, other) in [(read(&one), read(&other)), (tree(&one), tree(&other)), (read(&one), tree(&other))] {
            if let (Some(one), Some(other)) = (one, other) {
                prop_assert_eq!(one.changes(&one), "");
                prop_assert!(one.changes(&other).len() < 10_000 && one.to_string().len() < 30_000);
            }
        }
    }

    #[test]
    fn a_damaged_plan_never_panics(at in 0usize..20_000, byte: u8, which in 0usize..4) {
        let (version, text) = RECORDED[which];
        let mut text = text.lines().nth(at % 20).unwrap().split_once(' ').unwrap().1.as_bytes().to_vec();
        let at = at % text.len();
        text[at] = byte;
        let _ = QueryPlan::read(&text, version).map(|plan| plan.to_string());
        let _ = QueryPlan::read(&text[..at], version);
    }
}
