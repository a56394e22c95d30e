//! The network: connections in memory with delays, resets, silence; hosts that listen, refuse or are gone.

mod network;
mod pipe;

pub(crate) use network::{Network, Node, ProxysView, server_of};
pub(crate) use pipe::End;
