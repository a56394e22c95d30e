//! The session's user variables, and the one place that says what becomes of them.
//!
//! A value is known (a literal in what the session wants of any connection), or a statement computed it (`SELECT @n := @n + 1`,
//! `SET @id = UUID()`): then only the connection knows it, which a pin keeps, here or in another hostgroup. When nothing else keeps
//! that connection, it is asked for the values, and they are carried as literals from then on. So the session is pinned for a round
//! trip, not until a reset.
//!
//! Statements come here from `effects.rs` and `setting.rs`, [`Question::UserVariables`] asks, `literals.rs` reads the answer, and
//! [`state::diff`](session_state::state::diff) brings another connection to the known values.

use super::backends::{BOUND, Backends};
use super::door::ServerDoor;
use super::effects::Effects;
use super::route::Router;
use crate::workers::counters::count;
use model::HostgroupId;
use model::snapshot::RuleMultiplex;
use session_state::charsets;
use session_state::effects::may_name_others;
use session_state::literals::{NO_TYPE, literals, null_of, of_type};
use session_state::pins::{PinReason, Pins, UNSEEN};
use session_state::question::Question;
use session_state::state::{MOST_USER_VARIABLES, Variables};
use session_state::wants::Wants;
use sql::{Analysis, Facts};
use std::io;

/// See the module.
pub(super) struct UserVariables<'a> {
    wants: &'a mut Wants,
    at: &'a mut Backends,
    /// Computed values keep the connection: no rule says otherwise.
    keeps: bool,
}

impl UserVariables<'_> {
    /// A SET gave a variable this literal, as it is written in the session's character set.
    pub(super) fn set(&mut self, name: String, literal: &str, analysis: &Analysis) {
        if may_name_others(&name) {
            return self.computed(Some(vec![name]), analysis);
        }
        // NULL is kept too: a variable that was assigned is not one that never was.
        let carried = if literal.eq_ignore_ascii_case("NULL") {
            self.null_for(&name)
        } else {
            charsets::portable(literal, self.wants.lex, &self.wants.state)
        };
        match carried {
            Some(carried) if self.assign(&name, &carried) => {}
            Some(_) => self.computed(None, analysis),
            None => self.computed(Some(vec![name]), analysis),
        }
    }

    /// A variable has this value on the connection at hand, a literal of any session. False where limits do not allow to carry it.
    pub(super) fn assign(&mut self, name: &str, literal: &str) -> bool {
        let fits = self.wants.state.carry_user_variable(name, literal);
        if fits {
            if let Some(backend) = self.at.backend.as_mut() {
                backend.core.held.user_variable_changed(name, literal);
            }
            // What it was given in other places is out of date.
            self.at.places.iter_mut().flat_map(|places| places.pins_mut()).for_each(|pins| pins.variable_known(name));
        }
        fits
    }

    /// Variables have values that the text does not tell; None when it is not known which.
    pub(super) fn computed(&mut self, names: Option<Vec<String>>, analysis: &Analysis) {
        // What else they name is not known.
        let names = names.filter(|names| !names.iter().any(|name| may_name_others(name)));
        if self.keeps {
            let now_ms = self.at.worker.clock.now_ms();
            self.at.pins.variables_computed(names, now_ms, analysis.digest);
        }
    }

    /// Any variable that this text names may have a value that the text does not tell.
    pub(super) fn computed_by(&mut self, sql: &[u8], analysis: &Analysis) {
        self.computed(sql::user_variables(sql, self.wants.lex), analysis);
    }

    /// The session no longer wants this variable of a connection: a SET is about to give it another value.
    pub(super) fn forget(&mut self, name: &str) {
        self.wants.state.user_variables.set(name, None);
    }

    /// The server forgot all of them.
    pub(super) fn forget_all(&mut self) {
        self.wants.state.user_variables = Variables::default();
        if let Some(backend) = self.at.backend.as_mut() {
            backend.core.held.user_variables_gone();
        }
    }

    /// The server said that these variables have these values. False where limits do not allow to carry all of them.
    fn learnt(&mut self, names: &[String], literals: &[String]) -> bool {
        names.iter().zip(literals).all(|(name, literal)| self.assign(name, literal))
    }

    /// The literal of a NULL that is assigned to this variable now; None when the type that it has is not known.
    pub(super) fn null_for(&self, name: &str) -> Option<String> {
        let pins = &self.at.pins;
        if pins.set().contains(PinReason::UserVariable) && pins.hides(name) && !pins.is_told(name) {
            return None;
        }
        let before = match self.wants.state.user_variables.get(name) {
            Some(literal) => of_type(std::str::from_utf8(literal).ok()?)?,
            None => NO_TYPE.into(),
        };
        Some(null_of(name, &before))
    }
}

