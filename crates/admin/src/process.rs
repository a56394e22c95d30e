//! Operators' acts on the process. The program implements them.

use model::Config;

use crate::take_over::Successor;

/// How the process stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Sessions have `mysql-drain_timeout` to finish. `PROXYSQL SHUTDOWN`.
    Drain,
    /// Sessions have as long as they need. `PROXYSQL SHUTDOWN SLOW`.
    Slow,
    /// At once. `PROXYSQL KILL`.
    Now,
}

/// The program that this runs in. No call may block, but where it says so: what takes time goes on behind it.
pub trait Process: Send + Sync {
    /// Ends the process. Called after the answer has been handed to the session.
    fn shutdown(&self, how: Stop);

    /// Whether a new start would succeed, as far as it can be known before the end. `runtime` holds the admin interface's settings.
    fn could_restart(&self, _runtime: &Config) -> Result<(), String> {
        Ok(())
    }

    /// Reopens the error log, after it was rotated.
    fn reopen_log(&self) {}

    /// Ends the process as [`Stop::Drain`] does, and starts it again. Called after the answer has been handed over.
    fn restart(&self) -> Result<(), String>;

    /// Lets another process take over, and returns its description. Blocks until that process is ready; on an error nothing has changed.
    ///
    /// # Errors
    /// Why it does not take over.
    fn upgrade(&self, successor: Successor) -> Result<String, String> {
        drop(successor);
        Err("not part of this program".to_owned())
    }

    /// Starts the data plane after [`Process::stop`]. An error when it runs.
    fn start(&self) -> Result<(), String>;

    /// Stops the data plane, not the admin interface. An error when it is stopped.
    fn stop(&self) -> Result<(), String>;

    /// The version that clients are told.
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }
}
