//! A lane: the backends of one hostgroup that may serve one kind of session on one worker.
//!
//! Backends of other users or classes never stand in. Idle ones are kept per server, the last one used first, so that
//! as few as possible stay busy.

use crate::backend::Backend;
use crate::class::Class;
use crate::state::{self, State};
use model::HostgroupId;
use model::snapshot::User;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// What makes backends interchangeable.
#[derive(Clone)]
pub struct LaneKey {
    /// Hostgroup.
    pub hostgroup: HostgroupId,
    /// The user who is logged in.
    pub user: Arc<User>,
    /// The client flags.
    pub class: Class,
}

impl PartialEq for LaneKey {
    fn eq(&self, other: &Self) -> bool {
        self.hostgroup == other.hostgroup && self.class == other.class && self.user.name == other.user.name
    }
}

/// Idle backends of one lane.
pub struct Lane {
    /// What they have in common.
    pub key: LaneKey,
    /// By the server's index in the hostgroup.
    idle: RefCell<Vec<Vec<Backend>>>,
}

/// How many idle backends are looked at for the nearest state; beyond, the last used one of those is good enough.
const MAX_LOOKED_AT: usize = 64;

impl Lane {
    /// An empty lane.
    pub fn new(key: LaneKey, servers: usize) -> Rc<Self> {
        Rc::new(Self { key, idle: RefCell::new((0..servers).map(|_| Vec::new()).collect()) })
    }

    /// Takes the idle backend of `server` whose state is nearest to `want`.
    pub fn take(&self, server: usize, want: &State) -> Option<Backend> {
        let mut idle = self.idle.borrow_mut();
        let list = idle.get_mut(server)?;
        let last = list.last()?;
        if state::distance(want, &last.core.state) == 0 {
            return list.pop();
        }
        let from = list.len().saturating_sub(MAX_LOOKED_AT);
        let nearest = list.iter().enumerate().skip(from).rev().min_by_key(|(_, b)| state::distance(want, &b.core.state));
        let (i, _) = nearest?;
        Some(list.remove(i))
    }

    /// Keeps an idle backend.
    pub fn put(&self, backend: Backend) {
        let mut idle = self.idle.borrow_mut();
        if let Some(list) = idle.get_mut(backend.core.server.index) {
            list.push(backend);
        }
    }

    /// Takes the backend of `server` that was idle for longest.
    pub fn take_oldest(&self, server: usize) -> Option<Backend> {
        let mut idle = self.idle.borrow_mut();
        let list = idle.get_mut(server)?;
        if list.is_empty() { None } else { Some(list.remove(0)) }
    }

    /// Takes out every idle backend for which `leave` answers true.
    pub fn take_where(&self, mut leave: impl FnMut(&mut Backend) -> bool) -> Vec<Backend> {
        let mut taken = Vec::new();
        for list in self.idle.borrow_mut().iter_mut() {
            let mut i = 0;
            while let Some(backend) = list.get_mut(i) {
                if leave(backend) {
                    taken.push(list.remove(i));
                } else {
                    i += 1;
                }
            }
        }
        taken
    }

    /// Number of idle backends, of one server.
    pub fn idle(&self, server: usize) -> usize {
        self.idle.borrow().get(server).map_or(0, Vec::len)
    }
}
