//! The files themselves, not the crate, as with the proxy's reframing: what of the query cache is pure.

#[path = "../../crates/proxy/src/cache/columns.rs"]
pub mod columns;
#[path = "../../crates/proxy/src/cache/params.rs"]
pub mod params;
#[path = "../../crates/proxy/src/cache/rows.rs"]
pub mod rows;
#[path = "../../crates/proxy/src/cache/wording.rs"]
pub mod wording;
