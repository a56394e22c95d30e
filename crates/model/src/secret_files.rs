//! Secrets in files, as Kubernetes, systemd and agents of vaults provide them.
//!
//! Each secret setting has a twin with `_file` behind its name: a path whose content takes the secret's place. Users have the key
//! `password_file` in their attributes. Tables, dumps and histories keep the path. Parts that need the secret get a configuration with the
//! content in place ([`SecretFiles::laid_over`]).
//!
//! INVARIANT: no error, warning or `Debug` text holds any part of a content.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::shared::set;
use crate::config::{Cell, Config};
use crate::error::{ConfigError, ErrorKind, Origin};
use crate::secret::Secret;
use crate::settings::{AdminVariables, MysqlVariables, Setting};
use crate::snapshot::password_file;

/// The suffix of a setting with a path.
pub const SUFFIX: &str = "_file";
/// Longest content, bytes.
const MOST_BYTES: usize = 65_536;
/// Most files: each is looked at twice a second.
const MOST_FILES: usize = 1_000;

/// The owner of a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    /// The full name of the secret's setting.
    Setting(String),
    /// A user, and whether it is its row for clients, for servers or for both.
    User(String, [bool; 2]),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Setting(name) => write!(f, "{name}{SUFFIX}"),
            Self::User(name, _) => write!(f, "password_file of user '{name}'"),
        }
    }
}

/// One file: its path, the content of the last successful read, and the error of the last read.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    path: PathBuf,
    content: Secret,
    fault: Option<String>,
}

/// A file that a configuration names.
struct Named {
    holder: Holder,
    at: Option<Origin>,
    path: PathBuf,
}

/// The contents of all files that a configuration names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SecretFiles(BTreeMap<Holder, Held>);

impl SecretFiles {
    /// Reads what `config` names. A file that was read before, by `known`, and cannot be read now has the content that it had.
    ///
    /// # Errors
    /// What cannot be read and was not read before.
    pub fn read(config: &Config, known: &Self) -> Result<Self, Vec<ConfigError>> {
        let (mut files, mut errors) = (BTreeMap::new(), Vec::new());
        let named = named(config);
        if named.len() > MOST_FILES {
            let reason = format!("the settings name {} files with secrets, more than {MOST_FILES}", named.len());
            return Err(vec![ConfigError { at: None, subject: String::new(), kind: ErrorKind::Claimed(reason) }]);
        }
        for Named { holder, at, path } in named {
            let before = known.0.get(&holder).filter(|held| held.path == path);
            match (content(&path).and_then(|content| fits(&holder, content)), before) {
                (Ok(content), _) => drop(files.insert(holder, Held { path, content, fault: None })),
                (Err(why), Some(held)) => {
                    let (content, fault) = (held.content.clone(), Some(why));
                    files.insert(holder, Held { path, content, fault });
                }
                (Err(reason), None) => {
                    let kind = ErrorKind::Unreadable { file: path.display().to_string(), reason };
                    let subject = match &holder {
                        Holder::Setting(_) => holder.to_string(),
                        Holder::User(..) => "mysql_users.attributes".to_owned(),
                    };
                    errors.push(ConfigError { at, subject, kind });
                }
            }
        }
        if errors.is_empty() { Ok(Self(files)) } else { Err(errors) }
    }

    /// The files that `config` names.
    pub fn paths(config: &Config) -> Vec<PathBuf> {
        named(config).into_iter().map(|named| named.path).collect()
    }

    /// The configuration with the contents in place.
    pub fn laid_over(&self, config: &Arc<Config>) -> Arc<Config> {
        if self.0.is_empty() {
            return Arc::clone(config);
        }
        let mut laid = Config::clone(config);
        for (holder, held) in &self.0 {
            if let Holder::Setting(name) = holder
                && let Some(setting) = Setting::by_full_name(name)
            {
                // It was tried when it was read.
                let _ = set(&mut laid, setting, &held.content.expose_text());
            }
        }
        for row in laid.tables.get_mut("mysql_users").into_iter().flatten() {
            let held = user(row).and_then(|holder| self.0.get(&holder));
            if let (Some(held), Some(at)) = (held, row.table.column_index("password")) {
                row.cells[at] = Cell::Secret(held.content.clone());
            }
        }
        Arc::new(laid)
    }

