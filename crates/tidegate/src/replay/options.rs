//! The command line of `tidegate replay`.

use super::plan::FilePlan;
use super::target::{ServerIdentity, Target};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Whether sessions wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderBy {
    /// A command starts when all commands have ended that had ended before it started at the original. Writes run one after another.
    Seen,
    /// Each session keeps its own order, and waits for no other session.
    Session,
}

/// What is replayed, where, and how.
#[derive(Args, Debug, Clone)]
pub(crate) struct ReplayOptions {
    /// Files of captures (*.tgcap), slow logs or events logs. Order between files is not kept.
    #[arg(required_unless_present = "keygen")]
    pub files: Vec<PathBuf>,
    /// The server: host:port, or the path of a Unix socket.
    #[arg(long, required_unless_present_any = ["keygen", "dry_run", "route"])]
    pub to: Option<String>,
    /// User of all sessions on that server.
    #[arg(long, default_value = "root")]
    pub user: String,
    /// JSON file with other users: {"captured": {"user": "name", "password_file": "path"}}. Sessions of users that it does not name log in as
    /// --user.
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// File with the user's password. Without it, TIDEGATE_REPLAY_PASSWORD of the environment holds, or an empty password.
    #[arg(long)]
    pub password_file: Option<PathBuf>,
    /// File of the CA that verifies the server's certificate; TLS is required then.
    #[arg(long)]
    pub ca: Option<PathBuf>,
    /// Private key (PEM) for sealed files.
    #[arg(long)]
    pub key: Option<PathBuf>,
    /// 1: as fast as at the original, 2: twice as fast, 0: as fast as the order allows.
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
    /// Whether sessions wait for each other.
    #[arg(long, value_enum, default_value = "seen")]
    pub order: OrderBy,
    /// Send nothing that may write; each session is read-only on the server too.
    #[arg(long)]
    pub reads_only: bool,
    /// Longest pause in which no session does anything; longer ones are cut. For example 500ms, 2s, 1m.
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub idle: Duration,
    /// Compare from so long after the capture's begin; before, sessions are only set up.
    #[arg(long, value_parser = duration)]
    pub from: Option<Duration>,
    /// End so long after the capture's begin.
    #[arg(long, value_parser = duration)]
    pub until: Option<Duration>,
    /// Replay each session so many times side by side, as a load test; needs --reads-only.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub times: u32,
    /// Read the files, log in if --to is given, and say what would be replayed.
    #[arg(long)]
    pub dry_run: bool,
    /// Write answers, digests, samples and the page to this SQLite file, which must not exist.
    #[arg(long)]
    pub report: Option<PathBuf>,
    /// Go on with the replay that was interrupted while it wrote this report. The server must have been left as it was.
    #[arg(long, requires = "report")]
    pub resume: bool,
    /// Compare with the answers in the report of an earlier replay of the same files, instead of those in the files.
    #[arg(long)]
    pub against: Option<PathBuf>,
    /// Do not SET timestamp and insert_id as they were at the original.
    #[arg(long)]
    pub no_pin: bool,
    /// A digest is slower if its median time grows by more than this factor.
    #[arg(long, default_value_t = 1.5)]
    pub slow_factor: f64,
    /// A slower digest is bad if the time of all statements grows by more than this factor.
    #[arg(long, default_value_t = 1.2)]
    pub total_growth: f64,
    /// Show statements with their values in samples.
    #[arg(long)]
    pub show_literals: bool,
    /// Say where the statements would go by this configuration file, instead. Nothing is sent.
    #[arg(long, value_name = "NEW.cnf", conflicts_with_all = ["to", "dry_run", "report", "against"])]
    pub route: Option<PathBuf>,
    /// List only those that go elsewhere than by this configuration file.
    #[arg(long, value_name = "OLD.cnf", requires = "route")]
    pub route_from: Option<PathBuf>,
    /// Make a key pair instead: writes NAME.key.pem, which opens files, and NAME.pub.pem for CAPTURE START.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["files", "to"])]
    pub keygen: Option<PathBuf>,
}

impl ReplayOptions {
    /// What must be the same for a replay that is resumed, a line each.
    pub(super) fn terms(&self, files: &[FilePlan], server: &ServerIdentity, target: &Target) -> String {
        let capture = |file: &FilePlan| {
            let header = &file.header;
            format!("capture {} of {}, begun {}, {} bytes", header.name, header.host, header.started_unix_us, file.bytes)
        };
        let mut terms: Vec<String> = files.iter().map(capture).collect();
        let ms = |time: Option<Duration>| time.map_or("none".to_owned(), |time| format!("{} ms", time.as_millis()));
        terms.push(format!("to {}", self.to.as_deref().unwrap_or_default()));
        terms.push(format!("server {}, version {}", server.name, server.version));
        terms.push(format!("user {}", self.user));
        terms.extend(target.others().map(|(captured, user)| format!("user {user} for {captured}")));
        terms.push(format!("reads-only {}", self.reads_only));
        terms.push(format!("from {}", ms(self.from)));
        terms.push(format!("until {}", ms(self.until)));
        terms.push(format!("no-pin {}", self.no_pin));
        terms.push(format!("files {}", self.files.len()));
        terms.join("\n")
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed >= 0.0);
    speed.ok_or_else(|| "a factor such as 1, 0.5 or 10; 0 is as fast as possible".to_owned())
}

/// `500ms`, `2s`, `1.5m`, `1h`; without a unit, seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match text.get(digits.len()..) {
        Some("ms") => 0.001,
        Some("" | "s") => 1.0,
        Some("m") => 60.0,
        Some("h") => 3600.0,
        _ => return Err("a time such as 500ms, 2s, 1m or 1h".to_owned()),
    };
    let number: f64 = digits.parse().map_err(|_| "a time such as 500ms, 2s, 1m or 1h".to_owned())?;
    Duration::try_from_secs_f64(number * factor).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ms) in
            [("500ms", Some(500)), ("2s", Some(2000)), ("1.5m", Some(90_000)), ("1", Some(1000)), ("-1s", None), ("1d", None), ("", None)]
        {
            assert_eq!(duration(text).ok().map(|time| time.as_millis()), ms, "{text}");
        }
        assert_eq!([speed("0"), speed("2.5")], [Ok(0.0), Ok(2.5)]);
        assert!(speed("-1").is_err() && speed("inf").is_err());
    }
}
