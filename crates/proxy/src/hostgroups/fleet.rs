//! What those who watch the servers may do to the data plane: lay servers out anew, hold a hostgroup, ask how busy it is.
//!
//! Called from the monitor's thread. A layout is in use when the call returns: statuses are atomics that every worker
//! reads before it lends a backend, and workers are told by mail, to serve who waits and to end what must end.

use crate::workers::ask::ask_all;
use crate::workers::control::Control;
use crate::workers::mailbox::Mail;
use crate::workers::shared::Shared;
use model::fleet::{Bound, Fleet, HostgroupLoad, Layout, Measured};
use model::{HostgroupId, ServerAddr};
use session_state::acknowledged::Acknowledged;
use std::net::IpAddr;

impl Fleet for Control {
    fn arrange(&self, layout: Layout) {
        let revision = layout.revision;
        if !self.shared().arrange(layout) {
            return tracing::debug!("layout {revision} is older than the one in use");
        }
        tell_workers(self.shared());
    }

    fn measured(&self, server: &ServerAddr, measured: Measured) {
        self.shared().for_each_place(server, |place| place.measured(measured));
    }

    fn looked_at(&self, server: &ServerAddr) {
        self.shared().for_each_place(server, |place| place.standing.looked_at());
    }

    fn moved(&self, host: &str, gone: &[IpAddr]) {
        for hostgroup in self.shared().hostgroups() {
            hostgroup.servers().iter().filter(|s| *s.key.host == *host).for_each(|s| s.addresses.moved(gone));
        }
        tell_workers(self.shared());
    }

    fn hold(&self, hostgroup: HostgroupId, is_held: bool) {
        self.shared().hostgroup(hostgroup).hold(is_held);
        tell_workers(self.shared());
    }

    fn load(&self, hostgroup: HostgroupId) -> HostgroupLoad {
        let parts = ask_all(self.shared(), move |worker| worker.load(hostgroup));
        let servers = self.shared().hostgroup(hostgroup).servers();
        let connections: u32 = servers.iter().map(|s| s.connections().saturating_sub(s.connects.under_way())).sum();
        let mut load = HostgroupLoad::default();
        let mut at_rest = 0;
        for part in parts {
            load.waiting += part.waiting;
            load.in_transaction += part.in_transaction;
            at_rest += part.at_rest;
        }
        load.in_use = connections.saturating_sub(at_rest);
        load
    }

    fn bound(&self, hostgroup: HostgroupId) -> Vec<Bound> {
        let mut all: Vec<Bound> = ask_all(self.shared(), move |worker| worker.bound(hostgroup)).into_iter().flatten().collect();
        all.sort_unstable_by_key(|bound| bound.session);
        all
    }

    fn in_use(&self, server: &ServerAddr, hostgroup: Option<HostgroupId>) -> u32 {
        let mut in_use = 0;
        for one in self.shared().hostgroups().iter().filter(|h| hostgroup.is_none_or(|id| id == h.id)) {
            let servers = one.servers();
            for s in servers.iter().filter(|s| s.key.port == server.port && s.key.host == server.host && s.connections() > 0) {
                let (id, index) = (one.id, s.index);
                let at_rest: u32 = ask_all(self.shared(), move |worker| worker.at_rest(id, index)).into_iter().sum();
                in_use += s.connections().saturating_sub(s.connects.under_way()).saturating_sub(at_rest);
            }
        }
        in_use
    }

    fn received(&self, server: &ServerAddr) -> Option<u64> {
        let shared = self.shared();
        let mut ids = Vec::new();
        for one in shared.hostgroups() {
            let servers = one.servers();
            let own = servers.iter().filter(|s| s.key.port == server.port && s.key.host == server.host);
            ids.extend(own.map(|s| (one.id, s.index)));
        }
        let answers = ask_all(shared, move |worker| worker.meter.servers.borrow().received(&ids));
        (answers.len() == shared.mailboxes.len()).then(|| answers.into_iter().sum())
    }

    fn acknowledged(&self, gtids: &[String]) -> Vec<bool> {
        let asked = gtids.to_vec();
        let mut answers = ask_all(self.shared(), move |worker| worker.acknowledged.borrow().which(&asked));
        answers.push(self.shared().elsewhere.acknowledged(|known| known.which(gtids)));
        (0..gtids.len()).map(|place| answers.iter().any(|known| known.get(place) == Some(&true))).collect()
    }

    fn acknowledged_lately(&self) -> Vec<String> {
        let mut all = ask_all(self.shared(), |worker| worker.acknowledged.borrow().all());
        all.push(self.shared().elsewhere.acknowledged(Acknowledged::all));
        all.into_iter().flatten().collect()
    }
}

/// Workers look at what has changed as soon as they can; nobody waits for them.
fn tell_workers(shared: &Shared) {
    shared.send_all(|| Mail::Arranged);
}
