//! What working out one answer may cost, all of its rules and templates together: everything that builds something, or looks
//! at something, pays for it here first. This is also the one place where working out an answer is given up.
//!
//! Must never: let a value be built whose size was not paid for, or one that contains itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ghost_domain::text::{clip, one_line};
use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::pattern::Pattern;

/// What one answer may spend: about the bytes that it builds and looks at.
pub(super) const UNITS: u64 = 64 << 20;
/// What it may spend on the daemon's own threads, before it is worked out anew aside: what takes milliseconds at most.
pub(super) const UNITS_AT_ONCE: u64 = 1 << 20;
/// What a value costs besides its text.
pub(super) const VALUE: u64 = 32;
/// What a byte costs that a comparison or a copy looks at.
pub(super) const BYTE: u64 = 1;
/// What a byte costs in which a common regular expression is looked for.
const SEARCHED: u64 = 1;
/// Of how many bytes behind a match one counts as looked at for it, where looking may go further than to its end.
const FURTHER: usize = 4;
/// How deep values may lie in one another.
const DEPTH_MAX: usize = 200;
/// The name by which guards find the budget. No name of a rule file can be this.
pub(super) const NAME: &str = "BUDGET";

/// What each value costs of all that are in one another, and each byte of their texts.
#[derive(Clone, Copy)]
pub(super) struct Each {
    value: u64,
    byte: u64,
}

impl Each {
    /// Of what is there already, and is kept.
    pub(super) const KEPT: Self = Self { value: VALUE / 4, byte: 0 };
    /// Of what is there already, and may be compared.
    pub(super) const COMPARED: Self = Self { value: VALUE / 4, byte: BYTE };
    /// Of what is built.
    pub(super) const BUILT: Self = Self { value: VALUE, byte: BYTE };
    /// Of what a filter works on. Besides, it may give a value for each byte.
    pub(super) const WORKED: Self = Self { value: VALUE, byte: 8 };
}

/// The budget of one answer.
#[derive(Debug)]
pub(super) struct Budget {
    left: AtomicU64,
    most: u64,
    /// Whether nobody waits for the answer any more.
    given_up: Arc<AtomicBool>,
    /// The regular expressions that filters were given.
    patterns: Mutex<BTreeMap<String, Arc<Pattern>>>,
}

impl Object for Budget {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

impl Budget {
    /// A whole one, which is of no use any more once `given_up` is set.
    pub(super) fn whole(given_up: &Arc<AtomicBool>) -> Arc<Self> {
        Self::of_units(UNITS, given_up)
    }

    /// One for what is worked out while others wait.
    pub(super) fn at_once() -> Arc<Self> {
        Self::of_units(UNITS_AT_ONCE, &Arc::default())
    }

    fn of_units(most: u64, given_up: &Arc<AtomicBool>) -> Arc<Self> {
        let (left, given_up) = (AtomicU64::new(most), Arc::clone(given_up));
        Arc::new(Self { left, most, given_up, patterns: Mutex::default() })
    }

    /// The one of the answer that is being worked out.
    pub(super) fn of(state: &State<'_, '_>) -> Result<Arc<Self>, Error> {
        Self::in_value(state.lookup(NAME))
    }

    /// The one in a context.
    pub(super) fn in_context(context: &Value) -> Result<Arc<Self>, Error> {
        Self::in_value(context.get_attr(NAME).ok())
    }

    fn in_value(value: Option<Value>) -> Result<Arc<Self>, Error> {
        let found = value.and_then(|value| value.downcast_object::<Self>());
        found.ok_or_else(|| bad(format!("`{NAME}` is not a name of templates")))
    }

    /// Pays. Once that fails, nothing more can be paid.
    pub(super) fn spend(&self, units: u64) -> Result<(), Error> {
        if self.given_up.load(Ordering::Relaxed) {
            return Err(bad("the answer is not waited for any more".to_owned()));
        }
        let paid = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(units));
        paid.map(drop).map_err(|_| {
            self.left.store(0, Ordering::Relaxed);
            let most = UNITS >> 20;
            bad(format!("the rules and templates of one answer build or look at more than {most} MiB"))
        })
    }

    /// Whether nothing is left.
    pub(super) fn is_used_up(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// What was paid so far.
    pub(super) fn paid(&self) -> u64 {
        self.most - self.left.load(Ordering::Relaxed)
    }

    /// Pays for so many bytes or values.
    pub(super) fn spend_on(&self, count: usize, each: u64) -> Result<(), Error> {
        self.spend(u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(each))
    }

    /// Pays for a value with all that is in it.
    pub(super) fn all_of(&self, value: &Value, each: Each) -> Result<(), Error> {
        self.walk(value, each, 0)
    }

    fn walk(&self, value: &Value, each: Each, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(bad(format!("values lie more than {DEPTH_MAX} deep in one another")));
        }
        self.spend(each.value)?;
        match value.kind() {
            ValueKind::String | ValueKind::Bytes => self.spend_on(bytes_of(value), each.byte),
            ValueKind::Seq | ValueKind::Iterable => {
                value.try_iter()?.try_for_each(|item| self.inside(&item, each, depth))
            }
            ValueKind::Map => value.try_iter()?.try_for_each(|key| {
                self.inside(&key, each, depth)?;
                self.inside(&value.get_item(&key)?, each, depth)
            }),
            _ => Ok(()),
        }
    }

