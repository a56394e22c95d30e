//! Several sessions that take turns, in one thread and always in the same order.

use super::player::Player;
use super::step::Script;
use crate::client::ConnectOptions;
use crate::error::LabError;

/// Scripts that run side by side.
#[derive(Clone, Debug)]
pub struct Round {
    /// One script a session.
    pub scripts: Vec<Script>,
    /// How many sessions may be in a pinning block at a time: at most the backends less one.
    pub most_pinned: usize,
}

/// The result of one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which session.
    pub session: usize,
    /// Which block and which step in it; `None` is the login.
    pub place: Option<(usize, usize)>,
    /// The lines that it showed.
    pub lines: Vec<String>,
}

impl Turn {
    /// The session got no backend, or has lost its connection.
    pub(super) fn is_stuck(&self) -> bool {
        self.lines.iter().any(|line| line.starts_with("error 9001 ") || line.starts_with("broken: "))
    }
}

/// A session's place in its script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    block: usize,
    step: usize,
}

impl Round {
    /// Logs every session in. Then each takes a step, round robin, until all are done or `go_on` is false. A session whose login fails
    /// takes no steps.
    pub fn play(&self, base: &ConnectOptions, mut go_on: impl FnMut(&Turn) -> bool) -> Result<(), LabError> {
        let mut players = Vec::new();
        for (session, script) in self.scripts.iter().enumerate() {
            let (player, lines) = match Player::login(base, &script.login) {
                Ok((player, lines)) => (Some(player), lines),
                Err(LabError::Server { code, message, .. }) => (None, vec![format!("refused {code} {message}")]),
                Err(error) => (None, vec![format!("broken: {error}")]),
            };
            players.push(player);
            if !go_on(&Turn { session, place: None, lines }) {
                return Ok(());
            }
        }
        for (session, Place { block, step }) in self.order() {
            let Some(player) = &mut players[session] else { continue };
            let lines = player.take(&self.scripts[session].blocks[block].steps[step]);
            if !go_on(&Turn { session, place: Some((block, step)), lines }) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The order of turns: depends on nothing but the scripts.
    fn order(&self) -> Vec<(usize, Place)> {
        let mut places = vec![Place::default(); self.scripts.len()];
        let mut turns = Vec::new();
        loop {
            let before = turns.len();
            for session in 0..places.len() {
                let place = self.settled(session, places[session]);
                places[session] = place;
                let Some(block) = self.scripts[session].blocks.get(place.block) else { continue };
                if block.pins && place.step == 0 && self.pinned(&places) >= self.most_pinned {
                    continue;
                }
                turns.push((session, place));
                places[session].step += 1;
            }
            if turns.len() == before {
                return turns;
            }
        }
    }

    /// Past the end of a block is the start of the next one that has steps.
    fn settled(&self, session: usize, mut place: Place) -> Place {
        let blocks = &self.scripts[session].blocks;
        while blocks.get(place.block).is_some_and(|block| place.step >= block.steps.len()) {
            place = Place { block: place.block + 1, step: 0 };
        }
        place
    }

    /// Sessions that are within a pinning block now.
    fn pinned(&self, places: &[Place]) -> usize {
        let within = |(session, place): (usize, &Place)| {
            let block = self.scripts[session].blocks.get(place.block);
            block.is_some_and(|block| block.pins && place.step > 0 && place.step < block.steps.len())
        };
        places.iter().enumerate().filter(|entry| within(*entry)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::step::{Block, Login, Step};
    use super::*;

    fn script(blocks: &[(bool, usize)]) -> Script {
        let login = Login { capabilities: wire::Capabilities::empty(), charset: 45, schema: "s".into(), with_schema: false };
        let block = |(pins, steps): &(bool, usize)| Block { pins: *pins, steps: vec![Step::Ping; *steps] };
        Script { login, blocks: blocks.iter().map(block).collect() }
    }

    #[test]
    fn all_steps_are_taken_and_pins_are_limited() {
        let round = Round { scripts: vec![script(&[(true, 3), (false, 2)]), script(&[(true, 4)]), script(&[(false, 1)])], most_pinned: 1 };
        let order = round.order();
        assert_eq!(order.len(), 10);
        let of = |session| order.iter().position(|(s, _)| *s == session);
        let second_starts = of(1).unwrap_or_default();
        let first_ends = order.iter().position(|(s, p)| *s == 0 && *p == Place { block: 0, step: 2 });
        assert!(second_starts > first_ends.unwrap_or_default(), "{order:?}");
    }
}
