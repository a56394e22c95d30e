//! One connection to a server, from its login to its end.

pub(crate) mod backend;
pub(crate) mod cleaning;
pub(crate) mod connect;
pub(crate) mod defaults;
pub(crate) mod proven;
pub(crate) mod side_connection;
