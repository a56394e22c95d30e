//! Which servers have refused connections that others get, and for how long each is not asked for one.

use crate::servers::server::{ServerShared, pause_ms};
use model::ServerKey;
use std::sync::Arc;

/// Of those who ask together: a server is in it from its first refusal until it lets one of them in.
#[derive(Default)]
pub(crate) struct Refusals(Vec<ServerRefusal>);

/// A server has refused, and has let none in since.
struct ServerRefusal {
    server: ServerKey,
    /// How often it did.
    count: u32,
    /// Process clock (ms) until which it is not asked; 0 where it may be.
    until_ms: u64,
    /// What it said.
    error: String,
}

impl Refusals {
    /// Whether no server refuses.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a server is not to be asked now.
    pub(crate) fn rests(&self, server: &ServerShared, now_ms: u64) -> bool {
        self.0.iter().any(|refusal| refusal.until_ms > now_ms && refusal.server == server.key)
    }

    /// Whether no server that is used is to be asked now.
    pub(crate) fn all_rest(&self, servers: &[Arc<ServerShared>], now_ms: u64) -> bool {
        self.has_all(servers, |refusal| refusal.until_ms > now_ms)
    }

    /// What a server said, while none that is used lets one in.
    pub(crate) fn said(&self, servers: &[Arc<ServerShared>]) -> Option<String> {
        if !self.has_all(servers, |_| true) {
            return None;
        }
        let first = self.0.iter().find(|refusal| used(servers).any(|server| server.key == refusal.server))?;
        Some(format!("{}:{}: {}", first.server.host, first.server.port, first.error))
    }

    /// One is asked for: after a refusal none other is meanwhile. Returns how many refusals there were.
    pub(crate) fn tries(&mut self, server: &ServerShared, now_ms: u64) -> u32 {
        let Some(refusal) = self.0.iter_mut().find(|refusal| refusal.server == server.key) else { return 0 };
        refusal.until_ms = now_ms + pause_ms(refusal.count);
        refusal.count
    }

    /// A server refused; `before` is how many refusals there were when it was asked.
    pub(crate) fn refused(&mut self, server: &ServerShared, error: String, before: u32, now_ms: u64) {
        self.let_in(server);
        let (count, until_ms) = (before.saturating_add(1), now_ms + pause_ms(before));
        self.0.push(ServerRefusal { server: server.key.clone(), count, until_ms, error });
    }

    pub(crate) fn let_in(&mut self, server: &ServerShared) {
        self.0.retain(|refusal| refusal.server != server.key);
    }

    /// What made a server refuse may be over: it may be asked, and soon again.
    pub(crate) fn eased(&mut self, server: &ServerShared) {
        for refusal in self.0.iter_mut().filter(|refusal| refusal.server == server.key && refusal.until_ms > 0) {
            (refusal.count, refusal.until_ms) = (1, 1);
        }
    }

    /// Ends pauses whose time is over, and forgets servers that are not among these.
    pub(crate) fn look(&mut self, servers: &[Arc<ServerShared>], now_ms: u64) {
        self.0.retain(|refusal| servers.iter().any(|server| server.key == refusal.server));
        self.0.iter_mut().filter(|refusal| refusal.until_ms <= now_ms).for_each(|refusal| refusal.until_ms = 0);
    }

    /// Whether each of the servers that are used is among those that count; no server is not all of them.
    fn has_all(&self, servers: &[Arc<ServerShared>], counts: impl Fn(&ServerRefusal) -> bool) -> bool {
        let mut used = used(servers).peekable();
        used.peek().is_some() && used.all(|server| self.0.iter().any(|refusal| refusal.server == server.key && counts(refusal)))
    }
}

/// The servers that new connections may go to.
fn used(servers: &[Arc<ServerShared>]) -> impl Iterator<Item = &Arc<ServerShared>> {
    servers.iter().filter(|server| server.is_online() && server.share.weight() > 0)
}
