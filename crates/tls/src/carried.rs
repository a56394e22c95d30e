//! A TLS session that continues in another process: the record layer of TLS 1.2 and 1.3, from the keys and counts of the first process.
//!
//! The handshake stays in the first process. Left are records (RFC 8446 section 5, RFC 5246 section 6.2), key updates (RFC 8446 section
//! 4.6.3) and alerts (section 6). The cryptography is aws-lc's.

use aws_lc_rs::{aead, hkdf};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use zeroize::Zeroizing;

/// Bytes of a record's header: type, version, length.
const HEADER: usize = 5;
/// Most plain bytes of a record.
const MAX_PLAIN: usize = 1 << 14;
/// Most bytes that a record has beside its plain ones, in the more generous version (RFC 5246 section 6.2.3).
const MAX_EXPANSION: usize = 2048;
/// Bytes of the nonce of every cipher here.
const NONCE: usize = 12;
/// Bytes of a nonce that the records of TLS 1.2 carry with AES-GCM (RFC 5288 section 3).
const EXPLICIT: usize = 8;
/// Records after which TLS 1.3 changes the key: half of the safe number for AES-GCM (RFC 8446 section 5.5).
const RECORDS_A_KEY: u64 = 1 << 23;
/// Plain bytes that are accepted while sealed ones wait to be sent, as rustls does by default.
const HELD_BACK: usize = 64 << 10;
/// Keys that are tried to find the one in use: each stands for millions of records, or for one wish of the peer's.
const MAX_GENERATIONS: u32 = 100_000;
/// Bytes of post-handshake messages that are not whole: session tickets are the longest.
const MAX_HANDSHAKE: usize = 64 << 10;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Which cipher. AES-GCM of TLS 1.2 has another nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    Chacha20Poly1305,
}

impl Cipher {
    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    fn key(self, bytes: &[u8]) -> io::Result<aead::LessSafeKey> {
        let key = aead::UnboundKey::new(self.algorithm(), bytes).map_err(|_| broken("a key does not fit its cipher"))?;
        Ok(aead::LessSafeKey::new(key))
    }
}

/// The state of one direction for another process.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HalfRecord {
    pub(crate) cipher: Cipher,
    pub(crate) key: Zeroizing<Vec<u8>>,
    pub(crate) iv: [u8; NONCE],
    /// Number of the next record.
    pub(crate) next: u64,
    /// The secret that the key, or an earlier key, was derived from; empty in TLS 1.2.
    pub(crate) secret: Zeroizing<Vec<u8>>,
}

/// The state of a session for another process. It decrypts all later records: it goes only over a socket that no other process has, and
/// into no file and no log.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsRecord {
    pub(crate) is_tls13: bool,
    pub(crate) reads: HalfRecord,
    pub(crate) writes: HalfRecord,
    /// Received, and no whole record yet.
    pub(crate) received: Vec<u8>,
}

impl std::fmt::Debug for TlsRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsRecord")
    }
}

/// One direction of the session.
struct Half {
    record: HalfRecord,
    key: aead::LessSafeKey,
}

/// See the module.
pub struct Carried {
    is_tls13: bool,
    reads: Half,
    writes: Half,
    /// Received, and not opened yet.
    received: Vec<u8>,
    /// Opened, and not read yet: from `plain_at` on.
    plain: Vec<u8>,
    plain_at: usize,
    /// Sealed, and not sent yet: from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// Post-handshake messages that are not whole.
    messages: Vec<u8>,
    /// The answer to the peer's key update stands behind all data that waits to be sent: further updates need no other answer (RFC 8446
    /// section 4.6.3).
    is_answered: bool,
    /// The peer has said that it sends no more, or has just closed.
    is_closed: bool,
    has_ended: bool,
    said_goodbye: bool,
}

fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label without a context (RFC 8446 section 7.1).
pub(crate) fn expand(secret: &[u8], label: &[u8], out: &mut [u8]) -> io::Result<()> {
    let hash = if secret.len() == 32 { hkdf::HKDF_SHA256 } else { hkdf::HKDF_SHA384 };
    let length = u16::try_from(out.len()).map_err(|_| broken("a key is too long"))?.to_be_bytes();
    let name = [b"tls13 ".as_slice(), label].concat();
    let name_length = [u8::try_from(name.len()).unwrap_or(u8::MAX)];
    let info = [&length[..], &name_length, &name, &[0]];
    let secret = hkdf::Prk::new_less_safe(hash, secret);
    let made = secret.expand(&info, Length(out.len())).and_then(|made| made.fill(out));
    made.map_err(|_| broken("a key could not be made"))
}

