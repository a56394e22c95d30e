//! Passwords: asked for at the terminal without an echo, or generated.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Result, bail};
use model::Secret;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Letters and digits that are not mistaken for each other.
const LETTERS: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Characters of a generated password before [`CLASSES`]: 116 bits.
const LENGTH: usize = 20;
/// A character of each class, for servers that validate passwords.
const CLASSES: &str = "-a5Z";

/// A password from the terminal, or a line of standard input.
///
/// # Errors
/// The terminal's, and an input that has ended.
pub(super) fn ask(prompt: &str) -> Result<Secret> {
    let stdin = io::stdin();
    let before = if stdin.is_terminal() { Some(tcgetattr(&stdin)?) } else { None };
    if let Some(before) = &before {
        eprint!("{prompt}");
        io::stderr().flush()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    }
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    if let Some(before) = &before {
        tcsetattr(&stdin, OptionalActions::Flush, before)?;
        eprintln!();
    }
    if read? == 0 {
        bail!(
            "no password: use --password-file, or set MYSQL_PWD (to an empty value if the account logs in by the Unix socket without a password)"
        );
    }
    Ok(Secret::new(line.trim_end_matches(['\r', '\n'])))
}

/// A new password. Its characters need no quoting in SQL, shells and configuration files.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn generate() -> Result<String> {
    let mut password = String::with_capacity(LENGTH + CLASSES.len());
    // Bytes above the largest multiple would favour some characters.
    let fair = 256 - 256 % LETTERS.len();
    while password.len() < LENGTH {
        let mut bytes = [0; 32];
        if aws_lc_rs::rand::fill(&mut bytes).is_err() {
            bail!("the system has no random numbers");
        }
        let fit = bytes.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < fair);
        password.extend(fit.take(LENGTH - password.len()).map(|byte| char::from(LETTERS[byte % LETTERS.len()])));
    }
    password.push_str(CLASSES);
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_passwords_differ_and_need_no_quotes() {
        let (one, two) = (generate().unwrap(), generate().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), LENGTH + CLASSES.len());
        assert!(one.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{one}");
    }
}
