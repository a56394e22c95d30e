//! Bytes to and from a peer: sockets, TLS, the compressed protocol, buffers, names of hosts.

pub(crate) mod buffer;
pub(crate) mod link;
pub(crate) mod names;
pub(crate) mod stream;
