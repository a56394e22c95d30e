//! Traces of statements: who began them, which are kept, and how they get to a receiver (OpenTelemetry, OTLP over HTTP).
//!
//! A worker asks [`Exporter::keeps`] when a statement has ended, and hands what it noted over as a [`Record`]. Spans are made of records on
//! the exporter's thread, which sends them in batches. INVARIANT: whoever hands a record over waits for nothing but a push to a queue; what
//! does not fit, and what no receiver takes, is dropped and counted.
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
