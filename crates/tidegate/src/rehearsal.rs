//! `tidegate rehearsal check NAME`: the page of a rehearsal on a running proxy, with an exit code for pipelines.
//!
//! A client of the admin port like any other; it changes nothing, so the `stats` login will do.

use std::process::ExitCode;
use std::time::Duration;

use crate::admin_login::AdminLogin;
use ::admin::client::Limit;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

/// The page is short, and the proxy gathers it within seconds.
const LIMIT: Limit = Limit { bytes: 1 << 20, time: Duration::from_secs(30) };

/// What to do with a rehearsal.
#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Rehearsal {
    /// Print the page of a rehearsal. Exit code: 0 SAFE, 2 NOT ENOUGH, 1 NOT SAFE or an error.
    Check(CheckOptions),
}

/// Which rehearsal, and where.
#[derive(Args, Debug, Clone)]
pub(crate) struct CheckOptions {
    /// Its name in mysql_rehearsals.
    name: String,
    #[command(flatten)]
    login: AdminLogin,
}

/// Carries it out.
pub(crate) fn run(rehearsal: &Rehearsal) -> ExitCode {
    let Rehearsal::Check(options) = rehearsal;
    match page(options).and_then(|page| code(&page).map(|code| (page, code))) {
        Ok((page, code)) => {
            page.iter().for_each(|(part, text)| println!("{part:<10} {text}"));
            ExitCode::from(code)
        }
        Err(e) => {
            eprintln!("tidegate: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn page(options: &CheckOptions) -> Result<Vec<(String, String)>> {
    let mut client = options.login.connect()?;
    let name = options.name.replace('\'', "''");
    let rows = match client.rows(&format!("SHOW REHEARSAL '{name}'"), LIMIT)? {
        Ok(rows) => rows,
        Err(refused) => bail!("{refused}"),
    };
    let text = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    Ok(rows.iter().map(|row| (text(row, 0), text(row, 1))).collect())
}

/// The exit code that a page stands for.
fn code(page: &[(String, String)]) -> Result<u8> {
    let (_, verdict) = page.iter().find(|(part, _)| part == "verdict").context("the page has no verdict")?;
    match verdict.as_str() {
        "SAFE" => Ok(0),
        "NOT ENOUGH" => Ok(2),
        "NOT SAFE" => Ok(1),
        other => bail!("the verdict '{other}' is not known: this program is of another version than the proxy"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_the_exit_code() {
        let page = |verdict: &str| vec![("rehearsal".to_owned(), "x".to_owned()), ("verdict".to_owned(), verdict.to_owned())];
        assert_eq!(["SAFE", "NOT ENOUGH", "NOT SAFE"].map(|verdict| code(&page(verdict)).unwrap()), [0, 2, 1]);
        assert!(code(&page("PERHAPS")).is_err() && code(&[]).is_err());
    }
}
