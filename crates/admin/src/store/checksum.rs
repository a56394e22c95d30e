//! Checksums of configurations: FNV-1a, 64 bits. ProxySQL uses another hash.

use model::config::shared::is_local;
use model::{Config, Setting};

use super::modules::everything;
use super::rows::Part;

/// A hash in progress.
pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// A value: its length stands before it, so that two values are never one.
    pub(crate) fn value(&mut self, value: Option<&[u8]>) {
        let length = value.map_or(u64::MAX, |value| u64::try_from(value.len()).unwrap_or(u64::MAX));
        self.add(&length.to_le_bytes());
        self.add(value.unwrap_or_default());
    }

    /// The number as text.
    pub(crate) fn text(&self) -> String {
        format!("0x{:016X}", self.0)
    }
}

/// The checksum of a part of a configuration, without each proxy's own settings: peers compare it.
pub(crate) fn of_config(config: &Config, part: &Part) -> String {
    sum(config, part, |setting| !is_local(setting))
}

fn sum(config: &Config, part: &Part, wanted: impl Fn(&Setting) -> bool) -> String {
    let mut hash = Fnv::new();
    for table in part.tables {
        hash.value(Some(table.as_bytes()));
        for cell in config.rows(table).iter().flat_map(|row| &row.cells) {
            hash.value(cell.to_sql().as_deref());
        }
    }
    let variables = config.mysql.iter().chain(config.admin.iter());
    for (setting, value) in variables.filter(|(setting, _)| Some(setting.module) == part.variables && wanted(setting)) {
        hash.value(Some(setting.name.as_bytes()));
        hash.value(Some(value.as_bytes()));
    }
    hash.text()
}

/// One number for a whole configuration, without each proxy's own settings.
pub(crate) fn of_shared(config: &Config) -> u64 {
    let mut hash = Fnv::new();
    for part in everything() {
        hash.add(of_config(config, &part).as_bytes());
    }
    hash.0
}

/// The checksum of a whole configuration, each proxy's own settings too.
pub(crate) fn of_everything(config: &Config) -> String {
    let mut hash = Fnv::new();
    for part in everything() {
        hash.add(sum(config, &part, |_| true).as_bytes());
    }
    hash.text()
}
