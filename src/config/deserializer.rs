//! Deserializes a value of the parsed tree. It works on the tree itself, because a message needs what `serde` does not carry:
//! the line, the text as it was written, and whether it had quotes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer as _, Visitor};

use crate::mistakes::{Error, Hints};
use crate::problem::Hint;
use crate::reader::{ENTRIES_MAX, Field, is_free};
use crate::yaml::{Key, Node, Value};

/// The beginning of the name of a newtype that is a text, a map with the hints of the rest of the name, or a list.
pub const TEXT_OR: &str = "$text_or ";
/// The name of a newtype that remembers its place.
pub const SPANNED: &str = "$spanned";
/// The name of a newtype whose text must not come from a variable.
pub const AS_WRITTEN: &str = "$as_written";
/// What one read keeps between its passes.
pub struct Pass<'n> {
    hints: &'static [Hints],
    /// Values with a problem that was reported.
    pub removed: RefCell<BTreeSet<*const Node>>,
    pub spans: RefCell<Vec<Field<'n>>>,
    /// Keys that are missing and were reported, by the map that lacks them.
    missing: RefCell<BTreeSet<(*const Node, &'static str)>>,
}

impl Pass<'_> {
    /// The beginning of a read.
    pub fn new(hints: &'static [Hints]) -> Self {
        Self { hints, removed: RefCell::default(), spans: RefCell::default(), missing: RefCell::default() }
    }

    fn hints(&self, name: &str) -> &'static Hints {
        self.hints.iter().find(|hints| hints.of == name).unwrap_or(&Hints::NONE)
    }

    fn is_removed(&self, node: &Node) -> bool {
        self.removed.borrow().contains(&std::ptr::from_ref(node))
    }
}
/// Deserializes one value of the tree.
#[derive(Clone)]
pub struct De<'p, 'n> {
    pub field: Field<'n>,
    pub pass: &'p Pass<'n>,
}

/// The remedy that a visitor states, if it states one.
fn remedy<'n>(visitor: &impl Visitor<'n>) -> Option<String> {
    struct Expected<'v, V>(&'v V);
    impl<'n, V: Visitor<'n>> Display for Expected<'_, V> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.expecting(f)
        }
    }
    // The visitors of `serde` and of the standard library name types instead.
    Some(Expected(visitor).to_string()).filter(|text| text.starts_with("write ") || text.starts_with("it may be"))
}

impl<'p, 'n> De<'p, 'n> {
    fn error<T>(&self, message: impl Into<String>, hint: impl Into<Hint>) -> Result<T, Error<'n>> {
        Err(Error::new(message, hint).at(&self.field))
    }

    /// The error of a value of another kind than `what`.
    fn wanted<T>(&self, what: &str, hint: impl Into<Hint>) -> Result<T, Error<'n>> {
        let found = match self.field.is_single() {
            true => format!("`{}`", self.field.shown()),
            false => self.field.node().kind().to_owned(),
        };
        self.error(format!("{found} is not {what}"), hint)
    }

    /// The text of a single value.
    fn text(&self, hint: Option<String>) -> Result<&'n str, Error<'n>> {
        match &self.field.node().value {
            _ if self.field.is_unset() => Err(Error::silent(&self.field)),
            Value::Scalar { text, .. } if !self.field.is_null() => Ok(text),
            Value::Scalar { .. } => {
                self.error("it is empty", hint.unwrap_or_else(|| "write a text here, or remove it".to_owned()))
            }
            _ => self.wanted("text", hint.unwrap_or_else(|| "write one text, on the line of its key".to_owned())),
        }
    }

    /// A value without quotes, as `parse` reads it. `what` is the kind of the value.
    fn plain<T>(&self, what: &str, wanted: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Error<'n>> {
        if self.field.is_unset() {
            return Err(Error::silent(&self.field));
        }
        let (text, plain) = match &self.field.node().value {
            Value::Scalar { text, plain, .. } if !self.field.is_null() => (text.trim(), *plain),
            _ => return self.wanted(what, format!("{wanted}, or omit the key")),
        };
        match parse(text) {
            Some(value) if plain => Ok(value),
            Some(_) => self.wanted(what, "write it without quotes"),
            None if plain => self.wanted(what, wanted),
            None => self.wanted(what, format!("{wanted}, without quotes")),
        }
    }

    fn number<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        let wanted = remedy(&visitor).unwrap_or_else(|| "write a whole number".to_owned());
        let number = self.plain("a whole number", &wanted, whole)?;
        visitor.visit_u64(number).map_err(|error: Error<'n>| error.of_text(&self.field))
    }

    fn pairs(&self, such_as: &str) -> Result<&'n [(Key, Node)], Error<'n>> {
        match &self.field.node().value {
            Value::Map(pairs) => Ok(pairs),
            _ if self.field.is_null() => Ok(&[]),
            _ if self.field.is_unset() => Err(Error::silent(&self.field)),
            _ if such_as.is_empty() => {
                self.wanted("a map", "write `key: value` on indented lines below it, or { key: value }")
            }
            _ => self.wanted("a map", format!("for example {such_as}")),
        }
    }

    /// A single value as its text, a map with the hints of `name`, or a list.
    fn text_or<V: Visitor<'n>>(self, name: &str, visitor: V) -> Result<V::Value, Error<'n>> {
        match &self.field.node().value {
            Value::Map(pairs) => {
                let pairs = Pairs { of: &self, hints: Some(self.pass.hints(name)), pairs: pairs.iter(), value: None };
                visitor.visit_map(pairs).map_err(|error| error.at(&self.field))
            }
            Value::List(_) => self.deserialize_seq(visitor),
            _ if self.field.is_null() => visitor.visit_unit().map_err(|error: Error<'n>| error.at(&self.field)),
            _ => self.deserialize_str(visitor),
        }
    }

    /// Reports a key that is missing, once.
    fn needs(&self, key: &'static str, example: &str) {
        let node = self.field.node();
        if node.get(key).is_none() && self.pass.missing.borrow_mut().insert((node, key)) {
            self.field.error(format!("`{key}` is missing"), format!("for example `{key}: {example}`"));
        }
    }
}

