//! The data plane inside the test's process, for tests that look into it.

#![allow(dead_code)] // every test program uses a part of this

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use lab::dirs;
use lab::port::Port;
use lab::tidegate::Builder;
use model::fleet::RoleKeeper;
use model::snapshot::Snapshot;
use proxy::Control;
use tokio::sync::oneshot;

/// Longest that it may take to start.
const LIMIT: Duration = Duration::from_secs(60);

/// A data plane; it ends when this is dropped.
pub(crate) struct InProcess {
    /// Where clients come in.
    pub address: String,
    /// What operators have of it.
    pub control: Arc<Control>,
    /// Its files.
    pub dir: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    _port: Port,
}

impl InProcess {
    /// One with this configuration, whose files are in a directory of this name. Without a keeper, all sessions must have ended when it
    /// ends.
    pub(crate) fn start(name: &str, builder: Builder, keeper: Option<Arc<dyn RoleKeeper>>) -> Self {
        let (dir, port) = (dirs::instance(name).unwrap(), Port::reserve().unwrap());
        let config = dir.join("proxysql.cnf");
        fs::write(&config, builder.variable("have_ssl", false).config(port.number(), 1, &dir)).unwrap();
        let (config, _) = model::load(&config).unwrap();
        let snapshot = Arc::new(Snapshot::compile(&config).unwrap());
        let (stop, stopped) = oneshot::channel();
        let (tell, control) = mpsc::channel();
        let datadir = dir.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let is_kept = keeper.is_some();
                let proxy = proxy::Proxy::start(snapshot, &datadir, keeper).await.unwrap();
                tell.send(proxy.control()).unwrap();
                let _ = stopped.await;
                assert!(proxy.stop(Duration::from_secs(10)).await || is_kept, "sessions did not end");
            });
        });
        let (control, address) = (control.recv_timeout(LIMIT).unwrap(), format!("127.0.0.1:{}", port.number()));
        Self { address, control, dir, stop: Some(stop), thread: Some(thread), _port: port }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
        let ended = self.thread.take().map(thread::JoinHandle::join);
        let _ = fs::remove_dir_all(&self.dir);
        assert!(thread::panicking() || ended.is_none_or(|r| r.is_ok()), "the proxy panicked");
    }
}
