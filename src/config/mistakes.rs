//! What is wrong with a value of a configuration file: how a type says it, and what messages add to it.

use std::fmt::{self, Display};

use ghost_domain::text::{clip, nearest, one_line};
use serde::de::{self, Unexpected};

use crate::problem::Hint;
use crate::reader::Field;
use crate::report::did_you_mean;
use crate::yaml::Node;

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
/// The problems that end a pass.
#[derive(Debug)]
pub struct Error<'n>(Box<Stop<'n>>);

#[derive(Debug, Default)]
struct Stop<'n> {
    /// The value that is taken out. `None` until a level of the tree claims the error.
    at: Option<Field<'n>>,
    /// What is reported. `None` for a value whose problem was reported before.
    problem: Option<(String, Hint)>,
    unknown: Option<&'static [&'static str]>,
}

impl<'n> Error<'n> {
    pub fn new(message: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self(Box::new(Stop { problem: Some((message.into(), hint.into())), ..Stop::default() }))
    }

    /// An error that was reported before.
    pub fn silent(at: &Field<'n>) -> Self {
        Self(Box::new(Stop { at: Some(at.clone()), ..Stop::default() }))
    }

    /// Reports it in the whole value `root`. Returns the value that is taken out.
    pub fn report(self, root: &Field<'n>) -> *const Node {
        let at = self.0.at.as_ref().unwrap_or(root);
        if let Some((message, hint)) = self.0.problem {
            at.error(message, hint);
        }
        std::ptr::from_ref(at.node())
    }

    /// The error of a key, with what to say if there is no such key.
    pub fn of_key(mut self, key: &str, hints: &Hints) -> Self {
        if let Some(known) = self.0.unknown.take() {
            let message = format!("there is no key `{}` here", clip(key, 60));
            self.0.problem = Some((message, unknown_key(key, known, hints)));
        }
        self
    }

    /// The error at `field`, unless it has a place already.
    pub fn at(mut self, field: &Field<'n>) -> Self {
        if self.0.at.is_none() {
            if let Some((message, _)) = &mut self.0.problem {
                *message = one_line(message);
            }
            self.0.at = Some(field.clone());
        }
        self
    }

    /// The error of a type that was given the text of `field`. What came from a variable may be a secret, of which a message
    /// could hold a part, so the message names the variable instead.
    pub fn of_text(mut self, field: &Field<'n>) -> Self {
        if let Some((message, _)) = &mut self.0.problem
            && self.0.at.is_none()
            && field.node().text().is_some_and(|text| text != field.written())
        {
            *message = format!("`{}` is not a value for this", field.shown());
        }
        self.at(field)
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
        self.0.problem.iter().try_for_each(|(message, hint)| write!(f, "{message}: {hint}"))
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

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let expected = expected.to_string();
        match expected.starts_with("write ") {
            true => Self::new(format!("{found} does not belong here"), expected),
            false => Self::new(format!("it is not {expected}"), "see docs/configuration.md"),
        }
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
