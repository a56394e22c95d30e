//! The admin interface beside the data plane: the engine, the ports, the scheduler.

use crate::process::Requests;
use ::admin::outside::{Outside, OutsideParts};
use ::admin::scheduler::Board;
use ::admin::{Bootstrap, EngineHandle};
use anyhow::{Context, Result};
use model::control::DataPlane;
use model::fleet::Operator;
use model::stats::StatsSource;
use monitor::Monitor;
use proxy::Control;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for an engine whose start has failed.
const CLOSING: Duration = Duration::from_secs(2);

/// Starts the engine, opens the ports and starts the scheduler.
pub(crate) fn start(
    found: Bootstrap,
    control: Arc<Control>,
    monitor: Arc<Monitor>,
    process: Arc<Requests>,
    board: Arc<Board>,
) -> Result<(Outside, EngineHandle)> {
    if let Err(why) = control.log_tls_keys(&found.config.admin.ssl_keylog_file) {
        tracing::error!("admin-ssl_keylog_file: {why}");
    }
    monitor.keep_programs(Arc::new(::admin::scheduler::Programs));
    let found = found.with_operator(monitor.clone());
    let (engine, thread) = found.start(control.clone(), vec![board.clone(), monitor.clone()], process).context("admin interface")?;
    let sources: Vec<Arc<dyn StatsSource>> = vec![control.clone(), board.clone(), monitor, Arc::new(crate::log::Numbers)];
    let (tls, sockets, ready) = (control.server_tls(), control.sockets(), control);
    let handle = engine.clone();
    let shares = engine.clone();
    let is_ready = Arc::new(move || ready.is_ready().and_then(|()| shares.has_configuration()));
    match Outside::start(OutsideParts { engine, sources, board, tls, is_ready, sockets }) {
        Ok(outside) => Ok((outside, handle)),
        Err(error) => {
            drop(handle);
            wait_for(&thread);
            Err(error).context("admin interface")
        }
    }
}

/// Waits until the engine has closed its databases, so that SQLite removes its files beside them.
fn wait_for(engine: &JoinHandle<()>) {
    let until = Instant::now() + CLOSING;
    while !engine.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}
