//! The lab: real database servers, the real proxy and a client that shows the wire, for tests and demonstrations.
//!
//! Everything listens on loopback, takes free ports, lives in a memory file system, and ends with the process that
//! started it. Nothing here sleeps to wait for something it could observe.

pub mod aurora;
pub mod bench;
pub mod certs;
pub mod client;
pub mod differential;
pub mod dirs;
pub mod error;
pub mod etcd;
pub mod experiments;
pub mod failover;
pub mod fault;
pub mod flavor;
pub mod galera;
pub mod group;
pub mod healing;
pub mod network;
pub mod old;
pub mod plot;
pub mod port;
pub mod process;
pub mod replication;
pub mod server;
mod template;
pub mod tidegate;
pub mod topology;
pub mod wait;

pub use aurora::AuroraStandIn;
pub use client::{Client, ConnectOptions};
pub use error::LabError;
pub use flavor::Flavor;
pub use galera::Galera;
pub use group::Group;
pub use network::Network;
pub use replication::Replication;
pub use server::{Mariadb, Mysql, Options, Server};
pub use tidegate::{SERVER_LOST, Tidegate};
pub use topology::Topology;
