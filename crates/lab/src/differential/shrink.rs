//! Makes a round with a difference smaller: sessions, blocks and steps are left out while the same step still differs.

use super::compare::Campaign;
use super::round::{Round, Turn};
use super::step::Step;
use crate::error::LabError;

/// The two turns that differ.
type Pair = (Turn, Turn);

/// Leaves out unneeded steps. Plays at most as often as the campaign allows.
pub(super) fn shrink(campaign: &Campaign, round: Round, found: Pair) -> Result<(Round, Pair), LabError> {
    let culprit = step_of(&round, &found.0).cloned();
    let mut state = Shrinking { campaign, culprit, round, found, plays_left: campaign.shrink_plays };
    state.sessions()?;
    while state.blocks()? | state.steps()? {}
    state.round.scripts.iter_mut().for_each(|script| script.blocks.retain(|block| !block.steps.is_empty()));
    // The places have moved with the empty blocks: play once more to find them.
    if let (_, Some(found)) = campaign.compare(&state.round)? {
        state.found = found;
    }
    Ok((state.round, state.found))
}

struct Shrinking<'a> {
    campaign: &'a Campaign,
    /// The step that differs; `None` is a login.
    culprit: Option<Step>,
    round: Round,
    found: Pair,
    plays_left: usize,
}

impl Shrinking<'_> {
    /// Keeps `candidate` when it still differs at the same step.
    fn try_out(&mut self, candidate: Round) -> Result<bool, LabError> {
        if self.plays_left == 0 {
            return Ok(false);
        }
        self.plays_left -= 1;
        let Some(found) = self.campaign.compare(&candidate)?.1 else { return Ok(false) };
        if step_of(&candidate, &found.0) != self.culprit.as_ref() {
            return Ok(false);
        }
        (self.round, self.found) = (candidate, found);
        Ok(true)
    }

    fn sessions(&mut self) -> Result<(), LabError> {
        let mut alone = self.round.clone();
        let culprit = self.found.0.session;
        for (session, script) in alone.scripts.iter_mut().enumerate() {
            if session != culprit {
                script.blocks.clear();
            }
        }
        if self.try_out(alone)? {
            return Ok(());
        }
        for session in 0..self.round.scripts.len() {
            let mut without = self.round.clone();
            without.scripts[session].blocks.clear();
            if session != culprit {
                self.try_out(without)?;
            }
        }
        Ok(())
    }

    /// Empties runs of blocks, longer runs first.
    fn blocks(&mut self) -> Result<bool, LabError> {
        let mut smaller = false;
        for session in 0..self.round.scripts.len() {
            let count = self.round.scripts[session].blocks.len();
            for length in [count / 2, count / 4, 2, 1].into_iter().filter(|length| *length > 0) {
                for start in (0..count).step_by(length).rev() {
                    let mut candidate = self.round.clone();
                    let blocks = &mut candidate.scripts[session].blocks;
                    let end = (start + length).min(count);
                    if blocks[start..end].iter().all(|block| block.steps.is_empty()) {
                        continue;
                    }
                    blocks[start..end].iter_mut().for_each(|block| block.steps.clear());
                    smaller |= self.try_out(candidate)?;
                }
            }
        }
        Ok(smaller)
    }

    fn steps(&mut self) -> Result<bool, LabError> {
        let mut smaller = false;
        for session in 0..self.round.scripts.len() {
            for block in 0..self.round.scripts[session].blocks.len() {
                for step in (0..self.round.scripts[session].blocks[block].steps.len()).rev() {
                    let mut candidate = self.round.clone();
                    candidate.scripts[session].blocks[block].steps.remove(step);
                    smaller |= self.try_out(candidate)?;
                }
            }
        }
        Ok(smaller)
    }
}

fn step_of<'a>(round: &'a Round, turn: &Turn) -> Option<&'a Step> {
    let (block, step) = turn.place?;
    round.scripts.get(turn.session)?.blocks.get(block)?.steps.get(step)
}
