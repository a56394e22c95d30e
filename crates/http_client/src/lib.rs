//! HTTP/1.1 towards services that are no database servers (etcd, a receiver of traces): one connection, requests one after another.
//!
//! Owns where such a service is and how bytes get there, with TLS or without. What is asked, how often, and what an answer means is its
//! user's to say. Runs on the user's runtime; every wait has a limit that the user names.

mod endpoint;
mod line;

pub use endpoint::Endpoint;
pub use line::Line;
