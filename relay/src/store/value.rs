//! What goes into a statement and what comes out of a row: text, 64-bit integers and NULL, nothing else.
//!
//! Flags are 0 and 1, times are milliseconds since the epoch, both BIGINT: the one set of types that SQLite and
//! PostgreSQL agree on. A row that can't be read names the column and the fault, never what was in it.

use super::error::StoreError;
use serde::de::{DeserializeOwned, IntoDeserializer};
use shared::time::Timestamp;
use sqlx::{Decode, Row as _, ValueRef, any::AnyRow};
use std::str::FromStr;

/// One bound parameter.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// TEXT, or NULL of that type.
    Text(Option<&'a str>),
    /// BIGINT, or NULL of that type.
    Integer(Option<i64>),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<Option<&'a String>> for Value<'a> {
    fn from(text: Option<&'a String>) -> Self {
        Self::Text(text.map(String::as_str))
    }
}

impl<'a> From<&'a Option<String>> for Value<'a> {
    fn from(text: &'a Option<String>) -> Self {
        Self::Text(text.as_deref())
    }
}

impl From<i64> for Value<'_> {
    fn from(integer: i64) -> Self {
        Self::Integer(Some(integer))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(integer: Option<i64>) -> Self {
        Self::Integer(integer)
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Integer(Some(i64::from(flag)))
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(time: Timestamp) -> Self {
        Self::Integer(Some(time.millis()))
    }
}

impl From<Option<Timestamp>> for Value<'_> {
    fn from(time: Option<Timestamp>) -> Self {
        Self::Integer(time.map(Timestamp::millis))
    }
}

/// One row of a result. Every getter fails with [`StoreError::Corrupt`] where the column is missing, of another type,
/// or NULL where NULL was not asked for.
pub struct Row(AnyRow);

impl Row {
    pub(super) fn new(row: AnyRow) -> Self {
        Self(row)
    }

    /// Text that is never NULL.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn text(&self, column: &str) -> Result<String, StoreError> {
        present(column, self.maybe_text(column)?)
    }

    /// Text, or `None` for NULL.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn maybe_text(&self, column: &str) -> Result<Option<String>, StoreError> {
        Ok(self.raw::<&str>(column, "is not text")?.map(str::to_owned))
    }

    /// An integer that is never NULL.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn integer(&self, column: &str) -> Result<i64, StoreError> {
        present(column, self.maybe_integer(column)?)
    }

    /// An integer, or `None` for NULL.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn maybe_integer(&self, column: &str) -> Result<Option<i64>, StoreError> {
        self.raw(column, "is not an integer")
    }

    /// A flag: 0 or 1.
    ///
    /// # Errors
    /// See [`Row`]; also any other number.
    pub fn flag(&self, column: &str) -> Result<bool, StoreError> {
        match self.integer(column)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(corrupt(column, "is neither 0 nor 1")),
        }
    }

    /// A time that is never NULL.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn time(&self, column: &str) -> Result<Timestamp, StoreError> {
        present(column, self.maybe_time(column)?)
    }

    /// A time, or `None` for NULL.
    ///
    /// # Errors
    /// See [`Row`].
    pub fn maybe_time(&self, column: &str) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.maybe_integer(column)?.map(Timestamp::from_millis))
    }

    /// JSON text that is never NULL, as `T`.
    ///
    /// # Errors
    /// See [`Row`]; also text that is not the JSON of a `T`.
    pub fn json<T: DeserializeOwned>(&self, column: &str) -> Result<T, StoreError> {
        present(column, self.maybe_json(column)?)
    }

    /// JSON text as `T`, or `None` for NULL.
    ///
    /// # Errors
    /// See [`Row`]; also text that is not the JSON of a `T`.
    pub fn maybe_json<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, StoreError> {
        let text = self.raw::<&str>(column, "is not text")?;
        // serde_json's own message may quote the value.
        text.map(serde_json::from_str).transpose().map_err(|error| {
            corrupt(column, format!("is not the JSON it should be, at its byte {}", error.column()))
        })
    }

    /// Text that `read` makes a `T` of.
    ///
    /// # Errors
    /// See [`Row`]; also text that `read` doesn't take.
    pub fn parse_with<T>(&self, column: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        let text: &str = present(column, self.raw(column, "is not text")?)?;
        read(text).ok_or_else(|| corrupt(column, "is not of the form that it should be"))
    }

    /// Text that parses as a `T`, such as an id.
    ///
    /// # Errors
    /// See [`Row`]; also text that does not parse.
    pub fn parsed<T: FromStr>(&self, column: &str) -> Result<T, StoreError> {
        self.parse_with(column, |text| text.parse().ok())
    }

    /// A word of a fixed set, spelled as on the wire.
    ///
    /// # Errors
    /// See [`Row`]; also another word.
    pub fn word<T: DeserializeOwned>(&self, column: &str) -> Result<T, StoreError> {
        self.parse_with(column, word)
    }

    /// A word of a fixed set, or `None` for NULL.
    ///
    /// # Errors
    /// See [`Row`]; also another word.
    pub fn maybe_word<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, StoreError> {
        if self.maybe_text(column)?.is_none() { Ok(None) } else { self.word(column).map(Some) }
    }

    /// The driver's own errors quote the value, so its typed getters are not used.
    fn raw<'r, T: Decode<'r, sqlx::Any>>(
        &'r self,
        column: &str,
        fault: &str,
    ) -> Result<Option<T>, StoreError> {
        let value = self.0.try_get_raw(column).map_err(|_| corrupt(column, "is not in the result"))?;
        if value.is_null() {
            return Ok(None);
        }
        T::decode(value).map(Some).map_err(|_| corrupt(column, fault))
    }
}

/// A word of a fixed set, spelled as on the wire.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    T::deserialize(IntoDeserializer::<serde::de::value::Error>::into_deserializer(text)).ok()
}

fn present<T>(column: &str, value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| corrupt(column, "is NULL"))
}

fn corrupt(column: &str, problem: impl Into<String>) -> StoreError {
    StoreError::Corrupt { column: column.to_owned(), problem: problem.into() }
}
