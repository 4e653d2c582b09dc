//! The kinds of values in configuration files, as types: each knows its range, what to write instead of a wrong value, and
//! its JSON Schema. The deserializer adds the place.

use std::borrow::{Borrow, Cow};
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::{Deref, RangeInclusive};
use std::str::FromStr;
use std::time::Duration;

use ghost_domain::schedule::slots::time_zone;
use ghost_domain::text::clip;
use ghost_domain::{AgentId, Code, Money, Refusal};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, Visitor};

use crate::reader::{Field, is_name};
pub use crate::typed::choice;
use crate::typed::{AS_WRITTEN, Spanned, Wrong, problem, read_as, read_seed};

/// The longest free text in a file, in bytes.
pub const TEXT_MAX: usize = 8 * 1024;

/// The JSON Schema of a type. It stands where the type is used.
macro_rules! schema {
    ($(@[$($generics:tt)*])? $kind:ty, $generator:pat => $schema:expr) => {
        impl $(<$($generics)*>)? ::schemars::JsonSchema for $kind {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($kind).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema($generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $schema
            }
        }
    };
}

/// What every kind is: a type around the value, with a JSON Schema of its own.
macro_rules! kind {
    ($(@[$($generics:tt)*])? $kind:ty => $value:ty, $schema:expr) => {
        impl $(<$($generics)*>)? ::std::ops::Deref for $kind {
            type Target = $value;

            fn deref(&self) -> &$value {
                &self.0
            }
        }

        $crate::kinds::schema!($(@[$($generics)*])? $kind, _ => $schema);
    };
}

/// A kind of text: its name, the type that it is read as, the most bytes, its title, how it is read, and a pattern.
macro_rules! text_kind {
    ($(#[$doc:meta])* $vis:vis $kind:ident($value:ty), $max:expr, $title:literal, $read:expr $(, $pattern:literal)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis struct $kind(pub $value);

        $crate::kinds::kind!($kind => $value, ::schemars::json_schema!({
            "title": $title, "type": "string" $(, "pattern": $pattern)?
        }));

        impl<'de> ::serde::Deserialize<'de> for $kind {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::kinds::text::<D, $value, { $max }>(deserializer, $read).map(Self)
            }
        }
    };
}
pub(crate) use {kind, schema, text_kind};

/// Reads a text and converts it. The first part is the remedy for a value that is no text.
struct Texts<F, T>(&'static str, F, PhantomData<T>);

impl<T, F: FnOnce(&str) -> Result<T, Wrong>> Visitor<'_> for Texts<F, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).map_err(|(message, hint)| problem(message, hint))
    }
}

/// Reads a text that is not blank, of at most `MAX` bytes, by `read`.
pub fn text<'de, D: Deserializer<'de>, T, const MAX: usize>(
    deserializer: D,
    read: impl FnOnce(&str) -> Result<T, Wrong>,
) -> Result<T, D::Error> {
    let bounded = |text: &str| match text {
        _ if text.trim().is_empty() => Err(("it is empty".into(), "write a text here, or remove it".into())),
        _ if text.len() > MAX => {
            Err((format!("the text has {} bytes; at most {MAX} are allowed", text.len()), "shorten it".into()))
        }
        _ => read(text),
    };
    deserializer.deserialize_str(Texts("a text", bounded, PhantomData))
}

/// What a refusal of the domain says of a text.
pub fn refused(refusal: Refusal, otherwise: &str) -> Wrong {
    (refusal.message, refusal.hint.unwrap_or_else(|| otherwise.to_owned()))
}

/// A text that is not blank, of at most `MAX` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<const MAX: usize>(pub String);

kind!(@[const MAX: usize] Text<MAX> => String, json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX }));

impl<'de, const MAX: usize> Deserialize<'de> for Text<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::<D, String, MAX>(deserializer, |text| Ok(text.to_owned())).map(Self)
    }
}

/// A text of at most `MAX` bytes. In quotes it may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Free<const MAX: usize>(pub String);

kind!(@[const MAX: usize] Free<MAX> => String, json_schema!({ "type": "string", "maxLength": MAX }));

impl<'de, const MAX: usize> Deserialize<'de> for Free<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |text: &str| match text.len() > MAX {
            true => Err((format!("the text has {} bytes; at most {MAX} are allowed", text.len()), "shorten it".into())),
            false => Ok(Self(text.to_owned())),
        };
        deserializer.deserialize_str(Texts("a text", read, PhantomData))
    }
}

