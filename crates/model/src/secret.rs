//! A value that must not reach a log by accident: passwords and credential lists.
//!
//! `Debug` prints `***` and there is no `Display`; reading the value takes the visible word `expose`.

use std::fmt;

/// Secret bytes, usually a password. Comparing two secrets is for configuration equality only: it is not
/// constant-time and must not decide a login.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Wraps `bytes`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into().into_boxed_slice())
    }

    /// The bytes themselves. The caller answers for where they go.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The secret as text; bytes that are not UTF-8 are replaced.
    pub fn expose_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// Whether there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_value() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "*** Some(***)");
        assert_eq!(secret.expose(), b"hunter2");
    }
}
