//! One frame as lines of text. Pure, so that `--once` prints the same as the terminal shows.

use super::sample::{DigestLine, Lines, PinLine, Sample, ServerLine, Sort};

/// Longest list of reasons for pins.
const MAX_PINS: usize = 6;
/// Most lines of servers, when there are digests to be shown too.
const MAX_SERVERS: usize = 20;
/// Width of a frame that goes to no terminal, characters.
pub(super) const PLAIN_WIDTH: usize = 160;

/// The colour of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// No colour.
    Plain,
    /// The head of a table.
    Head,
    /// Something is wrong.
    Alarm,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub style: Style,
    /// Printable characters alone.
    pub text: String,
}

/// The content of a frame.
pub(super) struct View<'a> {
    /// The address of the admin port.
    pub target: &'a str,
    /// The last sample.
    pub now: &'a Sample,
    /// Before, for rates; none in the first frame.
    pub before: Option<&'a Sample>,
    /// How digests are ordered.
    pub sort: Sort,
    /// Characters of a line.
    pub width: usize,
    /// Lines; `None` is as many as there are.
    pub height: Option<usize>,
}

/// Draws a frame, cut to its size.
pub(super) fn draw(view: &View<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    traffic(view, &mut lines);
    servers(view, &mut lines);
    pins(&view.now.pins, &mut lines);
    digests(view, &mut lines);
    lines.truncate(view.height.unwrap_or(usize::MAX));
    for line in &mut lines {
        line.text = printable(&line.text, view.width);
    }
    lines
}

/// Control characters replaced (a digest's text is a stranger's, the terminal is ours), cut to `width` characters.
fn printable(text: &str, width: usize) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(width).collect::<String>().trim_end().to_owned()
}

fn plain(text: String) -> Line {
    Line { style: Style::Plain, text }
}

fn head(text: String) -> Line {
    Line { style: Style::Head, text }
}

fn traffic(view: &View<'_>, lines: &mut Vec<Line>) {
    let up = view.now.variable("ProxySQL_Uptime").map_or("?".to_owned(), duration_s);
    lines.push(head(format!("tidegate top  {}  up {up}  digests by {}  (q quit, s sort)", view.target, view.sort.name())));
    if let Err(why) = &view.now.global {
        lines.push(Line { style: Style::Alarm, text: format!("stats_mysql_global: {why}") });
        return;
    }
    let gauge = |name| view.now.variable(name).map_or("-".to_owned(), |value| format!("{value:.0}"));
    let rate = |name| per_second(view, view.now.variable(name), view.before.and_then(|b| b.variable(name)));
    let count = |name| rate(name).map_or("-".to_owned(), short);
    let bytes = |name| rate(name).map_or("-".to_owned(), |value| short(value) + "B");
    lines.push(plain(format!(
        "queries/s {}  slow/s {}  clients {} (new/s {}, aborted/s {})  server connections {} (new/s {})  transactions {}",
        count("Questions"),
        count("Slow_queries"),
        gauge("Client_Connections_connected"),
        count("Client_Connections_created"),
        count("Client_Connections_aborted"),
        gauge("Server_Connections_connected"),
        count("Server_Connections_created"),
        gauge("Active_Transactions"),
    )));
    lines.push(plain(format!(
        "clients: in {}/s, out {}/s  servers: out {}/s, in {}/s",
        bytes("Queries_frontends_bytes_recv"),
        bytes("Queries_frontends_bytes_sent"),
        bytes("Queries_backends_bytes_sent"),
        bytes("Queries_backends_bytes_recv"),
    )));
}