text_kind! {
    /// A name: 1 to 64 letters, digits, `.`, `_` and `-`, starting with a letter or a digit.
    #[derive(PartialOrd, Ord)]
    pub Name(String), 1_024, "name", |name| {
        let hint = "use 1 to 64 letters, digits, `.`, `_` and `-`, starting with a letter or a digit";
        match is_name(name) {
            true => Ok(name.to_owned()),
            false => Err((format!("`{}` is not a name", clip(name, 80)), hint.into())),
        }
    }, "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

text_kind! {
    /// The address of a server: `http://` or `https://`, a host, and perhaps a path.
    pub Url(String), 2_000, "URL", |url| {
        let hint = "write it as https://HOST/PATH or http://HOST:PORT/PATH";
        check_base_url(url).map_err(|_| ("this is not the address of a server".to_owned(), hint.to_owned()))?;
        Ok(url.to_owned())
    }, "^https?://."
}

/// Checks that `url` is a valid address of a provider.
///
/// # Errors
/// `InvalidArguments` unless it is `http://` or `https://` with a host, without white space, of at most 2,000 bytes.
pub fn check_base_url(url: &str) -> Result<(), Refusal> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let valid = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && url.len() <= 2_000
        && !url.chars().any(|c| c.is_whitespace() || c.is_control());
    if valid {
        Ok(())
    } else {
        Err(Refusal::new(Code::InvalidArguments, "the base URL is not an address of a server")
            .hint("write it as http://HOST:PORT/PATH or https://HOST/PATH"))
    }
}

text_kind! {
    /// The name of a time zone.
    pub Zone(String), 64, "time zone", |zone| {
        time_zone(zone).map_err(|refusal| refused(refusal, "write the name of a zone, such as Europe/Berlin"))?;
        Ok(zone.to_owned())
    }
}

text_kind! {
    /// The id of a new agent.
    pub NewId(AgentId), 1_024, "lower-case name", |text| {
        let id: AgentId = text.parse().map_err(|refusal| refused(refusal, "write an agent id"))?;
        id.check_new().map_err(|refusal| refused(refusal, "choose another id"))?;
        Ok(id)
    }, "^[a-z0-9][a-z0-9._-]{0,63}$"
}

/// The name of an environment variable. A name that comes from a variable may be the secret itself, so it is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable(pub String);

kind!(Variable => String, json_schema!({ "title": "variable", "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,127}$" }));

impl<'de> Deserialize<'de> for Variable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = Variable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("write the variable's name, such as OPENAI_API_KEY")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Variable, D::Error> {
                text::<D, Variable, 1_024>(deserializer, |name| {
                    // The text may be the secret itself, so it is not shown.
                    let hint = "write the variable's name, such as OPENAI_API_KEY; never the value itself";
                    let wrong = || ("this is not the name of an environment variable".to_owned(), hint.to_owned());
                    is_variable(name).then(|| Variable(name.to_owned())).ok_or_else(wrong)
                })
            }
        }
        deserializer.deserialize_newtype_struct(AS_WRITTEN, Written)
    }
}

fn is_variable(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.as_bytes()[0].is_ascii_digit()
}

/// A type that parses itself from text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parsed<T>(pub T);

kind!(@[T] Parsed<T> => T, json_schema!({ "title": "lower-case name", "type": "string" }));

impl<'de, T: FromStr<Err = Refusal>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| text.parse().map_err(|refusal| refused(refusal, "see docs/configuration.md"));
        text::<D, T, 2_048>(deserializer, parse).map(Self)
    }
}

/// Checks that a number lies within its range.
fn within<T: PartialOrd + Display, E: de::Error>(number: T, min: T, max: T) -> Result<T, E> {
    let hint = match () {
        () if number < min => format!("write at least {min}"),
        () if number > max => format!("write at most {max}"),
        () => return Ok(number),
    };
    Err(problem(format_args!("{number} is not within {min} to {max}"), hint))
}

/// Reads a whole number of a range, with both its ends. Underscores between digits are allowed.
#[derive(Clone, Copy)]
pub struct Range(pub u64, pub u64);

impl Visitor<'_> for Range {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write a whole number from {} to {}", self.0, self.1)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        within(number, self.0, self.1)
    }
}

impl<'de> DeserializeSeed<'de> for Range {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_u64(self)
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const MIN: u64, const MAX: u64>(pub u64);

kind!(@[const MIN: u64, const MAX: u64] Count<MIN, MAX> => u64, json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX }));

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Range(MIN, MAX).deserialize(deserializer).map(Self)
    }
}

impl<const MIN: u64, const MAX: u64> Count<MIN, MAX> {
    /// The number in 32 bits. A larger one becomes the largest of them.
    pub fn u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    /// The number as a size. A larger one becomes the largest size.
    pub fn usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// The units of durations beside `ms`, with the seconds of each.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Parses `250ms`, `30s`, `5m`, `2h`, `7d`, or a whole number of seconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().ok()?;
    if unit == "ms" {
        return Some(Duration::from_millis(number));
    }
    let (_, each) = UNITS.iter().find(|(name, _)| *name == if unit.is_empty() { "s" } else { unit })?;
    number.checked_mul(*each).map(Duration::from_secs)
}

/// A duration as it is written, in the largest unit that fits.
pub fn duration(time: Duration) -> String {
    let unit = UNITS.iter().find(|(_, each)| time.subsec_nanos() == 0 && time.as_secs().is_multiple_of(*each));
    unit.map_or_else(|| format!("{}ms", time.as_millis()), |(name, each)| format!("{}{name}", time.as_secs() / each))
}

/// A duration from `MIN` to `MAX` milliseconds: `250ms`, `30s`, `5m`, `2h`, `7d`, or a whole number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time<const MIN: u64, const MAX: u64>(pub Duration);

