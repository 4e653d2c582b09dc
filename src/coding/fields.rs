//! Fields of events, read leniently.
//!
//! The formats are not stable, so a field of an unexpected type counts as absent, and the rest of its event is still used.
//! Only the needed fields are read. All others are skipped, without copies.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value of JSON that is no object and no list.
pub(crate) enum Scalar<'de> {
    Text(Cow<'de, str>),
    Number(u64),
    Decimal(f64),
    Flag(bool),
}

/// A type that is read from any JSON. Without a method for some kind of value, that kind gives the
/// default.
pub(crate) trait Loose<'de>: Default {
    fn scalar(_: Scalar<'de>) -> Self {
        Self::default()
    }
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

/// Reads any value as a `T`.
pub(crate) struct Anything<T>(pub(crate) PhantomData<T>);

impl<'de, T: Loose<'de>> Visitor<'de> for Anything<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<T, E> {
        Ok(T::scalar(Scalar::Text(Cow::Borrowed(text))))
    }
    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::scalar(Scalar::Text(Cow::Owned(text.to_owned()))))
    }
    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok(T::scalar(Scalar::Number(number)))
    }
    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok(u64::try_from(number).map(|number| T::scalar(Scalar::Number(number))).unwrap_or_default())
    }
    fn visit_f64<E>(self, number: f64) -> Result<T, E> {
        Ok(T::scalar(Scalar::Decimal(number)))
    }
    fn visit_bool<E>(self, flag: bool) -> Result<T, E> {
        Ok(T::scalar(Scalar::Flag(flag)))
    }
    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::object(map)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::list(list)
    }
}

macro_rules! read_loosely {
    ($name:ident) => {
        impl<'de> ::serde::Deserialize<'de> for $name {
            read_loosely!(in $name);
        }
    };
    ($name:ident<'a>) => {
        impl<'de: 'a, 'a> ::serde::Deserialize<'de> for $name<'a> {
            read_loosely!(in $name<'de>);
        }
    };
    ($name:ident<T>) => {
        impl<'de, T: ::serde::Deserialize<'de> + Default> ::serde::Deserialize<'de> for $name<T> {
            read_loosely!(in $name<T>);
        }
    };
    (in $name:ty) => {
        fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_any($crate::fields::Anything::<$name>(::std::marker::PhantomData))
        }
    };
}
pub(crate) use read_loosely;

/// A text, if the value is one.
#[derive(Debug, Default)]
pub(crate) struct Text<'a>(Option<Cow<'a, str>>);
read_loosely!(Text<'a>);

impl<'de> Loose<'de> for Text<'de> {
    fn scalar(value: Scalar<'de>) -> Self {
        Self(if let Scalar::Text(text) = value { Some(text) } else { None })
    }
}

impl Text<'_> {
    /// The text without what it borrows.
    pub(crate) fn into_owned<'a>(self) -> Text<'a> {
        Text(self.0.map(|text| Cow::Owned(text.into_owned())))
    }

    /// The text, if it is not empty.
    pub(crate) fn get(&self) -> Option<&str> {
        self.0.as_deref().filter(|text| !text.is_empty())
    }

    /// The text, or an empty one.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// A whole number that is not negative, also as a text.
#[derive(Debug, Default)]
pub(crate) struct Number(pub(crate) Option<u64>);
read_loosely!(Number);

impl<'de> Loose<'de> for Number {
    fn scalar(value: Scalar<'de>) -> Self {
        Self(match value {
            Scalar::Number(number) => Some(number),
            Scalar::Decimal(number) => whole(number),
            Scalar::Text(text) => text.trim().parse().ok().or_else(|| whole(text.trim().parse().ok()?)),
            Scalar::Flag(_) => None,
        })
    }
}

/// `number` without its fraction, if it is not negative.
fn whole(number: f64) -> Option<u64> {
    // The cast is exact enough: numbers of this size are durations and counts.
    (number.is_finite() && number >= 0.0).then_some(number as u64)
}

