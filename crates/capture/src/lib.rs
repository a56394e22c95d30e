//! Captured traffic of sessions, as a file has it: written by the proxy, read by `tidegate replay`.
//!
//! [`Writer`] makes a file of encoded [`Record`]s and [`Reader`] reads it; [`seal`] has the keys, [`Order`] says which statement of a
//! replay may start, [`LiveOrder`] which one of a shadow. The format is described in docs/reference/capture-format.md. No clock and no files:
//! bytes come and go as arguments.
//! INVARIANT: no input makes the reader panic or hold more than a frame of [`MAX_FRAME`] bytes.

mod header;
mod live;
mod order;
mod params;
mod race;
mod reader;
mod record;
pub mod seal;
mod writer;

pub use header::{Header, MAJOR, MINOR, ServerAt, Trailer};
pub use live::{Begun, LiveOrder, Locks, Place, Waiting};
pub use order::{Order, Seqs, Turn, Turns};
pub use params::Params;
pub use race::Races;
pub use reader::{FileError, Reader, Step, records};
pub use record::{Command, Gap, GapReason, Record, SessionStart, Timing, What, Withheld, put_reply, reply};
pub use writer::{FRAME, MAX_FRAME, Writer};
