//! Clients of the proxy, as others see them: listeners, users, addresses, handles of sessions.

pub(crate) mod entry;
pub(crate) mod listener;
pub(crate) mod replica;
pub(crate) mod tls_loads;
pub(crate) mod users;
pub(crate) mod view;
