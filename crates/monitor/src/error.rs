//! Errors of the monitor's start.

/// Why the monitor does not run.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// It runs already.
    #[error("the monitor runs already")]
    Running,
    /// No thread, or no runtime on it.
    #[error("the monitor's thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}
