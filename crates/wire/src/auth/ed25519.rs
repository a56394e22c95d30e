//! MariaDB's client_ed25519: the password's SHA-512 is the expanded secret key, and the answer signs a 32-byte nonce.
//!
//! Differs from plain Ed25519 in that the secret is hashed whatever its length, which is why the low-level signing call is
//! needed. It is used as its warning demands: scalar and prefix come from one SHA-512. Source: MariaDB KB
//! "Authentication plugin: ed25519".

use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha512};

/// Length of the server's nonce, in bytes.
pub const NONCE: usize = 32;
/// Length of the answer, in bytes.
pub const SIGNATURE: usize = 64;

/// The signature of `nonce` by the key that the password gives.
#[must_use]
pub fn sign(password: &[u8], nonce: &[u8; NONCE]) -> [u8; SIGNATURE] {
    let secret = expand(password);
    raw_sign::<Sha512>(&secret, nonce, &VerifyingKey::from(&secret)).to_bytes()
}

/// The public key that the server stores (in base 64, less its padding).
#[must_use]
pub fn public_key(password: &[u8]) -> [u8; 32] {
    VerifyingKey::from(&expand(password)).to_bytes()
}

/// Whether `signature` proves, for this `nonce`, the password behind `public_key`.
#[must_use]
pub fn verify(public_key: &[u8; 32], nonce: &[u8; NONCE], signature: &[u8]) -> bool {
    let (Ok(key), Ok(signature)) = (VerifyingKey::from_bytes(public_key), Signature::from_slice(signature)) else { return false };
    key.verify_strict(nonce, &signature).is_ok()
}

/// Scalar and prefix, from the password's SHA-512.
fn expand(password: &[u8]) -> ExpandedSecretKey {
    ExpandedSecretKey::from_bytes(&Sha512::digest(password).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_public_key_of_secret() {
        // base 64 ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY
        let documented = [
            0x64, 0x88, 0x14, 0x44, 0x45, 0x20, 0xe4, 0xf5, 0x60, 0x43, 0xa2, 0xec, 0x92, 0x15, 0xe6, 0x3b, 0xe7, 0x99, 0x2d, 0x2d, 0x27,
            0x0b, 0xc6, 0xde, 0xe8, 0x73, 0xe3, 0x61, 0x64, 0x78, 0x60, 0x96,
        ];
        assert_eq!(public_key(b"secret"), documented);
    }

    #[test]
    fn sign_and_verify() {
        let nonce = [5; NONCE];
        let signature = sign(b"secret", &nonce);
        assert!(verify(&public_key(b"secret"), &nonce, &signature));
        assert!(!verify(&public_key(b"other"), &nonce, &signature));
        assert!(!verify(&public_key(b"secret"), &[6; NONCE], &signature));
        assert!(!verify(&[0xff; 32], &nonce, &signature[..63]));
    }
}
