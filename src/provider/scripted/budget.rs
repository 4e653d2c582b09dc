//! What the templates of one answer may build and look at, all of them together. The template language counts steps, but one
//! step may double a text; so whatever builds something, or looks at all of something, pays for it here first.
//!
//! Must never: let a value be built whose size was not paid for, or one that contains itself.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// What the templates of one answer may spend: about the bytes that they build and look at.
pub(super) const UNITS: u64 = 64 << 20;
/// What a value costs besides its text.
pub(super) const VALUE: u64 = 32;
/// How deep values may lie in one another.
const DEPTH_MAX: usize = 200;
/// The name by which guards find the budget. No name of a rule file can be this.
pub(super) const NAME: &str = "BUDGET";

/// The budget of one answer.
#[derive(Debug)]
pub(super) struct Budget(AtomicU64);

impl Object for Budget {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

impl Budget {
    /// A whole one.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(UNITS)))
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
        let paid = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(units));
        paid.map(drop).map_err(|_| {
            self.0.store(0, Ordering::Relaxed);
            let most = UNITS >> 20;
            bad(format!("the templates of one answer build or look at more than {most} MiB"))
        })
    }

    /// Pays for so many bytes or values.
    pub(super) fn spend_on(&self, count: usize, each: u64) -> Result<(), Error> {
        self.spend(u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(each))
    }

    /// Pays for a value with all that is in it: for its texts as well, or for the number of values only.
    pub(super) fn whole(&self, value: &Value, texts: bool) -> Result<(), Error> {
        self.walk(value, texts, 0)
    }

    fn walk(&self, value: &Value, texts: bool, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(bad(format!("values lie more than {DEPTH_MAX} deep in one another")));
        }
        self.spend(if texts { VALUE } else { VALUE / 4 })?;
        match value.kind() {
            ValueKind::String | ValueKind::Bytes if texts => self.spend_on(bytes_of(value), 1),
            ValueKind::Seq | ValueKind::Iterable => {
                value.try_iter()?.try_for_each(|item| self.inside(&item, texts, depth))
            }
            ValueKind::Map => value.try_iter()?.try_for_each(|key| {
                self.inside(&key, texts, depth)?;
                self.inside(&value.get_item(&key)?, texts, depth)
            }),
            _ => Ok(()),
        }
    }

    fn inside(&self, value: &Value, texts: bool, depth: usize) -> Result<(), Error> {
        refuse_namespace(value)?;
        self.walk(value, texts, depth + 1)
    }

    /// Pays for a value without what is in it.
    pub(super) fn flat(&self, value: &Value) -> Result<(), Error> {
        self.spend(VALUE)?;
        match value.kind() {
            ValueKind::String | ValueKind::Bytes => self.spend_on(bytes_of(value), 1),
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => self.spend_on(self.count(value)?, VALUE),
            _ => Ok(()),
        }
    }

    /// How many values a list has. One that does not know is counted, and paid for.
    pub(super) fn count(&self, value: &Value) -> Result<usize, Error> {
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
}

/// A namespace in a value could come to contain itself: it has no end then.
pub(super) fn refuse_namespace(value: &Value) -> Result<(), Error> {
    let is_one = value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"));
    if is_one { Err(bad("a namespace cannot be part of a value".to_owned())) } else { Ok(()) }
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
        if let Err(error) = self.budget.spend_on(part.len() + 1, 1) {
            self.failed = Some(error);
            return Err(std::fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}
