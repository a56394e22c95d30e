//! Sealing of files to a public key: who writes a file cannot read it.
//!
//! Each file has a content key of its own. It is sealed to the X25519 key of the reader: a key for that is derived by HKDF-SHA256 from a
//! one-time key and the reader's, and bound to the file's header. Frames are sealed with AES-256-GCM, with their number as nonce, so
//! frames that were left out or exchanged do not open.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, EphemeralPrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand::{self, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;
use zeroize::Zeroizing;

/// DER of an X25519 public key (RFC 8410, SubjectPublicKeyInfo) before its 32 bytes.
const PUBLIC_DER: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x6e, 0x03, 0x21, 0x00];
/// DER of an X25519 private key (RFC 8410, OneAsymmetricKey) before its 32 bytes.
const PRIVATE_DER: &[u8] = &[0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x6e, 0x04, 0x22, 0x04, 0x20];
const PUBLIC: &str = "PUBLIC KEY";
const PRIVATE: &str = "PRIVATE KEY";
const KEY: usize = 32;
const TAG: usize = 16;
const INFO: &[u8] = b"tidegate capture, content key, 1";

/// Bytes of a sealed content key: the one-time public key, and the key with its tag.
pub(crate) const SEALED_KEY: usize = KEY + KEY + TAG;

/// What is wrong with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The file has no such PEM block.
    #[error("the file has no X25519 {0} in PEM format; `openssl genpkey -algorithm X25519` makes a private key")]
    Format(&'static str),
    /// The key cannot be used.
    #[error("the key is not usable")]
    Unusable,
}

/// The first bytes of a public key's SHA-256: which key a file is sealed to.
pub type KeyId = [u8; 8];

/// A key to which files are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; KEY]);

/// The key that opens them.
pub struct PrivateKey {
    key: agreement::PrivateKey,
    public: PublicKey,
}

impl PublicKey {
    /// Reads a PEM file: what `openssl pkey -pubout` writes.
    ///
    /// # Errors
    /// It has no X25519 public key.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let der = block(pem, PUBLIC).ok_or(KeyError::Format(PUBLIC))?;
        let key = der.strip_prefix(PUBLIC_DER).and_then(|key| key.try_into().ok());
        key.map(Self).ok_or(KeyError::Format(PUBLIC))
    }

    /// The key as a PEM file.
    pub fn to_pem(self) -> String {
        pem(PUBLIC, &[PUBLIC_DER, &self.0].concat())
    }

    /// Names the key.
    pub fn id(self) -> KeyId {
        let mut id = KeyId::default();
        id.iter_mut().zip(digest(&SHA256, &self.0).as_ref()).for_each(|(to, from)| *to = *from);
        id
    }
}

impl PrivateKey {
    /// Reads a PEM file in PKCS#8: what `openssl genpkey -algorithm X25519` writes.
    ///
    /// # Errors
    /// It has no X25519 private key.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let der = block(pem, PRIVATE).ok_or(KeyError::Format(PRIVATE))?;
        let key = der.strip_prefix(PRIVATE_DER).and_then(|rest| rest.get(..KEY)).ok_or(KeyError::Format(PRIVATE))?;
        let key = agreement::PrivateKey::from_private_key(&X25519, key).map_err(|_| KeyError::Unusable)?;
        let public = key.compute_public_key().map_err(|_| KeyError::Unusable)?;
        let public = PublicKey(public.as_ref().try_into().map_err(|_| KeyError::Unusable)?);
        Ok(Self { key, public })
    }

    /// The key to which files are sealed that this one opens.
    pub fn public(&self) -> PublicKey {
        self.public
    }
}

/// A new pair: the private key's PEM file, and its public key.
///
/// # Errors
/// The system has no randomness.
pub fn generate() -> Result<(Zeroizing<String>, PublicKey), KeyError> {
    let mut key = Zeroizing::new([0; KEY]);
    rand::fill(&mut *key).map_err(|_| KeyError::Unusable)?;
    let der = Zeroizing::new([PRIVATE_DER, &*key].concat());
    let private = Zeroizing::new(pem(PRIVATE, &der));
    let public = PrivateKey::from_pem(&private)?.public();
    Ok((private, public))
}

fn pem(name: &str, der: &[u8]) -> String {
    format!("-----BEGIN {name}-----\n{}\n-----END {name}-----\n", STANDARD.encode(der))
}

/// The bytes of the first PEM block of this name.
fn block(pem: &str, name: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (begin, end) = (format!("-----BEGIN {name}-----"), format!("-----END {name}-----"));
    let (_, rest) = pem.split_once(&begin)?;
    let (body, _) = rest.split_once(&end)?;
    let body: Zeroizing<String> = Zeroizing::new(body.split_whitespace().collect());
    STANDARD.decode(body.as_bytes()).ok().map(Zeroizing::new)
}

/// The content key of a file: seals and opens its frames.
pub(crate) struct ContentKey(LessSafeKey);

