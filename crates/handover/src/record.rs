//! Values as bytes: MessagePack, structures as maps by the names of their fields.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a value cannot be written or read. It names fields, never their content.
#[derive(Debug)]
pub struct RecordError(String);

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RecordError {}

/// A value's bytes.
///
/// # Errors
/// The value cannot be written.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, RecordError> {
    rmp_serde::to_vec_named(value).map_err(|e| RecordError(e.to_string()))
}

/// The value of these bytes.
///
/// # Errors
/// They are none of this type, or have a field that it has not.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordError> {
    rmp_serde::from_slice(bytes).map_err(|e| RecordError(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Serialize)]
    struct Newer {
        name: &'static str,
        added: u32,
    }

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Older {
        name: String,
        #[serde(default)]
        other: Option<u32>,
    }

    #[test]
    fn a_field_that_is_not_known_is_refused_by_name() {
        let error = decode::<Older>(&encode(&Newer { name: "n", added: 1 }).unwrap()).unwrap_err();
        assert!(error.to_string().contains("added"), "{error}");
        #[derive(Serialize)]
        struct Same {
            name: &'static str,
        }
        let read: Older = decode(&encode(&Same { name: "n" }).unwrap()).unwrap();
        assert_eq!((read.name.as_str(), read.other), ("n", None));
    }
}