fn next_secret(secret: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut next = Zeroizing::new(vec![0; secret.len()]);
    expand(secret, b"traffic upd", &mut next)?;
    Ok(next)
}

impl Half {
    /// Finds the secret that belongs to the key: the one of the handshake may be some key updates old.
    fn new(mut record: HalfRecord, is_tls13: bool) -> io::Result<Self> {
        let key = record.cipher.key(&record.key)?;
        if is_tls13 {
            let mut made = Zeroizing::new(vec![0; record.key.len()]);
            for generation in 0.. {
                expand(&record.secret, b"key", &mut made)?;
                if made == record.key {
                    break;
                }
                if generation == MAX_GENERATIONS {
                    return Err(broken("a key's secret is unknown"));
                }
                record.secret = next_secret(&record.secret)?;
            }
        }
        Ok(Self { record, key })
    }

    /// Takes the next key.
    fn update(&mut self) -> io::Result<()> {
        let HalfRecord { cipher, key, iv, next, secret } = &mut self.record;
        *secret = next_secret(secret)?;
        expand(secret, b"key", key)?;
        expand(secret, b"iv", iv)?;
        *next = 0;
        self.key = cipher.key(key)?;
        Ok(())
    }

    fn nonce(&self) -> [u8; NONCE] {
        let mut nonce = self.record.iv;
        for (byte, number) in nonce[NONCE - 8..].iter_mut().zip(self.record.next.to_be_bytes()) {
            *byte ^= number;
        }
        nonce
    }

    /// Nonces that a record carries itself.
    fn has_explicit_nonce(&self, is_tls13: bool) -> bool {
        !is_tls13 && self.record.cipher != Cipher::Chacha20Poly1305
    }

    fn count(&mut self) -> io::Result<()> {
        self.record.next = self.record.next.checked_add(1).ok_or_else(|| broken("too many records"))?;
        Ok(())
    }

    /// The data that a record of TLS 1.2 authenticates besides its bytes (RFC 5246 section 6.2.3.3).
    fn bound_to(&self, kind: u8, plain: usize) -> io::Result<[u8; 13]> {
        let length = u16::try_from(plain).map_err(|_| broken("a record is too long"))?.to_be_bytes();
        let mut all = [0; 13];
        all[..8].copy_from_slice(&self.record.next.to_be_bytes());
        all[8..11].copy_from_slice(&[kind, 3, 3]);
        all[11..].copy_from_slice(&length);
        Ok(all)
    }
}

impl Carried {
    /// Goes on with a session.
    ///
    /// # Errors
    /// Keys that do not fit, or whose secrets are not known.
    pub fn new(record: TlsRecord) -> io::Result<Self> {
        let TlsRecord { is_tls13, reads, writes, received } = record;
        Ok(Self {
            is_tls13,
            reads: Half::new(reads, is_tls13)?,
            writes: Half::new(writes, is_tls13)?,
            received,
            plain: Vec::new(),
            plain_at: 0,
            out: Vec::new(),
            out_at: 0,
            messages: Vec::new(),
            is_answered: false,
            is_closed: false,
            has_ended: false,
            said_goodbye: false,
        })
    }

    /// The state for another process. None while there are bytes to read or to send, or if the session is over.
    pub fn record(&self) -> Option<TlsRecord> {
        let is_at_rest = !self.has_plain() && !self.wants_write() && self.messages.is_empty();
        let is_over = self.is_closed || self.has_ended || self.said_goodbye;
        (is_at_rest && !is_over).then(|| TlsRecord {
            is_tls13: self.is_tls13,
            reads: self.reads.record.clone(),
            writes: self.writes.record.clone(),
            received: self.received.clone(),
        })
    }

    fn has_plain(&self) -> bool {
        self.plain_at < self.plain.len()
    }

    /// Whether more is to be read from the peer before there is something for the caller.
    pub fn wants_read(&self) -> bool {
        !self.has_plain() && !self.is_closed && !self.has_ended
    }

    /// Whether something is to be sent.
    pub fn wants_write(&self) -> bool {
        self.out_at < self.out.len()
    }

    /// Reads once from the peer; 0 is its end.
    ///
    /// # Errors
    /// The reader's.
    pub fn read_tls(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        let at = self.received.len();
        self.received.resize(at + HEADER + MAX_PLAIN + MAX_EXPANSION, 0);
        let read = from.read(&mut self.received[at..]);
        self.received.truncate(at + *read.as_ref().unwrap_or(&0));
        self.has_ended |= matches!(read, Ok(0));
        read
    }

