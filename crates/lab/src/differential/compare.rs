//! Runs rounds twice, direct and through the proxy, and reports the first difference of each in a small form.

use std::collections::VecDeque;
use std::fmt;

use super::generate::script;
use super::round::{Round, Turn};
use super::shrink::shrink;
use super::step::{Script, Step};
use crate::client::{Client, ConnectOptions};
use crate::error::LabError;
use crate::flavor::Flavor;

/// Differences after which a campaign ends.
const MOST_DIFFERENCES: usize = 5;

/// A first block with more steps than this is the whole of a session's tables, and shown as one line.
const SHOWN_SETUP: usize = 6;

/// The targets and limits of rounds.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Which dialect the scripts are written in.
    pub flavor: Flavor,
    /// The server itself, as the scripts' user.
    pub direct: ConnectOptions,
    /// The proxy, as the same user.
    pub proxied: ConnectOptions,
    /// The server as a user that may create schemas.
    pub root: ConnectOptions,
    /// The proxy's admin interface, to name the sessions that hold all backends.
    pub admin: Option<ConnectOptions>,
    /// Sessions in a round.
    pub sessions: usize,
    /// Backends that the proxy may open, fewer than sessions and at least 2.
    pub backends: usize,
    /// How often a round with a difference may be played again to make it smaller.
    pub shrink_plays: usize,
}

/// A place where the two runs show something else.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed and the number of the round.
    pub origin: (u64, u64),
    /// The smallest round found that shows it.
    pub round: Round,
    /// The turn on a private connection.
    pub direct: Turn,
    /// The same turn through the proxy.
    pub proxied: Turn,
}

/// The counts of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Scripts played.
    pub scripts: u64,
    /// Steps compared.
    pub steps: u64,
    /// At most one a round.
    pub differences: Vec<Difference>,
}

/// A kind of difference in a survey.
#[derive(Clone, Debug)]
pub struct Finding {
    /// How many turns showed it.
    pub count: u64,
    /// The round that showed it first.
    pub round: u64,
    /// The statement or command.
    pub step: String,
    /// The first line that differs, direct.
    pub direct: String,
    /// The same line through the proxy.
    pub proxied: String,
}

impl Finding {
    /// Two findings are alike when they differ in numbers only.
    fn is_like(&self, other: &Finding) -> bool {
        let same = |a: &str, b: &str| a.chars().filter(|c| !c.is_ascii_digit()).eq(b.chars().filter(|c| !c.is_ascii_digit()));
        same(&self.direct, &other.direct) && same(&self.proxied, &other.proxied)
    }
}

fn note(findings: &mut Vec<Finding>, round: &Round, number: u64, direct: &Turn, proxied: &Turn) {
    let lines = paired(&direct.lines, &proxied.lines).into_iter().find(|(a, b)| a != b).unwrap_or_default();
    let step = direct.place.and_then(|(block, step)| round.scripts.get(direct.session)?.blocks.get(block)?.steps.get(step));
    let text = |line: Option<&str>| line.unwrap_or("-").to_owned();
    let finding = Finding {
        count: 1,
        round: number,
        step: step.map_or("login".to_owned(), |step| format!("{step}{}", text_of(round, direct, step))),
        direct: text(lines.0),
        proxied: text(lines.1),
    };
    match findings.iter_mut().find(|known| known.is_like(&finding)) {
        Some(known) => known.count += 1,
        None => findings.push(finding),
    }
}

/// For a step with a prepared statement: its text.
fn text_of(round: &Round, turn: &Turn, step: &Step) -> String {
    let (Step::Execute(slot, _) | Step::Cursor(slot, ..)) = step else { return String::new() };
    let Some(((block, at), script)) = turn.place.zip(round.scripts.get(turn.session)) else { return String::new() };
    let before = script.blocks.iter().take(block + 1).enumerate();
    let before = before.flat_map(|(number, steps)| steps.steps.iter().take(if number == block { at } else { usize::MAX }));
    let mut text = before.filter_map(|step| match step {
        Step::Prepare(prepared, sql) if prepared == slot => Some(sql),
        _ => None,
    });
    text.next_back().map_or(String::new(), |sql| format!(" of {sql}"))
}

impl Campaign {
    /// Plays rounds until `scripts` scripts were played, or too many differences are found. Calls `progress` after each round.
    pub fn run(&self, seed: u64, scripts: u64, mut progress: impl FnMut(&Summary)) -> Result<Summary, LabError> {
        let mut summary = Summary::default();
        let mut number = 0;
        while summary.scripts < scripts && summary.differences.len() < MOST_DIFFERENCES {
            let round = self.round(seed, number);
            let (steps, found) = self.compare(&round)?;
            summary.scripts += round.scripts.len() as u64;
            summary.steps += steps;
            if let Some(found) = found {
                let (round, (direct, proxied)) = shrink(self, round, found)?;
                summary.differences.push(Difference { origin: (seed, number), round, direct, proxied });
            }
            progress(&summary);
            number += 1;
        }
        Ok(summary)
    }

