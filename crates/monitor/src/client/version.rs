//! Which server it is: what its greeting says.

use wire::handshake::Greeting;

/// A server's kind and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) is_mariadb: bool,
    /// Major, minor, patch; 0 where the text has no number.
    pub(crate) number: (u32, u32, u32),
}

impl Version {
    pub(crate) fn of(greeting: &Greeting) -> Self {
        Self { is_mariadb: greeting.is_mariadb(), number: parse(&String::from_utf8_lossy(greeting.version())) }
    }

    /// At least this version of MySQL (Percona's, ...).
    pub(crate) fn is_mysql_since(&self, number: (u32, u32, u32)) -> bool {
        !self.is_mariadb && self.number >= number
    }
}

/// `10.11.6-MariaDB-log` is (10, 11, 6).
fn parse(text: &str) -> (u32, u32, u32) {
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_servers_in_use() {
        assert_eq!(parse("10.11.6-MariaDB-1:10.11.6+maria~ubu2204-log"), (10, 11, 6));
        assert_eq!(parse("8.0.36-28.1"), (8, 0, 36));
        assert_eq!(parse("5.7.44-log"), (5, 7, 44));
        assert_eq!(parse("9.7"), (9, 7, 0));
        assert_eq!(parse("unknown"), (0, 0, 0));
    }
}