    /// Opens the received records.
    ///
    /// # Errors
    /// The peer broke the protocol. The alert for it then waits to be sent.
    pub fn process_new_packets(&mut self) -> io::Result<()> {
        let mut at = 0;
        let result = loop {
            match self.open_next(at) {
                Ok(0) => break Ok(()),
                Ok(len) => at += len,
                Err(e) => {
                    // bad_record_mac: what else is wrong with a record is no more than that to the peer.
                    let _ = self.alert(2, 20);
                    break Err(e);
                }
            }
        };
        self.received.drain(..at);
        if self.received.is_empty() && self.received.capacity() > MAX_PLAIN {
            self.received = Vec::new();
        }
        result
    }

    /// Opens the record at `at`. Returns its length, or 0 if it is incomplete.
    fn open_next(&mut self, at: usize) -> io::Result<usize> {
        if self.is_closed {
            // Records behind the close_notify are ignored.
            return Ok(self.received.len() - at);
        }
        let Some(&[kind, major, minor, high, low]) = self.received.get(at..).and_then(|rest| rest.first_chunk()) else { return Ok(0) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len > MAX_PLAIN + MAX_EXPANSION || major != 3 {
            return Err(broken("a TLS record has no proper header"));
        }
        let Some(body) = self.received.get_mut(at + HEADER..at + HEADER + len) else { return Ok(0) };
        let mut nonce = self.reads.nonce();
        let (kind, from, to) = if self.is_tls13 {
            let bound = [kind, major, minor, high, low];
            let opened = self.reads.key.open_in_place(aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(bound), body);
            let plain = opened.map_err(|_| broken("a TLS record was not sent by the peer"))?;
            // Behind the content comes its type, and then zeros (RFC 8446 section 5.4).
            let end = plain.iter().rposition(|byte| *byte != 0).ok_or_else(|| broken("a TLS record has no type"))?;
            (plain[end], at + HEADER, at + HEADER + end)
        } else {
            let explicit = if self.reads.has_explicit_nonce(false) { EXPLICIT } else { 0 };
            let over = explicit + self.reads.record.cipher.algorithm().tag_len();
            let plain = len.checked_sub(over).ok_or_else(|| broken("a TLS record is too short"))?;
            let bound = self.reads.bound_to(kind, plain)?;
            let (head, sealed) = body.split_at_mut(explicit);
            if explicit > 0 {
                nonce[NONCE - EXPLICIT..].copy_from_slice(head);
            }
            let opened = self.reads.key.open_in_place(aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(bound), sealed);
            opened.map_err(|_| broken("a TLS record was not sent by the peer"))?;
            (kind, at + HEADER + explicit, at + HEADER + explicit + plain)
        };
        if to - from > MAX_PLAIN {
            return Err(broken("a TLS record is too long"));
        }
        self.reads.count()?;
        match kind {
            DATA => {
                if !self.has_plain() {
                    self.plain.clear();
                    self.plain_at = 0;
                }
                self.plain.extend_from_slice(self.received.get(from..to).unwrap_or_default());
            }
            ALERT => self.alerted(from, to)?,
            HANDSHAKE => {
                self.messages.extend_from_slice(self.received.get(from..to).unwrap_or_default());
                self.take_messages()?;
            }
            _ => return Err(broken("a TLS record is of no known type")),
        }
        Ok(HEADER + len)
    }

    fn alerted(&mut self, from: usize, to: usize) -> io::Result<()> {
        match self.received.get(from..to) {
            // close_notify.
            Some([_, 0]) => self.is_closed = true,
            // user_canceled, and warnings of TLS 1.2.
            Some([_, 90]) => {}
            Some([1, _]) if !self.is_tls13 => {}
            _ => return Err(broken("the TLS peer sent an alert")),
        }
        Ok(())
    }

    /// Messages after the handshake.
    fn take_messages(&mut self) -> io::Result<()> {
        while let Some(&[kind, a, b, c]) = self.messages.first_chunk() {
            let len = u32::from_be_bytes([0, a, b, c]) as usize;
            if len > MAX_HANDSHAKE {
                return Err(broken("a TLS message is too long"));
            }
            let Some(body) = self.messages.get(4..4 + len) else { break };
            let update = match (kind, self.is_tls13, body) {
                (24, true, [asked @ (0 | 1)]) => Some(*asked == 1),
                // A session ticket, of which no use is made.
                (4, true, _) => None,
                // The peer wants to renegotiate (HelloRequest, ClientHello). TLS allows a refusal: no_renegotiation.
                (0 | 1, false, _) => {
                    if !std::mem::replace(&mut self.is_answered, true) {
                        self.alert(1, 100)?;
                    }
                    None
                }
                _ => return Err(broken("a TLS message is out of place")),
            };
            self.messages.drain(..4 + len);
            if let Some(is_asked) = update {
                if !self.messages.is_empty() {
                    return Err(broken("a TLS key update is not the last of its record"));
                }
                self.reads.update()?;
                if is_asked && !std::mem::replace(&mut self.is_answered, true) {
                    self.update_writes()?;
                }
            }
        }
        Ok(())
    }

    /// Tells the peer of the next key, and takes it.
    pub(crate) fn update_writes(&mut self) -> io::Result<()> {
        self.seal(HANDSHAKE, &[24, 0, 0, 1, 0])?;
        self.writes.update()
    }

    /// Takes the next key, and asks the peer for the same.
    #[cfg(test)]
    pub(crate) fn ask_for_update(&mut self) -> io::Result<()> {
        self.seal(HANDSHAKE, &[24, 0, 0, 1, 1])?;
        self.writes.update()
    }

    fn alert(&mut self, level: u8, description: u8) -> io::Result<()> {
        self.seal(ALERT, &[level, description])
    }

    /// Appends one record.
    pub(crate) fn seal(&mut self, kind: u8, plain: &[u8]) -> io::Result<()> {
        let nonce = self.writes.nonce();
        let (key, tag_len) = (&self.writes.key, self.writes.record.cipher.algorithm().tag_len());
        let explicit = if self.writes.has_explicit_nonce(self.is_tls13) { EXPLICIT } else { 0 };
        let inner = plain.len() + usize::from(self.is_tls13);
        let length = u16::try_from(explicit + inner + tag_len).map_err(|_| broken("a record is too long"))?.to_be_bytes();
        let head = [if self.is_tls13 { DATA } else { kind }, 3, 3, length[0], length[1]];
        let start = self.out.len() + HEADER + explicit;
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(&nonce[NONCE - explicit..]);
        self.out.extend_from_slice(plain);
        if self.is_tls13 {
            self.out.push(kind);
        }
        let sealed = if self.is_tls13 {
            key.seal_in_place_separate_tag(aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(head), &mut self.out[start..])
        } else {
            let bound = self.writes.bound_to(kind, plain.len())?;
            key.seal_in_place_separate_tag(aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(bound), &mut self.out[start..])
        };
        let tag = sealed.map_err(|_| broken("a record could not be sealed"))?;
        self.out.extend_from_slice(tag.as_ref());
        self.writes.count()
    }

    /// Accepts plain bytes to be sent; 0 if earlier ones must be sent first.
    ///
    /// # Errors
    /// They cannot be sealed.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        for part in bytes.chunks(MAX_PLAIN) {
            if self.out.len() - self.out_at >= HELD_BACK {
                break;
            }
            if self.is_tls13 && self.writes.record.next >= RECORDS_A_KEY {
                self.update_writes()?;
            }
            self.seal(DATA, part)?;
            self.is_answered = false;
            taken += part.len();
        }
        Ok(taken)
    }

    /// Writes once from the bytes that wait to be sent.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_tls(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        let sent = to.write(self.out.get(self.out_at..).unwrap_or_default())?;
        self.out_at += sent;
        if !self.wants_write() {
            self.out_at = 0;
            self.out = Vec::new();
            self.is_answered = false;
        }
        Ok(sent)
    }

    /// Reads plain bytes: 0 is the peer's goodbye.
    ///
    /// # Errors
    /// `WouldBlock` where there are none yet; `UnexpectedEof` where the peer has closed without a goodbye.
    pub fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if !self.has_plain() {
            return match (self.is_closed, self.has_ended) {
                (true, _) => Ok(0),
                (false, true) => Err(io::ErrorKind::UnexpectedEof.into()),
                (false, false) => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let from = self.plain.get(self.plain_at..).unwrap_or_default();
        let n = from.len().min(space.len());
        space[..n].copy_from_slice(&from[..n]);
        self.plain_at += n;
        if !self.has_plain() {
            self.plain = Vec::new();
            self.plain_at = 0;
        }
        Ok(n)
    }

    /// Tells the peer that no more is sent.
    pub fn send_close_notify(&mut self) {
        if !std::mem::replace(&mut self.said_goodbye, true) {
            let _ = self.alert(1, 0);
        }
    }
}
