//! The RSA exchange of sha256_password and caching_sha2_password: password and NUL, XOR the scramble, OAEP with SHA-1.
//!
//! Generating a key is the one place of this crate that uses randomness (and encryption's padding, inside the library).

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{
    KeySize, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey, PrivateDecryptingKey, PublicEncryptingKey,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};

use crate::error::{Result, WireError};

/// DER of "version 0, rsaEncryption, NULL", which follows the outer length in PKCS#8.
const PKCS8_RSA: [u8; 18] = [2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 1, 5, 0];
const PEM_LINE: usize = 64;

/// A server's private key with its public half ready to send. Create one a process and share it.
pub struct RsaKey {
    private: OaepPrivateDecryptingKey,
    private_pem: String,
    public_pem: String,
}

impl std::fmt::Debug for RsaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RsaKey").finish_non_exhaustive()
    }
}

impl RsaKey {
    /// A new key of 2048 bits. Takes a tenth of a second or more.
    pub fn generate() -> Result<Self> {
        Self::new(PrivateDecryptingKey::generate(KeySize::Rsa2048).map_err(|_| WireError::Rsa("key generation failed"))?)
    }

    /// A key of 2048..=8192 bits from PEM: `PRIVATE KEY` (PKCS#8) or `RSA PRIVATE KEY` (PKCS#1), not encrypted.
    pub fn from_pem(pem: &[u8]) -> Result<Self> {
        let pkcs8 = match PrivatePkcs8KeyDer::from_pem_slice(pem) {
            Ok(key) => key.secret_pkcs8_der().to_vec(),
            Err(_) => {
                let key = PrivatePkcs1KeyDer::from_pem_slice(pem).map_err(|_| WireError::Rsa("no private key in the PEM text"))?;
                pkcs8_from_pkcs1(key.secret_pkcs1_der())
            }
        };
        Self::new(PrivateDecryptingKey::from_pkcs8(&pkcs8).map_err(|_| WireError::Rsa("private key is not usable"))?)
    }

    fn new(key: PrivateDecryptingKey) -> Result<Self> {
        let unusable = |_| WireError::Rsa("key cannot be written");
        let public_der = AsDer::<PublicKeyX509Der<'_>>::as_der(&key.public_key()).map_err(unusable)?;
        let private_der = AsDer::<Pkcs8V1Der<'_>>::as_der(&key).map_err(unusable)?;
        let (public_pem, private_pem) = (pem("PUBLIC KEY", public_der.as_ref()), pem("PRIVATE KEY", private_der.as_ref()));
        let private = OaepPrivateDecryptingKey::new(key).map_err(|_| WireError::Rsa("private key is not usable"))?;
        Ok(Self { private, private_pem, public_pem })
    }

    /// The public key as servers send it: PEM, `PUBLIC KEY`.
    #[must_use]
    pub fn public_pem(&self) -> &str {
        &self.public_pem
    }

    /// The private key as PEM (PKCS#8), to keep it for the next start. A secret.
    #[must_use]
    pub fn private_pem(&self) -> &str {
        &self.private_pem
    }

    /// Length of an encrypted password, in bytes.
    #[must_use]
    pub fn ciphertext_len(&self) -> usize {
        self.private.key_size_bytes()
    }

    /// Decrypts a client's answer to the password in clear.
    pub fn decrypt_password(&self, ciphertext: &[u8], scramble: &[u8]) -> Result<Vec<u8>> {
        let mut buffer = vec![0; self.private.min_output_size()];
        let wrong = WireError::Rsa("password does not decrypt");
        let plain = self.private.decrypt(&OAEP_SHA1_MGF1SHA1, ciphertext, &mut buffer, None).map_err(|_| wrong)?;
        xor_cycle(plain, scramble);
        Ok(plain.strip_suffix(&[0]).ok_or(wrong)?.to_vec())
    }
}

/// Encrypts `password` for the server whose public key is `public_pem`.
pub fn encrypt_password(public_pem: &[u8], password: &[u8], scramble: &[u8]) -> Result<Vec<u8>> {
    let unreadable = WireError::Rsa("server's public key is not readable");
    let der = SubjectPublicKeyInfoDer::from_pem_slice(public_pem).map_err(|_| unreadable)?;
    let key = PublicEncryptingKey::from_der(&der).map_err(|_| unreadable)?;
    let key = OaepPublicEncryptingKey::new(key).map_err(|_| unreadable)?;
    let mut plain = [password, &[0]].concat();
    xor_cycle(&mut plain, scramble);
    let mut buffer = vec![0; key.ciphertext_size()];
    let sealed = key.encrypt(&OAEP_SHA1_MGF1SHA1, &plain, &mut buffer, None);
    Ok(sealed.map_err(|_| WireError::Rsa("password is too long for the server's key"))?.to_vec())
}

/// XORs `bytes` with the scramble, over and over; an empty scramble changes nothing.
fn xor_cycle(bytes: &mut [u8], scramble: &[u8]) {
    bytes.iter_mut().zip(scramble.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
}

/// A PKCS#1 key in its PKCS#8 envelope.
fn pkcs8_from_pkcs1(pkcs1: &[u8]) -> Vec<u8> {
    let (mut inner, mut outer) = (PKCS8_RSA.to_vec(), Vec::new());
    put_der(&mut inner, 0x04, pkcs1);
    put_der(&mut outer, 0x30, &inner);
    outer
}

/// Appends one DER element of at most 65535 bytes.
fn put_der(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    let len = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    out.extend_from_slice(&[tag, 0x82, len[0], len[1]]);
    out.extend_from_slice(content);
}

fn pem(label: &str, der: &[u8]) -> String {
    let encoded = base64(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(PEM_LINE) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

/// Base 64 with padding (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| group.get(at).copied().unwrap_or(0);
        let bits = u32::from_be_bytes([0, byte(0), byte(1), byte(2)]);
        for at in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at > group.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAMBLE: &[u8; 20] = b"0123456789abcdefghij";

    #[test]
    fn round_trip_by_pem() {
        let key = RsaKey::generate().unwrap();
        let again = RsaKey::from_pem(key.private_pem().as_bytes()).unwrap();
        let sealed = encrypt_password(again.public_pem().as_bytes(), b"secret", SCRAMBLE).unwrap();
        assert_eq!(sealed.len(), key.ciphertext_len());
        assert_eq!(key.decrypt_password(&sealed, SCRAMBLE).unwrap(), b"secret");
        assert!(key.decrypt_password(&sealed[1..], SCRAMBLE).is_err());
        assert!(encrypt_password(key.public_pem().as_bytes(), &[b'x'; 300], SCRAMBLE).is_err());
    }

    #[test]
    fn pkcs1_is_wrapped() {
        let key = RsaKey::generate().unwrap();
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(key.private_pem().as_bytes()).unwrap();
        let pkcs1 = &pkcs8.secret_pkcs8_der()[4 + PKCS8_RSA.len() + 4..];
        let again = RsaKey::from_pem(pem("RSA PRIVATE KEY", pkcs1).as_bytes()).unwrap();
        assert_eq!(again.public_pem(), key.public_pem());
    }

    #[test]
    fn rubbish_is_an_error() {
        assert!(RsaKey::from_pem(b"").is_err());
        assert!(encrypt_password(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", b"x", SCRAMBLE).is_err());
    }

    #[test]
    fn base64_padding() {
        assert_eq!([base64(b"f"), base64(b"fo"), base64(b"foo"), base64(b"")], ["Zg==", "Zm8=", "Zm9v", ""]);
    }
}
