//! JSON as servers write it: the order of fields counts, and an object may name a field twice. Early versions of MariaDB list the tables of
//! a join so.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    /// Fields in their order.
    Object(Vec<(String, Json)>),
    Array(Vec<Json>),
    Text(String),
    Number(f64),
    Flag(bool),
    Null,
}

impl Json {
    /// Reads a text. None: it is no JSON, or is nested deeper than 128 levels. A server answers in the session's character set: letters
    /// that are not UTF-8 are replaced.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        serde_json::from_str(&String::from_utf8_lossy(text)).ok()
    }

    /// The first field of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// The same, if it is a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The same, if it is a number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The texts of an array of this name.
    pub(super) fn texts(&self, name: &str) -> Vec<&str> {
        let Some(Self::Array(items)) = self.get(name) else { return Vec::new() };
        items.iter().filter_map(|item| if let Self::Text(text) = item { Some(text.as_str()) } else { None }).collect()
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Json, E> {
        Ok(Json::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(Json::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Json::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(field) = fields.next_entry()? {
            all.push(field);
        }
        Ok(Json::Object(all))
    }
}