impl ContentKey {
    /// A new key for the file with this header, and the same sealed to `to`.
    pub(crate) fn seal(to: PublicKey, header: &[u8]) -> Result<(Self, Vec<u8>), KeyError> {
        let mut key = Zeroizing::new([0; KEY]);
        rand::fill(&mut *key).map_err(|_| KeyError::Unusable)?;
        let once = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).map_err(|_| KeyError::Unusable)?;
        let once_public = once.compute_public_key().map_err(|_| KeyError::Unusable)?;
        let peer = UnparsedPublicKey::new(&X25519, to.0);
        let wrapping =
            agreement::agree_ephemeral(once, peer, KeyError::Unusable, |shared| wrapping_key(shared, once_public.as_ref(), to, header))?;
        let mut sealed = key.to_vec();
        wrapping.seal_in_place_append_tag(nonce(0), Aad::empty(), &mut sealed).map_err(|_| KeyError::Unusable)?;
        Ok((Self::new(&*key)?, [once_public.as_ref(), &sealed].concat()))
    }

    /// The key that was sealed; None if it was sealed to another key, or the header is not the file's.
    pub(crate) fn open(sealed: &[u8], with: &PrivateKey, header: &[u8]) -> Option<Self> {
        let (once, sealed) = sealed.split_at_checked(KEY)?;
        let peer = UnparsedPublicKey::new(&X25519, once);
        let wrapping = agreement::agree(&with.key, peer, KeyError::Unusable, |shared| wrapping_key(shared, once, with.public, header));
        let mut key = Zeroizing::new(sealed.to_vec());
        let key = wrapping.ok()?.open_in_place(nonce(0), Aad::empty(), &mut key).ok()?;
        Self::new(key).ok()
    }

    fn new(key: &[u8]) -> Result<Self, KeyError> {
        UnboundKey::new(&AES_256_GCM, key).map(|key| Self(LessSafeKey::new(key))).map_err(|_| KeyError::Unusable)
    }

    /// Seals the frame with this number; a number is used once.
    pub(crate) fn seal_frame(&self, number: u64, head: &[u8], body: &mut Vec<u8>) -> Result<(), KeyError> {
        self.0.seal_in_place_append_tag(nonce(number), Aad::from(head), body).map_err(|_| KeyError::Unusable)
    }

    /// Opens the frame with this number; None if it is another one, or was changed.
    pub(crate) fn open_frame<'a>(&self, number: u64, head: &[u8], body: &'a mut [u8]) -> Option<&'a [u8]> {
        self.0.open_in_place(nonce(number), Aad::from(head), body).ok().map(|opened| &*opened)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes.iter_mut().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
    Nonce::assume_unique_for_key(bytes)
}

fn wrapping_key(shared: &[u8], once: &[u8], to: PublicKey, header: &[u8]) -> Result<LessSafeKey, KeyError> {
    let header = digest(&SHA256, header);
    let extracted = Salt::new(HKDF_SHA256, &[once, &to.0].concat()).extract(shared);
    let info = [INFO, header.as_ref()];
    let expanded = extracted.expand(&info, &AES_256_GCM).map_err(|_| KeyError::Unusable)?;
    Ok(LessSafeKey::new(UnboundKey::from(expanded)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by OpenSSL 3: `openssl genpkey -algorithm X25519`, and `openssl pkey -pubout` of that key.
    const OPENSSL: [&str; 2] = [
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VuBCIEIKimEuR7zFuLzwsUVKWbmLkoTy+4cMthFl+tzcKEpVFS\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VuAyEAE4wUfifPW6gHESs6JnqHqLGEO64hOLsOyHkKAJgFhkA=\n-----END PUBLIC KEY-----\n",
    ];

    #[test]
    fn a_pair_is_read_as_it_was_written() {
        let (private, public) = generate().unwrap();
        assert_eq!(PublicKey::from_pem(&public.to_pem()), Ok(public));
        assert_eq!(PrivateKey::from_pem(&private).unwrap().public(), public);
        assert_eq!(PrivateKey::from_pem(OPENSSL[0]).unwrap().public().to_pem(), OPENSSL[1]);
        assert_ne!(generate().unwrap().1, public);
    }

    #[test]
    fn other_files_are_no_keys() {
        let (private, public) = generate().unwrap();
        assert_eq!(PublicKey::from_pem(&private), Err(KeyError::Format(PUBLIC)), "the private key belongs elsewhere");
        assert!(PrivateKey::from_pem(&public.to_pem()).is_err());
        for text in ["", "-----BEGIN PUBLIC KEY-----", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "\u{e4}"] {
            assert!(PublicKey::from_pem(text).is_err() && PrivateKey::from_pem(text).is_err());
        }
    }

    #[test]
    fn only_the_private_key_opens_and_only_under_its_header() {
        let ((private, public), (other, _)) = (generate().unwrap(), generate().unwrap());
        let (private, other) = (PrivateKey::from_pem(&private).unwrap(), PrivateKey::from_pem(&other).unwrap());
        let (key, sealed) = ContentKey::seal(public, b"header").unwrap();
        assert_eq!(sealed.len(), SEALED_KEY);
        assert!(ContentKey::open(&sealed, &other, b"header").is_none());
        assert!(ContentKey::open(&sealed, &private, b"another").is_none());
        assert!(ContentKey::open(&sealed[..SEALED_KEY - 1], &private, b"header").is_none());
        let opened = ContentKey::open(&sealed, &private, b"header").unwrap();
        let mut body = b"frame".to_vec();
        key.seal_frame(3, b"head", &mut body).unwrap();
        assert_eq!(opened.open_frame(3, b"head", &mut body.clone()), Some(&b"frame"[..]));
        assert_eq!(opened.open_frame(4, b"head", &mut body.clone()), None, "another place");
        assert_eq!(opened.open_frame(3, b"tail", &mut body), None);
    }
}
