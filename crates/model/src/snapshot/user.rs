//! Users: the logins of clients, and the logins to backends.

use std::sync::Arc;

use super::Snapshot;
use super::effective::{Overrides, Place};
use super::hostgroup::{json_object, number};
use super::split::{self, Pairs, UserSplit};
use crate::config::{Config, Row};
use crate::error::{ConfigError, ErrorKind};
use crate::ids::HostgroupId;
use crate::secret::Secret;

/// One active row of `mysql_users`.
#[derive(Debug, Clone, PartialEq)]
pub struct User {
    /// As the client sends it.
    pub name: Box<str>,
    /// The password or hash that a login is checked against.
    pub password: Password,
    /// Whether clients must use TLS.
    pub use_ssl: bool,
    /// The hostgroup of statements that no rule routes.
    pub default_hostgroup: HostgroupId,
    /// Schema of sessions that name none. See [`Snapshot::default_schema`].
    pub default_schema: Option<Box<str>>,
    /// Kept as ProxySQL keeps it; it has no effect there either.
    pub schema_locked: bool,
    /// Whether a transaction stays in the hostgroup where it began.
    pub transaction_persistent: bool,
    /// Whether sessions are relayed one to one.
    pub fast_forward: bool,
    /// Most client connections of this user.
    pub max_connections: u32,
    /// Parsed JSON.
    pub attributes: UserAttributes,
}

/// The keys of the `attributes` column of a user. Others are refused.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UserAttributes {
    /// `default-transaction_isolation`: set at login and after a reset.
    pub default_transaction_isolation: Option<Box<str>>,
    /// `additional_password`: lets clients in as well, while applications change from one password to the other. Servers get
    /// [`User::password`].
    pub additional_password: Option<Password>,
    /// They override those of the hostgroup and the variables.
    pub settings: Overrides,
    /// `read_write_split`: whether plain reads that no rule sends elsewhere go to a reader.
    pub read_write_split: UserSplit,
    /// `safe_functions`: stored functions and procedures without side effects, as `name` or `schema.name` in lower
    /// case. They do not keep a read from a reader.
    pub safe_functions: Box<[Box<str>]>,
    /// `comment_directives`: whether comments such as `/* hostgroup=2 */` are obeyed.
    pub comment_directives: bool,
    /// `replication`: whether the user may register as a replica and ask for the binary log.
    pub replication: bool,
}

impl UserAttributes {
    /// Whether the operator says that this routine has no side effects.
    pub fn declares_safe(&self, schema: Option<&str>, name: &str) -> bool {
        let full = schema.map_or_else(|| name.to_lowercase(), |schema| format!("{schema}.{name}").to_lowercase());
        self.safe_functions.iter().any(|safe| **safe == *full)
    }
}

/// The form in which a password is stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Password {
    /// There is none.
    Empty,
    /// In clear: works with every plugin, and for backends.
    Clear(Secret),
    /// `*` and 40 hex digits: SHA1(SHA1(password)), for mysql_native_password.
    NativeHash(NativeHash),
    /// The whole `$A$...` text of 70 bytes, for caching_sha2_password.
    CachingSha2Hash(Secret),
}

/// SHA1(SHA1(password)). `Debug` hides it, since it suffices to log in.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NativeHash(pub [u8; 20]);

impl std::fmt::Debug for NativeHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Length of a caching_sha2_password hash: `$A$005$`, 20 bytes of salt, 43 of digest.
const CACHING_SHA2_LENGTH: usize = 70;

impl Password {
    /// Reads the `password` column. A text that is no well-formed hash is a password in clear.
    pub fn read(secret: &Secret) -> Self {
        match secret.expose() {
            [] => Self::Empty,
            [b'*', digits @ ..] => match native_hash(digits) {
                Some(hash) => Self::NativeHash(NativeHash(hash)),
                None => Self::Clear(secret.clone()),
            },
            hash if hash.starts_with(b"$A$") && hash.len() == CACHING_SHA2_LENGTH => Self::CachingSha2Hash(secret.clone()),
            _ => Self::Clear(secret.clone()),
        }
    }
}