/// An amount of money that is not negative.
#[derive(Debug, Default)]
pub(crate) struct Amount(pub(crate) Option<f64>);
read_loosely!(Amount);

impl<'de> Loose<'de> for Amount {
    // Amounts of money are far below 2^53.
    #[allow(clippy::cast_precision_loss)]
    fn scalar(value: Scalar<'de>) -> Self {
        Self(match value {
            Scalar::Number(number) => Some(number as f64),
            Scalar::Decimal(number) => Some(number).filter(|number| number.is_finite() && *number >= 0.0),
            Scalar::Text(_) | Scalar::Flag(_) => None,
        })
    }
}

/// Whether the value is true, also as a text.
#[derive(Debug, Default)]
pub(crate) struct Flag(pub(crate) bool);
read_loosely!(Flag);

impl<'de> Loose<'de> for Flag {
    fn scalar(value: Scalar<'de>) -> Self {
        Self(match value {
            Scalar::Flag(flag) => flag,
            Scalar::Text(text) => text == "true",
            Scalar::Number(_) | Scalar::Decimal(_) => false,
        })
    }
}

/// Whether there is a text, a truth value or a number that is not negative.
#[derive(Debug, Default)]
pub(crate) struct Present(pub(crate) bool);
read_loosely!(Present);

impl<'de> Loose<'de> for Present {
    fn scalar(value: Scalar<'de>) -> Self {
        Self(!matches!(value, Scalar::Decimal(number) if whole(number).is_none()))
    }
}

/// An object, if the value is one.
#[derive(Debug, Default)]
pub(crate) struct Object<T>(pub(crate) Option<T>);
read_loosely!(Object<T>);

impl<'de, T: Deserialize<'de> + Default> Loose<'de> for Object<T> {
    fn object<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| Self(Some(object)))
    }
}

/// How many elements of a list are read. A line of 1 MiB could otherwise become 100 MB of elements.
const MAX_ELEMENTS: usize = 64;

/// The first elements of a list, if the value is one.
#[derive(Debug, Default)]
pub(crate) struct List<T>(pub(crate) Vec<T>);
read_loosely!(List<T>);

impl<'de, T: Deserialize<'de> + Default> Loose<'de> for List<T> {
    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut elements = Vec::new();
        while elements.len() < MAX_ELEMENTS {
            let Some(element) = list.next_element()? else { return Ok(Self(elements)) };
            elements.push(element);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self(elements))
    }
}

/// An error: a text, or an object with a message.
#[derive(Debug, Default)]
pub(crate) struct Failure(pub(crate) Option<String>);
read_loosely!(Failure);

impl<'de> Loose<'de> for Failure {
    fn scalar(value: Scalar<'de>) -> Self {
        Self(Text::scalar(value).get().map(str::to_owned))
    }
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut message = None;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match key.as_str() {
                "message" => message = map.next_value::<Text<'de>>()?.get().map(str::to_owned),
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Self(message))
    }
}

/// The tokens of a run, as the agent counts them: with some agents, `input` includes the tokens
/// that were read from a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the input.
    pub input: u64,
    /// Tokens that the model wrote.
    pub output: u64,
    /// Tokens of the input that were read from a cache.
    pub cache_read: u64,
    /// Tokens of the input that were written to a cache.
    pub cache_write: u64,
}

/// The usage in an event and, with some agents, the duration.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) usage: Option<Usage>,
    pub(crate) duration_ms: Option<u64>,
}
read_loosely!(Stats);

