//! Tells the service manager how far the process is: sd_notify(3), without its library.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Clients are served from now on.
pub(crate) const READY: &str = "READY=1";
/// This process is the service from now on, and serves.
pub(crate) fn taken_over() -> String {
    format!("MAINPID={}\n{READY}", std::process::id())
}

/// The process is about to end.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Sends one of these, if a service manager asked for it by `NOTIFY_SOCKET`. What cannot be sent is a line in the log.
pub(crate) fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return };
    if let Err(error) = send(name.as_bytes(), state) {
        tracing::warn!("cannot send {state} to the service manager: {error}");
    }
}

fn send(name: &[u8], state: &str) -> std::io::Result<()> {
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(name)))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_listens_at_a_path_or_a_name() {
        let path = std::env::temp_dir().join(format!("tidegate-{}-notify.sock", std::process::id()));
        let name = format!("tidegate-{}-notify", std::process::id());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let at_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (listener, told) in [(at_path, path.to_string_lossy().into_owned()), (at_name, format!("@{name}"))] {
            send(told.as_bytes(), READY).unwrap();
            let mut got = [0; 20];
            let len = listener.recv(&mut got).unwrap();
            assert_eq!(&got[..len], b"READY=1");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(send(path.as_os_str().as_bytes(), READY).is_err());
    }
}
