//! What a statement does to a session, as data: what the session wants of a connection, what a connection has, and what keeps the
//! session on it.
//!
//! No connection, no clock, no worker: what a rule needs of those is an argument. The crate `proxy` has the sessions that use it.

#[cfg(test)]
mod bed;

pub mod acknowledged;
pub mod causal;
pub mod certainty;
pub mod charsets;
pub mod chosen;
pub mod class;
pub mod collected;
pub mod definition;
pub mod door;
pub mod effects;
pub mod facts;
pub mod flavors;
pub mod gtid;
pub mod held;
pub mod insert_id;
pub mod literals;
pub mod pins;
pub mod prepare_settings;
pub mod question;
pub mod routines;
pub mod server_info;
pub mod setting;
pub mod state;
pub mod statement_key;
pub mod stored;
pub mod tableless;
pub mod tracked;
pub mod untracked;
pub mod user_variables;
pub mod views;
pub mod wants;
pub mod words;
