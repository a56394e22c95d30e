//! What the fuzz targets check: one function a target, bytes in, a panic when a promise is broken.
//!
//! The files in `fuzz_targets` only name these functions. Each documents how it reads its input; the seeds in `seeds`
//! are written to that. An input that stands for several packets is cut into pieces by [`input::Input`].

pub mod admin;
pub mod admin_front;
pub mod auth;
pub mod cache;
pub mod compression;
pub mod config;
pub mod digest;
pub mod handshake;
pub mod input;
pub mod messages;
pub mod prepared;
pub mod proxy_cache;
pub mod proxy_header;
pub mod query;
pub mod reframe;
pub mod replies;
pub mod reply;
pub mod routing;
pub mod sql;