    /// The changes since `before`, one line each. The flag says whether an operator should act.
    pub fn news(&self, before: &Self) -> Vec<(bool, String)> {
        let line = |(holder, held): (&Holder, &Held)| {
            let (known, path) = (before.0.get(holder).filter(|known| known.path == held.path), held.path.display());
            match &held.fault {
                Some(why) if known.is_none_or(|known| known.fault.as_ref() != Some(why)) => {
                    Some((true, format!("{holder}: cannot read '{path}': {why}; its earlier content stays in force")))
                }
                None if known.is_some_and(|known| known.content != held.content) => {
                    Some((false, format!("{holder}: '{path}' has changed; the new content is in force")))
                }
                None if known.is_some_and(|known| known.fault.is_some()) => Some((false, format!("{holder}: '{path}' can be read again"))),
                _ => None,
            }
        };
        self.0.iter().filter_map(line).collect()
    }

    /// Whether anything is in force that was not with `before`.
    pub fn differs(&self, before: &Self) -> bool {
        let contents = |files: &Self| files.0.iter().map(|(holder, held)| (holder.clone(), held.content.clone())).collect::<Vec<_>>();
        contents(self) != contents(before)
    }

    /// How many there are, and how many of them cannot be read now.
    pub fn counts(&self) -> (usize, usize) {
        (self.0.len(), self.0.values().filter(|held| held.fault.is_some()).count())
    }

    /// Path and content of each, for a process that takes over and may find a file gone.
    pub fn keep(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.0.values().map(|held| (held.path.clone(), held.content.expose().to_vec())).collect()
    }

    /// The contents that another process kept for the files that `config` names.
    pub fn recall(config: &Config, kept: &[(PathBuf, Vec<u8>)]) -> Self {
        let held = |Named { holder, path, .. }: Named| {
            let (_, content) = kept.iter().find(|(known, _)| *known == path)?;
            Some((holder, Held { path, content: Secret::new(content.clone()), fault: None }))
        };
        Self(named(config).into_iter().filter_map(held).collect())
    }
}

/// Every setting that is a secret.
fn secrets() -> impl Iterator<Item = &'static Setting> {
    MysqlVariables::SETTINGS.iter().chain(AdminVariables::SETTINGS).filter(|setting| setting.is_secret())
}

fn named(config: &Config) -> Vec<Named> {
    let of_setting = |setting: &Setting| {
        let name = format!("{}{SUFFIX}", setting.name);
        let path = match setting.module {
            MysqlVariables::MODULE => config.mysql.get(&name),
            _ => config.admin.get(&name),
        };
        let path = path.filter(|path| !path.is_empty())?;
        Some(Named { holder: Holder::Setting(setting.full_name()), at: None, path: path.into() })
    };
    let of_user = |row: &crate::config::Row| {
        let path = password_file(row)?;
        Some(Named { holder: user(row)?, at: Some(row.position("attributes")), path: path.into() })
    };
    let users = config.rows("mysql_users").iter().filter(|row| row.flag("active"));
    secrets().filter_map(of_setting).chain(users.filter_map(of_user)).collect()
}

fn user(row: &crate::config::Row) -> Option<Holder> {
    Some(Holder::User(row.text("username")?.to_owned(), [row.flag("frontend"), row.flag("backend")]))
}

/// Whether the setting accepts the content.
fn fits(holder: &Holder, content: Secret) -> Result<Secret, String> {
    if let Holder::Setting(name) = holder
        && let Some(setting) = Setting::by_full_name(name)
    {
        let text = std::str::from_utf8(content.expose()).map_err(|_| "the file is not UTF-8".to_owned())?;
        set(&mut Config::default(), setting, text).map_err(|error| error.to_string())?;
    }
    Ok(content)
}

