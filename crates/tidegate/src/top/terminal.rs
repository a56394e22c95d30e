//! The terminal: raw input, another screen, frames in place. Everything is put back when this is dropped.

use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::frame::{Line, Style};

/// Switches to the alternate screen, and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Back again.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// The size assumed for a terminal that reports none.
const USUAL_SIZE: (usize, usize) = (80, 24);
/// The byte of Ctrl-C in raw mode.
const CTRL_C: u8 = 3;

/// The user's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// Ends the program.
    Quit,
    /// Order digests otherwise.
    Sort,
}

/// The terminal while frames are shown.
pub(super) struct Terminal {
    before: Termios,
}

impl Terminal {
    /// Takes the terminal over.
    pub(super) fn open() -> Result<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            bail!("standard output is not a terminal: use --once");
        }
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let terminal = Self { before };
        print(ENTER)?;
        Ok(terminal)
    }

    /// Width and height, characters.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (usize::from(size.ws_col), usize::from(size.ws_row)),
            _ => USUAL_SIZE,
        }
    }

    /// Shows a frame in place of the last.
    pub(super) fn show(&self, lines: &[Line]) -> Result<()> {
        let mut text = "\x1b[H".to_owned();
        for (index, line) in lines.iter().enumerate() {
            let (on, off) = match line.style {
                Style::Plain => ("", ""),
                Style::Head => ("\x1b[1m", "\x1b[0m"),
                Style::Alarm => ("\x1b[31m", "\x1b[0m"),
            };
            text += if index > 0 { "\r\n" } else { "" };
            text += &format!("{on}{}{off}\x1b[K", line.text);
        }
        print(&(text + "\x1b[J"))
    }

    /// Waits for a key that means something, so long at most.
    pub(super) fn key(&self, wait: Duration) -> Result<Option<Key>> {
        let stdin = io::stdin();
        let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut watched, Some(&Timespec::try_from(wait)?)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            other => other?,
        };
        let mut bytes = [0; 16];
        let read = stdin.lock().read(&mut bytes)?;
        if read == 0 {
            return Ok(Some(Key::Quit));
        }
        Ok(bytes.iter().take(read).find_map(|byte| match byte {
            b'q' | b'Q' | &CTRL_C => Some(Key::Quit),
            b's' | b'S' => Some(Key::Sort),
            _ => None,
        }))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = print(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
