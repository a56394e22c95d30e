//! Man pages and shell completions, made from the command line's definition: packages have them.

use crate::cli::Cli;
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::path::Path;

/// Writes `tidegate.1` and a page for each subcommand, and completions for bash, zsh and fish, into a directory.
pub(crate) fn write(directory: &Path) -> Result<()> {
    let named = || Cli::command().name("tidegate").version(env!("CARGO_PKG_VERSION"));
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for page in pages(named()) {
        let path = directory.join(format!("{}.1", page.get_name()));
        let mut text = Vec::new();
        Man::new(page).render(&mut text)?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut named(), "tidegate", directory)?;
    }
    Ok(())
}

/// The program's command, and one for each subcommand that is shown, under the name of its page.
fn pages(program: Command) -> Vec<Command> {
    let version = program.get_version().unwrap_or_default().to_owned();
    let shown = program.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    let subcommands: Vec<Command> = shown
        .map(|sub| {
            let words = format!("tidegate {}", sub.get_name());
            sub.clone().name(format!("tidegate-{}", sub.get_name())).bin_name(words).version(version.clone())
        })
        .collect();
    std::iter::once(program).chain(subcommands).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_completions_know_the_options() {
        let directory = std::env::temp_dir().join(format!("tidegate-manual-{}", std::process::id()));
        write(&directory).unwrap();
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (name, word) in [
            ("tidegate.1", "declarative"),
            ("tidegate-check.1", "strict"),
            ("tidegate-top.1", "tidegate"),
            ("tidegate.bash", "--declarative"),
            ("_tidegate", "--declarative"),
            ("tidegate.fish", "declarative"),
        ] {
            assert!(read(name).contains(word), "{name}: {}", read(name));
        }
        assert!(!read("tidegate.1").contains("idle"), "what is passed over is not shown");
        fs::remove_dir_all(&directory).unwrap();
    }
}