fn native_hash(digits: &[u8]) -> Option<[u8; 20]> {
    let mut hash = [0; 20];
    if digits.len() != 2 * hash.len() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (char::from(pair[0]).to_digit(16)?, char::from(pair[1]).to_digit(16)?);
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(hash)
}

/// Fills both maps of users.
pub(super) fn compile(config: &Config, pairs: &Pairs, snapshot: &mut Snapshot, errors: &mut Vec<ConfigError>) {
    for row in config.rows("mysql_users").iter().filter(|row| row.flag("active")) {
        let user = match user(row, pairs) {
            Ok(user) => Arc::new(user),
            Err(kind) => {
                let at = row.position("attributes").clone();
                errors.push(ConfigError::new(at, "mysql_users.attributes", kind));
                continue;
            }
        };
        if row.flag("frontend") {
            snapshot.users.insert(user.name.clone(), user.clone());
        }
        if row.flag("backend") {
            snapshot.backend_users.insert(user.name.clone(), user);
        }
    }
}

fn user(row: &Row, pairs: &Pairs) -> Result<User, ErrorKind> {
    let default_hostgroup = HostgroupId(number(row, "default_hostgroup"));
    Ok(User {
        name: row.text("username").unwrap_or_default().into(),
        password: row.secret("password").map_or(Password::Empty, Password::read),
        use_ssl: row.flag("use_ssl"),
        default_hostgroup,
        default_schema: row.text("default_schema").filter(|schema| !schema.is_empty()).map(Box::from),
        schema_locked: row.flag("schema_locked"),
        transaction_persistent: row.flag("transaction_persistent"),
        fast_forward: row.flag("fast_forward"),
        max_connections: number(row, "max_connections"),
        attributes: attributes(row.text("attributes").unwrap_or_default(), default_hostgroup, pairs)?,
    })
}

/// The key of the isolation level.
const ISOLATION: &str = "default-transaction_isolation";

/// Keys of the `attributes` column that are no settings.
const OWN_KEYS: [&str; 8] =
    [ISOLATION, ADDITIONAL_PASSWORD, PASSWORD_FILE, "spiffe_id", split::KEY, "safe_functions", "comment_directives", "replication"];

/// The key of the second password.
const ADDITIONAL_PASSWORD: &str = "additional_password";

/// The key of the file that the password stands in.
const PASSWORD_FILE: &str = "password_file";

/// The file that the password of a row of `mysql_users` stands in, if it stands in one. See [`crate::secret_files`].
pub(crate) fn password_file(row: &Row) -> Option<String> {
    let text = row.text("attributes").filter(|text| text.contains(PASSWORD_FILE) || text.contains('\\'))?;
    let path = json_object(text).ok()?.get(PASSWORD_FILE)?.as_str()?.to_owned();
    (!path.is_empty()).then_some(path)
}

/// The `attributes` column as it may be shown: with `***` for the second password.
pub fn masked_attributes(text: &str) -> String {
    if !text.contains(ADDITIONAL_PASSWORD) && !text.contains('\\') {
        return text.to_owned();
    }
    let Ok(mut object) = json_object(text) else { return "***".to_owned() };
    match object.get_mut(ADDITIONAL_PASSWORD) {
        Some(value) => *value = "***".into(),
        None => return text.to_owned(),
    }
    serde_json::Value::Object(object).to_string()
}

