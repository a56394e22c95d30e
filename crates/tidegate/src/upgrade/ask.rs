//! `tidegate upgrade`: asks a running process to have another one take its place.
//!
//! It listens on an abstract Unix socket that is named after its process id, and listens to its own user and to root alone (SO_PEERCRED).

use ::admin::{EngineHandle, Reply, Role, SessionInfo};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

/// Longest name of a program that is asked for, bytes.
const MAX_REQUEST: u64 = 4096;
/// How long a client may take to say what it wants.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// Which process, and what is to take its place.
#[derive(Args, Debug, Clone)]
pub(crate) struct UpgradeOptions {
    /// The process to be replaced.
    #[arg(long, conflicts_with = "datadir")]
    pub pid: Option<u32>,
    /// The data directory of the process to be replaced [default: the current directory].
    #[arg(short = 'D', long)]
    pub datadir: Option<PathBuf>,
    /// The program of the new process; an absolute path [default: the file that the running one was started from].
    #[arg(long)]
    pub binary: Option<PathBuf>,
}

fn address(pid: u32) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("tidegate-{pid}"))
}

/// Asks, and prints the answer.
///
/// # Errors
/// Why nothing has changed.
pub(crate) fn ask(options: &UpgradeOptions) -> Result<()> {
    let pid = match (options.pid, &options.datadir) {
        (Some(pid), _) => pid,
        (None, datadir) => ::admin::user_of(datadir.as_deref().unwrap_or(Path::new(".")))?,
    };
    let connected = UnixStream::connect_addr(&address(pid)?);
    let mut socket = connected.with_context(|| format!("process {pid} is no Tidegate of this machine, or is of an older version"))?;
    let binary = options.binary.as_deref().map(Path::to_string_lossy).unwrap_or_default();
    socket.write_all(binary.as_bytes())?;
    socket.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    match answer.split_once(' ') {
        Some(("OK", text)) => println!("{text}"),
        Some(("ERR", text)) => bail!("{text}"),
        _ => bail!("process {pid} did not answer"),
    }
    Ok(())
}

/// Answers who asks, for ever.
pub(crate) async fn serve(engine: EngineHandle) {
    let listener = address(std::process::id()).and_then(|address| std::os::unix::net::UnixListener::bind_addr(&address));
    let listener = listener.and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    let listener = match listener {
        Ok(listener) => listener,
        Err(e) => return tracing::warn!("tidegate upgrade will not reach this process: {e}"),
    };
    loop {
        match listener.accept().await {
            // One at a time: there is one upgrade at a time.
            Ok((socket, _)) => {
                if let Err(e) = answer(socket, &engine).await {
                    tracing::debug!("who asked for an upgrade is gone: {e}");
                }
            }
            Err(e) => {
                tracing::warn!("tidegate upgrade: {e}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn answer(mut socket: tokio::net::UnixStream, engine: &EngineHandle) -> std::io::Result<()> {
    let peer = socket.peer_cred()?.uid();
    let own = rustix::process::geteuid();
    if peer != own.as_raw() && peer != 0 {
        return socket.write_all(b"ERR only the user of the process and root may ask for that").await;
    }
    let mut binary = Vec::new();
    let mut request = (&mut socket).take(MAX_REQUEST);
    tokio::time::timeout(REQUEST_WITHIN, request.read_to_end(&mut binary)).await??;
    let answer = match upgrade(engine, "tidegate upgrade", &String::from_utf8_lossy(&binary)).await {
        Ok(text) => format!("OK {text}"),
        Err(why) => format!("ERR {why}"),
    };
    socket.write_all(answer.as_bytes()).await
}

/// Has another process take over, as an administrator would.
///
/// # Errors
/// Why nothing has changed.
pub(crate) async fn upgrade(engine: &EngineHandle, who: &str, binary: &str) -> Result<String, String> {
    let session = SessionInfo { user: who.to_owned(), peer: "localhost".to_owned(), ..SessionInfo::default() };
    let sql = match binary {
        "" => "PROXYSQL UPGRADE".to_owned(),
        binary => format!("PROXYSQL UPGRADE '{}'", binary.replace('\'', "''")),
    };
    match engine.execute(Role::Admin, &session, sql.into_bytes()).await {
        Reply::Ok { info, .. } => Ok(info),
        Reply::Err { text, .. } => Err(text),
        Reply::Rows { .. } => Err("it is not understood".to_owned()),
    }
}
