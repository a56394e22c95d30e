//! How often each module was loaded, and when: `runtime_checksums_values`.

use std::sync::Arc;

use model::Config;

use crate::clock::now;
use crate::live::{Checksum, Runtime};
use crate::store::checksum;
use crate::store::modules::{MODULES, Module};
use crate::take_over::TakenOver;

/// Counts a load of `modules` in their lines of `runtime_checksums_values`.
pub(super) fn count(runtime: &mut Runtime, modules: &[&'static Module], now: i64) {
    let named = modules.iter().filter(|module| !module.checksum.is_empty());
    for module in named {
        let checksum = checksum::of_config(&runtime.config, &module.part);
        let names: &[&'static str] =
            if module.checksum == "mysql_servers" { &["mysql_servers", "mysql_servers_v2"] } else { &[module.checksum] };
        for name in names {
            match runtime.checksums.iter_mut().find(|line| line.name == *name) {
                Some(line) => (line.version, line.epoch, line.checksum) = (line.version + 1, now, checksum.clone()),
                None => runtime.checksums.push(Checksum { name, version: 1, epoch: now, checksum: checksum.clone() }),
            }
        }
    }
    runtime.checksums.sort_by_key(|line| line.name);
}

/// The configuration at the engine's start, with the counts of LOADs of a process before.
pub(crate) fn first_runtime(config: Arc<Config>, given: Option<&TakenOver>) -> Runtime {
    let mut runtime = Runtime { config, checksums: Vec::new() };
    let all: Vec<&'static Module> = MODULES.iter().collect();
    count(&mut runtime, &all, now());
    for (name, version, epoch) in given.iter().flat_map(|given| &given.loads) {
        if let Some(line) = runtime.checksums.iter_mut().find(|line| line.name == name) {
            (line.version, line.epoch) = (*version, *epoch);
        }
    }
    runtime
}
