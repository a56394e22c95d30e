//! The scrambles of mysql_native_password and caching_sha2_password.
//!
//! Source: "Native Authentication" and "Caching_sha2_password information" (MySQL protocol pages). Pure.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Algorithm, Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// SHA-1 over the parts, in order.
#[must_use]
pub fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, parts)
}

/// SHA-256 over the parts, in order.
#[must_use]
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    digest(&SHA256, parts)
}

/// `N` must be the algorithm's length, which the two callers above see to.
fn digest<const N: usize>(algorithm: &'static Algorithm, parts: &[&[u8]]) -> [u8; N] {
    let mut context = Context::new(algorithm);
    parts.iter().for_each(|part| context.update(part));
    let mut sum = [0; N];
    sum.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    sum
}

/// Equality that takes the same time wherever the bytes differ (lengths are not secret).
#[must_use]
pub fn equal(left: &[u8], right: &[u8]) -> bool {
    verify_slices_are_equal(left, right).is_ok()
}

/// Byte-wise exclusive or.
fn xor<const N: usize>(left: &[u8; N], right: &[u8; N]) -> [u8; N] {
    std::array::from_fn(|at| left[at] ^ right[at])
}

/// The hash that mysql_native_password stores: SHA1(SHA1(password)).
#[must_use]
pub fn native_stored(password: &[u8]) -> [u8; 20] {
    sha1(&[&sha1(&[password])])
}

/// Reads `*` and 40 hex digits, the text form of [`native_stored`]; `None` for anything else.
#[must_use]
pub fn parse_native_stored(text: &[u8]) -> Option<[u8; 20]> {
    let digits = text.strip_prefix(b"*").filter(|digits| digits.len() == 40)?;
    let mut stored = [0; 20];
    for (byte, pair) in stored.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(stored)
}

/// The client's mysql_native_password answer, from SHA1(password): `SHA1(pw) XOR SHA1(scramble + SHA1(SHA1(pw)))`.
#[must_use]
pub fn native_response(password_sha1: &[u8; 20], scramble: &[u8]) -> [u8; 20] {
    xor(password_sha1, &sha1(&[scramble, &sha1(&[password_sha1])]))
}

/// Checks a mysql_native_password answer against the stored hash. Returns SHA1(password), which the answer reveals to a holder of the
/// stored hash. It is enough to log in elsewhere.
#[must_use]
pub fn native_verify(stored: &[u8; 20], scramble: &[u8], response: &[u8]) -> Option<[u8; 20]> {
    let response: &[u8; 20] = response.try_into().ok()?;
    let password_sha1 = xor(response, &sha1(&[scramble, stored]));
    equal(&sha1(&[&password_sha1]), stored).then_some(password_sha1)
}

/// The key of caching_sha2_password's fast path: SHA256(SHA256(password)).
#[must_use]
pub fn fast_key(password: &[u8]) -> [u8; 32] {
    sha256(&[&sha256(&[password])])
}

/// The client's caching_sha2_password answer: `SHA256(pw) XOR SHA256(SHA256(SHA256(pw)) + scramble)`.
#[must_use]
pub fn fast_response(password: &[u8], scramble: &[u8]) -> [u8; 32] {
    xor(&sha256(&[password]), &sha256(&[&fast_key(password), scramble]))
}

/// Checks a caching_sha2_password answer against the fast key.
#[must_use]
pub fn fast_verify(key: &[u8; 32], scramble: &[u8], response: &[u8]) -> bool {
    let Ok(response) = <&[u8; 32]>::try_from(response) else { return false };
    let password_sha256 = xor(response, &sha256(&[key, scramble]));
    equal(&sha256(&[&password_sha256]), key)
}

/// Length of a [`certificate_proof`], bytes.
pub const CERTIFICATE_PROOF: usize = 65;

/// The info text of the OK that ends a login on MariaDB 11.4 and later (MDEV-31855). It is 0x01 and an SHA-256 in upper-case hexadecimal,
/// over three parts: the stored password hash, the greeting's scramble, and the SHA-256 fingerprint of the server's certificate. By it a
/// client that knows the password recognises the server's own certificate without a CA.
#[must_use]
pub fn certificate_proof(stored: &[u8], scramble: &[u8], fingerprint: &[u8; 32]) -> [u8; CERTIFICATE_PROOF] {
    let digits = |byte: u8| [byte >> 4, byte & 15].map(|digit| digit + if digit < 10 { b'0' } else { b'A' - 10 });
    let mut proof = [1; CERTIFICATE_PROOF];
    proof[1..].iter_mut().zip(sha256(&[stored, scramble, fingerprint]).into_iter().flat_map(digits)).for_each(|(to, from)| *to = from);
    proof
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAMBLE: &[u8; 20] = b"0123456789abcdefghij";

    #[test]
    fn native_vector_and_round_trip() {
        // SELECT PASSWORD('secret')
        let stored = parse_native_stored(b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7").unwrap();
        assert_eq!(stored, native_stored(b"secret"));
        let response = native_response(&sha1(&[b"secret"]), SCRAMBLE);
        assert_eq!(native_verify(&stored, SCRAMBLE, &response), Some(sha1(&[b"secret"])));
        assert_eq!(native_verify(&native_stored(b"other"), SCRAMBLE, &response), None);
        assert_eq!(native_verify(&stored, SCRAMBLE, &response[..19]), None);
        assert_eq!(parse_native_stored(b"*14"), None);
        assert_eq!(parse_native_stored(&[b'g'; 41]), None);
    }

    #[test]
    fn a_certificate_is_proven_in_hexadecimal() {
        let proof = certificate_proof(&native_stored(b"secret"), SCRAMBLE, &[0xab; 32]);
        // printf of the 20, 20 and 32 bytes | sha256sum
        assert_eq!(&proof[..], b"\x0141AB581EDB6D35246F408989EE2B18925A7BA0EB0353A1208FA76793D6F48900");
    }

    #[test]
    fn fast_path_round_trip() {
        let response = fast_response(b"secret", SCRAMBLE);
        assert!(fast_verify(&fast_key(b"secret"), SCRAMBLE, &response));
        assert!(!fast_verify(&fast_key(b"secrets"), SCRAMBLE, &response));
        assert!(!fast_verify(&fast_key(b"secret"), b"another scramble....", &response));
        assert!(!fast_verify(&fast_key(b"secret"), SCRAMBLE, b"short"));
    }
}
