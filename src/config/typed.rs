//! Reads documented structs from the parsed YAML by serde. The first problem of a pass ends the pass: it is reported, its
//! value is taken out, and the rest is read again, so that all problems come at once.
//!
//! The deserializer works on the tree itself, because a message needs what `serde` does not carry: the line, the text as it
//! was written, and whether it had quotes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::Deref;

use ghost_domain::text::{clip, nearest};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer as _, Unexpected, Visitor};

use crate::problem::Hint;
use crate::reader::{ENTRIES_MAX, Field, is_free};
use crate::report::did_you_mean;
use crate::yaml::{Key, Node, Value};

/// The largest number of problems that one read reports.
const PROBLEMS_MAX: usize = 100;

/// What messages say of a map with fixed keys, beyond what its type says.
pub struct Hints {
    /// The name of the struct.
    pub of: &'static str,
    /// A valid example of the whole map; empty if there is none.
    pub such_as: &'static str,
    /// The required keys, each with an example. Where the field is an `Option`, the rest of a map without it is used
    /// all the same.
    pub need: &'static [(&'static str, &'static str)],
    /// Keys that people write here by mistake, with the hint for each.
    pub misplaced: &'static [&'static [(&'static str, &'static str)]],
    /// A hint for an unknown key that resembles no known one.
    pub otherwise: Option<fn(&str) -> Option<String>>,
}

impl Hints {
    /// A map that needs no hints.
    pub const NONE: Self = Self { of: "", such_as: "", need: &[], misplaced: &[], otherwise: None };
}

/// A value that remembers where it was written. [`Read::at`] gives the place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    span: u32,
}

impl<T> Deref for Spanned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A value with the places of all [`Spanned`] values in it.
pub struct Read<'n, T> {
    /// The value.
    pub value: T,
    spans: Vec<Field<'n>>,
}

impl<'n, T> Read<'n, T> {
    /// Where a value was written. A value that was not read here has the place of the whole.
    pub fn at<S>(&self, spanned: &Spanned<S>) -> &Field<'n> {
        self.spans.get(spanned.span as usize).unwrap_or(&self.spans[0])
    }
}

impl<T> Deref for Read<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Reads a value and reports every problem in it. `None` if nothing could be read.
pub fn read<'n, T: Deserialize<'n>>(field: &Field<'n>, hints: &'static [Hints]) -> Option<Read<'n, T>> {
    let pass = Pass { hints, removed: RefCell::default(), spans: RefCell::default(), missing: RefCell::default() };
    for _ in 0..PROBLEMS_MAX {
        // The first place is that of the whole value.
        pass.spans.replace(vec![field.clone()]);
        let wrong = match T::deserialize(De { field: field.clone(), pass: &pass }) {
            Ok(value) => return Some(Read { value, spans: pass.spans.take() }),
            Err(Error(wrong)) => *wrong,
        };
        let at = wrong.at.as_ref().unwrap_or(field);
        for (place, message, hint) in wrong.problems {
            place.as_ref().unwrap_or(at).error(message, hint);
        }
        if !pass.removed.borrow_mut().insert(std::ptr::from_ref(at.node())) || std::ptr::eq(at.node(), field.node()) {
            return None;
        }
    }
    field.error(format!("more than {PROBLEMS_MAX} problems were found here"), "correct those above first");
    None
}

/// Reads one value without hints.
pub fn read_as<'n, T: Deserialize<'n>>(field: &Field<'n>) -> Option<T> {
    read(field, &[]).map(|read| read.value)
}

/// What one read keeps between its passes.
struct Pass<'n> {
    hints: &'static [Hints],
    /// Values with a problem that was reported.
    removed: RefCell<BTreeSet<*const Node>>,
    spans: RefCell<Vec<Field<'n>>>,
    /// Keys that are missing and were reported, by the map that lacks them.
    missing: RefCell<BTreeSet<(*const Node, &'static str)>>,
}

impl Pass<'_> {
    fn hints(&self, name: &str) -> &'static Hints {
        self.hints.iter().find(|hints| hints.of == name).unwrap_or(&Hints::NONE)
    }

    fn is_removed(&self, node: &Node) -> bool {
        self.removed.borrow().contains(&std::ptr::from_ref(node))
    }
}

/// The problems that end a pass.
#[derive(Debug)]
pub struct Error<'n>(Box<Stop<'n>>);

#[derive(Debug, Default)]
struct Stop<'n> {
    /// The value that is taken out. `None` until a level of the tree claims the error.
    at: Option<Field<'n>>,
    /// What is reported, at its own place or else at `at`. Empty for a value whose problem was reported before.
    problems: Vec<(Option<Field<'n>>, String, Hint)>,
    unknown: Option<&'static [&'static str]>,
}

impl<'n> Error<'n> {
    fn new(message: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self(Box::new(Stop { problems: vec![(None, message.into(), hint.into())], ..Stop::default() }))
    }

    /// An error that was reported before.
    fn silent(at: &Field<'n>) -> Self {
        Self(Box::new(Stop { at: Some(at.clone()), ..Stop::default() }))
    }

    fn at(mut self, field: &Field<'n>) -> Self {
        self.0.at.get_or_insert_with(|| field.clone());
        self
    }
}

/// Separates the message from the hint of a [`problem`].
const SEPARATOR: char = '\u{1f}';

/// An error of a type, with the remedy.
pub fn problem<E: de::Error>(message: impl Display, hint: impl Display) -> E {
    E::custom(format_args!("{message}{SEPARATOR}{hint}"))
}

