//! What a worker counts: plain adds, read by others only through a copy.

use std::cell::Cell;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one worker.
        #[derive(Default)]
        pub struct Counters { $($(#[$doc])* pub $name: Cell<u64>,)* }

        impl Counters {
            /// Names and values.
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

counters! {
    /// Clients accepted.
    clients,
    /// Clients refused at login.
    clients_refused,
    /// Commands served.
    questions,
    /// Statements answered without a backend.
    answered_here,
    /// State changes sent ahead of a statement.
    state_syncs,
    /// Backends reset because nothing less would do.
    resets,
    /// Backends opened.
    backends_opened,
    /// Connects that failed.
    connect_errors,
    /// Requests that had to wait for a backend.
    waits,
    /// Requests that waited in vain.
    wait_timeouts,
    /// Backends given to another worker.
    handed_over,
    /// Statements sent again on another backend, with the proof that they had no effect.
    retries,
    /// Bytes from clients, to clients.
    bytes_from_clients,
    /// Bytes to clients.
    bytes_to_clients,
}

/// Adds one.
pub fn count(counter: &Cell<u64>) {
    counter.set(counter.get().wrapping_add(1));
}
