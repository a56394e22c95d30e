//! What a server says of itself, and what follows from its version.

use serde::{Deserialize, Serialize};
use sql::Builtins;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use wire::charset::{self, Collation, Flavor};
use wire::flags::{Capabilities, StatusFlags};

/// What a server said of itself when it was last logged in to.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// As VERSION() says it there: `8.0.36`, `10.11.6-MariaDB-...`. MariaDB before 11.0 greets with `5.5.5-` before that.
    pub version: String,
    /// Which family's extensions it has.
    pub flavor: Flavor,
    /// Which collations it knows.
    pub family: Family,
    /// Capabilities it announced.
    pub capabilities: Capabilities,
    /// The collation id of its greeting.
    pub collation: u8,
    /// Status flags of its greeting.
    pub status: StatusFlags,
    /// Session tracking there, once the first connection has asked; one for all connections to this version of the server.
    pub tracking: Arc<OnceLock<ServerTracking>>,
}

/// The character set that a handshake's collation stands for at this server, if one is known: the server's own for an id that it does
/// not know.
pub fn charset_of(info: Option<&ServerInfo>, collation: u16) -> &'static str {
    let found = match info {
        Some(info) => info.collation_of(collation).or_else(|| info.collation_of(u16::from(info.collation))),
        None => charset::collation(collation),
    };
    found.map_or("utf8mb4", |found| found.charset)
}

/// A name that a client gives in the character set of its handshake's collation, as servers keep it; one that is no text there stays as
/// it is, and is nobody's.
pub fn name_in_utf8<'a>(info: Option<&ServerInfo>, collation: u16, name: &'a [u8]) -> Cow<'a, [u8]> {
    charset::to_utf8(charset_of(info, collation).as_bytes(), name).unwrap_or(Cow::Borrowed(name))
}

/// gb18030_unicode_520_ci.
const LAST_OF_MYSQL_5: u16 = 250;
/// utf8mb4_0900_ai_ci.
const FIRST_0900: u16 = 255;
/// utf8mb4_0900_bin.
const LAST_0900: u16 = 309;
/// utf8mb3_uca1400_ai_ci.
const FIRST_UCA1400: u16 = 2048;
/// What MariaDB from 10.0 to 10.11 greets with before its version.
const MARIADB_PREFIX: &str = "5.5.5-";
/// MariaDB's `character_set_collations` since 11.5, unless it was set.
const COLLATIONS_SINCE_11_5: &str = "utf8mb3=utf8mb3_uca1400_ai_ci,ucs2=ucs2_uca1400_ai_ci,utf8mb4=utf8mb4_uca1400_ai_ci,\
    utf16=utf16_uca1400_ai_ci,utf32=utf32_uca1400_ai_ci";

impl ServerInfo {
    /// The collation of this id, where the server knows it. Until it was asked, its version has to say what is usual: MySQL 5 has
    /// none beyond gb18030's.
    pub fn collation_of(&self, id: u16) -> Option<&'static Collation> {
        if let Some(known) = self.tracking.get().map(|asked| &asked.known).filter(|known| !known.is_empty()) {
            return known.binary_search_by_key(&id, |known| known.id).ok().map(|at| known[at]);
        }
        let is_newer = match self.family {
            Family::MySql5 => id > LAST_OF_MYSQL_5,
            Family::MariaDbEarly | Family::MariaDb => id >= FIRST_UCA1400,
            Family::MySql | Family::MariaDbUca1400 => false,
        };
        // MariaDB took over MySQL's names (MDEV-20912).
        let has_mysqls = (FIRST_0900..=LAST_0900).contains(&id) && self.is_mariadb_since((11, 4, 5));
        let known = charset::collation_in(self.flavor, id).filter(|_| !is_newer);
        known.or_else(|| charset::collation(id).filter(|_| has_mysqls))
    }

    /// The collation of this name, where the server knows it.
    pub(crate) fn collation_named(&self, name: &str) -> Option<&'static Collation> {
        let usual = charset::by_name_in(self.flavor, name).or_else(|| charset::by_name(name))?;
        self.collation_of(usual.id).filter(|known| known.name == usual.name)
    }

    /// The collation that a login with this id gets; None when the server does not know the id and goes by its own settings.
    /// Until the first connection has asked, the version has to say what is usual.
    pub fn login_collation(&self, id: u16) -> Option<&'static Collation> {
        let collation = self.collation_of(id)?;
        let usual = if self.is_mariadb_since((11, 5, 0)) { COLLATIONS_SINCE_11_5 } else { "" };
        Some(match self.flavor {
            Flavor::MariaDb => charset::chosen_for(collation, self.tracking.get().map_or(usual, |tracking| &tracking.collations)),
            Flavor::MySql => collation,
        })
    }

    /// The collation that SET NAMES gives a character set: utf8mb4 has another one since MySQL 8. None where the server knows neither.
    pub fn default_of(&self, charset: &str) -> Option<&'static Collation> {
        let usual = charset::default_of(self.flavor, charset)?;
        self.login_collation(usual.id).or_else(|| self.collation_named(&format!("{}_general_ci", usual.charset)))
    }

    /// Has it `character_set_collations`?
    pub fn chooses_collations(&self) -> bool {
        self.is_mariadb_since((11, 2, 0))
    }

    /// The version as a greeting announces it; `with_prefix` as these servers greet themselves.
    pub fn announced(&self, with_prefix: bool) -> String {
        let has_prefix = self.is_mariadb_since((10, 0, 0)) && !self.is_mariadb_since((11, 0, 0));
        let prefix = if with_prefix && has_prefix { MARIADB_PREFIX } else { "" };
        format!("{prefix}{}", self.version)
    }

    /// Has it a warning for `tx_isolation` and `tx_read_only`? It has `transaction_isolation` and `transaction_read_only`.
    pub(crate) fn prefers_transaction_names(&self) -> bool {
        self.is_mariadb_since((11, 1, 1))
    }

    fn is_mariadb_since(&self, since: (u32, u32, u32)) -> bool {
        self.flavor == Flavor::MariaDb && numbers(&self.version).is_some_and(|version| version >= since)
    }
}

