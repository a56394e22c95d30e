//! `tidegate top`: traffic, servers, pins and the slowest digests of a running proxy, live in a terminal.
//!
//! A client of the admin port like any other; reads statistics and changes nothing, so the `stats` login will do.

mod frame;
mod sample;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::admin_login::AdminLogin;
use frame::{Line, PLAIN_WIDTH, Style, View};
use sample::{Sample, Sort};
use terminal::{Key, Terminal};

/// Shows a running proxy, live.
#[derive(Args, Debug, Clone)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    login: AdminLogin,
    /// Seconds between frames, 0.1 to 3600.
    #[arg(short = 'i', long, default_value_t = 1.0)]
    interval: f64,
    /// Print one frame as plain text, after one interval.
    #[arg(long)]
    once: bool,
}

impl TopOptions {
    fn interval(&self) -> Result<Duration> {
        if (0.1..=3_600.0).contains(&self.interval) {
            Ok(Duration::from_secs_f64(self.interval))
        } else {
            bail!("--interval must be from 0.1 to 3600 seconds")
        }
    }
}

/// Shows frames until the user leaves, or prints one.
pub(crate) fn run(options: &TopOptions) -> Result<()> {
    if options.once {
        return once(options, &mut std::io::stdout().lock());
    }
    let (interval, mut client) = (options.interval()?, options.login.connect()?);
    let terminal = Terminal::open()?;
    let (mut sort, mut before) = (Sort::Total, None);
    loop {
        match Sample::take(&mut client, sort) {
            Ok(now) => {
                let (width, height) = terminal.size();
                let view = View { target: &options.login.target, now: &now, before: before.as_ref(), sort, width, height: Some(height) };
                terminal.show(&frame::draw(&view))?;
                before = Some(now);
            }
            Err(e) => {
                terminal.show(&[Line { style: Style::Alarm, text: format!("{}: {e:#}; trying again", options.login.target) }])?;
                before = None;
                if let Ok(again) = options.login.connect() {
                    client = again;
                }
            }
        }
        let due = Instant::now() + interval;
        while let Some(wait) = due.checked_duration_since(Instant::now()) {
            match terminal.key(wait)? {
                Some(Key::Quit) => return Ok(()),
                Some(Key::Sort) => {
                    sort = sort.next();
                    break;
                }
                None => {}
            }
        }
    }
}

/// One frame, with the rates of one interval.
fn once(options: &TopOptions, out: &mut impl Write) -> Result<()> {
    let (interval, mut client) = (options.interval()?, options.login.connect()?);
    let before = Sample::take(&mut client, Sort::Total)?;
    std::thread::sleep(interval);
    let now = Sample::take(&mut client, Sort::Total)?;
    let view =
        View { target: &options.login.target, now: &now, before: Some(&before), sort: Sort::Total, width: PLAIN_WIDTH, height: None };
    for line in frame::draw(&view) {
        writeln!(out, "{}", line.text)?;
    }
    Ok(())
}
