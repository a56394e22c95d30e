//! Many addresses of few servers: to a monitor they look like a fleet of a thousand servers.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::error::{IoContext, LabError};
use crate::port::Port;

/// Addresses on the loopback network that all lead to servers, in turn. Gone when dropped.
#[derive(Debug)]
pub(super) struct Addresses {
    /// The addresses; they share one port.
    pub hosts: Vec<Ipv4Addr>,
    /// See `hosts`.
    pub port: Port,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Addresses {
    /// So many addresses; the first one leads to the first server, the next one to the second, and so on.
    pub(super) fn of(servers: &[SocketAddr], count: u16) -> Result<Addresses, LabError> {
        let port = Port::reserve()?;
        // 127.0.0.0/16 is left to other uses.
        let hosts: Vec<Ipv4Addr> = (0..count).map(|n| Ipv4Addr::new(127, 1, n.to_be_bytes()[0], n.to_be_bytes()[1])).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context(|| "start a runtime".to_owned())?;
        let listeners = runtime.block_on(async {
            let mut listeners = Vec::new();
            for (host, server) in hosts.iter().zip(servers.iter().cycle()) {
                let listener = TcpListener::bind((*host, port.number())).await.context(|| format!("listen on {host}"))?;
                listeners.push((listener, *server));
            }
            Ok::<_, LabError>(listeners)
        })?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                for (listener, server) in listeners {
                    tokio::spawn(lead(listener, server));
                }
                let _ = stopped.await;
            });
        });
        Ok(Addresses { hosts, port, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Leads all connections to a server, for ever.
async fn lead(listener: TcpListener, server: SocketAddr) {
    while let Ok((mut client, _)) = listener.accept().await {
        tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect(server).await {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}
