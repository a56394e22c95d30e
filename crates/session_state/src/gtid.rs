//! GTID sets as text: what may go into a statement, what two of them are together.
//!
//! Pure. MariaDB counts in domains (`0-1-57`), MySQL in sources, which may have tags (`3e11fa47-...:23`). Parts are separated by
//! commas.

use wire::charset::Flavor;

/// Longest GTID set that is taken from a server or a client, bytes.
pub const MAX_SET_BYTES: usize = 4096;

/// Whether it may go into a statement: nothing but what GTIDs are made of may pass.
pub fn is_set(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b':' | b',' | b'_' | b' ' | b'\n');
    text.len() <= MAX_SET_BYTES && text.bytes().any(|byte| byte.is_ascii_digit()) && text.bytes().all(is_part)
}

/// Whose GTIDs these are, separated by commas; None for what is no set, or one of both kinds.
pub fn flavor_of(set: &str) -> Option<Flavor> {
    let flavor = if set.contains(':') { Flavor::MySql } else { Flavor::MariaDb };
    let is_of = |gtid: &str| match flavor {
        Flavor::MySql => is_of_mysql(gtid),
        Flavor::MariaDb => gtid.split('-').count() == 3 && gtid.split('-').all(is_number),
    };
    (is_set(set) && set.split(',').all(|gtid| is_of(gtid.trim()))).then_some(flavor)
}

/// What GTIDs of the servers look like, for people.
pub fn form(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::MySql => "uuid:number (MySQL)",
        Flavor::MariaDb => "domain-server-number (MariaDB)",
    }
}

/// A source (a UUID), then numbers and ranges, which a tag may stand before.
fn is_of_mysql(gtid: &str) -> bool {
    let (uuid, rest) = gtid.split_once(':').unwrap_or_default();
    let is_uuid = uuid.bytes().filter(u8::is_ascii_hexdigit).count() == 32 && uuid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    let is_range = |part: &str| part.split('-').count() <= 2 && part.split('-').all(is_number);
    let is_tag = |part: &str| part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    is_uuid && rest.split(':').all(|part| is_range(part) || is_tag(part)) && rest.rsplit(':').next().is_some_and(is_range)
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok()
}

/// What a GTID is counted in: MariaDB's domain, MySQL's source with its tag.
pub fn stream(flavor: Flavor, gtid: &str) -> &str {
    match flavor {
        Flavor::MariaDb => gtid.split('-').next().unwrap_or(gtid),
        Flavor::MySql => gtid.rsplit_once(':').map_or(gtid, |(source, _)| source),
    }
}

/// The GTIDs of a set, one by one.
pub fn parts(set: &str) -> impl Iterator<Item = &str> {
    set.split(',').map(str::trim).filter(|gtid| !gtid.is_empty())
}

/// One set of several: MariaDB takes no domain twice, so the latest of each stays; MySQL adds up by itself.
pub fn together<'a>(flavor: Flavor, gtids: impl Iterator<Item = &'a str>) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for gtid in gtids {
        let same = kept.iter_mut().find(|old| match flavor {
            Flavor::MariaDb => stream(flavor, old) == stream(flavor, gtid),
            Flavor::MySql => **old == gtid,
        });
        match same {
            Some(old) if number(gtid) > number(old) => *old = gtid,
            Some(_) => {}
            None => kept.push(gtid),
        }
    }
    kept.join(",")
}

/// The last number of a MariaDB GTID, which orders those of one domain.
fn number(gtid: &str) -> Option<u64> {
    gtid.rsplit('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_add_up() {
        let sum = |flavor, sets: &[&'static str]| together(flavor, sets.iter().flat_map(|set| parts(set)));
        assert_eq!(sum(Flavor::MariaDb, &["0-1-57,7-1-3", "0-2-100", "0-1-9"]), "0-2-100,7-1-3");
        assert_eq!(sum(Flavor::MySql, &["aa:1, bb:2", "aa:3", "bb:2"]), "aa:1,bb:2,aa:3");
        assert_eq!(sum(Flavor::MariaDb, &[]), "");
    }

    #[test]
    fn only_gtids_are_sets() {
        for text in ["0-1-57", "0-1-57,1-1-3", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,\n3e11fa47-71ca-11e1-9e33-c80aa9429563:tag:9"] {
            assert!(is_set(text), "{text}");
        }
        for text in ["", "abc", "0-1-1'", "0-1-1\\", "0-1-1)", "0-1-1;", &"1".repeat(MAX_SET_BYTES + 1)] {
            assert!(!is_set(text), "{text}");
        }
    }

    #[test]
    fn gtids_are_of_one_kind() {
        const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        for set in ["0-1-57", "0-1-57,7-2-3", "0-1-57, 7-2-3"] {
            assert_eq!(flavor_of(set), Some(Flavor::MariaDb), "{set}");
        }
        for rest in ["23", "1-5:7", "tag_1:9", "1-3:a:1:_b:2-4", "1,\n3e11fa47-71ca-11e1-9e33-c80aa9429563:tag:9"] {
            assert_eq!(flavor_of(&format!("{UUID}:{rest}")), Some(Flavor::MySql), "{rest}");
        }
        let bad = ["", "tag", "1-2-3", "1')", "1:", "1,0-1-57", "1,"].map(|rest| format!("{UUID}:{rest}"));
        for set in bad.iter().map(String::as_str).chain(["", "nonsense", "x:1", "aa:1", "0-1", "0-1-2-3", "0-1-2,", "0-1-+2", "9"]) {
            assert_eq!(flavor_of(set), None, "{set}");
        }
    }
}
