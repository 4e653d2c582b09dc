//! Reads documented structs from the parsed YAML by serde. The first problem of a pass ends the pass: it is reported, its
//! value is taken out, and the rest is read again, so that all problems come at once.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, Visitor};

pub use crate::deserializer::AS_WRITTEN;
use crate::deserializer::{De, Pass, SPANNED};
pub use crate::mistakes::{Hints, Wrong, choice, problem, told};
use crate::reader::Field;

/// The largest number of problems that one read reports.
const PROBLEMS_MAX: usize = 100;
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
    let pass = Pass::new(hints);
    for _ in 0..PROBLEMS_MAX {
        // The first place is that of the whole value.
        pass.spans.replace(vec![field.clone()]);
        let removed = match T::deserialize(De { field: field.clone(), pass: &pass }) {
            Ok(value) => return Some(Read { value, spans: pass.spans.take() }),
            Err(error) => error.report(field),
        };
        if !pass.removed.borrow_mut().insert(removed) || std::ptr::eq(removed, field.node()) {
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

/// Reads one value by a seed, which is used once: a wrong value leaves none.
pub fn read_seed<'n, S: DeserializeSeed<'n>>(field: &Field<'n>, seed: S) -> Option<S::Value> {
    let pass = Pass::new(&[]);
    let found = seed.deserialize(De { field: field.clone(), pass: &pass });
    found.map_err(|error| error.report(field)).ok()
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
