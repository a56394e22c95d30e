//! The files themselves, not the crate, as with the proxy's reframing: what of the query cache is pure.

#[path = "../../crates/cache/src/columns.rs"]
pub mod columns;
#[path = "../../crates/cache/src/params.rs"]
pub mod params;
#[path = "../../crates/cache/src/rows.rs"]
pub mod rows;
#[path = "../../crates/cache/src/wording.rs"]
pub mod wording;
