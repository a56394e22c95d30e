//! Positions of MariaDB: the last transaction of each domain. <https://mariadb.com/kb/en/gtid/>

use std::collections::BTreeMap;

/// By domain: which server wrote the last transaction, and its number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Position(BTreeMap<u32, (u32, u64)>);

impl Position {
    /// From `domain-server-number,...`; of a domain that is named twice, as in `gtid_binlog_state`, the later number counts. None
    /// for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut position = Self::default();
        for gtid in text.split(',').map(str::trim).filter(|gtid| !gtid.is_empty()) {
            let mut parts = gtid.split('-');
            let (domain, server, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            if parts.next().is_some() {
                return None;
            }
            position.reach(domain, (server, number));
        }
        Some(position)
    }

    /// This one, with all that `other` has of domains that are not in `own`.
    pub(super) fn with(mut self, other: &Self, own: &[u32]) -> Self {
        for (domain, last) in other.0.iter().filter(|(domain, _)| !own.contains(domain)) {
            self.reach(*domain, *last);
        }
        self
    }

    /// Whether it has transactions of a domain.
    pub(super) fn has(&self, domain: u32) -> bool {
        self.0.contains_key(&domain)
    }

    fn reach(&mut self, domain: u32, last: (u32, u64)) {
        let known = self.0.entry(domain).or_insert(last);
        if known.1 < last.1 {
            *known = last;
        }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gtids: Vec<String> = self.0.iter().map(|(domain, (server, number))| format!("{domain}-{server}-{number}")).collect();
        f.write_str(&gtids.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_transaction_of_each_domain_counts() {
        let position = |text| Position::parse(text).unwrap();
        assert_eq!(position("1-10-5, 1-11-7,0-3-9").to_string(), "0-3-9,1-11-7");
        let all = position("0-1-3,1-10-5").with(&position("0-2-9,1-11-7,2-5-1"), &[0]);
        assert_eq!(all.to_string(), "0-1-3,1-11-7,2-5-1", "of its own domain it replicated what it replicated");
        assert_eq!(position("1-10-5").with(&position("1-9-4"), &[]).to_string(), "1-10-5");
        assert!(position("").to_string().is_empty() && position("7-1-1").has(7) && !position("7-1-1").has(1));
        for text in ["1-2", "1-2-3-4", "a-1-2", "1-2-3;", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"] {
            assert_eq!(Position::parse(text), None, "{text}");
        }
    }
}