impl<'n> Deserializer<'n> for De<'_, 'n> {
    type Error = Error<'n>;

    fn deserialize_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        match &self.field.node().value {
            Value::List(_) => self.deserialize_seq(visitor),
            Value::Map(_) => self.deserialize_map(visitor),
            Value::Scalar { .. } if self.field.is_unset() => Err(Error::silent(&self.field)),
            Value::Scalar { .. } => {
                let read = match self.field.node().json() {
                    serde_json::Value::Bool(flag) => visitor.visit_bool(flag),
                    serde_json::Value::String(text) => visitor.visit_string(text),
                    serde_json::Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                        (Some(number), ..) => visitor.visit_u64(number),
                        (_, Some(number), _) => visitor.visit_i64(number),
                        (_, _, number) => visitor.visit_f64(number.unwrap_or_default()),
                    },
                    _ => visitor.visit_unit(),
                };
                read.map_err(|error: Error<'n>| error.of_text(&self.field))
            }
        }
    }

    fn deserialize_bool<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        let flag = |text: &str| text.parse::<bool>().ok();
        visitor.visit_bool(self.plain("a truth value", "write true or false", flag)?)
    }

    fn deserialize_u64<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        self.number(visitor)
    }

    fn deserialize_u32<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        self.number(visitor)
    }

    fn deserialize_f64<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        let read = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let wanted = remedy(&visitor).unwrap_or_else(|| "write a number".to_owned());
        let number = self.plain("a number", &wanted, read)?;
        visitor.visit_f64(number).map_err(|error: Error<'n>| error.of_text(&self.field))
    }

    fn deserialize_str<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        let text = self.text(remedy(&visitor))?;
        visitor.visit_borrowed_str(text).map_err(|error: Error<'n>| error.of_text(&self.field))
    }

    fn deserialize_string<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        // A key without a value is not an absent key: the type of the value says what it means.
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error<'n>> {
        match name {
            SPANNED => {
                let span = {
                    let mut spans = self.pass.spans.borrow_mut();
                    spans.push(self.field.clone());
                    u32::try_from(spans.len() - 1).unwrap_or(0)
                };
                visitor.visit_seq(WithSpan { span: Some(span), value: Some(self) })
            }
            AS_WRITTEN if self.text(None)? != self.field.written() => {
                // The value of the variable may be a secret, so it is not accepted as a name.
                let hint = "write the variable's name alone, without `${}`";
                self.error("this is the value of a variable, not its name", hint)
            }
            _ => match name.strip_prefix(TEXT_OR) {
                Some(name) => self.text_or(name, visitor),
                None => visitor.visit_newtype_struct(self),
            },
        }
    }

    fn deserialize_seq<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        let items = match &self.field.node().value {
            Value::List(items) if items.len() <= ENTRIES_MAX => items.as_slice(),
            Value::List(items) => {
                let message = format!("the list has {} entries; at most {ENTRIES_MAX} are read", items.len());
                return self.error(message, "shorten it");
            }
            _ if self.field.is_null() => &[],
            _ if self.field.is_unset() => return Err(Error::silent(&self.field)),
            _ => {
                let each = "each entry on a line of its own after `- `";
                let hint = match self.field.written() {
                    written if (1..=80).contains(&written.len()) => {
                        format!("write [{}], or {each}", self.field.shown())
                    }
                    _ => format!("write {each}"),
                };
                return self.wanted("a list", remedy(&visitor).unwrap_or(hint));
            }
        };
        let items = Items { of: &self, items: items.iter().enumerate() };
        visitor.visit_seq(items).map_err(|error| error.at(&self.field))
    }

    fn deserialize_map<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        let such_as = remedy(&visitor).unwrap_or_default();
        let pairs = self.pairs(such_as.strip_prefix("write ").unwrap_or_default())?;
        if pairs.len() > ENTRIES_MAX {
            let message = format!("the map has {} entries; at most {ENTRIES_MAX} are read", pairs.len());
            return self.error(message, "remove some");
        }
        let pairs = Pairs { of: &self, hints: None, pairs: pairs.iter(), value: None };
        visitor.visit_map(pairs).map_err(|error| error.at(&self.field))
    }

    fn deserialize_struct<V: Visitor<'n>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error<'n>> {
        let hints = self.pass.hints(name);
        let pairs = self.pairs(hints.such_as)?;
        // All that are missing are reported at once, and the rest is read as far as the type allows it.
        hints.need.iter().for_each(|(key, example)| self.needs(key, example));
        let pairs = Pairs { of: &self, hints: Some(hints), pairs: pairs.iter(), value: None };
        visitor.visit_map(pairs).map_err(|error| error.at(&self.field))
    }

    fn deserialize_enum<V: Visitor<'n>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error<'n>> {
        if self.field.is_unset() {
            return Err(Error::silent(&self.field));
        }
        if !self.field.is_single() {
            return self.wanted("a value for this", format!("it may be: {}", variants.join(", ")));
        }
        let text = self.text(None)?;
        visitor.visit_enum(StrDeserializer::new(text)).map_err(|error: Error<'n>| error.of_text(&self.field))
    }

    fn deserialize_ignored_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        <W: Visitor<'n>>
        i8 i16 i32 i64 i128 u8 u16 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

/// The entries of a list, without those that were taken out.
struct Items<'a, 'p, 'n> {
    of: &'a De<'p, 'n>,
    items: std::iter::Enumerate<std::slice::Iter<'n, Node>>,
}

