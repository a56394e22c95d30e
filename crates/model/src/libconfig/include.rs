//! One stream of tokens out of a file and all that it includes.
//!
//! Reading is behind [`Includes`], so that parsing itself does no IO.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::lexer::{Lexer, Spanned, Token};
use super::value::Position;
use super::{MAX_INCLUDE_DEPTH, MAX_INCLUDES, MAX_TOKENS};
use crate::error::{ConfigError, ErrorKind};

/// Reads included files.
pub trait Includes {
    /// The bytes of the file at `path`, or why it cannot be read.
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, String>;
}

/// Reads files of this machine.
pub struct LocalFiles;

impl Includes for LocalFiles {
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        read_regular(path).map_err(|error| error.to_string())
    }
}

/// The bytes of a regular file. Opening a FIFO or a device might wait for ever, or read without end.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.is_file() {
        std::fs::read(path)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is not a regular file"))
    }
}

/// Refuses every include: for text that is not a file.
pub struct NoIncludes;

impl Includes for NoIncludes {
    fn read(&mut self, _: &Path) -> Result<Vec<u8>, String> {
        Err("files cannot be included here".to_owned())
    }
}

/// All tokens of `bytes`, included files in place.
pub(super) fn tokens(bytes: &[u8], name: &str, includes: &mut dyn Includes) -> Result<Vec<Spanned>, ConfigError> {
    let mut reader = Reader { includes, open: vec![PathBuf::from(name)], read: 0, tokens: Vec::new() };
    reader.file(bytes, name.into())?;
    Ok(reader.tokens)
}

struct Reader<'a> {
    includes: &'a mut dyn Includes,
    /// The files that are being read: each was included by the one before it.
    open: Vec<PathBuf>,
    /// How many files were included so far.
    read: usize,
    tokens: Vec<Spanned>,
}

impl Reader<'_> {
    fn file(&mut self, bytes: &[u8], name: Arc<str>) -> Result<(), ConfigError> {
        let mut lexer = Lexer::new(bytes, name);
        while let Some(spanned) = lexer.next_token()? {
            if spanned.token == Token::Include {
                self.include(&mut lexer, spanned.at)?;
                continue;
            }
            if self.tokens.len() >= MAX_TOKENS {
                return Err(refuse(spanned.at, ErrorKind::TooLarge(MAX_TOKENS)));
            }
            self.tokens.push(spanned);
        }
        Ok(())
    }

    fn include(&mut self, lexer: &mut Lexer<'_>, at: Position) -> Result<(), ConfigError> {
        let Some(Spanned { token: Token::Text(target), at }) = lexer.next_token()? else {
            return Err(refuse(at, ErrorKind::Expected("a file name in quotes after @include")));
        };
        let path = self.resolve(&target);
        if self.open.contains(&path) {
            return Err(refuse(at, ErrorKind::IncludeCycle(target)));
        }
        if self.open.len() > MAX_INCLUDE_DEPTH {
            return Err(refuse(at, ErrorKind::IncludeDepth(MAX_INCLUDE_DEPTH)));
        }
        self.read += 1;
        if self.read > MAX_INCLUDES {
            return Err(refuse(at, ErrorKind::IncludeCount(MAX_INCLUDES)));
        }
        let bytes = self.includes.read(&path);
        let bytes = bytes.map_err(|reason| refuse(at, ErrorKind::Unreadable { file: target, reason }))?;
        let name: Arc<str> = path.display().to_string().into();
        self.open.push(path);
        self.file(&bytes, name)?;
        self.open.pop();
        Ok(())
    }

    /// `target` beside the file that includes it.
    fn resolve(&self, target: &str) -> PathBuf {
        let beside = self.open.last().and_then(|file| file.parent());
        beside.map_or_else(|| PathBuf::from(target), |directory| directory.join(target))
    }
}

fn refuse(at: Position, kind: ErrorKind) -> ConfigError {
    ConfigError::new(at, "", kind)
}
