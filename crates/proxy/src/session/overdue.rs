//! A statement that runs alone, on a server that is not to be used any more, may end by itself, as long as it runs there
//! ([`Watch`]).

use super::backends::Backends;
use super::fault::{Certainty, Fault};
use super::hand::AtHand;
use crate::backends::side_connection::Watch;
use std::io;
use std::rc::Rc;

/// Looks at one statement.
pub(super) struct Watched {
    /// When the statement began (process clock, ms).
    since_ms: u64,
    watch: Rc<Watch>,
}

impl AtHand {
    /// Asks, from time to time, whether the statement at hand runs on its server; an error when it does not.
    pub(super) fn watch_overdue(&mut self, at: &mut Backends, now_ms: u64) -> Result<(), Fault> {
        let (_, since_ms) = at.handle.activity();
        let Some(backend) = &at.backend else { return Ok(()) };
        let begin = || Box::new(Watched { since_ms, watch: Watch::new(now_ms) });
        let watched = match self.watch.take_if(|watched| watched.since_ms != since_ms) {
            Some(_) => self.watch.insert(begin()),
            None => self.watch.get_or_insert_with(begin),
        };
        if watched.watch.is_over() {
            let why = "the proxy stopped using the server, and the statement or its reply was lost";
            return Err(at.lost(&io::Error::other(why), Certainty::Unknown));
        }
        watched.watch.look_if_due(&at.worker, &at.pool, &backend.core, now_ms);
        Ok(())
    }
}
