//! Waiting for a condition with a deadline: the lab's only way to wait.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::LabError;

/// Time between two looks at a condition. Short, because everything is on loopback.
const INTERVAL: Duration = Duration::from_millis(5);

/// Time between two looks at a list of transactions.
const INTERVAL_OF_TRANSACTIONS: Duration = Duration::from_millis(150);

/// Calls `probe` until it gives a value, or fails when `limit` has passed. `what` names the condition in the error.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Result<T, LabError> {
    try_until(what, limit, || Ok(probe()))
}

/// As [`until`], for a probe that reads `information_schema.innodb_trx`. That is a copy, which servers renew only where nobody has read it for
/// 100 ms: who looks more often sees the same for ever.
pub fn until_transactions<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Result<T, LabError> {
    until(what, limit, || {
        thread::sleep(INTERVAL_OF_TRANSACTIONS);
        probe()
    })
}

/// As [`until`], for a probe that can also find out that waiting is in vain.
pub fn try_until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<Option<T>, LabError>) -> Result<T, LabError> {
    let start = Instant::now();
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if start.elapsed() >= limit {
            return Err(LabError::Deadline { what: what.to_owned(), limit, detail: String::new() });
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_value_once_it_is_there() {
        let mut looks = 0;
        let got = until("three looks", Duration::from_secs(5), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(got.unwrap(), 3);
    }

    #[test]
    fn names_what_it_waited_for() {
        let got = until("the moon", Duration::ZERO, || None::<()>);
        assert!(got.unwrap_err().to_string().contains("the moon"));
    }
}
