//! The operator's side through the real program.
//!
//! A loaded configuration holds for clients that are already connected, a saved one holds after a restart, and a refused one changes
//! nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

#[path = "admin/bed.rs"]
mod bed;
#[path = "admin/configuration.rs"]
mod configuration;
#[path = "admin/layers.rs"]
mod layers;
#[path = "admin/live.rs"]
mod live;
#[path = "admin/process.rs"]
mod process;
#[path = "admin/questions.rs"]
mod questions;
#[path = "admin/secrets.rs"]
mod secrets;
#[path = "admin/start.rs"]
mod start;
#[path = "admin/tables.rs"]
mod tables;
