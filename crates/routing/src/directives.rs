//! Directives in a statement's first comment: `/* hostgroup=2; query_timeout=500 */`.
//!
//! They override rules. The caller decides which users may give them: ProxySQL obeys every user, here it is an attribute of the user. As in
//! ProxySQL, only the number at the start of a value counts. Directives that are not understood are ignored and reported, as comments are
//! for people too. `min_gtid` is taken unchanged, because such a statement must not run without it.

use model::HostgroupId;

use crate::route::{Decider, Route};

/// The largest lag that a comment may ask for, ms.
const MAX_LAG_MS: u32 = 600_000;

/// Obeys the directives in `comment`, the content of a comment without its delimiters.
pub fn obey(comment: &[u8], route: &mut Route) {
    let mut is_misread = false;
    read(comment, route, |_, misreading| is_misread |= !matches!(misreading, Misreading::Name));
    // A comment without any directive's name may be meant for people.
    route.is_comment_misread = is_misread;
}

/// The parts of a comment that [`obey`] does not understand and ignores, in words.
pub fn misread(comment: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    read(comment, &mut Route::default(), |directive, misreading| found.push(misreading.told(directive)));
    found
}

fn read(comment: &[u8], route: &mut Route, mut tell: impl FnMut(&str, Misreading<'_>)) {
    for part in comment.split(|byte| *byte == b';') {
        let text: String = String::from_utf8_lossy(part).chars().filter(|letter| !letter.is_whitespace()).collect();
        let Some((key, value)) = text.split_once('=') else {
            continue;
        };
        let (number, rest) = value.split_at(value.bytes().take_while(u8::is_ascii_digit).count());
        match DIRECTIVES.iter().find(|directive| directive.0.eq_ignore_ascii_case(key)) {
            None => tell(&text, Misreading::Name),
            Some((_, Take::Text(take))) => take(value, route),
            Some((_, Take::Number(take))) if !take(number, route) => tell(&text, Misreading::Value),
            Some((_, Take::Number(_))) if !rest.is_empty() => tell(&text, Misreading::Rest { number, rest }),
            Some((_, Take::Number(_))) => {}
        }
    }
}

/// The fault of a directive.
#[derive(Debug, Clone, Copy)]
enum Misreading<'a> {
    /// No directive is called so.
    Name,
    /// It has no value that it can have.
    Value,
    /// Something stands behind its number.
    Rest { number: &'a str, rest: &'a str },
}

impl Misreading<'_> {
    fn told(self, directive: &str) -> String {
        match self {
            Self::Name => format!("{directive}: no directive has this name"),
            Self::Value => format!("{directive}: its value is not an allowed number, so the directive is ignored"),
            Self::Rest { number, rest } => {
                format!("{directive}: taken as {number}; '{rest}' is ignored: separate directives by ';'")
            }
        }
    }
}

/// How a value is taken.
enum Take {
    /// It is a number: the digits that it begins with. False where the directive cannot have it.
    Number(fn(&str, &mut Route) -> bool),
    /// It is taken as it is.
    Text(fn(&str, &mut Route)),
}

use Take::{Number, Text};

const DIRECTIVES: &[(&str, Take)] = &[
    (
        "hostgroup",
        Number(|value, route| {
            let is_set = set(&mut route.destination_hostgroup, hostgroup(value));
            if is_set {
                route.decider = Decider::Comment;
            }
            is_set
        }),
    ),
    ("cache_ttl", Number(|value, route| set(&mut route.cache_ttl_ms, number(value).filter(|ttl| *ttl > 0)))),
    ("query_delay", Number(|value, route| set(&mut route.delay_ms, number(value)))),
    ("query_retries", Number(|value, route| set(&mut route.retries, number(value)))),
    ("query_timeout", Number(|value, route| set(&mut route.timeout_ms, number(value)))),
    ("mirror", Number(|value, route| set(&mut route.mirror_hostgroup, hostgroup(value)))),
    ("max_lag_ms", Number(|value, route| set(&mut route.max_lag_ms, number(value).filter(|lag| *lag <= MAX_LAG_MS)))),
    ("min_epoch_ms", Number(|value, route| set(&mut route.min_epoch_ms, number(value)))),
    ("min_gtid", Text(|value, route| route.min_gtid = Some(value.into()))),
    (
        "create_new_connection",
        Number(|value, route| {
            let asked = number::<u32>(value).filter(|asked| *asked <= 1);
            route.new_connection |= asked == Some(1);
            asked.is_some()
        }),
    ),
];

