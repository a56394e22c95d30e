//! The hash that caching_sha2_password stores: `$A$005$`, 20 bytes of salt, 43 characters of sha256-crypt.
//!
//! It is standard sha256-crypt (Drepper, "Unix crypt using SHA-256 and SHA-512") with two differences. The salt may have 20 bytes instead
//! of 16. The rounds are the three hex digits times 1000; MySQL 8.0 stores 005, 9.7 stores 00A.
//! Costs milliseconds: keep it off the threads that serve queries. Pure; the caller passes the salt.

use super::hash::{equal, sha256};
use crate::error::{Result, WireError};

/// Length of the salt, in bytes.
pub const SALT: usize = 20;
/// Length of the encoded digest, in characters.
const ENCODED: usize = 43;
/// Before the salt: `$A$`, three hex digits, `$`.
const PREFIX: usize = 7;
/// Rounds for one unit of the stored count.
const ROUNDS_UNIT: u32 = 1000;
/// The longest password that MySQL accepts here, in bytes.
pub const MAX_PASSWORD: usize = 256;
/// The characters of the encoded digest.
pub const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// True when `password` is the one behind `stored` (`$A$005$...`). A stored text of another shape is malformed.
pub fn verify(stored: &str, password: &[u8]) -> Result<bool> {
    let (rounds, salt, encoded) = split(stored.as_bytes()).ok_or(WireError::Malformed("not a caching_sha2_password hash"))?;
    if password.len() > MAX_PASSWORD {
        return Ok(false);
    }
    Ok(equal(&encode(&sha256_crypt(password, salt, rounds)), encoded))
}

/// The text to store for `password`, with 5000 rounds as MySQL 8.0 has by default. The salt's bytes must be random and in
/// 1..=127, and not `$`.
#[must_use]
pub fn generate(password: &[u8], salt: &[u8; SALT]) -> String {
    let digest = encode(&sha256_crypt(password, salt, 5 * ROUNDS_UNIT));
    format!("$A$005${}{}", String::from_utf8_lossy(salt), String::from_utf8_lossy(&digest))
}

/// Rounds, salt and encoded digest of a stored text.
fn split(stored: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (prefix, rest) = stored.split_at_checked(PREFIX)?;
    let units = prefix.strip_prefix(b"$A$")?.strip_suffix(b"$")?;
    let units = u32::from_str_radix(std::str::from_utf8(units).ok()?, 16).ok().filter(|units| *units > 0)?;
    let (salt, encoded) = rest.split_at_checked(SALT)?;
    (encoded.len() == ENCODED).then_some((units * ROUNDS_UNIT, salt, encoded))
}

/// sha256-crypt's digest before encoding.
fn sha256_crypt(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 32] {
    let alternate = sha256(&[password, salt, password]);
    let mut first = [password, salt].concat();
    first.extend(alternate.iter().cycle().take(password.len()));
    let mut bits = password.len();
    while bits > 0 {
        first.extend_from_slice(if bits & 1 == 1 { &alternate } else { password });
        bits >>= 1;
    }
    let mut digest = sha256(&[&first]);
    let password_sum = sha256(&[&password.repeat(password.len())]);
    let salt_sum = sha256(&[&salt.repeat(16 + usize::from(digest[0]))]);
    let password: Vec<u8> = password_sum.iter().copied().cycle().take(password.len()).collect();
    let salt: Vec<u8> = salt_sum.iter().copied().cycle().take(salt.len()).collect();
    for round in 0..rounds {
        digest = one_round(round, &digest, &password, &salt);
    }
    digest
}

/// One of the many rounds: which parts are hashed, and in which order, depends on its number.
fn one_round(round: u32, digest: &[u8; 32], password: &[u8], salt: &[u8]) -> [u8; 32] {
    let (head, tail): (&[u8], &[u8]) = if round % 2 == 1 { (password, digest) } else { (digest, password) };
    let salt = if round.is_multiple_of(3) { &[] } else { salt };
    let again: &[u8] = if round.is_multiple_of(7) { &[] } else { password };
    sha256(&[head, salt, again, tail])
}

/// crypt's base 64: three bytes in a permuted order give four characters, lowest bits first.
fn encode(digest: &[u8; 32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENCODED);
    let (mut a, mut b, mut c) = (0, 10, 20);
    for _ in 0..10 {
        put_64(&mut out, [digest[a], digest[b], digest[c]], 4);
        (a, b, c) = (c + 1, a + 1, b + 1);
    }
    put_64(&mut out, [0, digest[31], digest[30]], 3);
    out
}

/// Appends the `count` lowest characters of 24 bits.
fn put_64(out: &mut Vec<u8>, [high, middle, low]: [u8; 3], count: usize) {
    let mut bits = u32::from_be_bytes([0, high, middle, low]);
    for _ in 0..count {
        out.push(ALPHABET[(bits & 63) as usize]);
        bits >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vector_of_sha256_crypt() {
        let digest = sha256_crypt(b"Hello world!", b"saltstring", 5000);
        assert_eq!(encode(&digest), b"5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5");
    }

    #[test]
    fn what_mysql_9_7_stores_for_secret() {
        let stored = "$A$00A$-N\x02\"n\x02\x12!q\x04V; zzrQjR'dTg2f9N8TQXMDGaWtJ23ZIkRmbNg0kdabSYBd9tLuU8";
        assert_eq!(verify(stored, b"secret"), Ok(true));
        assert_eq!(verify(stored, b"Secret"), Ok(false));
    }

    #[test]
    fn generate_and_verify() {
        let stored = generate(b"secret", b"abcdefghijklmnopqrst");
        assert_eq!(verify(&stored, b"secret"), Ok(true));
        assert_eq!(verify(&stored, b"Secret"), Ok(false));
        assert_eq!(verify(&stored, &[b'x'; 257]), Ok(false));
        assert_eq!(verify(&generate(b"", b"abcdefghijklmnopqrst"), b""), Ok(true));
    }

    #[test]
    fn other_texts_are_malformed() {
        for text in [
            "",
            "$A$005$",
            "$A$000$abcdefghijklmnopqrst5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5",
            "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7",
        ] {
            assert!(verify(text, b"").is_err(), "{text}");
        }
    }
}
