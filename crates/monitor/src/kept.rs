//! The topology's state that survives a restart of the proxy, in a file of the data directory.
//!
//! One JSON document, replaced as a whole, and written beside the monitor's work: a slow disk delays no decision. Errors of the file go to
//! the log. Its part `topology` holds fences and the servers' last answers. If that part cannot be understood, the other parts still hold.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use model::{HostgroupId, ServerAddr, files};
use serde_json::{Value, json};
use topology::{Identity, Knowledge, KnownIdentity, Standing, Standings};

use crate::monitor::lock;

const FILE: &str = "tidegate_writers.json";
/// More are not of this proxy's making.
const BYTES_MAX: u64 = 16 << 20;
/// Times (ms), counts and numbers of transactions are below this.
const NUMBER_MAX: u64 = 1 << 53;
/// How the part `topology` is written.
const FORMAT: u64 = 1;

/// The file in this data directory.
pub(crate) fn file(datadir: &Path) -> PathBuf {
    datadir.join(FILE)
}

/// The file's content.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// The writers where the proxy chooses, and the clusters' identities.
    pub standings: Standings,
    /// The topology's state.
    pub knowledge: Knowledge,
    /// The part of it whose changes are worth a new file.
    gist: Knowledge,
}

impl Memory {
    pub(crate) fn new(standings: Standings, knowledge: Knowledge) -> Self {
        Self { gist: knowledge.gist(), standings, knowledge }
    }

    /// Whether it need not be written if the file holds `other`.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.standings == other.standings && self.gist == other.gist
    }
}

/// The file, and the path to it.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    /// Its content; None if unknown.
    there: Mutex<Option<Memory>>,
}

impl Kept {
    pub(crate) fn new(datadir: &Path) -> Self {
        Self { path: file(datadir), there: Mutex::default() }
    }

    /// The content last written; empty if there is no file.
    ///
    /// # Errors
    /// The file cannot be read or understood.
    pub(crate) fn read(&self) -> io::Result<Memory> {
        let memory = self.parse()?;
        *lock(&self.there) = Some(memory.clone());
        Ok(memory)
    }

    fn parse(&self) -> io::Result<Memory> {
        let is_too_long = match std::fs::metadata(&self.path) {
            Ok(found) => found.len() > BYTES_MAX,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Memory::default()),
            Err(e) => return Err(e),
        };
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("{} does not name the writers", self.path.display()));
        if is_too_long {
            return Err(invalid());
        }
        let mut document: Value = serde_json::from_slice(&std::fs::read(&self.path)?)?;
        let list = |name| document.get(name).and_then(Value::as_array);
        let writers = list("writers").ok_or_else(invalid)?.iter().map(|one| standing(one).ok_or_else(invalid));
        // Files of before have no such list.
        let clusters = list("clusters").into_iter().flatten().map(|one| known(one).ok_or_else(invalid));
        let standings = Standings { writers: writers.collect::<io::Result<_>>()?, identities: clusters.collect::<io::Result<_>>()? };
        // Files of before have no such part.
        let topology = document.get_mut("topology").map(Value::take);
        let knowledge = topology.map_or_else(|| Ok(Knowledge::default()), knowledge).unwrap_or_else(|why| {
            let path = self.path.display();
            tracing::warn!("{path}: {why}. The proxy does not know which servers were excluded: every server with read_only=0 may write");
            Knowledge::default()
        });
        Ok(Memory::new(standings, knowledge))
    }

    /// Nothing is kept.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn forget(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => {
                *lock(&self.there) = Some(Memory::default());
                Ok(())
            }
        }
    }

    /// Another process may have written the file, so its content counts as unknown.
    pub(crate) fn doubt(&self) {
        *lock(&self.there) = None;
    }

    /// Puts what holds when its turn has come in its place, if something else is there.
    ///
    /// # Errors
    /// When the system refuses; then the file is as it was.
    pub(crate) fn write(&self, memory: impl FnOnce() -> Memory) -> io::Result<()> {
        let mut there = lock(&self.there);
        let memory = memory();
        if !there.as_ref().is_some_and(|there| there.is_as(&memory)) {
            self.replace(&memory)?;
            *there = Some(memory);
        }
        Ok(())
    }

    fn replace(&self, Memory { standings, knowledge, .. }: &Memory) -> io::Result<()> {
        let writers: Vec<Value> = standings.writers.iter().map(document).collect();
        let clusters: Vec<Value> = standings.identities.iter().map(cluster).collect();
        let mut all = json!({ "writers": writers, "clusters": clusters });
        let rest = serde_json::to_vec_pretty(&all)?;
        if !knowledge.is_empty() {
            all["topology"] = json!({ "format": FORMAT, "known": knowledge });
        }
        let text = serde_json::to_vec_pretty(&all)?;
        if text.len() as u64 <= BYTES_MAX {
            return files::replace(&self.path, &text);
        }
        tracing::error!("the list of excluded servers was not written to {}: it has more than {} MB", self.path.display(), BYTES_MAX >> 20);
        files::replace(&self.path, &rest)
    }
}