fn set<T>(old: &mut Option<T>, new: Option<T>) -> bool {
    let is_set = new.is_some();
    if is_set {
        *old = new;
    }
    is_set
}

fn number<T: std::str::FromStr>(digits: &str) -> Option<T> {
    digits.parse().ok()
}

fn hostgroup(digits: &str) -> Option<HostgroupId> {
    number(digits).filter(|id| *id <= HostgroupId::MAX).map(HostgroupId)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obeyed(comment: &str) -> Route {
        let mut route = Route { destination_hostgroup: Some(HostgroupId(1)), timeout_ms: Some(9), ..Route::default() };
        obey(comment.as_bytes(), &mut route);
        route
    }

    #[test]
    fn every_directive() {
        let route = obeyed(
            "hostgroup=2; CACHE_TTL = 5;query_delay=6;query_retries=7;query_timeout=8;mirror=9;max_lag_ms=10;min_epoch_ms=11;\
             min_gtid=3e11fa47-71ca-11e1-9e33-c80aa9429562:23;create_new_connection=1",
        );
        let expected = Route {
            destination_hostgroup: Some(HostgroupId(2)),
            decider: Decider::Comment,
            cache_ttl_ms: Some(5),
            delay_ms: Some(6),
            retries: Some(7),
            timeout_ms: Some(8),
            mirror_hostgroup: Some(HostgroupId(9)),
            max_lag_ms: Some(10),
            min_epoch_ms: Some(11),
            min_gtid: Some("3e11fa47-71ca-11e1-9e33-c80aa9429562:23".into()),
            new_connection: true,
            ..Route::default()
        };
        assert_eq!(route, expected);
    }

    #[test]
    fn what_is_not_understood_changes_nothing() {
        for comment in ["", "hello", "a=b;=;;", "hostgroup:2", "controller=users,action=show"] {
            assert_eq!(obeyed(comment), obeyed(""), "{comment}");
        }
        for comment in [
            "hostgroup=x",
            "hostgroup=-1",
            "hostgroup=",
            "hostgroup=99999999999",
            "max_lag_ms=600001",
            "cache_ttl=0",
            "create_new_connection=2",
        ] {
            assert_eq!(obeyed(comment), Route { is_comment_misread: true, ..obeyed("") }, "{comment}");
        }
    }

    /// Text behind a number does not make it invalid.
    #[test]
    fn a_value_is_the_number_that_it_begins_with() {
        let route = obeyed("hostgroup=2,create_new_connection=1");
        assert_eq!((route.destination_hostgroup, route.new_connection, route.is_comment_misread), (Some(HostgroupId(2)), false, true));
        assert_eq!(obeyed("hostgroup=2 please").destination_hostgroup, Some(HostgroupId(2)));
        let route = obeyed("query_timeout=500ms; create_new_connection=1,x; mirror=7 ; controller=users");
        assert_eq!((route.timeout_ms, route.new_connection, route.mirror_hostgroup), (Some(500), true, Some(HostgroupId(7))));
        assert!(!obeyed("hostgroup=2; mirror=3; a=b").is_comment_misread);
    }

    #[test]
    fn what_was_passed_over_is_told() {
        let told = |comment: &str| misread(comment.as_bytes());
        assert_eq!(
            told("hostgroup=0,create_new_connection=1"),
            ["hostgroup=0,create_new_connection=1: taken as 0; ',create_new_connection=1' is ignored: separate directives by ';'"]
        );
        assert_eq!(told("mirror = x"), ["mirror=x: its value is not an allowed number, so the directive is ignored"]);
        assert_eq!(told("a remark; hostgruop=2"), ["hostgruop=2: no directive has this name"]);
        assert_eq!(told("hostgroup=2; min_gtid=0-1-2,x"), Vec::<String>::new());
    }

    /// A wrong GTID gets an error later, when the server family is known.
    #[test]
    fn gtids_are_taken_as_they_are() {
        for gtids in ["0-1-57", "0-1-57,7-2-3", "nonsense", ""] {
            assert_eq!(obeyed(&format!("min_gtid = {gtids}")).min_gtid.as_deref(), Some(gtids));
        }
    }
}
