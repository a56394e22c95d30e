//! Clients of the proxy, as others see them: listeners, users, addresses, handles of sessions.

pub(crate) mod listener;
pub(crate) mod processlist;
pub(crate) mod replica;
pub(crate) mod session_handle;
pub(crate) mod tls_loads;
pub(crate) mod users;