impl<'de> Loose<'de> for Stats {
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let (mut usage, mut found, mut duration_ms) = (Usage::default(), false, None);
        while let Some(key) = map.next_key::<Text<'de>>()? {
            let field = match key.as_str() {
                "inputTokens" | "input_tokens" => &mut usage.input,
                "outputTokens" | "output_tokens" => &mut usage.output,
                "cacheReadTokens"
                | "cache_read_tokens"
                | "cache_read_input_tokens"
                | "cacheReadInputTokens"
                | "cached_input_tokens"
                | "cached" => &mut usage.cache_read,
                "cacheWriteTokens"
                | "cache_write_tokens"
                | "cache_creation_input_tokens"
                | "cacheCreationInputTokens"
                | "cache_write_input_tokens" => &mut usage.cache_write,
                "duration_ms" | "durationMs" => {
                    duration_ms = map.next_value::<Number>()?.0;
                    continue;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if let Some(number) = map.next_value::<Number>()?.0 {
                *field = number;
                found = true;
            }
        }
        Ok(Self { usage: found.then_some(usage), duration_ms })
    }
}

#[cfg(test)]
mod fields_tests {
    use super::*;

    fn read<'a, T: Deserialize<'a>>(json: &'a str) -> T {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn values_of_another_type_count_as_absent() {
        for other in ["null", "1", "-2.5", "true", "[1,[2]]", "{\"a\":{\"b\":[]}}"] {
            assert_eq!(read::<Text>(other).get(), None, "{other}");
            assert!(read::<List<Number>>(other).0.len() < 3, "{other}");
        }
        assert_eq!(read::<Text>("\"a\\n\"").get(), Some("a\n"));
        assert!(read::<Object<IgnoredAny>>("\"x\"").0.is_none() && read::<Object<IgnoredAny>>("{}").0.is_some());
        assert!(!read::<Present>("null").0 && read::<Present>("7").0 && read::<Present>("\"\"").0);
        assert!(read::<Flag>("true").0 && read::<Flag>("\"true\"").0 && !read::<Flag>("1").0);
    }

    #[test]
    fn numbers_are_also_read_from_texts() {
        for (json, number) in [("7", Some(7)), ("\" 8 \"", Some(8)), ("9.7", Some(9)), ("\"1.5e3\"", Some(1_500))] {
            assert_eq!(read::<Number>(json).0, number, "{json}");
        }
        for json in ["-1", "-0.5", "\"x\"", "\"NaN\"", "\"inf\"", "{}", "false"] {
            assert_eq!(read::<Number>(json).0, None, "{json}");
        }
    }

    #[test]
    fn errors_are_texts_or_objects_with_a_message() {
        for json in ["\"no\"", "{\"code\":{},\"message\":\"no\"}"] {
            assert_eq!(read::<Failure>(json).0.as_deref(), Some("no"));
        }
        assert_eq!(read::<Failure>("{\"message\":1}").0, None);
    }

    #[test]
    fn long_lists_are_read_in_part_and_deep_nesting_is_skipped() {
        let long = format!("[{}]", vec!["1"; 500].join(","));
        assert_eq!(read::<List<Number>>(&long).0.len(), MAX_ELEMENTS);
        let deep = format!("[{}{}]", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(read::<Text>(&deep).get(), None);
    }
}

#[cfg(test)]
mod usage_tests {
    use super::*;

    #[test]
    fn usage_has_many_names() {
        let camel = r#"{"inputTokens":1,"outputTokens":"2","cacheReadTokens":3,"cacheWriteTokens":4}"#;
        let snake = r#"{"input_tokens":1,"output_tokens":2,"cache_read_tokens":3,"cache_write_tokens":4}"#;
        let claude = r#"{"input_tokens":1,"cache_creation_input_tokens":4,"cache_read_input_tokens":3,
            "cache_creation":{"ephemeral_5m_input_tokens":4},"output_tokens":2,"service_tier":"standard"}"#;
        for json in [camel, snake, claude] {
            let expected = Usage { input: 1, output: 2, cache_read: 3, cache_write: 4 };
            assert_eq!(read(json).usage, Some(expected), "{json}");
        }
        assert_eq!(read("{\"input_tokens\":null}").usage, None);
        assert_eq!(read("{\"duration_ms\":\"12\"}").duration_ms, Some(12));
    }

    fn read(json: &str) -> Stats {
        serde_json::from_str(json).unwrap()
    }
}
