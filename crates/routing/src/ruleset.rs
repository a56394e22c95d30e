//! All rules, compiled: they tell workers the hostgroup of each statement.
//!
//! Shared by all workers behind an `Arc` and never changed; each worker brings its own [`Memo`]. A class of statements (digest, user,
//! schema, addresses, flag) that was seen before costs one look-up. If a rule with `match_pattern` is left for the class, the text is
//! looked up too. Only a new text costs a search and a few expressions.
//!
//! INVARIANT: a remembered answer is the same as that of a walk through all rules in order.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use model::ConfigError;
use model::snapshot::{QueryRule, RuleConfig};

use crate::dialect::Engine;
use crate::directives;
use crate::facets::Facets;
use crate::fast::FastRoutes;
use crate::gate::Gate;
use crate::memo::{Known, Memo};
use crate::pattern::LimitExceeded;
use crate::plan::{Next, Outcome, Plan, Walk, places};
use crate::prefilter::Prefilter;
use crate::request::{ClassKey, Request};
use crate::route::{Decider, Route};
use crate::rule::Rule;

/// The answer to a statement whose digest text a `match_digest` would have to read and is too long for that.
pub const DIGEST_TOO_LONG: &str =
    "The statement's digest text is longer than mysql-query_digests_max_match_length, and query rules with match_digest apply to it";

/// Settings that change what rules mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// `mysql-query_processor_regex`.
    pub engine: Engine,
    /// `mysql-query_processor_iterations`: how often a statement may begin again at the first rule after a flagOUT.
    pub iterations: u32,
}

impl Options {
    /// The options in the variables.
    pub fn from_variables(vars: &model::MysqlVariables) -> Self {
        Self {
            engine: Engine::from_setting(vars.query_processor_regex),
            iterations: u32::try_from(vars.query_processor_iterations).unwrap_or(u32::MAX),
        }
    }
}

/// The rules. See the module.
#[derive(Debug)]
pub struct RuleSet {
    pub(crate) rules: Vec<Rule>,
    pub(crate) fast: FastRoutes,
    pub(crate) iterations: u32,
    gates: Vec<Gate>,
    facets: Facets,
    digest_filter: Prefilter,
    text_filter: Prefilter,
    identity: Arc<()>,
    hits: Mutex<Vec<Arc<[AtomicU64]>>>,
    limits_exceeded: AtomicU64,
}