/// The built-in functions of a family of servers.
pub fn builtins_of(flavor: Flavor) -> Builtins {
    match flavor {
        Flavor::MySql => Builtins::MySql,
        Flavor::MariaDb => Builtins::MariaDb,
    }
}

/// The server's own settings for session tracking, which a client sees unless it changes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrackDefaults {
    /// `session_track_system_variables`, None where the server has none.
    pub system_variables: Option<String>,
    /// `session_track_schema`.
    pub schema: bool,
    /// `session_track_state_change`.
    pub state_change: bool,
    /// `session_track_gtids` (MySQL) is not OFF.
    pub gtids: bool,
}

/// How a server's session tracker is used, and what else was asked of it once.
#[derive(Clone, Debug)]
pub struct ServerTracking {
    /// As it stands without us.
    pub defaults: TrackDefaults,
    /// The SET that makes it tell all; empty where it has no tracker.
    pub ours: Arc<str>,
    /// `character_set_collations`; empty where there is no such variable.
    pub collations: Box<str>,
    /// The collations that it knows, by id; none where it did not say.
    pub known: Box<[&'static Collation]>,
}

/// Servers that know the same collations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// MySQL 5.
    MySql5,
    /// MySQL 8 and later.
    MySql,
    /// MariaDB before 10.3.7, which has no `alter_algorithm` yet.
    MariaDbEarly,
    /// MariaDB before 10.10.
    MariaDb,
    /// MariaDB that knows uca1400.
    MariaDbUca1400,
}

/// The same for another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InfoRecord {
    version: String,
    flavor: Flavor,
    family: Family,
    capabilities: Capabilities,
    collation: u8,
    status: StatusFlags,
    tracking: Option<TrackingRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrackingRecord {
    defaults: TrackDefaults,
    ours: Arc<str>,
    collations: Box<str>,
    known: Vec<u16>,
}

impl InfoRecord {
    /// What another process needs of it.
    pub fn of(info: &ServerInfo) -> Self {
        let ServerInfo { version, flavor, family, capabilities, collation, status, tracking } = info;
        let tracking = tracking.get().map(|ServerTracking { defaults, ours, collations, known }| TrackingRecord {
            defaults: defaults.clone(),
            ours: Arc::clone(ours),
            collations: collations.clone(),
            known: known.iter().map(|collation| collation.id).collect(),
        });
        Self {
            version: version.clone(),
            flavor: *flavor,
            family: *family,
            capabilities: *capabilities,
            collation: *collation,
            status: *status,
            tracking,
        }
    }

    /// What it was written of.
    pub fn info(self) -> ServerInfo {
        let Self { version, flavor, family, capabilities, collation, status, tracking } = self;
        let known =
            |ids: Vec<u16>| ids.iter().filter_map(|id| charset::collation_in(flavor, *id).or_else(|| charset::collation(*id))).collect();
        let tracking = tracking.map(|TrackingRecord { defaults, ours, collations, known: ids }| ServerTracking {
            defaults,
            ours,
            collations,
            known: known(ids),
        });
        let tracking = Arc::new(tracking.map_or_else(OnceLock::new, OnceLock::from));
        // A process of an earlier version hands it over as the server greeted.
        let version = match version.strip_prefix(MARIADB_PREFIX) {
            Some(own) if flavor == Flavor::MariaDb => own.to_owned(),
            _ => version,
        };
        ServerInfo { version, flavor, family, capabilities, collation, status, tracking }
    }
}

impl Family {
    /// The family of a server with this version.
    pub fn of(flavor: Flavor, version: &str) -> Self {
        match flavor {
            Flavor::MySql if version.starts_with("5.") => Self::MySql5,
            Flavor::MySql => Self::MySql,
            Flavor::MariaDb => match numbers(version) {
                Some(version) if version < (10, 3, 7) => Self::MariaDbEarly,
                Some(version) if version < (10, 10, 0) => Self::MariaDb,
                _ => Self::MariaDbUca1400,
            },
        }
    }

    /// Whose extensions they have.
    pub fn flavor(self) -> Flavor {
        match self {
            Self::MySql5 | Self::MySql => Flavor::MySql,
            Self::MariaDbEarly | Self::MariaDb | Self::MariaDbUca1400 => Flavor::MariaDb,
        }
    }
}

/// Major, minor and patch.
fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split(['.', '-']);
    let mut number = || parts.next()?.parse::<u32>().ok();
    Some((number()?, number()?, number().unwrap_or_default()))
}