fn servers(view: &View<'_>, lines: &mut Vec<Line>) {
    lines.push(plain(String::new()));
    lines.push(head(format!(
        "{:>5} {:<32} {:<14} {:>6} {:>6} {:>9} {:>9} {:>9} {:>7} {:>9}",
        "HG", "SERVER", "STATUS", "USED", "FREE", "QUERIES/S", "SENT/S", "RECV/S", "ERRORS", "PING"
    )));
    let Some(all) = listed(&view.now.servers, "stats_mysql_connection_pool", lines) else { return };
    let before = view.before.map(Sample::servers_by_name).unwrap_or_default();
    for now in all.iter().take(MAX_SERVERS) {
        let earlier = before.get(&(now.hostgroup.as_str(), now.address.as_str()));
        lines.push(server(view, now, earlier.copied()));
    }
    more(all.len(), MAX_SERVERS, "servers", lines);
}

fn server(view: &View<'_>, now: &ServerLine, before: Option<&ServerLine>) -> Line {
    let rate = |value: fn(&ServerLine) -> f64| per_second(view, Some(value(now)), before.map(value)).map_or("-".to_owned(), short);
    let text = format!(
        "{:>5} {:<32} {:<14} {:>6.0} {:>6.0} {:>9} {:>9} {:>9} {:>7.0} {:>9}",
        now.hostgroup,
        now.address,
        now.status,
        now.used,
        now.free,
        rate(|s| s.queries),
        rate(|s| s.sent),
        rate(|s| s.received),
        now.errors,
        duration_us(now.latency_us),
    );
    Line { style: if now.status == "ONLINE" { Style::Plain } else { Style::Alarm }, text }
}

fn pins(all: &Lines<PinLine>, lines: &mut Vec<Line>) {
    lines.push(plain(String::new()));
    lines.push(head(format!("{:<24} {:>8} {:>10}", "PINNED BY", "SESSIONS", "LONGEST")));
    let Some(all) = listed(all, "stats_tidegate_pins_summary", lines) else { return };
    for pin in all.iter().take(MAX_PINS) {
        lines.push(plain(format!("{:<24} {:>8.0} {:>10}", pin.reason, pin.sessions, duration_us(pin.longest_ms * 1e3))));
    }
    more(all.len(), MAX_PINS, "reasons", lines);
}

fn digests(view: &View<'_>, lines: &mut Vec<Line>) {
    lines.push(plain(String::new()));
    lines.push(head(format!(
        "{:>9} {:>9} {:>9} {:>9} {:>5} {:<12} {:<12} {}",
        "TOTAL", "AVERAGE", "SLOWEST", "COUNT", "HG", "USER", "SCHEMA", "DIGEST"
    )));
    let Some(all) = listed(&view.now.digests, "stats_mysql_query_digest", lines) else { return };
    lines.extend(all.iter().map(digest));
}

fn digest(line: &DigestLine) -> Line {
    plain(format!(
        "{:>9} {:>9} {:>9} {:>9} {:>5} {:<12} {:<12} {}",
        duration_us(line.total_us),
        duration_us(line.total_us / line.count.max(1.0)),
        duration_us(line.slowest_us),
        short(line.count),
        line.hostgroup,
        line.user,
        line.schema,
        line.text,
    ))
}

/// The lines of a table; says so when there are none.
fn listed<'a, T>(all: &'a Lines<T>, table: &str, lines: &mut Vec<Line>) -> Option<&'a [T]> {
    match all {
        Ok(all) if all.is_empty() => lines.push(plain("none".to_owned())),
        Ok(all) => return Some(all),
        Err(why) => lines.push(Line { style: Style::Alarm, text: format!("{table}: {why}") }),
    }
    None
}

fn more(count: usize, shown: usize, what: &str, lines: &mut Vec<Line>) {
    if count > shown {
        lines.push(plain(format!("... and {} more {what}", count - shown)));
    }
}

/// Growth per second since the last sample; None at first, and if the counter was reset.
fn per_second(view: &View<'_>, now: Option<f64>, before: Option<f64>) -> Option<f64> {
    let seconds = view.now.at.duration_since(view.before?.at).as_secs_f64();
    let grown = now? - before?;
    (seconds > 0.0 && grown >= 0.0).then_some(grown / seconds)
}

/// A number in few characters: `12.3`, `4.56k`, `7.8M`.
fn short(value: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match UNITS.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{:.2}{name}", value / unit),
        None if value == value.trunc() => format!("{value:.0}"),
        None => format!("{value:.1}"),
    }
}

