//! CAPTURE START: checks the order, reads the key, and begins.

use crate::captures::CapturePlan;
use crate::workers::shared::Shared;
use capture::seal::PublicKey;
use capture::{Header, ServerAt};
use model::control::CaptureStart;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Longest file of a key, bytes.
const MAX_KEY: u64 = 64 << 10;

/// Begins a capture; answers what was begun. Never called from a worker.
///
/// # Errors
/// The order cannot be carried out.
pub(crate) fn begin_capture(shared: &Arc<Shared>, datadir: &Path, start: &CaptureStart) -> Result<String, String> {
    let snapshot = Arc::clone(&shared.in_force.load().snapshot);
    if let Some(unknown) = start.users.iter().find(|name| !snapshot.users.contains_key(name.as_str())) {
        return Err(format!("user '{unknown}' is not in mysql_users at runtime"));
    }
    let key = start.public_key.as_ref().map(|file| read_key(&datadir.join(file))).transpose()?;
    let vars = &snapshot.vars;
    let plan = CapturePlan {
        name: start.name.as_str().into(),
        seconds: start.seconds,
        max_bytes: start.max_mb.saturating_mul(1 << 20),
        percent: start.percent,
        users: start.users.iter().map(|name| name.as_str().into()).collect(),
        key,
        directory: datadir.join(&vars.capture_directory),
        queue_bytes: usize::try_from(vars.capture_queue_max_mb << 20).unwrap_or(usize::MAX),
        reserve_percent: vars.capture_disk_reserve_percent,
        workers: shared.mailboxes.len(),
    };
    let run = shared.captures.start(plan, &header(shared, start), shared.clock)?;
    let sealed = if key.is_some() { "sealed" } else { "PLAIN: anybody who can read the file sees all values" };
    Ok(format!("capture '{}' writes {} ({sealed}) for {} s", start.name, run.file(), start.seconds))
}

fn read_key(path: &Path) -> Result<PublicKey, String> {
    let failed = |why: String| format!("public key {}: {why}", path.display());
    let mut pem = String::new();
    File::open(path).and_then(|file| file.take(MAX_KEY).read_to_string(&mut pem)).map_err(|e| failed(e.to_string()))?;
    PublicKey::from_pem(&pem).map_err(|e| failed(e.to_string()))
}

fn header(shared: &Shared, start: &CaptureStart) -> Header {
    let users = if start.users.is_empty() { "all".to_owned() } else { start.users.join(",") };
    Header {
        name: start.name.clone(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        started_unix_us: crate::workers::clock::unix_us(),
        started_us: shared.clock.now_us(),
        servers: servers(shared),
        options: format!("FOR {} SECONDS MAX {} MB PERCENT {} USERS '{users}'", start.seconds, start.max_mb, start.percent),
    }
}

fn servers(shared: &Shared) -> Vec<ServerAt> {
    let all = shared.hostgroups();
    let of = all.iter().flat_map(|hostgroup| hostgroup.servers().to_vec()).filter(|server| !server.is_removed());
    let named = of.map(|server| ServerAt {
        hostgroup: server.key.hostgroup.0,
        address: server.key.addr().to_string(),
        version: server.info.load_full().map(|info| info.version.clone()).unwrap_or_default(),
    });
    named.collect()
}
