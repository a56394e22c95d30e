//! The walls: which crate may use which, as ARCHITECTURE.md's table says, and which modules of this crate use each other in a circle.
//! And the links of the pages that lead newcomers through the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Edges = BTreeMap<String, BTreeSet<String>>;

/// Modules that use each other in circles. A circle gets no new member: cut the edge instead, by moving what both need below both.
const CIRCLES: &[&[&str]] = &[
    &["quota", "refusals", "server"],
    &["hostgroup", "replays"],
    // A worker, its pools, and how they are filled.
    &["connect", "defaults", "mailbox", "no_server_reason", "pool", "shared", "side_connection", "worker"],
];

/// Methods of the largest types, outside of tests. What needs one part of a session is a method of that part.
const METHODS: &[(&str, usize)] = &[("Session", 225), ("Backends", 40)];

/// The most files of `session` whose methods call each other in a circle.
const SESSION_CIRCLE: usize = 11;

/// Crates that are data and rules.
const PURE: &[&str] = &["meter", "session_state"];
/// What they do without: a runtime, sockets, threads, files, a clock.
const IMPURE: &[&str] = &["tokio", "TcpStream", "UnixStream", "std::thread", "std::fs", "Instant", "SystemTime"];

/// Modules of a crate from the bottom to the top: none uses one that stands above it. Any other module stands below all but the first,
/// except those in [`AT_THE_TOP`].
const STOREYS: &[(&str, &[&str])] = &[("admin", &["store", "engine", "commands"])];
const AT_THE_TOP: &[&str] = &["bootstrap", "lib"];

/// Modules that are made for tests and simulations, and may use all.
const ASIDE: &[&str] = &["bed", "sim", "lib"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a source file says outside of comments and tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let own = text.split("#[cfg(test)]").next().unwrap_or_default();
    own.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Modules behind each `crate::` of a text, also in braces. Where a path begins with a room, the module in that room.
fn used(text: &str, rooms: &BTreeSet<String>) -> BTreeSet<String> {
    fn names(path: &str) -> Vec<(&str, &str)> {
        let items = match path.strip_prefix('{').and_then(|list| list.split('}').next()) {
            Some(list) => list.split(',').map(str::trim_start).collect(),
            None => vec![path],
        };
        let end_of_name = |item: &str| item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
        items.into_iter().map(|item| item.split_at(end_of_name(item))).collect()
    }
    let paths = text.match_indices("crate::").map(|(at, word)| &text[at + word.len()..]);
    let mut all = BTreeSet::new();
    for (name, rest) in paths.flat_map(names) {
        if rooms.contains(name) {
            let inner = names(rest.strip_prefix("::").unwrap_or_default());
            all.extend(inner.into_iter().map(|(name, _)| name.to_owned()));
        } else {
            all.insert(name.to_owned());
        }
    }
    all
}

/// Folders of this crate that only hold modules.
fn rooms(src: &Path) -> BTreeSet<String> {
    let is_room = |dir: &Path| {
        fs::read_to_string(dir.join("mod.rs")).is_ok_and(|text| {
            let is_list = |line: &str| line.is_empty() || ["//!", "#[", "pub(crate) mod "].iter().any(|start| line.starts_with(start));
            text.lines().all(is_list)
        })
    };
    let dirs = fs::read_dir(src).unwrap().map(|entry| entry.unwrap().path()).filter(|path| is_room(path));
    dirs.map(|dir| dir.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Which module of this crate uses which. A module is a file or folder in a room, or beside the rooms.
fn modules() -> Edges {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rooms = rooms(&src);
    assert!(rooms.len() > 5, "these are not all: {rooms:?}");
    let mut edges = Edges::new();
    for (path, code) in files() {
        let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
        let module = parts[usize::from(rooms.contains(parts[0]))].trim_end_matches(".rs");
        let is_test = parts.iter().any(|part| part.trim_end_matches(".rs").ends_with("tests"));
        if !is_test && module != "mod" && !ASIDE.contains(&module) {
            edges.entry(module.to_owned()).or_default().extend(used(&code, &rooms));
        }
    }
    let names: BTreeSet<String> = edges.keys().cloned().collect();
    for (module, uses) in &mut edges {
        uses.retain(|other| names.contains(other) && other != module);
    }
    edges
}

/// Every file of this crate with its path below `src`.
fn files() -> Vec<(PathBuf, String)> {
    files_of("proxy")
}

/// Every file of a crate with its path below `src`.
fn files_of(name: &str) -> Vec<(PathBuf, String)> {
    let src = root().join("crates").join(name).join("src");
    let (mut all, mut open) = (Vec::new(), vec![src.clone()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                all.push((path.strip_prefix(&src).unwrap().to_owned(), code(&path)));
            }
        }
    }
    all
}

/// Everything that can be reached from `from`.
fn reached<'a>(edges: &'a Edges, from: &str) -> BTreeSet<&'a str> {
    let mut all = BTreeSet::new();
    let mut open: Vec<&str> = edges[from].iter().map(String::as_str).collect();
    while let Some(module) = open.pop() {
        if all.insert(module) {
            open.extend(edges[module].iter().map(String::as_str));
        }
    }
    all
}

