//! Keys and passwords of a replay.

use super::options::ReplayOptions;
use super::target::{Account, Target};
use anyhow::{Context, Result};
use capture::seal::{self, PrivateKey};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const PASSWORD_VARIABLE: &str = "TIDEGATE_REPLAY_PASSWORD";

/// Reads the key that opens files.
pub(super) fn read_private(path: &Path) -> Result<PrivateKey> {
    let named = || format!("private key {}", path.display());
    let pem = Zeroizing::new(fs::read_to_string(path).with_context(named)?);
    PrivateKey::from_pem(&pem).with_context(named)
}

/// Writes a new pair of keys.
pub(super) fn generate(name: &Path) -> Result<()> {
    let with = |end: &str| PathBuf::from(format!("{}{end}", name.display()));
    let (private_path, public_path) = (with(".key.pem"), with(".pub.pem"));
    let (private, public) = seal::generate()?;
    write(&private_path, 0o600, private.as_bytes())?;
    write(&public_path, 0o644, public.to_pem().as_bytes())?;
    println!("{} opens captures: keep it away from the proxy", private_path.display());
    println!("{} is for CAPTURE START ... TO PUBLIC KEY", public_path.display());
    Ok(())
}

/// Writes a file that must not exist.
fn write(path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(bytes)).with_context(|| format!("cannot write {}", path.display()))
}

/// Where sessions are replayed, and as whom.
pub(super) fn target(options: &ReplayOptions, address: &str) -> Result<Target> {
    let password = match &options.password_file {
        Some(path) => password_in(path)?,
        None => Zeroizing::new(std::env::var(PASSWORD_VARIABLE).unwrap_or_default()),
    };
    let usual = Account { user: options.user.clone(), password };
    let others = options.users.as_deref().map(others).transpose()?.unwrap_or_default();
    Ok(Target { address: address.to_owned(), usual, others, ca: options.ca.clone() })
}

fn password_in(path: &Path) -> Result<Zeroizing<String>> {
    let text = Zeroizing::new(fs::read_to_string(path).with_context(|| format!("password file {}", path.display()))?);
    Ok(Zeroizing::new(text.trim_end_matches(['\n', '\r']).to_owned()))
}

/// Who logs in for a captured user, in a file of `--users`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    user: String,
    /// Relative to that file; none for an empty password.
    password_file: Option<PathBuf>,
}

fn others(path: &Path) -> Result<BTreeMap<String, Account>> {
    let named = || format!("users file {}", path.display());
    let users: BTreeMap<String, Named> = serde_json::from_str(&fs::read_to_string(path).with_context(named)?).with_context(named)?;
    let beside = path.parent().unwrap_or(Path::new(""));
    let account = |(captured, Named { user, password_file })| {
        let password = password_file.map_or_else(|| Ok(Zeroizing::default()), |file| password_in(&beside.join(file)))?;
        Ok((captured, Account { user, password }))
    };
    users.into_iter().map(account).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn other_users_are_read_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.json");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            others(&path).map_err(|e| format!("{e:#}"))
        };
        fs::write(dir.path().join("pw"), "secret\n").unwrap();
        let users = read(r#"{"app": {"user": "app2", "password_file": "pw"}, "batch": {"user": "root"}}"#).unwrap();
        let shown: Vec<_> = users.iter().map(|(captured, to)| (captured.as_str(), to.user.as_str(), to.password.as_str())).collect();
        assert_eq!(shown, [("app", "app2", "secret"), ("batch", "root", "")]);
        assert!(read(r#"{"app": {"user": "app2", "password": "x"}}"#).is_err_and(|e| e.contains("unknown field `password`")));
        assert!(read(r#"{"app": {"user": "app2", "password_file": "nowhere"}}"#).is_err_and(|e| e.contains("password file")));
    }

    #[test]
    fn a_pair_is_written_once_and_only_the_owner_reads_the_private_key() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("friday");
        generate(&name).unwrap();
        let path = dir.path().join("friday.key.pem");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let public = fs::read_to_string(dir.path().join("friday.pub.pem")).unwrap();
        assert_eq!(read_private(&path).unwrap().public().to_pem(), public);
        assert!(format!("{:#}", generate(&name).unwrap_err()).contains("cannot write"));
        assert!(read_private(&dir.path().join("friday.pub.pem")).is_err_and(|e| format!("{e:#}").contains("no X25519 PRIVATE KEY")));
    }
}