impl RuleSet {
    /// Compiles the rules. Each error names a rule and a column: a pattern that the dialect lacks, or a replacement with an unknown group.
    pub fn compile(config: &RuleConfig, options: Options) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let rules: Vec<Rule> = config.rules.iter().map(|row| Rule::compile(row, options.engine, &mut errors)).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        // A negated condition holds where nothing is found, so nothing can be passed over.
        let positive = |rule: &&Rule| !rule.row.negate_match_pattern;
        let digest_filter = Prefilter::new(rules.iter().map(|rule| Some(rule).filter(positive)?.match_digest.as_ref()));
        let text_filter = Prefilter::new(rules.iter().map(|rule| Some(rule).filter(positive)?.match_pattern.as_ref()));
        let facets = Facets::of(&config.rules);
        let gate = |(place, rule)| Gate::new(place, rule, &facets, &digest_filter, &text_filter);
        Ok(Self {
            gates: (0..).zip(&config.rules).map(gate).collect(),
            facets,
            digest_filter,
            text_filter,
            fast: FastRoutes::new(&config.fast_routes),
            iterations: options.iterations,
            rules,
            identity: Arc::new(()),
            hits: Mutex::default(),
            limits_exceeded: AtomicU64::new(0),
        })
    }

    /// Decides for a statement. `random` picks among weighted flags.
    pub fn route(&self, request: &Request<'_>, memo: &mut Memo, random: u64) -> Route {
        let mut route = if self.rules.is_empty() {
            Route { final_flag: request.flag_in, ..Route::default() }
        } else {
            let outcome = self.ruled(request, memo, random);
            memo.count(&outcome.places);
            outcome.route.clone()
        };
        self.after_rules(request, &mut route);
        route
    }

    /// Only the destination by the rules, for a statement that [precedes](crate::precedes_rules) them but needs a server. No rule counts
    /// it, and no other action applies.
    pub fn destination(&self, request: &Request<'_>, memo: &mut Memo, random: u64) -> Route {
        let mut route = Route { final_flag: request.flag_in, ..Route::default() };
        if !self.rules.is_empty() {
            let outcome = self.ruled(request, memo, random);
            route = outcome.route.only_destination();
        }
        self.after_rules(request, &mut route);
        route
    }

    /// How often each rule matched, by ascending id, since these rules were compiled.
    pub fn hits(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let workers = self.hits.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.rules.iter().enumerate().map(move |(place, rule)| {
            let total = workers.iter().filter_map(|hits| hits.get(place)).map(|hits| hits.load(Ordering::Relaxed)).sum();
            (rule.row.rule_id, total)
        })
    }

    /// Adds matches by rule id that another process counted. Rules that are not known here are skipped.
    pub fn add_hits(&self, counted: &[(u32, u64)]) {
        let counted: HashMap<u32, u64> = counted.iter().copied().collect();
        for (rule, counter) in self.rules.iter().zip(self.new_counters().iter()) {
            counter.store(counted.get(&rule.row.rule_id).copied().unwrap_or_default(), Ordering::Relaxed);
        }
    }

    /// How often an expression was given up because it took too many steps.
    pub fn limits_exceeded(&self) -> u64 {
        self.limits_exceeded.load(Ordering::Relaxed)
    }

    /// Applies fast routing, then the comment's directives.
    pub(crate) fn after_rules(&self, request: &Request<'_>, route: &mut Route) {
        if !route.applied
            && let Some(destination) = self.fast.find(request.user, request.schema, route.final_flag)
        {
            route.destination_hostgroup = Some(destination);
            route.decider = Decider::FastRouting;
        }
        if let Some(comment) = request.comment {
            directives::obey(comment, route);
        }
    }

    fn ruled(&self, request: &Request<'_>, memo: &mut Memo, random: u64) -> Arc<Outcome> {
        if !memo.belongs_to(&self.identity) {
            memo.serve(&self.identity, self.new_counters());
        }
        let key = self.class_of(request);
        let known = memo.class(&key).unwrap_or_else(|| self.learn(key, request, memo));
        match known {
            Known::Fixed(outcome) => outcome,
            Known::Open(plan) => self.by_text(key, &plan, request, memo, random),
        }
    }

    fn new_counters(&self) -> Arc<[AtomicU64]> {
        let counters: Arc<[AtomicU64]> = self.rules.iter().map(|_| AtomicU64::new(0)).collect();
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).push(counters.clone());
        counters
    }

    /// Finds the rules that are left for a class, and the answer if the text does not matter.
    fn learn(&self, key: ClassKey, request: &Request<'_>, memo: &mut Memo) -> Known {
        let Some(plan) = self.plan(&key, request, &mut memo.scratch.candidates) else {
            let refused = Known::Fixed(Arc::new(Outcome::refused(request.flag_in)));
            memo.remember_class(key, refused.clone());
            return refused;
        };
        let depends = |place: &u32| {
            let gate = &self.gates[at(*place)];
            !gate.is_certain || gate.is_by_chance
        };
        let open = !plan.filtered.is_empty() || plan.always.iter().any(depends);
        let known = if open { Known::Open(memo.share(plan)) } else { Known::Fixed(Arc::new(self.walk(&plan, request, memo, 0))) };
        memo.remember_class(key, known.clone());
        known
    }

    fn by_text(&self, key: ClassKey, plan: &Plan, request: &Request<'_>, memo: &mut Memo, random: u64) -> Arc<Outcome> {
        if let Some(outcome) = memo.text(&key, request.text) {
            return outcome;
        }
        let outcome = Arc::new(self.walk(plan, request, memo, random));
        if !outcome.by_chance {
            memo.remember_text(key, request.text, outcome.clone());
        }
        outcome
    }

    /// The rules whose conditions on the class hold and whose flag can be reached. None where one of them would have to read a digest
    /// text that is too long.
    pub(crate) fn plan(&self, key: &ClassKey, request: &Request<'_>, found: &mut Vec<u32>) -> Option<Plan> {
        let asks_digest = self.rules.iter().any(|rule| rule.match_digest.is_some());
        let digest = if asks_digest { request.digest.text() } else { Some(Cow::default()) };
        match &digest {
            Some(digest) => self.digest_filter.candidates(digest, found),
            // Any rule may match what cannot be searched.
            None => {
                found.clear();
                found.extend((0..).zip(&self.rules).map(|(place, _)| place));
            }
        }
        let mut hash = None;
        let mut reach = Reach::new(request.flag_in, self.iterations);
        let (mut always, mut filtered) = (Vec::new(), Vec::new());
        for (place, gate) in (0..).zip(&self.gates) {
            let admitted = reach.may_reach(gate) && gate.admits(place, key, found, || *hash.get_or_insert_with(|| request.digest.hash()));
            if !admitted || (gate.asks_more && !self.holds_for_class(self.rule(place), request, digest.as_deref())?) {
                continue;
            }
            if gate.text_filtered {
                filtered.push(place)
            } else {
                always.push(place)
            }
            if reach.ends_with(gate, || &self.rule(place).row) {
                break;
            }
        }
        Some(Plan { always: always.into(), filtered: filtered.into() })
    }

    pub(crate) fn class_of(&self, request: &Request<'_>) -> ClassKey {
        self.facets.key(request)
    }

    /// The conditions that a gate cannot check: the address, and the expression for the digest. None if that needs a digest text that is
    /// too long.
    fn holds_for_class(&self, rule: &Rule, request: &Request<'_>, digest: Option<&[u8]>) -> Option<bool> {
        if !rule.admits_address(request.client_addr) {
            return Some(false);
        }
        if rule.match_digest.is_none() {
            return Some(true);
        }
        Some(self.noting(rule, rule.holds(&rule.match_digest, digest?)))
    }

    fn walk(&self, plan: &Plan, request: &Request<'_>, memo: &mut Memo, random: u64) -> Outcome {
        let scratch = &mut memo.scratch;
        let mut state = Walk::new(request.flag_in, self.iterations, random);
        places(plan, &self.text_filter, request.text, &mut scratch.candidates, &mut scratch.walk);
        let mut next_at = 0;
        while let Some(place) = scratch.walk.get(next_at).copied() {
            next_at += 1;
            let rule = self.rule(place);
            let text = state.current(request.text);
            if rule.row.flag_in != state.route.final_flag || !self.noting(rule, rule.holds(&rule.match_pattern, text)) {
                continue;
            }
            let (next, rewriting) = state.take(place, rule, request.text);
            self.noting(rule, rewriting.map(|()| true));
            if rule.rewrite.is_some() {
                places(plan, &self.text_filter, state.current(request.text), &mut scratch.candidates, &mut scratch.walk);
                next_at = scratch.walk.partition_point(|other| *other <= place);
            }
            match next {
                Next::Onward => {}
                Next::Restart => next_at = 0,
                Next::Stop => break,
            }
        }
        state.finish()
    }

    fn rule(&self, place: u32) -> &Rule {
        &self.rules[at(place)]
    }

    /// Counts an expression that was given up: see [`Rule::if_given_up`].
    fn noting(&self, rule: &Rule, outcome: Result<bool, LimitExceeded>) -> bool {
        outcome.unwrap_or_else(|LimitExceeded| {
            self.limits_exceeded.fetch_add(1, Ordering::Relaxed);
            rule.if_given_up()
        })
    }
}

