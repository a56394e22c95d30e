//! Directives in a statement's first comment: `/* hostgroup=2; query_timeout=500 */`.
//!
//! They override rules. Who may give them is the caller's to say: ProxySQL obeys everybody, here it is an attribute of
//! the user. What is not understood is passed over, as comments are for people too; but `min_gtid` is taken as it is, for a
//! statement that is not to run without.

use model::HostgroupId;

use crate::route::{Decider, Route};

/// The largest lag that a comment may ask for, ms.
const MAX_LAG_MS: u32 = 600_000;

/// Obeys the directives in `comment`, the content of a comment without its delimiters.
pub fn obey(comment: &[u8], route: &mut Route) {
    for pair in comment.split(|byte| *byte == b';') {
        let text: String = String::from_utf8_lossy(pair).chars().filter(|letter| !letter.is_whitespace()).collect();
        let Some((key, value)) = text.split_once('=') else {
            continue;
        };
        let known = DIRECTIVES.iter().find(|directive| directive.0.eq_ignore_ascii_case(key));
        if let Some((_, take)) = known {
            take(value, route);
        }
    }
}

type Directive = (&'static str, fn(&str, &mut Route));

const DIRECTIVES: &[Directive] = &[
    ("hostgroup", |value, route| {
        if let Some(id) = hostgroup(value) {
            route.destination_hostgroup = Some(id);
            route.decider = Decider::Comment;
        }
    }),
    ("cache_ttl", |value, route| set(&mut route.cache_ttl_ms, number(value).filter(|ttl| *ttl > 0))),
    ("query_delay", |value, route| set(&mut route.delay_ms, number(value))),
    ("query_retries", |value, route| set(&mut route.retries, number(value))),
    ("query_timeout", |value, route| set(&mut route.timeout_ms, number(value))),
    ("mirror", |value, route| set(&mut route.mirror_hostgroup, hostgroup(value))),
    ("max_lag_ms", |value, route| set(&mut route.max_lag_ms, number(value).filter(|lag| *lag <= MAX_LAG_MS))),
    ("min_epoch_ms", |value, route| set(&mut route.min_epoch_ms, number(value))),
    ("min_gtid", |value, route| route.min_gtid = Some(value.into())),
    ("create_new_connection", |value, route| route.new_connection |= value == "1"),
];

fn set<T>(old: &mut Option<T>, new: Option<T>) {
    if new.is_some() {
        *old = new;
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    // A sign is no digit here.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn hostgroup(text: &str) -> Option<HostgroupId> {
    number(text).filter(|id| *id <= HostgroupId::MAX).map(HostgroupId)
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
        for comment in [
            "",
            "hello",
            "hostgroup=x",
            "hostgroup=-1",
            "hostgroup=99999999999",
            "max_lag_ms=600001",
            "cache_ttl=0",
            "a=b;=;;",
            "hostgroup:2",
        ] {
            assert_eq!(obeyed(comment), obeyed(""), "{comment}");
        }
    }

    /// Whoever asks for GTIDs is told if these are none; that needs to know the servers.
    #[test]
    fn gtids_are_taken_as_they_are() {
        for gtids in ["0-1-57", "0-1-57,7-2-3", "nonsense", ""] {
            assert_eq!(obeyed(&format!("min_gtid = {gtids}")).min_gtid.as_deref(), Some(gtids));
        }
    }
}
