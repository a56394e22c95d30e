//! What a session wants and what a connection to a server has, as data.

pub(crate) mod acknowledged;
pub(crate) mod causal;
pub(crate) mod certainty;
pub(crate) mod class;
pub(crate) mod flavors;
pub(crate) mod gtid;
pub(crate) mod held;
pub(crate) mod pins;
pub(crate) mod routines;
pub(crate) mod state;