/// The circles: modules that all reach each other.
fn circles(edges: &Edges) -> BTreeSet<BTreeSet<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = edges.keys().map(|module| (module.as_str(), reached(edges, module))).collect();
    let circle = |module: &str| -> BTreeSet<&str> { reach[module].iter().copied().filter(|other| reach[other].contains(module)).collect() };
    edges.keys().map(|module| circle(module)).filter(|circle| !circle.is_empty()).collect()
}

fn set<'a>(names: &[&'a str]) -> BTreeSet<&'a str> {
    names.iter().copied().collect()
}

#[test]
fn no_circle_of_modules_grows() {
    let edges = modules();
    let (found, known): (_, BTreeSet<_>) = (circles(&edges), CIRCLES.iter().map(|circle| set(circle)).collect());
    for circle in &found {
        let is_known = known.iter().any(|known| circle.is_subset(known));
        assert!(is_known, "a circle of modules that is new, or has new members: {circle:?}");
    }
    for circle in known {
        assert!(found.contains(&circle), "this circle is smaller by now, and CIRCLES is to say so: {circle:?}");
    }
}

#[test]
fn pure_crates_are_data_and_rules() {
    for name in PURE {
        let files = files_of(name);
        assert!(files.len() > 3, "this looked at nothing of {name}");
        for (path, code) in files {
            let wrong: Vec<_> = IMPURE.iter().filter(|word| code.contains(*word)).collect();
            assert!(wrong.is_empty(), "{} of {name} names {wrong:?}", path.display());
        }
    }
}

#[test]
fn no_module_uses_one_above_it() {
    for (name, storeys) in STOREYS {
        let module = |path: &Path| path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        let files = files_of(name);
        assert!(storeys.iter().all(|storey| files.iter().any(|(path, _)| module(path) == **storey)), "this looked at nothing");
        for (path, code) in files.iter().filter(|(path, _)| !AT_THE_TOP.contains(&&*module(path))) {
            let place = storeys.iter().position(|storey| *storey == module(path)).unwrap_or_default();
            let above = set(&storeys[place + 1..]);
            let used = used(code, &BTreeSet::new());
            let wrong: Vec<_> = used.iter().filter(|used| above.contains(&***used)).collect();
            assert!(wrong.is_empty(), "{} of {name} uses {wrong:?}, above it", path.display());
        }
    }
}

/// The name of the method that a line defines, if it does.
fn method(line: &str) -> Option<&str> {
    let item = line.strip_prefix("    ").filter(|item| !item.starts_with(' '))?;
    let (before, rest) = item.split_once("fn ")?;
    let is_method = before.split_whitespace().all(|word| word.starts_with("pub") || matches!(word, "const" | "async"));
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|_| is_method)
}

