//! What the topology has to know again when the proxy is started again, in a file of the data directory.
//!
//! One JSON document, replaced as a whole. Written beside the monitor's work: a slow disk delays no decision. A file that cannot
//! be read or written is told in the log, and nothing depends on it but who writes where the proxy chooses.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use model::{HostgroupId, ServerAddr, files};
use serde_json::{Value, json};
use topology::{Identity, KnownIdentity, Standing, Standings};

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
    there: Mutex<Option<Standings>>,
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
    pub(crate) fn read(&self) -> io::Result<Standings> {
        let standings = self.parse()?;
        *lock(&self.there) = Some(standings.clone());
        Ok(standings)
    }

    fn parse(&self) -> io::Result<Standings> {
        let is_too_long = match std::fs::metadata(&self.path) {
            Ok(found) => found.len() > BYTES_MAX,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Standings::default()),
            Err(e) => return Err(e),
        };
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("{} does not say who writes", self.path.display()));
        if is_too_long {
            return Err(invalid());
        }
        let document: Value = serde_json::from_slice(&std::fs::read(&self.path)?)?;
        let list = |name| document.get(name).and_then(Value::as_array);
        let writers = list("writers").ok_or_else(invalid)?.iter().map(|one| standing(one).ok_or_else(invalid));
        // Files of before have no such list.
        let clusters = list("clusters").into_iter().flatten().map(|one| known(one).ok_or_else(invalid));
        Ok(Standings { writers: writers.collect::<io::Result<_>>()?, identities: clusters.collect::<io::Result<_>>()? })
    }

    /// Nothing is kept.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn forget(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => {
                *lock(&self.there) = Some(Standings::default());
                Ok(())
            }
        }
    }

    /// Puts what holds when its turn has come in its place, if something else is there.
    ///
    /// # Errors
    /// When the system refuses; then the file is as it was.
    pub(crate) fn write(&self, standings: impl FnOnce() -> Standings) -> io::Result<()> {
        let mut there = lock(&self.there);
        let standings = standings();
        if there.as_ref() != Some(&standings) {
            self.replace(&standings)?;
            *there = Some(standings);
        }
        Ok(())
    }

    fn replace(&self, standings: &Standings) -> io::Result<()> {
        let writers: Vec<Value> = standings.writers.iter().map(document).collect();
        let clusters: Vec<Value> = standings.identities.iter().map(cluster).collect();
        let text = serde_json::to_vec_pretty(&json!({ "writers": writers, "clusters": clusters }))?;
        files::replace(&self.path, &text)
    }
}

fn document(standing: &Standing) -> Value {
    let Standing { writer, server, is_preferred } = standing;
    json!({ "writer_hostgroup": writer.0, "hostname": *server.host, "port": server.port, "is_preferred": is_preferred })
}

fn cluster(known: &KnownIdentity) -> Value {
    let KnownIdentity { writer, kind, identity, servers } = known;
    let servers: Vec<Value> = servers.iter().map(|server| json!({ "hostname": *server.host, "port": server.port })).collect();
    json!({ "writer_hostgroup": writer.0, "kind": kind, "identity": identity.as_str(), "servers": servers })
}

fn standing(document: &Value) -> Option<Standing> {
    Some(Standing { writer: writer(document)?, server: server(document)?, is_preferred: document.get("is_preferred")?.as_bool()? })
}

fn known(document: &Value) -> Option<KnownIdentity> {
    let text = |name| document.get(name)?.as_str();
    Some(KnownIdentity {
        writer: writer(document)?,
        kind: text("kind")?.to_owned(),
        identity: Identity::new(text("identity")?)?,
        servers: document.get("servers")?.as_array()?.iter().map(server).collect::<Option<_>>()?,
    })
}

fn writer(document: &Value) -> Option<HostgroupId> {
    u32::try_from(document.get("writer_hostgroup")?.as_u64()?).ok().map(HostgroupId)
}

fn server(document: &Value) -> Option<ServerAddr> {
    let port = u16::try_from(document.get("port")?.as_u64()?).ok()?;
    Some(ServerAddr { host: document.get("hostname")?.as_str()?.into(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path());
        assert_eq!(kept.read().unwrap(), Standings::default());
        let server = ServerAddr { host: "db \"1\"".into(), port: 3306 };
        let standings = [true, false].map(|is_preferred| Standing { writer: HostgroupId(7), server: server.clone(), is_preferred });
        let servers = [server.clone()].into();
        let identity = Identity::new("6f3c \"prod\"").unwrap();
        let known = KnownIdentity { writer: HostgroupId(7), kind: "galera".to_owned(), identity, servers };
        for (writers, identities) in [(&standings[..], vec![known]), (&[], Vec::new()), (&standings[1..], Vec::new())] {
            let all = Standings { writers: writers.to_vec(), identities };
            kept.write(|| all.clone()).unwrap();
            assert_eq!(kept.read().unwrap(), all);
        }
    }

    /// From before clusters were kept.
    #[test]
    fn an_older_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let writer = r#"{ "writer_hostgroup": 7, "hostname": "db", "port": 3306, "is_preferred": true }"#;
        std::fs::write(directory.path().join(FILE), format!("{{ \"writers\": [{writer}] }}")).unwrap();
        let kept = Kept::new(directory.path()).read().unwrap();
        assert_eq!((kept.writers.len(), kept.identities.len()), (1, 0));
    }

    #[test]
    fn what_is_no_such_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path());
        for text in
            ["", "{", "[]", "{\"writers\": 1}", "{\"writers\": [], \"clusters\": [{}]}", "{\"writers\": [{\"writer_hostgroup\": -1}]}"]
        {
            std::fs::write(directory.path().join(FILE), text).unwrap();
            assert!(kept.read().is_err(), "{text}");
        }
    }
}
