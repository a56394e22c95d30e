//! What a session knows of the values of its user variables.

use crate::literals::{is_bare_null, is_null};
use crate::pins::Pins;
use crate::state::{State, Text, Variables};
use crate::statement_key::ValuesAtPrepare;
use crate::wants::Wants;
use std::sync::Arc;

/// The value of a variable that was never set.
pub const UNSET: &[u8] = b"NULL";

impl Wants {
    /// The value of a variable, as far as it is known.
    pub fn user_variable(&self, name: &str) -> &[u8] {
        self.state.user_variables.get(name).filter(|literal| !is_bare_null(literal)).map_or(UNSET, |literal| literal)
    }

    /// The literal of a variable that is known, and not NULL.
    pub fn non_null_user_variable(&self, name: &str) -> Option<&Text> {
        self.state.user_variables.get(name).filter(|literal| !is_null(literal))
    }

    /// What the session wants without its schema, and without the user variables with a name and a literal that are left out.
    pub fn without_user_variables(&self, is_left_out: impl Fn(&str, &[u8]) -> bool) -> State {
        let mut state = State { schema: None, ..self.state.clone() };
        for (name, _) in self.state.user_variables.entries().iter().filter(|(name, literal)| is_left_out(name, literal)) {
            state.user_variables.set(name, None);
        }
        state
    }

    /// The values of the variables that a statement names, for a server where they decide at PREPARE.
    pub fn values_at_prepare(&self, pins: &Pins, text: &[u8]) -> ValuesAtPrepare {
        let names = sql::user_variables(text, self.lex).filter(|names| names.iter().all(|name| !pins.hides(name)));
        let Some(names) = names else { return ValuesAtPrepare::unknown() };
        let mut values = Variables::default();
        for name in names {
            values.set(&name, Some(self.user_variable(&name)));
        }
        ValuesAtPrepare::Known(values)
    }

    /// Those of the variables that may have other values now than they had at PREPARE, with their literals of then.
    pub fn changed_since_prepare(&self, pins: &Pins, then: &Variables) -> Vec<(Arc<str>, Text)> {
        let is_other = |name: &str, literal: &[u8]| pins.hides(name) || self.user_variable(name) != literal;
        then.entries().iter().filter(|(name, literal)| is_other(name, literal)).cloned().collect()
    }
}