#[test]
fn no_large_type_grows() {
    for (name, most) in METHODS {
        let start = format!("impl {name} {{");
        let in_file = |code: &str| {
            let mut is_inside = false;
            let methods = code.lines().filter(|line| {
                is_inside = *line == start || is_inside && *line != "}";
                is_inside && method(line).is_some()
            });
            methods.count()
        };
        let methods: usize = files().iter().map(|(_, code)| in_file(code)).sum();
        assert!(methods > 0 && methods <= *most, "{name} has {methods} methods, and METHODS allows {most}");
    }
}

/// What a text calls by `.name(` or `Type::name(`.
fn called(code: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = |(end, _): (usize, &str)| {
        let before = &code[..end];
        let rest = before.trim_end_matches(is_name);
        let is_of_type = || {
            rest.strip_suffix("::")
                .is_some_and(|path| path.rsplit(|c| !is_name(c)).next().is_some_and(|t| t.starts_with(char::is_uppercase)))
        };
        (rest.ends_with('.') || is_of_type()).then_some(&before[rest.len()..])
    };
    code.match_indices('(').filter_map(name).collect()
}

/// By calls of methods that one file defines: names alone do not say whose method is meant.
#[test]
fn no_circle_of_the_sessions_files_grows() {
    let files = files();
    let is_code = |path: &Path| {
        path.starts_with("session") && !path.to_str().unwrap().trim_end_matches(".rs").ends_with("tests") && !path.ends_with("bed.rs")
    };
    let of_session: Vec<_> = files.iter().filter(|(path, _)| is_code(path)).map(|(path, code)| (path.to_str().unwrap(), code)).collect();
    // A name that the session's values have too may be theirs.
    let values = files_of("session_state");
    let of_values = values.iter().map(|(_, code)| ("session_state", code));
    let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, code) in of_session.iter().copied().chain(of_values) {
        for name in code.lines().filter_map(method) {
            homes.entry(name).or_default().insert(path);
        }
    }
    let home = |name: &str| {
        let home = homes.get(name).filter(|paths| paths.len() == 1).and_then(|paths| paths.first())?;
        (*home != "session_state").then(|| (*home).to_owned())
    };
    let uses = |path: &str, code: &str| called(code).into_iter().filter_map(home).filter(|other| other != path).collect();
    let edges: Edges = of_session.iter().map(|(path, code)| ((*path).to_owned(), uses(path, code))).collect();
    let largest = circles(&edges).into_iter().max_by_key(BTreeSet::len).unwrap_or_default();
    assert!(edges.len() > 60 && largest.len() <= SESSION_CIRCLE, "{} files call each other: {largest:?}", largest.len());
}

/// What becomes of a session's user variables is said in one file.
#[test]
fn user_variables_have_one_owner() {
    const GIVES: &[&str] =
        &["user_variables.set(", ".variables_computed(", ".variable_known(", ".carry_user_variable(", ".user_variable_changed("];
    let gives = |code: &str| GIVES.iter().any(|call| code.contains(call));
    let files = files();
    let is_owned = |path: &Path| path.starts_with("session") && !path.to_str().unwrap().trim_end_matches(".rs").ends_with("tests");
    let found: Vec<_> = files.iter().filter(|(path, code)| is_owned(path) && gives(code)).map(|(path, _)| path).collect();
    assert_eq!(found, [Path::new("session/user_variables.rs")]);
}

/// A reader who meets a type's name knows which type is meant.
#[test]
fn no_two_types_have_one_name() {
    let mut homes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (path, code) in files() {
        let is_test = path.iter().any(|part| part.to_str().unwrap().trim_end_matches(".rs").ends_with("tests"));
        for name in code.lines().filter(|_| !is_test).filter_map(defined) {
            homes.entry(name.to_owned()).or_default().push(path.clone());
        }
    }
    assert!(homes.len() > 300, "this looked at nothing: {homes:?}");
    homes.retain(|_, homes| homes.len() > 1);
    assert!(homes.is_empty(), "types with one name: {homes:#?}");
}