/// The flags that a walk can have reached, as far as the class tells.
struct Reach {
    /// `None` when a walk may start over, so that every rule can be reached.
    flags: Option<Vec<u32>>,
}

impl Reach {
    fn new(flag_in: u32, iterations: u32) -> Self {
        Self { flags: (iterations == 0).then(|| vec![flag_in]) }
    }

    fn may_reach(&self, gate: &Gate) -> bool {
        self.flags.as_ref().is_none_or(|flags| flags.contains(&gate.flag_in))
    }

    /// Takes a rule whose conditions on the class hold; true when no walk goes further.
    fn ends_with<'a>(&mut self, gate: &Gate, rule: impl FnOnce() -> &'a QueryRule) -> bool {
        let Some(flags) = &mut self.flags else {
            return false;
        };
        if gate.changes_flag {
            let rule = rule();
            let weighted = rule.flag_outs.iter().filter(|choice| choice.weight > 0).map(|choice| choice.flag);
            let out: Vec<u32> = rule.flag_out.map_or_else(|| weighted.collect(), |flag| vec![flag]);
            if gate.is_certain && !out.is_empty() {
                flags.retain(|flag| *flag != gate.flag_in);
            }
            flags.extend(out);
            flags.sort_unstable();
            flags.dedup();
        }
        gate.is_certain && gate.apply && flags.len() == 1
    }
}

/// A place as an index.
fn at(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}