/// What a duration is.
const DURATIONS: &str = "write 250ms, 30s, 5m, 2h or 7d, or a whole number of seconds";

kind!(@[const MIN: u64, const MAX: u64] Time<MIN, MAX> => Duration, json_schema!({
    "title": format!("duration, {} to {}", duration(Duration::from_millis(MIN)), duration(Duration::from_millis(MAX))),
    "anyOf": [{ "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)?$" }, { "type": "integer", "minimum": MIN.div_ceil(1_000), "maximum": MAX / 1_000 }]
}));

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Time<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |text: &str| {
            let (min, max) = (Duration::from_millis(MIN), Duration::from_millis(MAX));
            let wrong = || (format!("`{}` is not a duration", clip(text, 80)), DURATIONS.to_owned());
            let time = parse_duration(text.trim()).ok_or_else(wrong)?;
            let hint = match () {
                () if time < min => format!("write at least {min:?}"),
                () if time > max => format!("write at most {max:?}"),
                () => return Ok(Self(time)),
            };
            Err((format!("{time:?} is not within {min:?} to {max:?}"), hint))
        };
        deserializer.deserialize_str(Texts(DURATIONS, read, PhantomData))
    }
}

/// A number from `MIN` to `MAX` thousandths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thousandths<const MIN: u32, const MAX: u32>(pub f64);

/// Reads a number of a range, with both its ends. The last part says what to write.
struct Numbers(f64, f64, &'static str);

impl Visitor<'_> for Numbers {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.2 {
            "" => write!(f, "write a number from {} to {}", self.0, self.1),
            wanted => f.write_str(wanted),
        }
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<f64, E> {
        within(number, self.0, self.1)
    }
}

kind!(@[const MIN: u32, const MAX: u32] Thousandths<MIN, MAX> => f64, json_schema!({
    "type": "number", "minimum": f64::from(MIN) / 1_000.0, "maximum": f64::from(MAX) / 1_000.0
}));

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Thousandths<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let range = Numbers(f64::from(MIN) / 1_000.0, f64::from(MAX) / 1_000.0, "");
        deserializer.deserialize_f64(range).map(Self)
    }
}

/// An amount of US dollars, up to a thousand million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usd(pub Money);

kind!(Usd => Money, json_schema!({ "title": "money", "type": "number", "minimum": 0, "maximum": 1_000_000_000 }));

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const WANTED: &str = "write US dollars such as 2.50";
        Money::from_usd(deserializer.deserialize_f64(Numbers(0.0, 1e9, WANTED))?)
            .map(Self)
            .map_err(|refusal| problem(refusal.message, refusal.hint.as_deref().unwrap_or(WANTED)))
    }
}

/// A list of at most `MAX` entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtMost<const MAX: usize, T>(pub Vec<T>);

impl<const MAX: usize, T> Default for AtMost<MAX, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<MAX, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::deserialize(deserializer)?;
        match list.len() > MAX {
            true => Err(problem("there are too many", format_args!("name at most {MAX}"))),
            false => Ok(Self(list)),
        }
    }
}

schema!(@[T: JsonSchema, const MAX: usize] AtMost<MAX, T>, generator => json_schema!({
    "type": "array", "maxItems": MAX, "items": generator.subschema_for::<T>()
}));

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Reads a value by its kind, for a field that has the type of the plan.
pub fn by<'de, K: Deserialize<'de> + Deref<Target = T>, T: Clone, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    K::deserialize(deserializer).map(|kind| T::clone(&kind))
}

/// As [`by`], for an optional field.
pub fn maybe<'de, K: Deserialize<'de> + Deref<Target = T>, T: Clone, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    by::<K, T, D>(deserializer).map(Some)
}

/// As [`by`], for the entries of a list.
pub fn each<'de, K: Deserialize<'de> + Deref<Target = T>, T: Clone, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Vec::<K>::deserialize(deserializer)?.iter().map(|kind| T::clone(kind)).collect())
}

/// As [`by`], for a number that fits into `T`.
pub fn number<'de, const MIN: u64, const MAX: u64, T: TryFrom<u64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let number = Range(MIN, MAX).deserialize(deserializer)?;
    T::try_from(number).map_err(|_| problem(format_args!("{number} is too large"), format_args!("write at most {MAX}")))
}

/// As [`by`], for a list of at most `MAX` entries.
pub fn at_most<'de, const MAX: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    AtMost::<MAX, T>::deserialize(deserializer).map(|list| list.0)
}

impl Field<'_> {
    /// Reads a boolean: `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        read_as(self)
    }

    /// Reads a whole number within `range`. Underscores between digits are allowed.
    pub fn count(&self, range: RangeInclusive<u64>) -> Option<u64> {
        read_seed(self, Range(*range.start(), *range.end()))
    }

    /// Like [`count`](Self::count), for 32 bits.
    pub fn count32(&self, range: RangeInclusive<u32>) -> Option<u32> {
        self.count(u64::from(*range.start())..=u64::from(*range.end())).and_then(|number| u32::try_from(number).ok())
    }
}

#[cfg(test)]
#[path = "kinds_tests.rs"]
mod tests;