    /// Plays rounds to their ends, and counts differences by their form: an overview if there are many.
    pub fn survey(&self, seed: u64, scripts: u64) -> Result<Vec<Finding>, LabError> {
        let mut findings: Vec<Finding> = Vec::new();
        let rounds = scripts.div_ceil(self.sessions.max(1) as u64);
        for number in 0..rounds {
            let round = self.round(seed, number);
            let mut expected = VecDeque::new();
            self.prepare(&round.scripts)?;
            round.play(&self.direct, |turn| {
                expected.push_back(turn.clone());
                true
            })?;
            self.prepare(&round.scripts)?;
            round.play(&self.proxied, |proxied| {
                let Some(direct) = expected.pop_front().filter(|direct| direct != proxied) else { return true };
                note(&mut findings, &round, number, &direct, &self.explained(proxied));
                // A session without its backend, or without its connection, differs in all that follows.
                !(proxied.is_stuck() || direct.is_stuck())
            })?;
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.count));
        Ok(findings)
    }

    /// The round of this number.
    pub fn round(&self, seed: u64, number: u64) -> Round {
        let sessions = self.sessions as u64;
        let scripts = (0..sessions).map(|session| script(self.flavor, seed, number * sessions + session, session)).collect();
        Round { scripts, most_pinned: self.backends.saturating_sub(1) }
    }

    /// Plays a round both ways; gives the number of turns and the first that differs.
    pub fn compare(&self, round: &Round) -> Result<(u64, Option<(Turn, Turn)>), LabError> {
        self.prepare(&round.scripts)?;
        let mut expected = VecDeque::new();
        round.play(&self.direct, |turn| {
            expected.push_back(turn.clone());
            true
        })?;
        self.prepare(&round.scripts)?;
        let (mut turns, mut differs) = (0, None);
        round.play(&self.proxied, |proxied| {
            turns += 1;
            let direct = expected.pop_front();
            if direct.as_ref() != Some(proxied) {
                differs = direct.map(|direct| (direct, self.explained(proxied)));
            }
            differs.is_none()
        })?;
        Ok((turns, differs))
    }

    /// A turn that got no backend, with the sessions that hold them.
    fn explained(&self, turn: &Turn) -> Turn {
        let mut turn = turn.clone();
        let Some(line) = turn.lines.iter_mut().find(|line| line.starts_with("error 9001 ")) else { return turn };
        let pins = || -> Result<Vec<String>, LabError> {
            let Some(admin) = &self.admin else { return Ok(Vec::new()) };
            let reply = Client::connect(admin)?.query("SELECT reason, digest_text FROM stats_tidegate_pins")?;
            let text = |row: Vec<Option<String>>| row.into_iter().flatten().collect::<Vec<_>>().join(" by ");
            Ok(reply.table()?.into_iter().map(text).collect())
        };
        let pins = pins().unwrap_or_else(|error| vec![error.to_string()]).join("; ");
        *line = format!("{line}; pinned: {pins}");
        turn
    }

    /// Empty schemas, without prepared XA transactions of a round that was ended early: those keep their locks.
    pub(super) fn prepare(&self, scripts: &[Script]) -> Result<(), LabError> {
        let mut root = Client::connect(&self.root)?;
        for script in scripts {
            let _ = root.query(format!("XA ROLLBACK '{}'", script.login.schema))?;
        }
        for script in scripts {
            let schema = &script.login.schema;
            root.run(format!("DROP DATABASE IF EXISTS {schema}"))?;
            root.run(format!("CREATE DATABASE {schema} CHARACTER SET utf8mb4"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} round {}:", self.origin.0, self.origin.1)?;
        for (session, script) in self.round.scripts.iter().enumerate() {
            if script.blocks.is_empty() {
                continue;
            }
            writeln!(f, "  session {session}: {}", script.login)?;
            for (number, block) in script.blocks.iter().enumerate() {
                if number == 0 && block.steps.len() > SHOWN_SETUP {
                    writeln!(f, "     (its tables)")?;
                    continue;
                }
                for (at, step) in block.steps.iter().enumerate() {
                    let here = self.direct.session == session && self.direct.place == Some((number, at));
                    let pins = if block.pins { '|' } else { ' ' };
                    writeln!(f, "  {}{pins} {step}", if here { "->" } else { "  " })?;
                }
            }
        }
        for (direct, proxied) in paired(&self.direct.lines, &self.proxied.lines) {
            if direct != proxied {
                writeln!(f, "    direct : {}\n    proxied: {}", direct.unwrap_or("-"), proxied.unwrap_or("-"))?;
            }
        }
        Ok(())
    }
}

fn paired<'a>(left: &'a [String], right: &'a [String]) -> Vec<(Option<&'a str>, Option<&'a str>)> {
    let line = |lines: &'a [String], i: usize| lines.get(i).map(String::as_str);
    (0..left.len().max(right.len())).map(|i| (line(left, i), line(right, i))).collect()
}
