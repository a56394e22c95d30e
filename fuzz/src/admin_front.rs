//! The files themselves, not the crate: they are pure, and the crate would bring SQLite, HTTP and TLS into every build.

#[path = "../../crates/admin/src/front/literal.rs"]
pub mod literal;
#[path = "../../crates/admin/src/front/prepared.rs"]
pub mod prepared;
#[path = "../../crates/admin/src/front/split.rs"]
pub mod split;
#[path = "../../crates/admin/src/statement.rs"]
pub mod statement;
