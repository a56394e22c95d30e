//! Finds blocks that keep a backend without being marked as pinning, or keep it beyond their end. With such a block, sessions of a round
//! may wait for a backend in vain, which is no fault of the proxy.

use std::time::Duration;

use super::compare::Campaign;
use super::generate::script;
use super::round::{Round, Turn};
use crate::client::Client;
use crate::error::LabError;
use crate::wait;

/// A pin ends a moment after the answer that ends it.
const PIN_ENDS: Duration = Duration::from_millis(500);

impl Campaign {
    /// Plays scripts one by one through the proxy. Returns the first step of each after which the session has a pin that it should not
    /// have. Needs the proxy's admin interface, and no other client on the proxy.
    pub fn unmarked_pins(&self, seed: u64, scripts: u64) -> Result<Vec<String>, LabError> {
        let admin = self.admin.as_ref().ok_or_else(|| LabError::Protocol("no admin interface".to_owned()))?;
        let mut admin = Client::connect(admin)?;
        let mut found = Vec::new();
        for number in 0..scripts {
            let round = Round { scripts: vec![script(self.flavor, seed, number, 0)], most_pinned: 1 };
            self.prepare(&round.scripts)?;
            let mut pins = Ok(None);
            round.play(&self.proxied, |turn| {
                if !may_pin(&round, turn) {
                    pins = lasting_pins(&mut admin);
                }
                let goes_on = matches!(pins, Ok(None));
                if let Ok(Some(why)) = &pins {
                    found.push(format!("seed {seed} script {number} after {}: {why}", said(&round, turn)));
                }
                goes_on
            })?;
            pins?;
            // The next script begins when the session has left.
            lasting_pins(&mut admin)?;
        }
        Ok(found)
    }
}

/// Is the turn within a pinning block, and not its last?
fn may_pin(round: &Round, turn: &Turn) -> bool {
    let Some((block, step)) = turn.place else { return false };
    round.scripts[turn.session].blocks.get(block).is_some_and(|block| block.pins && step + 1 < block.steps.len())
}

fn said(round: &Round, turn: &Turn) -> String {
    let Some((block, step)) = turn.place else { return "login".to_owned() };
    let block = round.scripts[turn.session].blocks.get(block);
    block.and_then(|block| block.steps.get(step)).map_or_else(String::new, ToString::to_string)
}

/// The pins that are still there when all that are about to end have ended.
fn lasting_pins(admin: &mut Client) -> Result<Option<String>, LabError> {
    let mut last = None;
    let ended = wait::try_until("pins to end", PIN_ENDS, || {
        last = pins(admin)?;
        Ok(last.is_none().then_some(()))
    });
    match ended {
        Ok(()) | Err(LabError::Deadline { .. }) => Ok(last),
        Err(error) => Err(error),
    }
}

fn pins(admin: &mut Client) -> Result<Option<String>, LabError> {
    let rows = admin.query("SELECT reason, digest_text FROM stats_tidegate_pins")?.table()?;
    let text: Vec<String> = rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" by ")).collect();
    Ok((!text.is_empty()).then(|| text.join("; ")))
}