/// An error with the remedy, for a `TryFrom` that `serde` reports.
pub fn told(message: impl Display, hint: impl Display) -> String {
    format!("{message}{SEPARATOR}{hint}")
}

/// What is wrong with a text, and what to write instead.
pub type Wrong = (String, String);

/// A text that is one of `choices`.
pub fn choice(text: &str, choices: &[&str]) -> Result<String, Wrong> {
    if choices.contains(&text) {
        return Ok(text.to_owned());
    }
    let all = choices.join(", ");
    let hint = match nearest(text, choices.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? It may be: {all}"),
        None => format!("it may be: {all}"),
    };
    Err((format!("`{}` is not a value for this", clip(text, 80)), hint))
}

impl Display for Error<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.problems.iter().try_for_each(|(_, message, hint)| write!(f, "{message}: {hint}; "))
    }
}

impl std::error::Error for Error<'_> {}

impl de::Error for Error<'_> {
    fn custom<T: Display>(message: T) -> Self {
        let text = message.to_string();
        let (message, hint) = text.split_once(SEPARATOR).unwrap_or((&text, "see docs/configuration.md"));
        Self::new(message, hint)
    }

    fn missing_field(_: &'static str) -> Self {
        // `Hints::need` reports what is missing. What was taken out was reported, too.
        Self(Box::default())
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self(Box::new(Stop { unknown: Some(expected), ..Stop::default() }))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        match choice(variant, expected) {
            Err((message, hint)) => Self::new(message, hint),
            Ok(word) => Self::new(format!("`{word}` is not a value for this"), "see docs/configuration.md"),
        }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(format!("it is not {expected}"), "see docs/configuration.md")
    }
}

/// Deserializes one value of the tree.
#[derive(Clone)]
struct De<'p, 'n> {
    field: Field<'n>,
    pass: &'p Pass<'n>,
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
        let number = self.plain("a whole number", &wanted, crate::scalars::whole)?;
        visitor.visit_u64(number).map_err(|error: Error<'n>| error.at(&self.field))
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
                let read = match crate::json::of(self.field.node()) {
                    serde_json::Value::Bool(flag) => visitor.visit_bool(flag),
                    serde_json::Value::String(text) => visitor.visit_string(text),
                    serde_json::Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                        (Some(number), ..) => visitor.visit_u64(number),
                        (_, Some(number), _) => visitor.visit_i64(number),
                        (_, _, number) => visitor.visit_f64(number.unwrap_or_default()),
                    },
                    _ => visitor.visit_unit(),
                };
                read.map_err(|error: Error<'n>| error.at(&self.field))
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
        visitor.visit_f64(number).map_err(|error: Error<'n>| error.at(&self.field))
    }

    fn deserialize_str<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error<'n>> {
        let text = self.text(remedy(&visitor))?;
        visitor.visit_borrowed_str(text).map_err(|error: Error<'n>| error.at(&self.field))
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
            _ => visitor.visit_newtype_struct(self),
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
        visitor.visit_enum(StrDeserializer::new(text)).map_err(|error: Error<'n>| error.at(&self.field))
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
        let next = self.pairs.find(|(key, node)| !pass.is_removed(node) && !(fixed && is_free(&key.text)));
        let Some((key, node)) = next else { return Ok(None) };
        let child = field.child(key, node);
        self.value = Some(child.clone());
        let found = seed.deserialize(key.text.as_str().into_deserializer()).map_err(|mut error: Error<'n>| {
            if let Some(known) = error.0.unknown.take() {
                let hint = unknown_key(&key.text, known, self.hints.unwrap_or(&Hints::NONE));
                let message = format!("there is no key `{}` here", clip(&key.text, 60));
                error.0.problems.push((None, message, hint));
            }
            error.at(&child)
        })?;
        Ok(Some(found))
    }

    fn next_value_seed<V: DeserializeSeed<'n>>(&mut self, seed: V) -> Result<V::Value, Error<'n>> {
        let field = self.value.take().unwrap_or_else(|| self.of.field.clone());
        seed.deserialize(De { field: field.clone(), pass: self.of.pass }).map_err(|error| error.at(&field))
    }
}

/// The hint for a key that a map does not have.
fn unknown_key(key: &str, known: &'static [&'static str], hints: &Hints) -> Hint {
    if let Some((_, hint)) = hints.misplaced.iter().copied().flatten().find(|(name, _)| *name == key) {
        return (*hint).into();
    }
    let otherwise = hints.otherwise.filter(|_| nearest(key, known.iter().copied()).is_none());
    match otherwise.and_then(|otherwise| otherwise(key)) {
        Some(hint) => hint.into(),
        None => {
            did_you_mean(key, known.iter().copied(), "take it out, or begin it with `x-` if it is a note of your own")
        }
    }
}

const SPANNED: &str = "$spanned";
/// The name of a newtype whose text must not come from a variable.
pub const AS_WRITTEN: &str = "$as_written";

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

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Both<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Both<T> {
            type Value = Spanned<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a configuration file")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Spanned<T>, A::Error> {
                match (seq.next_element()?, seq.next_element()?) {
                    (Some(span), Some(value)) => Ok(Spanned { span, value }),
                    _ => Err(de::Error::invalid_length(0, &self)),
                }
            }
        }
        deserializer.deserialize_newtype_struct(SPANNED, Both(PhantomData))
    }
}
