//! Makes a file: its head, then frames of records, then a trailer.

use crate::header::{Header, MAGIC, MAJOR, MINOR, Trailer};
use crate::record::Record;
use crate::seal::{ContentKey, KeyError, PublicKey};
use wire::codec;

/// Records of about so many bytes make a frame.
pub const FRAME: usize = 256 << 10;
/// The longest frame that a reader takes, bytes, before and after compression.
pub const MAX_FRAME: usize = 64 << 20;

/// zstd's level: fast, and a third of the size.
const LEVEL: i32 = 1;
pub(crate) const RECORDS: u8 = 1;
pub(crate) const TRAILER: u8 = 2;
/// Kind, bytes of the records, bytes of the body.
pub(crate) const FRAME_HEAD: usize = 9;
pub(crate) const PLAIN: u8 = 0;
pub(crate) const SEALED: u8 = 1;

/// See the module. What it returns is appended to the file, in that order.
pub struct Writer {
    key: Option<ContentKey>,
    frames: u64,
    raw: Vec<u8>,
}

impl Writer {
    /// Begins a file that is sealed to `to`, or (None) plain. Returns its first bytes too.
    ///
    /// # Errors
    /// The key cannot be used.
    pub fn new(header: &Header, to: Option<PublicKey>) -> Result<(Self, Vec<u8>), KeyError> {
        let body = header.encode();
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&MAJOR.to_le_bytes());
        out.extend_from_slice(&MINOR.to_le_bytes());
        out.push(if to.is_some() { SEALED } else { PLAIN });
        out.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&body);
        let key = match to {
            None => None,
            Some(to) => {
                let (key, sealed) = ContentKey::seal(to, &out)?;
                out.extend_from_slice(&to.id());
                out.extend_from_slice(&sealed);
                Some(key)
            }
        };
        out.extend_from_slice(&crc(&out).to_le_bytes());
        Ok((Self { key, frames: 0, raw: Vec::new() }, out))
    }

    /// Adds a record, however full the frame is.
    pub fn push(&mut self, record: &Record<'_>) {
        record.encode(&mut self.raw);
    }

    /// Adds whole records that were encoded already, and appends to `out` the frames that become full. Bytes that are no record are left
    /// out.
    ///
    /// # Errors
    /// As for [`Writer::frame`].
    pub fn feed(&mut self, records: &[u8], out: &mut Vec<u8>) -> Result<(), KeyError> {
        let mut reader = codec::Reader::new(records);
        while let Some(rest) = records.get(records.len() - reader.remaining()..).filter(|rest| !rest.is_empty()) {
            if reader.u8().and_then(|_| reader.lenenc_bytes()).is_err() {
                break;
            }
            self.raw.extend_from_slice(rest.get(..rest.len() - reader.remaining()).unwrap_or_default());
            if self.raw.len() >= FRAME {
                out.extend(self.frame()?.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// A frame of all that was added since the last one; None if that is nothing.
    ///
    /// # Errors
    /// It cannot be compressed or sealed.
    pub fn frame(&mut self) -> Result<Option<Vec<u8>>, KeyError> {
        if self.raw.is_empty() {
            return Ok(None);
        }
        let raw = std::mem::take(&mut self.raw);
        let frame = self.sealed(RECORDS, &raw)?;
        self.raw = raw;
        self.raw.clear();
        self.raw.shrink_to(FRAME);
        Ok(Some(frame))
    }

    /// The last frame and the trailer.
    ///
    /// # Errors
    /// As for [`Writer::frame`].
    pub fn finish(mut self, trailer: &Trailer) -> Result<Vec<u8>, KeyError> {
        let mut out = self.frame()?.unwrap_or_default();
        out.extend(self.sealed(TRAILER, &trailer.encode())?);
        Ok(out)
    }

    fn sealed(&mut self, kind: u8, raw: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut body = zstd::bulk::compress(raw, LEVEL).map_err(|_| KeyError::Unusable)?;
        let number = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        let [kind_and_raw @ .., _, _, _, _] = &mut [0; FRAME_HEAD];
        if let Some((first, rest)) = kind_and_raw.split_first_mut() {
            *first = kind;
            rest.copy_from_slice(&number(raw.len()));
        }
        if let Some(key) = &self.key {
            key.seal_frame(self.frames, kind_and_raw, &mut body)?;
        }
        self.frames += 1;
        let mut out = Vec::with_capacity(FRAME_HEAD + body.len() + 4);
        out.extend_from_slice(kind_and_raw);
        out.extend_from_slice(&number(body.len()));
        out.extend_from_slice(&body);
        out.extend_from_slice(&crc(&out).to_le_bytes());
        Ok(out)
    }
}

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