fn attributes(text: &str, default_hostgroup: HostgroupId, pairs: &Pairs) -> Result<UserAttributes, ErrorKind> {
    let object = json_object(text)?;
    let text = |key: &str| match object.get(key) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(text)) => Ok(Some(text.as_str().into())),
        Some(_) => Err(ErrorKind::BadJson(format!("'{key}' must be a string"))),
    };
    if object.contains_key("spiffe_id") {
        // Such a user has no password: without the check of the certificate anybody could log in.
        return Err(ErrorKind::BadJson("'spiffe_id' is not supported yet".to_owned()));
    }
    text(PASSWORD_FILE)?;
    Ok(UserAttributes {
        default_transaction_isolation: text(ISOLATION)?.map(isolation).transpose()?,
        // An empty one is none: a user with a password must not get in without.
        additional_password: text(ADDITIONAL_PASSWORD)?
            .map(|text: Box<str>| Password::read(&Secret::from(&*text)))
            .filter(|password| *password != Password::Empty),
        settings: Overrides::read(&object, Place::User, &OWN_KEYS)?,
        read_write_split: split::of_user(object.get(split::KEY), default_hostgroup, pairs)?,
        safe_functions: names(object.get("safe_functions"))?,
        comment_directives: flag(&object, "comment_directives")?,
        replication: flag(&object, "replication")?,
    })
}

/// One of the servers' four words, with blanks or dashes.
fn isolation(level: Box<str>) -> Result<Box<str>, ErrorKind> {
    const LEVELS: [&str; 4] = ["READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"];
    if LEVELS.contains(&level.trim().to_ascii_uppercase().replace(' ', "-").as_str()) {
        Ok(level)
    } else {
        Err(ErrorKind::BadJson(format!("'{ISOLATION}' is '{level}'; it must be one of {}", LEVELS.join(", "))))
    }
}

fn names(value: Option<&serde_json::Value>) -> Result<Box<[Box<str>]>, ErrorKind> {
    let bad = || ErrorKind::BadJson("'safe_functions' must be an array of names".to_owned());
    let list = match value {
        None | Some(serde_json::Value::Null) => return Ok(Box::default()),
        Some(value) => value.as_array().ok_or_else(bad)?,
    };
    let name = |entry: &serde_json::Value| entry.as_str().map(|name| name.to_lowercase().into_boxed_str());
    list.iter().map(|entry| name(entry).ok_or_else(bad)).collect()
}

fn flag(object: &serde_json::Map<String, serde_json::Value>, key: &str) -> Result<bool, ErrorKind> {
    match object.get(key) {
        None | Some(serde_json::Value::Null) => Ok(false),
        Some(serde_json::Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(ErrorKind::BadJson(format!("'{key}' must be true or false"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_shown_without_the_second_password() {
        for (text, shown) in [
            ("", ""),
            (r#"{"multiplexing": false}"#, r#"{"multiplexing": false}"#),
            (r#"{"additional_password": "hunter2"}"#, r#"{"additional_password":"***"}"#),
            (r#"{"\u0061dditional_password": "hunter2"}"#, r#"{"additional_password":"***"}"#),
            (r#"{"additional_password": "hunter2""#, "***"),
            (r#"{"safe_functions": ["additional_password"]}"#, r#"{"safe_functions": ["additional_password"]}"#),
        ] {
            assert_eq!(masked_attributes(text), shown);
        }
    }

    #[test]
    fn a_second_password_is_a_password_in_any_form() {
        let read = |text: &str| attributes(text, HostgroupId(0), &Pairs::of(&Config::default())).map(|read| read.additional_password);
        let clear = read(r#"{"additional_password": "hunter2"}"#).unwrap();
        assert_eq!(clear, Some(Password::Clear(Secret::from("hunter2"))));
        assert!(!format!("{clear:?}").contains("hunter2"));
        let hash = format!(r#"{{"additional_password": "*{}"}}"#, "0f".repeat(20));
        assert_eq!(read(&hash).unwrap(), Some(Password::NativeHash(NativeHash([15; 20]))));
        // An empty one would otherwise admit logins without a password.
        assert_eq!(read(r#"{"additional_password": ""}"#).unwrap(), None);
        assert_eq!(read(r#"{"additional_password": null}"#).unwrap(), None);
        let fault = read(r#"{"additional_password": 12345}"#).unwrap_err().to_string();
        assert!(fault.contains("'additional_password' must be a string") && !fault.contains("12345"), "{fault}");
    }
}
