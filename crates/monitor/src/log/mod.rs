//! Past checks and decisions, within limits: the rows of `monitor.*` and of `stats_tidegate_events`.

mod checks;
mod history;
mod servers;
mod tables;
mod time;

pub(crate) use checks::{CheckLog, kind_name};
pub(crate) use history::{History, Noted};
pub(crate) use servers::Since;
pub(crate) use tables::{all, rows};
pub(crate) use time::date_time;