impl<'n> de::SeqAccess<'n> for Items<'_, '_, 'n> {
    type Error = Error<'n>;

    fn next_element_seed<T: DeserializeSeed<'n>>(&mut self, seed: T) -> Result<Option<T::Value>, Error<'n>> {
        let De { field, pass } = self.of;
        let next = self.items.find(|(_, node)| !pass.is_removed(node));
        next.map(|(at, node)| {
            let item = field.item(at, node);
            seed.deserialize(De { field: item.clone(), pass }).map_err(|error| error.at(&item))
        })
        .transpose()
    }
}

/// The entries of a map, without those that were taken out.
struct Pairs<'a, 'p, 'n> {
    of: &'a De<'p, 'n>,
    /// The hints of a map with fixed keys.
    hints: Option<&'static Hints>,
    pairs: std::slice::Iter<'n, (Key, Node)>,
    value: Option<Field<'n>>,
}

impl<'n> de::MapAccess<'n> for Pairs<'_, '_, 'n> {
    type Error = Error<'n>;

    fn next_key_seed<K: DeserializeSeed<'n>>(&mut self, seed: K) -> Result<Option<K::Value>, Error<'n>> {
        let De { field, pass } = self.of;
        let fixed = self.hints.is_some();
        let next = self.pairs.find(|(key, node)| !(pass.is_removed(node) || fixed && is_free(&key.text)));
        let Some((key, node)) = next else { return Ok(None) };
        let child = field.child(key, node);
        self.value = Some(child.clone());
        let found = seed.deserialize(key.text.as_str().into_deserializer());
        let hints = self.hints.unwrap_or(&Hints::NONE);
        found.map(Some).map_err(|error: Error<'n>| error.of_key(&key.text, hints).at(&child))
    }

    fn next_value_seed<V: DeserializeSeed<'n>>(&mut self, seed: V) -> Result<V::Value, Error<'n>> {
        let field = self.value.take().unwrap_or_else(|| self.of.field.clone());
        seed.deserialize(De { field: field.clone(), pass: self.of.pass }).map_err(|error| error.at(&field))
    }
}
/// Parses a whole number in decimal digits. Underscores between them are allowed.
pub(crate) fn whole(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let edges = text.bytes().next().is_some_and(|b| b.is_ascii_digit()) && !text.ends_with('_');
    (digits && edges).then(|| text.replace('_', "")).and_then(|text| text.parse().ok())
}
/// A span and its value, as a sequence of two.
struct WithSpan<'p, 'n> {
    span: Option<u32>,
    value: Option<De<'p, 'n>>,
}

impl<'n> de::SeqAccess<'n> for WithSpan<'_, 'n> {
    type Error = Error<'n>;

    fn next_element_seed<T: DeserializeSeed<'n>>(&mut self, seed: T) -> Result<Option<T::Value>, Error<'n>> {
        match (self.span.take(), self.value.take()) {
            (Some(span), value) => {
                self.value = value;
                seed.deserialize(span.into_deserializer()).map(Some)
            }
            (None, Some(value)) => seed.deserialize(value).map(Some),
            (None, None) => Ok(None),
        }
    }
}
