//! TLS records of a session that goes on in another process: whatever a peer seals or sends, no panic, no unbounded answer, and what it
//! said comes out as it was said.

use crate::carried::{Carried, Cipher, HalfRecord, TlsRecord, expand};
use crate::input::{Input, pieces};

/// Most bytes that wait to be sent, however much the peer asks for.
const MAX_ANSWERS: usize = 1 << 10;
/// Plain bytes of a record's kinds that are tried: alert, handshake, data, and one that there is not.
const KINDS: [u8; 4] = [21, 22, 23, 24];

/// A half with fixed keys, told apart by `side`.
fn half(cipher: Cipher, is_tls13: bool, side: u8) -> HalfRecord {
    let key_len = if matches!(cipher, Cipher::Aes128Gcm) { 16 } else { 32 };
    let secret = vec![side; if is_tls13 { 32 } else { 0 }];
    let mut key = vec![side; key_len];
    if is_tls13 {
        expand(&secret, b"key", &mut key).expect("a key is made");
    }
    HalfRecord { cipher, key: key.into(), iv: [side; 12], next: 0, secret: secret.into() }
}

/// Reads everything that waits.
fn read(session: &mut Carried, plain: &mut Vec<u8>) {
    let mut space = [0; 100];
    while let Ok(n @ 1..) = session.read(&mut space) {
        plain.extend_from_slice(&space[..n]);
    }
}

/// Feeds bytes, cut where `cuts` says; false when they broke the protocol.
fn feed(session: &mut Carried, bytes: &[u8], cuts: u64, plain: &mut Vec<u8>) -> bool {
    for mut piece in pieces(bytes, cuts) {
        session.read_tls(&mut piece).expect("a slice can be read");
        if session.process_new_packets().is_err() {
            return false;
        }
        read(session, plain);
    }
    true
}

/// What is to be sent.
fn sent(session: &mut Carried) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes).expect("a vector takes all");
    }
    bytes
}

/// The input: a byte (bit 0: TLS 1.3; bits 1 and 2: the cipher), 8 bytes for where records are cut, then pieces, each behind a byte
/// that says what it is: (0 to 3) what a record of this kind holds, 4: data that is sent back as well, 5: the session moves on, 6: the
/// peer takes its next key, 7: bytes that no key made.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let (is_tls13, cuts) = (flags & 1 == 1, input.u64());
    let cipher = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305][usize::from(flags >> 1 & 3) % 3];
    let [ours, theirs] = [1, 2].map(|side| half(cipher, is_tls13, side));
    let record = |reads: &HalfRecord, writes: &HalfRecord| TlsRecord {
        is_tls13,
        reads: reads.clone(),
        writes: writes.clone(),
        received: Vec::new(),
    };
    let mut session = Carried::new(record(&theirs, &ours)).expect("keys fit");
    let mut peer = Carried::new(record(&ours, &theirs)).expect("keys fit");
    let (mut said, mut heard) = (Vec::new(), Vec::new());
    // Declined wishes and alerts are no data: the peer hears no more once it was told one that ends it.
    let mut hears = true;
    loop {
        let what = input.byte();
        let Some(piece) = input.piece() else { break };
        let bytes = match what {
            0..=3 => {
                let kind = KINDS[usize::from(what)];
                peer.seal(kind, piece).expect("a short record is sealed");
                if kind == 23 {
                    said.extend_from_slice(piece);
                }
                sent(&mut peer)
            }
            4 => {
                session.write(piece).expect("data is taken");
                let mut back = Vec::new();
                if hears {
                    hears = feed(&mut peer, &sent(&mut session), cuts, &mut back);
                    assert!(!hears || back == piece, "other bytes");
                }
                sent(&mut peer)
            }
            5 => {
                if let Some(record) = session.record() {
                    session = Carried::new(record).expect("its keys fit");
                }
                continue;
            }
            6 if is_tls13 => {
                peer.update_writes().expect("a next key");
                sent(&mut peer)
            }
            _ => {
                // Whoever has no key says nothing.
                let before = heard.len();
                let goes_on = feed(&mut session, piece, cuts, &mut heard);
                assert_eq!(heard.len(), before);
                if goes_on && piece.is_empty() {
                    continue;
                }
                break;
            }
        };
        let is_fine = feed(&mut session, &bytes, cuts, &mut heard);
        assert!(said.starts_with(&heard), "other bytes");
        let waits = sent(&mut session);
        assert!(waits.len() <= MAX_ANSWERS, "{} bytes are to be sent", waits.len());
        if hears {
            hears = feed(&mut peer, &waits, cuts, &mut Vec::new());
        }
        if !is_fine {
            break;
        }
    }
}