/// Reads the part `topology`.
fn knowledge(mut part: Value) -> Result<Knowledge, String> {
    match part.get("format").and_then(Value::as_u64) {
        Some(FORMAT) => {}
        Some(other) => return Err(format!("its part topology has format {other}, and this version reads format {FORMAT}")),
        None => return Err("its part topology has no format".to_owned()),
    }
    let known = part.get_mut("known").map(Value::take).unwrap_or_default();
    if is_beyond(&known) {
        return Err("its part topology is broken: a number is out of range".to_owned());
    }
    serde_json::from_value(known).map_err(|e| format!("its part topology is broken: {e}"))
}

/// A time that is so large that nothing could be added to it.
fn is_beyond(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64().is_none_or(|number| number > NUMBER_MAX),
        Value::Array(all) => all.iter().any(is_beyond),
        Value::Object(all) => all.values().any(is_beyond),
        _ => false,
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
        assert!(kept.read().unwrap().is_as(&Memory::default()));
        let server = ServerAddr { host: "db \"1\"".into(), port: 3306 };
        let standings = [true, false].map(|is_preferred| Standing { writer: HostgroupId(7), server: server.clone(), is_preferred });
        let servers = [server.clone()].into();
        let identity = Identity::new("6f3c \"prod\"").unwrap();
        let known = KnownIdentity { writer: HostgroupId(7), kind: "galera".to_owned(), identity, servers };
        for (writers, identities) in [(&standings[..], vec![known]), (&[], Vec::new()), (&standings[1..], Vec::new())] {
            let all = Memory::new(Standings { writers: writers.to_vec(), identities }, Knowledge::default());
            kept.write(|| all.clone()).unwrap();
            assert_eq!(kept.read().unwrap().standings, all.standings);
        }
    }

    /// From before clusters were kept.
    #[test]
    fn an_older_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let writer = r#"{ "writer_hostgroup": 7, "hostname": "db", "port": 3306, "is_preferred": true }"#;
        std::fs::write(directory.path().join(FILE), format!("{{ \"writers\": [{writer}] }}")).unwrap();
        let kept = Kept::new(directory.path()).read().unwrap();
        assert_eq!((kept.standings.writers.len(), kept.standings.identities.len()), (1, 0));
    }

    /// A primary that died came back after another server had taken over.
    fn with_a_fence() -> Knowledge {
        let text = "mysql_servers = ( { hostgroup=1, address=\"a\", port=3306 }, { hostgroup=2, address=\"b\", port=3306 } )
          mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )";
        let (config, _) = model::parse(text, "t.cnf").unwrap();
        let mut topology = topology::Topology::new();
        topology.configure(&std::sync::Arc::new(model::Snapshot::compile(&config).unwrap()), 0);
        let addr = |host: &str| ServerAddr { host: host.into(), port: 3306 };
        let lost = || Err(topology::ProbeError::Unreachable("refused".to_owned()));
        let story = [("a", Ok(false)), ("b", Ok(true)), ("a", lost()), ("a", lost()), ("b", Ok(false)), ("a", Ok(false))];
        for (at_s, (host, said)) in (1..).zip(story) {
            topology.observe(at_s * 1_000, &addr(host), topology::Observation::ReadOnly(said));
            topology.observe(at_s * 1_000, &addr(host), topology::Observation::Sources(Ok(topology::SourcesView::default())));
        }
        topology.knowledge_to_keep()
    }

    #[test]
    fn who_is_kept_out_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path());
        let all = Memory::new(Standings::default(), with_a_fence());
        kept.write(|| all.clone()).unwrap();
        let path = directory.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"fenced\": [\n") && text.contains("\"format\": 1"), "{text}");
        assert_eq!(Kept::new(directory.path()).read().unwrap().knowledge, all.knowledge);
        // Written by another process meanwhile.
        std::fs::write(&path, "{}").unwrap();
        kept.write(|| all.clone()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}");
        kept.doubt();
        kept.write(|| all.clone()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    /// Of a newer version, or broken: what can be understood holds.
    #[test]
    fn a_part_that_is_not_understood_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let kept = Kept::new(directory.path());
        let server = ServerAddr { host: "db".into(), port: 3306 };
        let standing = Standing { writer: HostgroupId(7), server, is_preferred: true };
        let standings = Standings { writers: vec![standing], identities: Vec::new() };
        kept.write(|| Memory::new(standings.clone(), with_a_fence())).unwrap();
        let whole: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let changes: [fn(&mut Value); 7] = [
            |topology| topology["known"]["now_ms"] = json!(u64::MAX),
            |topology| topology["format"] = json!(2),
            |topology| topology["known"]["clusters"] = json!("x"),
            |topology| topology["known"]["clusters"][0]["memory"]["replication"]["fenced"] = json!([[1, 2]]),
            |topology| topology["known"]["facts"][0] = json!([]),
            |topology| *topology = json!({}),
            |topology| *topology = Value::Null,
        ];
        for change in changes {
            let mut document = whole.clone();
            change(&mut document["topology"]);
            std::fs::write(&path, document.to_string()).unwrap();
            let read = Kept::new(directory.path()).read().unwrap();
            assert_eq!((read.standings, read.knowledge), (standings.clone(), Knowledge::default()), "{document}");
        }
        // Additions of a later version are ignored, and what an earlier version lacks is as after a first start.
        let mut document = whole;
        document["topology"]["known"]["added"] = json!(1);
        document["topology"]["known"]["facts"][0][1] = json!({});
        std::fs::write(&path, document.to_string()).unwrap();
        assert!(!Kept::new(directory.path()).read().unwrap().knowledge.is_empty());
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
