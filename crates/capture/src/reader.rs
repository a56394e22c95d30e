//! Reads a file, frame by frame.

use crate::header::{Header, MAGIC, MAJOR, MAX_HEADER, Trailer};
use crate::record::Record;
use crate::seal::{ContentKey, KeyId, PrivateKey, SEALED_KEY};
use crate::writer::{FRAME_HEAD, MAX_FRAME, PLAIN, RECORDS, SEALED, TRAILER, crc};
use std::io::{self, Read};
use thiserror::Error;
use wire::codec;

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum FileError {
    /// Another kind of file.
    #[error("this is not a capture file")]
    NotACapture,
    /// A format that this program does not know.
    #[error("the file has format {found}, and this program reads formats up to {MAJOR}: use a newer tidegate")]
    Newer {
        /// The file's format.
        found: u16,
    },
    /// The header is not whole, or was changed.
    #[error("the header of the file is cut off or damaged")]
    Header,
    /// It is sealed, and no key was given.
    #[error("the file is sealed to key {}: name the private key with --key", shown(.0))]
    Sealed(KeyId),
    /// It is sealed to another key.
    #[error("the file is sealed to key {}, and the given private key opens files of key {}", shown(.file), shown(.given))]
    WrongKey {
        /// The key of the file.
        file: KeyId,
        /// The public key of the given one.
        given: KeyId,
    },
    /// The key fits, and the content key does not open: the header was changed.
    #[error("the sealed content key does not open: the header of the file was changed")]
    Tampered,
    /// A frame is not as it was written.
    #[error("the file is damaged in the frame at byte {at}: {what}")]
    Damaged {
        /// Where the frame begins.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The file cannot be read.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
}

fn shown(id: &KeyId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Records, as [`Record::decode`] reads them.
    Frame(Vec<u8>),
    /// The file ends as it should.
    End(Trailer),
    /// The file ends within a frame, or without a trailer. What stands before is whole.
    CutOff {
        /// The bytes up to here are whole.
        at: u64,
    },
}

/// See the module.
pub struct Reader<R> {
    from: R,
    header: Header,
    key: Option<ContentKey>,
    frames: u64,
    at: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the head of a file.
    ///
    /// # Errors
    /// It is no capture, of a newer format, damaged, or sealed to another key than `key`.
    pub fn open(mut from: R, key: Option<&PrivateKey>) -> Result<Self, FileError> {
        let head = Head::read(&mut from)?;
        let content = match (&head.sealed, key) {
            (None, _) => None,
            (Some((id, _)), None) => return Err(FileError::Sealed(*id)),
            (Some((file, sealed)), Some(key)) => {
                let given = key.public().id();
                if given != *file {
                    return Err(FileError::WrongKey { file: *file, given });
                }
                Some(ContentKey::open(sealed, key, &head.clear).ok_or(FileError::Tampered)?)
            }
        };
        Ok(Self { from, header: head.header, key: content, frames: 0, at: head.len })
    }

    /// The file's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes that were read.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next frame, or how the file ends. Not to be called again after its end.
    ///
    /// # Errors
    /// The frame is damaged, or the file cannot be read.
    pub fn step(&mut self) -> Result<Step, FileError> {
        let at = self.at;
        let cut_off = Ok(Step::CutOff { at });
        let Some(head) = take(&mut self.from, FRAME_HEAD)? else { return cut_off };
        let damaged = |what| FileError::Damaged { at, what };
        let mut fields = codec::Reader::new(&head);
        let (kind, raw_len, len) = (|| Ok::<_, wire::WireError>((fields.u8()?, fields.u32()?, fields.u32()?)))()
            .map_err(|_| damaged("its head cannot be read"))?;
        let [raw_len, len] = [raw_len, len].map(|len| usize::try_from(len).unwrap_or(usize::MAX));
        if raw_len > MAX_FRAME || len > MAX_FRAME || !matches!(kind, RECORDS | TRAILER) {
            return Err(damaged("its head is not one of a frame"));
        }
        let Some(mut body) = take(&mut self.from, len + 4)? else { return cut_off };
        let sum = body.split_off(len);
        if crc(&[&head[..], &body].concat()).to_le_bytes() != sum[..] {
            return Err(damaged("its check sum is wrong"));
        }
        self.at += (FRAME_HEAD + len + 4) as u64;
        let raw = self.opened(head.get(..5).unwrap_or_default(), &mut body, raw_len).map_err(damaged)?;
        self.frames += 1;
        match kind {
            RECORDS => Ok(Step::Frame(raw)),
            _ => Trailer::decode(&raw).map(Step::End).map_err(|_| damaged("its trailer cannot be read")),
        }
    }

    fn opened(&self, head: &[u8], body: &mut [u8], raw_len: usize) -> Result<Vec<u8>, &'static str> {
        let packed = match &self.key {
            None => body,
            Some(key) => key.open_frame(self.frames, head, body).ok_or("it does not open: it was changed, or stands in another place")?,
        };
        let raw = zstd::bulk::decompress(packed, raw_len).map_err(|_| "it cannot be decompressed")?;
        if raw.len() == raw_len { Ok(raw) } else { Err("it has another length than its head says") }
    }
}

