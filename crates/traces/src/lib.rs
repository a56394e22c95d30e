//! Traces of statements: their origin, the choice of kept ones, and their way to a receiver (OpenTelemetry, OTLP over HTTP).
//!
//! A worker asks [`Exporter::keeps`] when a statement has ended, and hands over its notes as a [`Record`]. The exporter's thread makes
//! spans of records and sends them in batches. INVARIANT: handing over a record waits only for a push to a queue. Records that do not fit,
//! and spans that no receiver takes, are dropped and counted.
//!
//! Sources: W3C Trace Context; OpenTelemetry's semantic conventions for databases; the OTLP specification.

mod context;
mod exporter;
mod policy;
mod record;
mod settings;
mod spans;

pub use context::{Parent, TraceId, shown};
pub use exporter::{Counts, Exporter, new_trace_id};
pub use policy::{Outcome, Why};
pub use record::{Answered, Attempt, Failure, MAX_ATTEMPTS, MAX_TEXT, Record};
pub use settings::Environment;
