//! The engine as its sessions see it, over a data plane that only remembers.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests are no tests to the lint

mod audit;
mod bed;
mod clients;
mod commands;
mod crash;
mod failover;
mod history;
mod layers;
mod live;
mod rights;
mod roundtrip;
mod start;
