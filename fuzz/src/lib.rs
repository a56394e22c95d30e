//! What the fuzz targets check: one function a target, bytes in, a panic when a promise is broken.
//!
//! The files in `fuzz_targets` only name these functions. Each documents how it reads its input; the seeds in `seeds`
//! are written to that. An input that stands for several packets is cut into pieces by [`input::Input`].

pub mod admin;
#[allow(dead_code)] // Files of a crate, of which a part is fuzzed.
pub mod admin_front;
pub mod auth;
pub mod cache;
pub mod capture_file;
/// The file itself, not the crate: records of TLS alone.
#[allow(dead_code)]
#[path = "../../crates/tls/src/carried.rs"]
pub mod carried;
pub mod compression;
pub mod config;
pub mod digest;
pub mod handshake;
pub mod input;
pub mod messages;
pub mod prepared;
#[allow(dead_code)] // As above.
pub mod proxy_cache;
pub mod proxy_header;
pub mod query;
pub mod reframe;
pub mod replies;
pub mod reply;
pub mod routing;
pub mod split;
pub mod sql;
pub mod tls_records;