/// A file's content without one final line feed. Symbolic links are followed.
fn content(path: &Path) -> Result<Secret, String> {
    let said = |error: std::io::Error| error.to_string();
    // Opening a pipe might wait for ever.
    if !std::fs::metadata(path).map_err(said)?.is_file() {
        return Err("the file is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).map_err(said)?.take(limit).read_to_end(&mut bytes).map_err(said)?;
    if bytes.len() > MOST_BYTES {
        return Err(format!("the file has more than {MOST_BYTES} bytes"));
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        bytes.pop_if(|last| *last == b'\r');
    }
    // So a file looks that is being written.
    if bytes.is_empty() { Err("the file is empty".to_owned()) } else { Ok(Secret::new(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Password;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn config(text: &str) -> Arc<Config> {
        Arc::new(crate::parse(text, "t.cnf").unwrap().0)
    }

    fn read(config: &Config, known: &SecretFiles) -> Result<SecretFiles, String> {
        SecretFiles::read(config, known).map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn every_secret_may_stand_in_a_file() {
        assert_eq!(secrets().count(), 8);
        for setting in secrets() {
            let file = Setting::by_full_name(&format!("{}{SUFFIX}", setting.full_name())).unwrap_or_else(|| panic!("{}", setting.name));
            assert!(!file.is_secret() && file.effect == setting.effect, "{}", file.name);
        }
    }

    #[test]
    fn contents_take_the_place_of_secrets_and_paths_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (monitor, login, app) = (dir.path().join("monitor"), dir.path().join("login"), dir.path().join("app"));
        for (path, text) in [(&monitor, "one\r\n"), (&login, "root:two;other:three\n"), (&app, "four\n\n")] {
            fs::write(path, text).unwrap();
        }
        let text = format!(
            "mysql_variables = {{ monitor_password=\"unused\", monitor_password_file=\"{}\" }} admin_variables = {{ admin_credentials_file=\"{}\" }}
             mysql_users = ( {{ username=\"app\", attributes=\"{{\\\"password_file\\\":\\\"{}\\\"}}\" }}, {{ username=\"b\", password=\"own\" }} )",
            monitor.display(),
            login.display(),
            app.display()
        );
        let config = config(&text);
        let files = read(&config, &SecretFiles::default()).unwrap();
        assert_eq!((files.counts(), SecretFiles::paths(&config).len()), ((3, 0), 3));
        let laid = files.laid_over(&config);
        assert_eq!(laid.mysql.monitor_password, Secret::from("one"));
        assert_eq!(laid.admin.admin_credentials, Secret::from("root:two;other:three"));
        let snapshot = crate::Snapshot::compile(&laid).unwrap();
        let password = |name: &[u8]| snapshot.frontend_user(name).unwrap().password.clone();
        assert_eq!(password(b"app"), Password::Clear(Secret::from("four\n")));
        assert_eq!(password(b"b"), Password::Clear(Secret::from("own")));
        let dump = crate::config::text::to_text(&config);
        assert!(dump.contains("unused") && !dump.contains("root:two") && !format!("{files:?}").contains("root:two"), "{dump}");
        // If a file is gone, the content from the other process counts.
        fs::remove_file(&app).unwrap();
        let given = SecretFiles::recall(&config, &files.keep());
        assert!(!given.differs(&files));
        assert_eq!(read(&config, &given).unwrap().counts(), (3, 1));
    }

    #[test]
    fn what_cannot_be_read_is_refused_or_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let config = config(&format!("admin_variables = {{ stats_credentials_file=\"{}\" }}", path.display()));
        let none = SecretFiles::default();
        let named = format!("admin-stats_credentials_file: cannot read '{}': ", path.display());
        let refused = |why: &str| assert_eq!(read(&config, &none).unwrap_err(), format!("{named}{why}"));
        refused("No such file or directory (os error 2)");
        fs::create_dir(&path).unwrap();
        refused("the file is not a regular file");
        fs::remove_dir(&path).unwrap();
        let bad: [(Vec<u8>, &str); 4] = [
            (b"\n".to_vec(), "the file is empty"),
            (b"hunter2".to_vec(), "'***': must be user:password, separated by ';'"),
            (b"hunter2:\xff".to_vec(), "the file is not UTF-8"),
            (vec![b'x'; MOST_BYTES + 2], "the file has more than 65536 bytes"),
        ];
        for (bytes, why) in &bad {
            fs::write(&path, bytes).unwrap();
            refused(why);
        }
        // As Kubernetes does it: a link to a link that is moved.
        fs::remove_file(&path).unwrap();
        for (version, text) in [("v1", "s:one"), ("v2", "s:two")] {
            fs::create_dir(dir.path().join(version)).unwrap();
            fs::write(dir.path().join(version).join("secret"), text).unwrap();
        }
        let data = dir.path().join("..data");
        symlink("v1", &data).unwrap();
        symlink("..data/secret", &path).unwrap();
        let first = read(&config, &none).unwrap();
        fs::remove_file(&data).unwrap();
        let gone = read(&config, &first).unwrap();
        assert!(!gone.differs(&first) && gone.counts() == (1, 1));
        let news = gone.news(&first);
        let [(true, line)] = &news[..] else { panic!("{news:?}") };
        assert!(line.contains("its earlier content stays in force") && !line.contains("s:one"), "{line}");
        assert!(gone.news(&gone).is_empty(), "said once");
        symlink("v2", &data).unwrap();
        let second = read(&config, &gone).unwrap();
        assert!(second.differs(&gone) && matches!(&second.news(&gone)[..], [(false, _)]));
        assert_eq!(second.laid_over(&config).admin.stats_credentials, Secret::from("s:two"));
    }
}
