//! The rules that are left for a class of statements, and the walk through them.
//!
//! The conditions of a rule depend on two things. The class (user, schema, addresses, digest) is settled once. The text and the reached
//! flag are examined by the walk. A plan holds the rules that the first step leaves over.

use model::snapshot::QueryRule;

use crate::pattern::LimitExceeded;
use crate::prefilter::Prefilter;
use crate::route::Route;
use crate::rule::Rule;
use crate::ruleset::DIGEST_TOO_LONG;

/// Rules that are left for a class of statements, by their places, ascending.
#[derive(Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Plan {
    /// They must be looked at.
    pub always: Box<[u32]>,
    /// They may be passed over when the prefilter does not find them in the text.
    pub filtered: Box<[u32]>,
}

impl Plan {
    /// Its share of the memo's limit.
    pub(crate) fn weight(&self) -> usize {
        1 + self.always.len() + self.filtered.len()
    }
}

/// The result of the rules.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub route: Route,
    /// Places of the rules that matched.
    pub places: Box<[u32]>,
    /// Whether chance decided: then it is not remembered.
    pub by_chance: bool,
}

impl Outcome {
    /// Of a statement that no rule may judge, so that none may let it pass.
    pub(crate) fn refused(flag: u32) -> Self {
        let route = Route { final_flag: flag, applied: true, error_msg: Some(DIGEST_TOO_LONG.into()), ..Route::default() };
        Self { route, places: Box::default(), by_chance: false }
    }
}

/// The next step after a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next higher rule.
    Onward,
    /// The first rule again.
    Restart,
    /// Nothing: the rule applied.
    Stop,
}

/// The state of a walk through the rules.
#[derive(Debug)]
pub(crate) struct Walk {
    /// The decisions so far; `final_flag` is the current flag.
    pub route: Route,
    pub text: Option<Vec<u8>>,
    pub matched: Vec<u32>,
    pub places: Vec<u32>,
    restarts_left: u32,
    random: u64,
    pub by_chance: bool,
}

impl Walk {
    pub(crate) fn new(flag_in: u32, restarts: u32, random: u64) -> Self {
        let route = Route { final_flag: flag_in, ..Route::default() };
        Self { route, text: None, matched: Vec::new(), places: Vec::new(), restarts_left: restarts, random, by_chance: false }
    }

    /// The statement as it is now.
    pub(crate) fn current<'a>(&'a self, original: &'a [u8]) -> &'a [u8] {
        self.text.as_deref().unwrap_or(original)
    }

    /// Takes a rule that matched. The error says that its replacement was given up; all else was done.
    pub(crate) fn take(&mut self, place: u32, rule: &Rule, original: &[u8]) -> (Next, Result<(), LimitExceeded>) {
        self.matched.push(rule.row.rule_id);
        self.places.push(place);
        self.route.take(&rule.row);
        let rewritten = rule.rewritten(self.current(original));
        let outcome = rewritten.as_ref().map(|_| ()).map_err(|limit| *limit);
        if let Ok(Some(text)) = rewritten {
            self.text = Some(text);
        }
        let flag = self.flag_out(&rule.row);
        self.route.final_flag = flag.unwrap_or(self.route.final_flag);
        (self.next(rule.row.apply, flag.is_some()), outcome)
    }

    fn next(&mut self, apply: bool, changed_flag: bool) -> Next {
        match (apply, changed_flag && self.restarts_left > 0) {
            (true, _) => {
                self.route.applied = true;
                Next::Stop
            }
            (false, true) => {
                self.restarts_left -= 1;
                Next::Restart
            }
            (false, false) => Next::Onward,
        }
    }

    fn flag_out(&mut self, rule: &QueryRule) -> Option<u32> {
        if rule.flag_out.is_some() {
            return rule.flag_out;
        }
        let total: u64 = rule.flag_outs.iter().map(|choice| u64::from(choice.weight)).sum();
        if total == 0 {
            return None;
        }
        self.by_chance = true;
        let mut point = self.draw() % total;
        for choice in &rule.flag_outs {
            let weight = u64::from(choice.weight);
            if point < weight {
                return Some(choice.flag);
            }
            point -= weight;
        }
        None
    }

    /// The next number of a series that begins with the random number given (splitmix64).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn finish(self) -> Outcome {
        let rewritten = self.text.map(Into::into);
        let route = Route { rewritten, matched: self.matched.into(), ..self.route };
        Outcome { route, places: self.places.into(), by_chance: self.by_chance }
    }
}

/// Puts the places to look at for `text` into `walk`, ascending.
pub(crate) fn places(plan: &Plan, filter: &Prefilter, text: &[u8], candidates: &mut Vec<u32>, walk: &mut Vec<u32>) {
    walk.clear();
    candidates.clear();
    if !plan.filtered.is_empty() {
        filter.candidates(text, candidates);
    }
    walk.extend_from_slice(&plan.always);
    walk.extend(candidates.iter().filter(|place| plan.filtered.binary_search(place).is_ok()));
    walk.sort_unstable();
}
