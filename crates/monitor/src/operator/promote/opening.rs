//! The opening of a server that was chosen, and how it is known whether it was opened.
//!
//! INVARIANT: the statement has no effect after its deadline, however late it arrives.

use std::time::{Duration, Instant};

use model::ServerAddr;
use wire::codes;

use super::{Healer, LIMIT, REACHED, Ready, WATCH_EVERY, within};
use crate::operator::control::Control;
use crate::operator::gate::{Gate, is_still};
use crate::operator::heal_lock;

/// The statement that opens a server has no effect later than this after the server was asked for its time; earlier where the lease of the
/// healer ends earlier.
const OPENS_WITHIN: Duration = Duration::from_secs(2);
/// Closing a former writer waits for a running write for so long, s.
const CLOSE_WAIT_S: u32 = 2;
/// Longest until it is known whether a server was opened.
pub(super) const OPENED: Duration = Duration::from_secs(10);

/// Whether the server was opened.
pub(super) enum Opened {
    Yes,
    No(String),
    Unknown(String),
}

impl Healer {
    /// Lets the server take writes.
    pub(super) async fn open(&self, ready: &mut Ready) -> Opened {
        let limit = OPENS_WITHIN;
        let checked = self.guarded(async {
            let connection = within(REACHED, ready.candidate.id()).await?;
            within(LIMIT / 2, self.may_open(ready)).await?;
            // The server's deadline begins before the last look at the old writer: what that look says is never older than the deadline.
            let last = async {
                let now = time_of(&mut ready.candidate).await?;
                self.is_gone().await?;
                self.is_wanted()?;
                Ok(now)
            };
            let now = within(limit, last).await?;
            // After the server's time: what is left of the lease then ends later than what the server counts.
            let left = self.lease().left_ms().map_or(OPENS_WITHIN, Duration::from_millis).min(OPENS_WITHIN);
            Ok((connection, now, left))
        });
        let (connection, now, left) = match checked.await {
            Ok(checked) => checked,
            Err(why) => return Opened::No(why),
        };
        match tokio::time::timeout(limit, open_in_time(&mut ready.candidate, &now, left)).await {
            Ok(Ok(true)) => Opened::Yes,
            Ok(Ok(false)) => Opened::No(format!("{} was not opened in time", ready.candidate.addr)),
            _ => self.is_opened(ready, connection).await,
        }
    }

    /// The last checks: what was true when the plan was made is still true.
    async fn may_open(&self, ready: &mut Ready) -> Result<(), String> {
        for other in &mut ready.others {
            // One that is lost by now writes nothing that this proxy could know.
            let Ok(Ok(gate)) = tokio::time::timeout(REACHED, Gate::of(other)).await else { continue };
            if gate.is_open() && !self.may_close(&other.addr) {
                return Err(format!("{} is writable: the proxy makes no second writer", other.addr));
            }
            if gate.is_open() {
                self.close(other).await?;
            }
        }
        is_still(&mut ready.candidate, &ready.gate).await?;
        if *self.monitor.stopping.borrow() {
            return Err("the monitor stops".to_owned());
        }
        Ok(())
    }

    /// A former writer that came back open: no proxy writes there, and it is closed sooner or later.
    fn may_close(&self, addr: &ServerAddr) -> bool {
        self.monitor.past(self.promote.hostgroup).1.contains(addr)
    }

    /// It stays closed, whatever becomes of the plan.
    async fn close(&self, other: &mut Control) -> Result<(), String> {
        self.tenure.holds()?;
        other.ask(&format!("SET SESSION lock_wait_timeout={CLOSE_WAIT_S}")).await?;
        Gate::closed(other).set(other).await?;
        if Gate::of(other).await?.is_open() {
            return Err(format!("{} was closed, and another program has opened it", other.addr));
        }
        self.note(&other.addr, "closed", "it wrote under an earlier role and was writable: it is read-only now");
        Ok(())
    }

    /// The connection that opened it said nothing. It is ended, and the server asked over another one.
    async fn is_opened(&self, ready: &mut Ready, connection: u64) -> Opened {
        let addr = ready.candidate.addr.clone();
        let asked = async {
            loop {
                let answer = async {
                    let mut control = Control::open(&self.monitor, &ready.server, Instant::now() + OPENED).await?;
                    heal_lock::end(&mut control, heal_lock::ANY, connection).await?;
                    let gate = Gate::of(&mut control).await?;
                    Ok::<_, String>((control, gate))
                };
                match tokio::time::timeout(REACHED, answer).await {
                    Ok(Ok(answered)) => return answered,
                    _ => tokio::time::sleep(WATCH_EVERY).await,
                }
            }
        };
        match tokio::time::timeout(OPENED, asked).await {
            Ok((_, gate)) if gate.is_open() && self.lease().refusal().is_some() => {
                Opened::Unknown(format!("{addr} takes writes, and another proxy may have opened it"))
            }
            Ok((control, gate)) if gate.is_open() => {
                // The connection before may still get the answer to something else.
                ready.candidate = control;
                Opened::Yes
            }
            Ok(_) => Opened::No(format!("{addr} was not opened")),
            Err(_) => Opened::Unknown(format!("{addr} has not answered since it was told to take writes")),
        }
    }
}

/// The server's time, s, as it writes it.
async fn time_of(candidate: &mut Control) -> Result<String, String> {
    // An hour that comes twice would fool the comparison.
    candidate.ask("SET SESSION time_zone='+00:00'").await?;
    let now = candidate.plain("SELECT UNIX_TIMESTAMP(SYSDATE(6))", ".").await?;
    if now.parse::<f64>().is_err() {
        return Err(format!("{}: its time is not understood", candidate.addr));
    }
    Ok(now)
}

/// The statement does nothing after its deadline by the server's own clock. Returns whether it has opened the server.
async fn open_in_time(candidate: &mut Control, now: &str, left: Duration) -> Result<bool, String> {
    let sql = opening(now, left);
    match candidate.try_do("it is opened", &sql).await {
        // Too late, see `opening`. Another program may have opened the server meanwhile: this plan did not.
        Err(fault) if fault.code() == Some(codes::WRONG_VALUE_FOR_VAR) => Ok(false),
        Err(fault) => Err(format!("{}: {sql}: {fault}", candidate.addr)),
        Ok(_) => Ok(Gate::of(candidate).await?.is_open()),
    }
}

/// `now` is the server's time, s. On MySQL the statement ends `super_read_only` too. After the deadline the value is one that
/// every server refuses: a late statement neither opens the server nor closes one that somebody else has opened meanwhile. (MariaDB takes
/// NULL for 0.)
fn opening(now: &str, left: Duration) -> String {
    let (seconds, ms) = (left.as_secs(), left.subsec_millis());
    format!("SET GLOBAL read_only = IF(UNIX_TIMESTAMP(SYSDATE(6)) < {now} + {seconds}.{ms:03}, 0, 99)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_opened_before_a_deadline_of_its_own_clock() {
        let at = |left_ms| opening("1764436332.123456", Duration::from_millis(left_ms));
        assert_eq!(at(2_000), "SET GLOBAL read_only = IF(UNIX_TIMESTAMP(SYSDATE(6)) < 1764436332.123456 + 2.000, 0, 99)");
        assert_eq!(at(45), "SET GLOBAL read_only = IF(UNIX_TIMESTAMP(SYSDATE(6)) < 1764436332.123456 + 0.045, 0, 99)");
    }
}
