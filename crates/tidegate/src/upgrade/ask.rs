//! `tidegate upgrade`: asks a running process to let another one take over.
//!
//! The process listens on an abstract Unix socket that is named after its process id. It accepts only its own user and root (SO_PEERCRED).

use ::admin::{EngineHandle, Reply, Role, SessionInfo};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

/// Longest name of a program that is asked for, bytes.
const MAX_REQUEST: u64 = 4096;
/// How long a client may take to send its request.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
/// Most of an answer that is read, bytes.
const MAX_ANSWER: u64 = 16 << 10;
/// Longest that an answer may take: `admin-upgrade_timeout` is at most an hour.
const ANSWER_WITHIN: Duration = Duration::from_secs(3_900);
/// For so long the old process tells whether it serves on after all. A new process that hangs is given up sooner.
const WATCHED: Duration = Duration::from_secs(12);
/// Between two looks at that.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Begins the line of an answer that says so.
const SERVES_ON: &str = "ERR the new process failed, and this one keeps serving: see its log";

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

/// Asks, and prints the answer once the old process has ended or left its place for good.
///
/// # Errors
/// Why nothing has changed, or that the old process serves on.
pub(crate) fn ask(options: &UpgradeOptions) -> Result<()> {
    let pid = match (options.pid, &options.datadir) {
        (Some(pid), _) => pid,
        (None, datadir) => ::admin::user_of(datadir.as_deref().unwrap_or(Path::new(".")))?,
    };
    let connected = UnixStream::connect_addr(&address(pid)?);
    let mut socket =
        connected.with_context(|| format!("process {pid} is not a Tidegate process of this machine, or has an older version"))?;
    let peer = listens(&socket)?;
    if let Some(why) = not_asked(pid, peer, rustix::process::geteuid().as_raw()) {
        bail!("{why}");
    }
    socket.set_read_timeout(Some(ANSWER_WITHIN))?;
    socket.write_all(options.binary.as_deref().map(|path| path.as_os_str().as_bytes()).unwrap_or_default())?;
    socket.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    // The old process may end before its last word is read.
    let read = (&mut socket).take(MAX_ANSWER).read_to_end(&mut answer);
    if answer.is_empty() {
        read.with_context(|| format!("process {pid} did not answer"))?;
    }
    println!("{}", understood(pid, &String::from_utf8_lossy(&answer))?);
    Ok(())
}

/// Process and user at the other end, by the system. Any user may bind the name of the socket.
fn listens(socket: &UnixStream) -> Result<(Option<i32>, u32)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    let copy = socket.try_clone()?;
    copy.set_nonblocking(true)?;
    let peer = tokio::net::UnixStream::from_std(copy)?.peer_cred()?;
    socket.set_nonblocking(false)?;
    Ok((peer.pid(), peer.uid()))
}

/// Why this is not the process that the user `own` asks.
fn not_asked(pid: u32, (peer, user): (Option<i32>, u32), own: u32) -> Option<String> {
    if peer.and_then(|peer| u32::try_from(peer).ok()) != Some(pid) {
        let who = peer.map_or_else(|| "a process of another container".to_owned(), |peer| format!("process {peer}"));
        return Some(format!("{who} of user {user} answers instead of process {pid}: no upgrade was requested"));
    }
    let is_known = own == 0 || user == own || user == 0;
    (!is_known).then(|| format!("process {pid} belongs to user {user}: run the command as that user or as root"))
}

/// The text of an answer, fit for a terminal.
///
/// # Errors
/// What went wrong.
fn understood(pid: u32, answer: &str) -> Result<String> {
    let mut lines = answer.lines();
    let shown =
        |text: &str| text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect::<String>();
    match lines.next().and_then(|line| line.split_once(' ')) {
        Some(("OK", text)) => match lines.find_map(|line| line.strip_prefix("ERR ")) {
            Some(why) => bail!("{}", shown(why)),
            None => Ok(shown(text)),
        },
        Some(("ERR", _)) => bail!("{}", shown(answer.trim_start_matches("ERR ").trim_end())),
        _ => bail!("process {pid} did not answer"),
    }
}

/// Answers requests until the process ends.
pub(crate) async fn serve(engine: EngineHandle) {
    let listener = address(std::process::id()).and_then(|address| std::os::unix::net::UnixListener::bind_addr(&address));
    let listener = listener.and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    let listener = match listener {
        Ok(listener) => listener,
        Err(e) => return tracing::warn!("cannot open the socket for tidegate upgrade: {e}"),
    };
    loop {
        match listener.accept().await {
            // One at a time: there is one upgrade at a time.
            Ok((socket, _)) => {
                if let Err(e) = answer(socket, &engine).await {
                    tracing::debug!("the client that requested an upgrade is gone: {e}");
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
        return socket.write_all(b"ERR only the user of the process and root may request an upgrade").await;
    }
    let mut binary = Vec::new();
    let mut request = (&mut socket).take(MAX_REQUEST + 1);
    tokio::time::timeout(REQUEST_WITHIN, request.read_to_end(&mut binary)).await??;
    // A part of a name, or a placeholder for it, is another program.
    let Some(binary) = String::from_utf8(binary).ok().filter(|binary| binary.len() as u64 <= MAX_REQUEST) else {
        return socket.write_all(b"ERR the path of the program must be UTF-8 of at most 4096 bytes").await;
    };
    match upgrade(engine, "tidegate upgrade", &binary).await {
        Ok(text) => {
            socket.write_all(format!("OK {text}\n").as_bytes()).await?;
            // If all goes well, this process ends before the answer is complete.
            let until = tokio::time::Instant::now() + WATCHED;
            while tokio::time::Instant::now() < until {
                if !engine.is_frozen() {
                    return socket.write_all(SERVES_ON.as_bytes()).await;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Ok(())
        }
        Err(why) => socket.write_all(format!("ERR {why}").as_bytes()).await,
    }
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
        Reply::Rows { .. } => Err("the request is not understood".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_itself_is_asked() {
        assert_eq!(not_asked(7, (Some(7), 1000), 1000), None);
        assert_eq!(not_asked(7, (Some(7), 1000), 0), None);
        for (peer, own) in [
            ((Some(8), 1000), 1000),
            ((Some(8), 1000), 0),
            ((Some(8), 0), 0),
            ((None, 1000), 0),
            ((Some(-7), 0), 0),
            ((Some(7), 1001), 1000),
        ] {
            assert!(not_asked(7, peer, own).is_some(), "{peer:?} {own}");
        }
    }

    #[test]
    fn who_listens_is_what_the_system_says() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let own = (i32::try_from(std::process::id()).ok(), rustix::process::geteuid().as_raw());
        assert_eq!(listens(&ours).unwrap(), own);
    }

    #[test]
    fn an_answer_is_shown_as_it_may_be() {
        assert_eq!(understood(7, "OK process 8 is taking over\n").unwrap(), "process 8 is taking over");
        assert_eq!(understood(7, "OK process 8 \u{1b}[2J\r").unwrap(), "process 8 \\u{1b}[2J\\r");
        let refused = |answer: &str| understood(7, answer).unwrap_err().to_string();
        assert_eq!(refused(&format!("OK process 8 is taking over\n{SERVES_ON}")), SERVES_ON.trim_start_matches("ERR "));
        assert_eq!(refused("ERR no\u{7}"), "no\\u{7}");
        assert_eq!((refused(""), refused("no")), ("process 7 did not answer".to_owned(), "process 7 did not answer".to_owned()));
    }
}
