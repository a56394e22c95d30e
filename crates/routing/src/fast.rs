//! Fast routing: (user, schema, flag) to a hostgroup, by hash.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use model::HostgroupId;
use model::snapshot::FastRoute;

/// The rows of `mysql_query_rules_fast_routing`.
#[derive(Debug, Default)]
pub(crate) struct FastRoutes {
    table: HashTable<FastRoute>,
    hasher: foldhash::fast::RandomState,
}

impl FastRoutes {
    /// Of two rows with one key the later counts; the table's key forbids them.
    pub(crate) fn new(rows: &[FastRoute]) -> Self {
        let mut routes = Self { table: HashTable::with_capacity(rows.len()), hasher: foldhash::fast::RandomState::default() };
        for row in rows {
            routes.insert(row);
        }
        routes
    }

    fn insert(&mut self, row: &FastRoute) {
        let Self { table, hasher } = self;
        let key = |row: &FastRoute| hash(hasher, row.username.as_bytes(), row.schemaname.as_bytes(), row.flag_in);
        let is_same =
            |other: &FastRoute| (&other.username, &other.schemaname, other.flag_in) == (&row.username, &row.schemaname, row.flag_in);
        match table.entry(key(row), is_same, key) {
            hashbrown::hash_table::Entry::Occupied(mut entry) => entry.get_mut().destination = row.destination,
            hashbrown::hash_table::Entry::Vacant(entry) => {
                entry.insert(row.clone());
            }
        }
    }

    /// The hostgroup of statements that no rule applied to: the user's row, else the row of any user.
    pub(crate) fn find(&self, user: &[u8], schema: &[u8], flag: u32) -> Option<HostgroupId> {
        if self.table.is_empty() {
            return None;
        }
        self.exactly(user, schema, flag).or_else(|| self.exactly(b"", schema, flag))
    }

    fn exactly(&self, user: &[u8], schema: &[u8], flag: u32) -> Option<HostgroupId> {
        let is_it = |row: &FastRoute| row.flag_in == flag && row.username.as_bytes() == user && row.schemaname.as_bytes() == schema;
        self.table.find(hash(&self.hasher, user, schema, flag), is_it).map(|row| row.destination)
    }
}

fn hash(hasher: &foldhash::fast::RandomState, user: &[u8], schema: &[u8], flag: u32) -> u64 {
    hasher.hash_one((user, schema, flag))
}