    fn inside(&self, value: &Value, each: Each, depth: usize) -> Result<(), Error> {
        refuse_namespace(value)?;
        self.walk(value, each, depth + 1)
    }

    /// Pays for a value without what is in it.
    pub(super) fn top_of(&self, value: &Value) -> Result<(), Error> {
        self.spend(VALUE)?;
        match value.kind() {
            ValueKind::String | ValueKind::Bytes => self.spend_on(bytes_of(value), BYTE),
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => self.spend_on(self.count(value)?, VALUE),
            _ => Ok(()),
        }
    }

    /// How many values a list has, or how many a text is at most when it is taken for one. One that does not know is counted,
    /// and paid for.
    pub(super) fn count(&self, value: &Value) -> Result<usize, Error> {
        if value.kind() == ValueKind::String {
            return Ok(bytes_of(value));
        }
        if let Some(count) = value.len() {
            return Ok(count);
        }
        let mut count = 0;
        for _ in value.try_iter()? {
            self.spend(VALUE)?;
            count += 1;
        }
        Ok(count)
    }

    /// The values as one text.
    pub(super) fn text(&self, values: &[&Value]) -> Result<String, Error> {
        let mut out = Paid { budget: self, text: String::new(), failed: None };
        for value in values {
            if value.is_undefined() {
                return Err(Error::from(ErrorKind::UndefinedError));
            }
            if write!(out, "{value}").is_err() {
                return Err(out.failed.unwrap_or_else(|| bad("a value cannot be shown".to_owned())));
            }
        }
        Ok(out.text)
    }

    /// A regular expression that a filter is given, compiled once for the answer.
    pub(super) fn pattern(&self, source: &str) -> Result<Arc<Pattern>, Error> {
        // The map is whole between any two calls, whoever panicked.
        let known = || self.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pattern) = known().get(source) {
            return Ok(Arc::clone(pattern));
        }
        self.spend_on(source.len(), VALUE)?;
        let pattern = Arc::new(Pattern::parsed(source).map_err(bad)?);
        self.spend_on(pattern.size(), BYTE)?;
        pattern.compile().map_err(bad)?;
        known().insert(source.to_owned(), Arc::clone(&pattern));
        Ok(pattern)
    }

    /// Pays for what a rule's own regular expression is looked for in, and looks whether it is worth compiling while others wait.
    pub(super) fn look_for(&self, pattern: &Pattern, text: &str) -> Result<(), Error> {
        if !pattern.is_compiled() && self.most == UNITS_AT_ONCE {
            // Compiled once for all answers: it is no part of what this one may cost.
            self.spend_on(pattern.size(), BYTE)?;
        }
        self.search(pattern, text.len())
    }

    /// Pays for looking for a regular expression in so many bytes.
    pub(super) fn search(&self, pattern: &Pattern, bytes: usize) -> Result<(), Error> {
        self.spend_on(bytes, SEARCHED.saturating_mul(pattern.effort()))
    }

    /// Pays for a match that was found, with so many bytes behind it.
    pub(super) fn found(&self, pattern: &Pattern, behind: usize) -> Result<(), Error> {
        self.spend(VALUE)?;
        if pattern.looks_further() { self.search(pattern, behind / FURTHER) } else { Ok(()) }
    }
}

/// A namespace in a value could come to contain itself: it has no end then.
pub(super) fn refuse_namespace(value: &Value) -> Result<(), Error> {
    let is_one = value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"));
    if is_one { Err(bad("a namespace cannot be part of a value".to_owned())) } else { Ok(()) }
}

/// A list that is worked out whenever it is asked for, made at once: then what is in it is found without going through it.
pub(super) fn made(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Iterable => Ok(Value::from(value.try_iter()?.collect::<Vec<_>>())),
        _ => Ok(value),
    }
}

/// The error with its causes, on one line.
pub(super) fn words(error: &Error) -> String {
    let mut text = match error.kind() {
        ErrorKind::OutOfFuel => "a template takes too many steps".to_owned(),
        kind => kind.to_string(),
    };
    if let Some(detail) = error.detail() {
        text = format!("{text}: {detail}");
    }
    if let Some(line) = error.line().filter(|line| *line > 1) {
        text = format!("{text} (line {line} of the template)");
    }
    clip(&one_line(&text), 500)
}

/// A failure of a template.
pub(super) fn bad(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn bytes_of(value: &Value) -> usize {
    value.as_str().map(str::len).or_else(|| value.as_bytes().map(<[u8]>::len)).unwrap_or(0)
}

/// Text that is paid for as it grows.
struct Paid<'b> {
    budget: &'b Budget,
    text: String,
    failed: Option<Error>,
}

impl std::fmt::Write for Paid<'_> {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        // A number is as much work as a few bytes.
        if let Err(error) = self.budget.spend_on(part.len() + 8, BYTE) {
            self.failed = Some(error);
            return Err(std::fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}