/// The name of the type that a line outside of functions and modules defines.
fn defined(line: &str) -> Option<&str> {
    let item = line.strip_prefix("pub").map_or(line, |rest| rest.trim_start_matches("(crate)").trim_start_matches("(super)").trim_start());
    let name = ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| item.strip_prefix(word))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn a_circle_is_found() {
    let edges = |list: &[(&str, &[&str])]| -> Edges {
        list.iter().map(|(from, to)| ((*from).to_owned(), to.iter().map(|to| (*to).to_owned()).collect())).collect()
    };
    let all = edges(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &["a"])]);
    assert_eq!(circles(&all), BTreeSet::from([set(&["b", "c"])]));
    let text = "use crate::{a, b::C};\nuse crate::d::E;\nuse crate::room::f::G;\nuse crate::room::{h, i::J};";
    assert_eq!(used(text, &BTreeSet::from(["room".to_owned()])), BTreeSet::from(["a", "b", "d", "f", "h", "i"].map(str::to_owned)));
}

/// Which crate uses which of the others, outside of tests, as the manifests say.
fn crates() -> Edges {
    let dirs = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let manifests: BTreeMap<String, String> = dirs
        .map(|dir| (dir.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(dir.join("Cargo.toml")).unwrap()))
        .collect();
    let uses = |manifest: &str| -> BTreeSet<String> {
        let own = manifest.split("[dependencies]").nth(1).unwrap_or_default().split("\n[").next().unwrap_or_default();
        let names = own.lines().filter_map(|line| line.split(['=', '.', ' ']).next());
        names.filter(|name| manifests.contains_key(*name)).map(str::to_owned).collect()
    };
    manifests.iter().map(|(name, manifest)| (name.clone(), uses(manifest))).collect()
}

/// The same as ARCHITECTURE.md's table allows it; None for all.
fn allowed() -> BTreeMap<String, Option<BTreeSet<String>>> {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let row = |line: &str| {
        let name = line.strip_prefix("| [`")?.split('`').next()?.to_owned();
        let last = line.trim_end_matches([' ', '|']).rsplit('|').next()?.trim();
        let word = |item: &str| item.trim().split(' ').next().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = last.split([',', ';']).map(word).collect();
        Some((name, (last != "all").then_some(names)))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn crates_use_what_the_architecture_allows() {
    let (crates, allowed) = (crates(), allowed());
    assert!(crates["proxy"].contains("wire"), "this looked at nothing: {crates:?}");
    for (name, uses) in crates {
        let row = allowed.get(&name).unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for the crate {name}"));
        let more: Vec<_> = row.iter().flat_map(|may| uses.difference(may)).collect();
        assert!(more.is_empty(), "the crate {name} uses {more:?}, which ARCHITECTURE.md does not allow");
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages: Vec<PathBuf> = ["", "docs", "docs/tutorials", "docs/how-to", "docs/reference", "docs/explanation", "docs/decisions"]
        .into_iter()
        .flat_map(|dir| fs::read_dir(root().join(dir)).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    assert!(pages.len() > 40, "this looked at nothing: {pages:?}");
    let mut broken = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        for to in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|to| !to.contains("://")) {
            let (path, anchor) = to.split_once('#').unwrap_or((to, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let leads = target.exists() && (anchor.is_empty() || headings(&fs::read_to_string(&target).unwrap()).contains(anchor));
            if !leads {
                broken.push((page.file_name().unwrap().to_owned(), to.to_owned()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

/// The anchors of a page's headings, as GitHub makes them.
fn headings(page: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| -> String {
        let letters = heading.to_lowercase().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).collect::<String>();
        letters.replace(' ', "-")
    };
    page.lines().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}
