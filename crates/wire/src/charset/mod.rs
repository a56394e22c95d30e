//! Collations by id and by name: a static table of what MySQL and MariaDB know.
//!
//! Ids mean the same to both servers but for a few (the `*_croatian_ci` of MySQL are `*_croatian_mysql561_ci` to MariaDB);
//! such an id has two rows. An id that is not here is no error: pass it through to the server.

mod names;
mod table;

pub use names::{is_utf8, to_utf8};
use table::TABLE;

/// The server family whose collations are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Flavor {
    /// MySQL and Percona Server, Aurora.
    MySql,
    /// MariaDB 10 and later.
    MariaDb,
}

/// A set of [`Flavor`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flavors(u8);

impl Flavors {
    const NONE: Self = Self(0);
    const MYSQL: Self = Self(1);
    const MARIADB: Self = Self(2);
    const BOTH: Self = Self(3);

    /// True when `flavor` is in the set.
    #[must_use]
    pub const fn contains(self, flavor: Flavor) -> bool {
        let bit = match flavor {
            Flavor::MySql => Self::MYSQL,
            Flavor::MariaDb => Self::MARIADB,
        };
        self.0 & bit.0 != 0
    }
}

/// A collation with its id, and the servers that know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collation {
    /// Its number in handshakes and column definitions, 1..=3271 today.
    pub id: u16,
    /// Its character set, such as `utf8mb4`.
    pub charset: &'static str,
    /// Its name, such as `utf8mb4_general_ci`.
    pub name: &'static str,
    /// The server families that have it under this id and name.
    pub known_to: Flavors,
    /// The server families for which it is its character set's default.
    pub default_for: Flavors,
}

/// The collation of this id; MySQL's where the two differ (their character sets do not).
#[must_use]
pub fn collation(id: u16) -> Option<&'static Collation> {
    rows(id).first()
}

/// The collation of this id as `flavor` knows it; `None` when it does not.
#[must_use]
pub fn collation_in(flavor: Flavor, id: u16) -> Option<&'static Collation> {
    rows(id).iter().find(|row| row.known_to.contains(flavor))
}

/// The collation of this id and name, in any letter case and of any family: one family may have adopted another one's.
#[must_use]
pub fn of_id_and_name(id: u16, name: &str) -> Option<&'static Collation> {
    rows(id).iter().find(|row| same_name(row.name, name))
}

/// The collation of this name, in any case; `utf8_` is read as `utf8mb3_`. MySQL's where the two differ.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Collation> {
    TABLE.iter().find(|row| same_name(row.name, name))
}

/// In any letter case; None if that family has no such collation.
#[must_use]
pub fn by_name_in(flavor: Flavor, name: &str) -> Option<&'static Collation> {
    TABLE.iter().find(|row| row.known_to.contains(flavor) && same_name(row.name, name))
}

/// The default collation of a character set, in any case; `utf8` is read as `utf8mb3`. Servers can be set to another default
/// (MariaDB's `character_set_collations`, MySQL's `default_collation_for_utf8mb4`).
#[must_use]
pub fn default_of(flavor: Flavor, charset: &str) -> Option<&'static Collation> {
    let charset = if charset.eq_ignore_ascii_case("utf8") { "utf8mb3" } else { charset };
    TABLE.iter().find(|row| row.default_for.contains(flavor) && row.charset.eq_ignore_ascii_case(charset))
}

/// The collation that MariaDB uses for one named in a handshake. A character set's default is replaced by the one chosen in
/// `character_set_collations`, such as `utf8mb3=utf8mb3_uca1400_ai_ci,utf8mb4=utf8mb4_uca1400_ai_ci`.
#[must_use]
pub fn chosen_for(collation: &'static Collation, chosen: &str) -> &'static Collation {
    if !collation.default_for.contains(Flavor::MariaDb) {
        return collation;
    }
    let mut entries = chosen.split(',').filter_map(|entry| entry.split_once('='));
    let own = entries.find(|(charset, _)| charset.trim().eq_ignore_ascii_case(collation.charset));
    own.and_then(|(_, name)| by_name_in(Flavor::MariaDb, name.trim())).unwrap_or(collation)
}

/// All rows of this id: none, one, or two.
fn rows(id: u16) -> &'static [Collation] {
    let start = TABLE.partition_point(|row| row.id < id);
    let end = TABLE.partition_point(|row| row.id <= id);
    &TABLE[start..end]
}

/// Compares without case, and with the old name of utf8mb3.
fn same_name(ours: &str, theirs: &str) -> bool {
    let old = || {
        ours.strip_prefix("utf8mb3_")
            .zip(theirs.get(..5))
            .is_some_and(|(tail, head)| head.eq_ignore_ascii_case("utf8_") && tail.eq_ignore_ascii_case(&theirs[5..]))
    };
    ours.eq_ignore_ascii_case(theirs) || old()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_has_no_doubles() {
        for pair in TABLE.windows(2) {
            assert!(
                pair[0].id < pair[1].id
                    || (pair[0].id == pair[1].id && pair[0].known_to == Flavors::MYSQL && pair[1].known_to == Flavors::MARIADB)
            );
        }
        for flavor in [Flavor::MySql, Flavor::MariaDb] {
            for row in TABLE.iter().filter(|row| row.known_to.contains(flavor)) {
                assert_eq!(collation_in(flavor, row.id), Some(row));
                assert_eq!(by_name_in(flavor, row.name), Some(row));
            }
        }
    }

    #[test]
    fn only_defaults_are_taken_for_others() {
        let name = |id, chosen| chosen_for(collation_in(Flavor::MariaDb, id).unwrap(), chosen).name;
        const CHOSEN: &str = "utf8mb3=utf8mb3_uca1400_ai_ci,UTF8MB4=utf8mb4_uca1400_as_cs";
        assert_eq!((name(45, CHOSEN), name(33, CHOSEN)), ("utf8mb4_uca1400_as_cs", "utf8mb3_uca1400_ai_ci"));
        assert_eq!((name(46, CHOSEN), name(224, CHOSEN), name(8, CHOSEN)), ("utf8mb4_bin", "utf8mb4_unicode_ci", "latin1_swedish_ci"));
        assert_eq!((name(45, ""), name(45, "utf8mb4=none,")), ("utf8mb4_general_ci", "utf8mb4_general_ci"));
    }

    #[test]
    fn well_known_ones() {
        assert_eq!(collation(8).unwrap().name, "latin1_swedish_ci");
        assert_eq!(collation(63).unwrap().charset, "binary");
        assert_eq!(collation(255).unwrap().name, "utf8mb4_0900_ai_ci");
        assert_eq!(collation_in(Flavor::MariaDb, 255), None);
        assert_eq!(by_name("UTF8_general_ci").unwrap().id, 33);
        assert_eq!(by_name("utf8"), None);
        assert_eq!(collation(9999), None);
        assert_eq!(default_of(Flavor::MySql, "utf8mb4").unwrap().id, 255);
        assert_eq!(default_of(Flavor::MariaDb, "UTF8MB4").unwrap().id, 45);
        assert_eq!(default_of(Flavor::MySql, "utf8").unwrap().id, 33);
    }

    #[test]
    fn ids_that_mean_two_things() {
        assert_eq!(collation_in(Flavor::MySql, 245).unwrap().name, "utf8mb4_croatian_ci");
        assert_eq!(collation_in(Flavor::MariaDb, 245).unwrap().name, "utf8mb4_croatian_mysql561_ci");
        assert_eq!(by_name_in(Flavor::MariaDb, "utf8mb4_croatian_ci").unwrap().id, 608);
    }
}
