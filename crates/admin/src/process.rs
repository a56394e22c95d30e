//! What an operator may do to the process. The program implements it.

use model::Config;

/// How to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Sessions have `mysql-drain_timeout` to finish. `PROXYSQL SHUTDOWN`.
    Drain,
    /// Sessions have as long as they need. `PROXYSQL SHUTDOWN SLOW`.
    Slow,
    /// At once. `PROXYSQL KILL`.
    Now,
}

/// The program that this runs in. No call may block: what takes time goes on behind it.
pub trait Process: Send + Sync {
    /// Ends the process. Called after the answer has been handed to the session.
    fn shutdown(&self, how: Stop);

    /// Whether it could start again: what can be found out before it ends. `runtime` is what the admin interface works by.
    fn could_restart(&self, _runtime: &Config) -> Result<(), String> {
        Ok(())
    }

    /// Opens the error log anew.
    fn reopen_log(&self) {}

    /// Ends the process as [`Stop::Drain`] does, and starts it again. Called after the answer has been handed over.
    fn restart(&self) -> Result<(), String>;

    /// Starts the data plane after [`Process::stop`]. An error when it runs.
    fn start(&self) -> Result<(), String>;

    /// Stops the data plane, not the admin interface. An error when it is stopped.
    fn stop(&self) -> Result<(), String>;

    /// The version that clients are told.
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }
}