/// The records of a frame.
///
/// # Errors
/// Bytes in it are no record; nothing follows then.
pub fn records(frame: &[u8]) -> impl Iterator<Item = Result<Record<'_>, wire::WireError>> {
    let mut reader = codec::Reader::new(frame);
    std::iter::from_fn(move || {
        loop {
            if reader.is_empty() {
                return None;
            }
            match Record::decode(&mut reader) {
                Ok(None) => {}
                Ok(Some(record)) => return Some(Ok(record)),
                Err(e) => {
                    reader = codec::Reader::new(&[]);
                    return Some(Err(e));
                }
            }
        }
    })
}

struct Head {
    header: Header,
    /// What the content key is bound to.
    clear: Vec<u8>,
    sealed: Option<(KeyId, Vec<u8>)>,
    len: u64,
}

impl Head {
    fn read(from: &mut impl Read) -> Result<Self, FileError> {
        // Magic, two versions, form, length.
        let mut clear = take(from, MAGIC.len() + 9)?.ok_or(FileError::NotACapture)?;
        let mut fields = codec::Reader::new(clear.strip_prefix(MAGIC).ok_or(FileError::NotACapture)?);
        let (major, _, form, len) =
            (|| Ok::<_, wire::WireError>((fields.u16()?, fields.u16()?, fields.u8()?, fields.u32()?)))().map_err(|_| FileError::Header)?;
        if major > MAJOR {
            return Err(FileError::Newer { found: major });
        }
        let len = usize::try_from(len).ok().filter(|len| *len <= MAX_HEADER).ok_or(FileError::Header)?;
        let body = take(from, len)?.ok_or(FileError::Header)?;
        clear.extend_from_slice(&body);
        let key = match form {
            PLAIN => Vec::new(),
            SEALED => take(from, size_of::<KeyId>() + SEALED_KEY)?.ok_or(FileError::Header)?,
            _ => return Err(FileError::Header),
        };
        let sum = take(from, 4)?.ok_or(FileError::Header)?;
        if crc(&[&clear[..], &key].concat()).to_le_bytes() != sum[..] {
            return Err(FileError::Header);
        }
        let header = Header::decode(&body).map_err(|_| FileError::Header)?;
        let len = (clear.len() + key.len() + 4) as u64;
        let sealed = key.split_first_chunk().map(|(id, sealed)| (*id, sealed.to_vec()));
        Ok(Self { header, clear, sealed, len })
    }
}

/// The next `len` bytes; None if fewer are left.
fn take(from: &mut impl Read, len: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = from.take(len as u64).read_to_end(&mut bytes)?;
    Ok((read == len).then_some(bytes))
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