impl Effects<'_> {
    /// The session's user variables.
    pub(super) fn user_variables(&mut self) -> UserVariables<'_> {
        let keeps = self.directions.multiplex != Some(RuleMultiplex::IgnoreVariables);
        UserVariables { wants: self.wants, at: self.at, keeps }
    }

    /// Asks for the values that alone keep the backend, so that nothing keeps it.
    pub(super) async fn learn_user_variables(&mut self, analysis: &Analysis) {
        let Some(names) = self.at.pins.only_variables().map(<[String]>::to_vec) else { return };
        let Some(max) = self.longest_asked_for(&names) else { return self.user_variables().computed(None, analysis) };
        self.door().forget_unhandled();
        match self.fetch_user_variables(&names, max).await {
            Ok(true) => self.at.pins.end(PinReason::UserVariable),
            Ok(false) => self.user_variables().computed(None, analysis),
            // The next statement finds the connection closed.
            Err(_) => {}
        }
    }

    /// Carries what the held backend says of these variables; false when that is not all of them.
    async fn fetch_user_variables(&mut self, names: &[String], max: u64) -> io::Result<bool> {
        let literals = self.door().ask_for_user_variables(names, max).await?;
        Ok(literals.is_some_and(|literals| self.user_variables().learnt(names, &literals)))
    }

    /// Asks for these values, to carry them, though something else keeps the backend; whether all could be had.
    async fn learn_variables(&mut self, names: &[String]) -> bool {
        let Some(max) = self.longest_asked_for(names) else { return false };
        let Ok(is_known) = self.fetch_user_variables(names, max).await else { return true };
        if is_known {
            names.iter().for_each(|name| self.at.pins.variable_known(name));
        }
        is_known
    }

    /// Asks for the values of these user variables (None: it is not known which) where they may be known, so that they are carried to
    /// `hostgroup`. Where one cannot be had the statement goes to it instead.
    pub(super) async fn bring_variables(&mut self, names: Option<Vec<String>>, hostgroup: HostgroupId) -> HostgroupId {
        let unseen = |(id, pins): &(HostgroupId, &Pins)| *id != hostgroup && pins.set().intersects(UNSEEN);
        let places: Vec<HostgroupId> = self.at.all_places().filter(unseen).map(|(id, _)| id).collect();
        for place in places {
            let Some(names) = &names else { return place };
            let Some((_, pins)) = self.at.all_places().find(|(id, _)| *id == place) else { continue };
            let is_wanted = |name: &&String| pins.hides(name) && !pins.is_told(name);
            let wanted: Vec<String> = names.iter().filter(is_wanted).cloned().collect();
            if wanted.is_empty() {
                continue;
            }
            self.door().travel(place).await;
            self.door().read_before_leaving().await;
            let may_leave = self.at.pool.shared.id == place && !self.at.pins.set().intersects(BOUND);
            if !may_leave || self.at.backend.is_some() && !self.learn_variables(&wanted).await {
                return self.at.pool.shared.id;
            }
        }
        hostgroup
    }

    /// How long the values of these variables may be to be asked for; None where they are not asked for at all.
    fn longest_asked_for(&self, names: &[String]) -> Option<u64> {
        let max = self.at.worker.snapshot().vars.carry_user_variables_max_length;
        let may_ask = max > 0 && names.len() <= MOST_USER_VARIABLES && names.iter().all(|name| name.is_ascii());
        may_ask.then_some(max)
    }
}

impl ServerDoor<'_> {
    /// The held backend's user variables as literals, in this order; None when one cannot be had.
    async fn ask_for_user_variables(&mut self, names: &[String], max: u64) -> io::Result<Option<Vec<String>>> {
        count(&self.at.worker.counters.user_variables_asked);
        if self.at.backend.is_none() {
            return Ok(None);
        }
        let reply = self.ask(Question::UserVariables { names, max }).await?;
        Ok(literals(&reply, names))
    }
}

impl Router<'_> {
    /// Whether a statement for `hostgroup` uses user variables of which another place may know better.
    pub(super) fn needs_variables(&self, analysis: &Analysis, hostgroup: HostgroupId) -> bool {
        analysis.facts.contains(Facts::USER_VARIABLE)
            && self.at.is_pinned()
            && !self.at.pins.set().intersects(BOUND)
            && self.at.all_places().any(|(id, pins)| id != hostgroup && pins.set().intersects(UNSEEN))
    }
}

#[cfg(test)]
mod tests {
    use crate::session::bed::{Bed, ok};
    use wire::charset::Flavor;

    #[tokio::test]
    async fn a_variable_that_was_set_to_null_is_not_known_to_have_a_value() {
        for (texts, expected) in [
            (&["SET @slave_connect_state = '0-1-2'"][..], true),
            (&["SET @slave_connect_state = NULL"], false),
            (&["SET @slave_connect_state = '0-1-2'", "SET @slave_connect_state = NULL"], false),
            (&[], false),
        ] {
            let mut bed = Bed::new("").on(Flavor::MariaDb);
            texts.iter().for_each(|text| bed.ran(text, &ok()));
            assert_eq!(bed.wants.non_null_user_variable("slave_connect_state").is_some(), expected, "{texts:?}");
        }
    }
}
