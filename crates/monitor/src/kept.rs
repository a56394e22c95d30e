//! What the topology has to know again when the proxy is started again, in a file of the data directory.
//!
//! One JSON document, replaced as a whole. Written beside the monitor's work: a slow disk delays no decision. A file that cannot
//! be read or written is told in the log, and nothing depends on it but who writes where the proxy chooses.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use model::{HostgroupId, ServerAddr, files};
use serde_json::{Value, json};
use topology::Standing;

use crate::monitor::lock;

/// The file's name.
const FILE: &str = "tidegate_writers.json";
/// More are not of this proxy's making.
const BYTES_MAX: u64 = 16 << 20;

/// Where it is.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    /// What is in it, if that is known.
    there: Mutex<Option<Vec<Standing>>>,
}

impl Kept {
    /// In this directory.
    pub(crate) fn new(datadir: &Path) -> Self {
        Self { path: datadir.join(FILE), there: Mutex::default() }
    }

    /// What was written last; nothing if there is no file.
    ///
    /// # Errors
    /// When it cannot be read, or is no such file.
    pub(crate) fn read(&self) -> io::Result<Vec<Standing>> {
        let standings = self.parse()?;
        *lock(&self.there) = Some(standings.clone());
        Ok(standings)
    }

    fn parse(&self) -> io::Result<Vec<Standing>> {
        let is_too_long = match std::fs::metadata(&self.path) {
            Ok(found) => found.len() > BYTES_MAX,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("{} does not say who writes", self.path.display()));
        if is_too_long {
            return Err(invalid());
        }
        let document: Value = serde_json::from_slice(&std::fs::read(&self.path)?)?;
        let all = document.get("writers").and_then(Value::as_array).ok_or_else(invalid)?;
        all.iter().map(|one| standing(one).ok_or_else(invalid)).collect()
    }

    /// Nothing is kept.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn forget(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => {
                *lock(&self.there) = Some(Vec::new());
                Ok(())
            }
        }
    }

    /// Puts what holds when its turn has come in its place, if something else is there.
    ///
    /// # Errors
    /// When the system refuses; then the file is as it was.
    pub(crate) fn write(&self, standings: impl FnOnce() -> Vec<Standing>) -> io::Result<()> {
        let mut there = lock(&self.there);
        let standings = standings();
        if there.as_ref() != Some(&standings) {
            self.replace(&standings)?;
            *there = Some(standings);
        }
        Ok(())
    }

    fn replace(&self, standings: &[Standing]) -> io::Result<()> {
        let writers: Vec<Value> = standings.iter().map(document).collect();
        let text = serde_json::to_vec_pretty(&json!({ "writers": writers }))?;
        files::replace(&self.path, &text)
    }
}

fn document(standing: &Standing) -> Value {
    let Standing { writer, server, is_preferred } = standing;
    json!({ "writer_hostgroup": writer.0, "hostname": *server.host, "port": server.port, "is_preferred": is_preferred })
}

fn standing(document: &Value) -> Option<Standing> {
    let number = |name| document.get(name)?.as_u64();
    let server = ServerAddr { host: document.get("hostname")?.as_str()?.into(), port: u16::try_from(number("port")?).ok()? };
    let writer = HostgroupId(u32::try_from(number("writer_hostgroup")?).ok()?);
    Some(Standing { writer, server, is_preferred: document.get("is_preferred")?.as_bool()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path());
        assert_eq!(kept.read().unwrap(), []);
        let server = ServerAddr { host: "db \"1\"".into(), port: 3306 };
        let standings = [true, false].map(|is_preferred| Standing { writer: HostgroupId(7), server: server.clone(), is_preferred });
        for part in [&standings[..], &[], &standings[1..]] {
            kept.write(|| part.to_vec()).unwrap();
            assert_eq!(kept.read().unwrap(), part);
        }
    }

    #[test]
    fn what_is_no_such_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path());
        for text in ["", "{", "[]", "{\"writers\": 1}", "{\"writers\": [{\"writer_hostgroup\": -1}]}"] {
            std::fs::write(directory.path().join(FILE), text).unwrap();
            assert!(kept.read().is_err(), "{text}");
        }
    }
}