fn duration_us(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0}us"),
        us if us < 1e6 => format!("{:.1}ms", us / 1e3),
        us if us < 600e6 => format!("{:.2}s", us / 1e6),
        us => duration_s(us / 1e6),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and nothing runs that long")]
fn duration_s(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3_600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days}d {clock}") } else { clock }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn sample(at: Instant, questions: f64) -> Sample {
        let server = ServerLine {
            hostgroup: "10".into(),
            address: "db1:3306".into(),
            status: "ONLINE".into(),
            used: 3.0,
            queries: questions * 2.0,
            latency_us: 450.0,
            ..ServerLine::default()
        };
        let shunned = ServerLine { address: "db2:3306".into(), status: "SHUNNED".into(), ..server.clone() };
        let digest = DigestLine { text: "SELECT \x1b[2J?".into(), count: 4.0, total_us: 8e6, slowest_us: 5e6, ..DigestLine::default() };
        Sample {
            at,
            global: Ok(vec![("ProxySQL_Uptime".into(), 90_061.0), ("Questions".into(), questions)]),
            servers: Ok(vec![server, shunned]),
            pins: Ok(Vec::new()),
            digests: Ok(vec![digest]),
        }
    }

    fn drawn(view: &View<'_>) -> String {
        draw(view).into_iter().map(|line| line.text + "\n").collect()
    }

    #[test]
    fn a_frame() {
        let at = Instant::now();
        let (before, now) = (sample(at, 100.0), sample(at + Duration::from_secs(2), 3_100.0));
        let view = View { target: "x:1", now: &now, before: Some(&before), sort: Sort::Total, width: PLAIN_WIDTH, height: None };
        let expected = "\
tidegate top  x:1  up 1d 01:01:01  digests by total time  (q quit, s sort)
queries/s 1.50k  slow/s -  clients - (new/s -, aborted/s -)  server connections - (new/s -)  transactions -
clients: in -/s, out -/s  servers: out -/s, in -/s

   HG SERVER                           STATUS           USED   FREE QUERIES/S    SENT/S    RECV/S  ERRORS      PING
   10 db1:3306                         ONLINE              3      0     3.00k         0         0       0     450us
   10 db2:3306                         SHUNNED             3      0     3.00k         0         0       0     450us

PINNED BY                SESSIONS    LONGEST
none

    TOTAL   AVERAGE   SLOWEST     COUNT    HG USER         SCHEMA       DIGEST
    8.00s     2.00s     5.00s         4                                 SELECT  [2J?
";
        assert_eq!(drawn(&view), expected);
        let styles: Vec<Style> = draw(&view).iter().map(|line| line.style).collect();
        assert_eq!((styles[0], styles[5], styles[6]), (Style::Head, Style::Plain, Style::Alarm));
    }

    #[test]
    fn a_first_frame_has_no_rates_and_a_small_one_is_cut() {
        let mut now = sample(Instant::now(), 5.0);
        now.digests = Err("no such table".into());
        let view = View { target: "x", now: &now, before: None, sort: Sort::Count, width: 12, height: Some(2) };
        assert_eq!(drawn(&view), "tidegate top\nqueries/s -\n");
        let whole = View { width: PLAIN_WIDTH, height: None, ..view };
        assert!(drawn(&whole).ends_with("stats_mysql_query_digest: no such table\n"));
    }

    #[test]
    fn numbers_and_durations() {
        for (value, shown) in [(0.0, "0"), (0.25, "0.2"), (999.0, "999"), (1_500.0, "1.50k"), (2e6, "2.00M"), (3e12, "3.00T")] {
            assert_eq!(short(value), shown);
        }
        for (us, shown) in [(5.0, "5us"), (1_500.0, "1.5ms"), (2e6, "2.00s"), (3_661e6, "01:01:01")] {
            assert_eq!(duration_us(us), shown);
        }
    }
}
