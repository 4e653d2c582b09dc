//! JSON as requests carry it: fields in the order in which they are listed, texts borrowed, and what a provider sent as it
//! came. What a later request needs again, a message or a list of tools, is written once.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ghost_domain::transcript::{Block, Message, ToolSpec};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// JSON that borrows what it can.
#[derive(Debug)]
pub(crate) enum Json<'a> {
    /// A field with this value is left out of its object.
    Absent,
    Text(Cow<'a, str>),
    Value(Cow<'a, Value>),
    Raw(Cow<'a, RawValue>),
    List(Vec<Json<'a>>),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// A [`Json`] object. Fields whose value is `None` are left out.
macro_rules! object {
    ($($name:literal: $value:expr),* $(,)?) => {
        $crate::json::Json::Object(vec![$(($name.into(), $crate::json::Json::from($value))),*])
    };
}
pub(crate) use object;

macro_rules! from {
    ($($of:ty => $variant:ident($make:expr)),* $(,)?) => {
        $(impl<'a> From<$of> for Json<'a> {
            fn from(of: $of) -> Self {
                Self::$variant($make(of))
            }
        })*
    };
}

from! {
    &'a str => Text(Cow::Borrowed),
    &'a String => Text(Cow::from),
    String => Text(Cow::Owned),
    Cow<'a, str> => Text(Cow::from),
    bool => Value(|of| Cow::Owned(Value::Bool(of))),
    u32 => Value(|of| Cow::Owned(Value::from(of))),
    u64 => Value(|of| Cow::Owned(Value::from(of))),
    f64 => Value(|of| Cow::Owned(Value::from(of))),
    &'a Value => Value(Cow::Borrowed),
    Value => Value(Cow::Owned),
    Cow<'a, Value> => Value(Cow::from),
    &'a RawValue => Raw(Cow::Borrowed),
    Vec<Json<'a>> => List(Vec::from),
}

impl<'a, T: Into<Json<'a>>> From<Option<T>> for Json<'a> {
    fn from(of: Option<T>) -> Self {
        of.map_or(Self::Absent, Into::into)
    }
}

impl<'a> Json<'a> {
    pub(crate) const NULL: Self = Self::Value(Cow::Owned(Value::Null));

    /// Whether it is an object with this field.
    pub(crate) fn has(&self, name: &str) -> bool {
        matches!(self, Self::Object(fields) if fields.iter().any(|(known, _)| known == name))
    }

    /// Adds a field to an object.
    pub(crate) fn push(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Json<'a>>) {
        if let Self::Object(fields) = self {
            fields.push((name.into(), value.into()));
        }
    }

    /// Adds those fields of a JSON object that are `wanted`, as they came.
    pub(crate) fn attach(&mut self, object: Option<&'a RawValue>, wanted: impl Fn(&str) -> bool) {
        for (name, value) in object.map(fields).unwrap_or_default().into_iter().filter(|(name, _)| wanted(name)) {
            self.push(name, value);
        }
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_none(),
            Self::Text(text) => text.serialize(serializer),
            Self::Value(value) => value.serialize(serializer),
            Self::Raw(raw) => raw.serialize(serializer),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(fields) => {
                let present = fields.iter().filter(|(_, value)| !matches!(value, Self::Absent));
                serializer.collect_map(present.map(|(name, value)| (name, value)))
            }
        }
    }
}

/// The fields of a JSON object, as they came; none if it is no object.
pub(crate) fn fields(object: &RawValue) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(object.get()).unwrap_or_default()
}

/// Maximum lists in the cache.
const LISTS_MAX: usize = 256;

type Cached = (Arc<[ToolSpec]>, Arc<RawValue>);

/// A cache of tool lists as JSON; the oldest list is dropped first. An agent's list is the same object from call to call, and
/// serialising its schemas again would cost more than the rest of the request.
#[derive(Default)]
pub(crate) struct ToolLists(Mutex<VecDeque<Cached>>);

impl ToolLists {
    /// The JSON of `tools`, from the cache or as `write` makes it; `None` if there are no tools.
    pub(crate) fn json<'t>(
        &self,
        tools: &'t Arc<[ToolSpec]>,
        write: impl FnOnce(&'t [ToolSpec]) -> Json<'t>,
    ) -> serde_json::Result<Option<Arc<RawValue>>> {
        if tools.is_empty() {
            return Ok(None);
        }
        let lists = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, json)) = lists().iter().find(|(list, _)| Arc::ptr_eq(list, tools)) {
            return Ok(Some(Arc::clone(json)));
        }
        let json: Arc<RawValue> = to_raw_value(&write(tools))?.into();
        let mut lists = lists();
        if lists.len() >= LISTS_MAX {
            lists.pop_front();
        }
        lists.push_back((Arc::clone(tools), Arc::clone(&json)));
        Ok(Some(json))
    }
}

/// A message that several requests share. To change it copies it, if another request has it, and drops its written form.
#[derive(Clone, Debug)]
pub struct SharedMessage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    message: Message,
    written: OnceLock<Written>,
}

/// Whose form it is: all that decides it beside the message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) protocol: &'static str,
    /// The author whose opaque state is sent back.
    pub(crate) author: String,
    /// A choice of the protocol.
    pub(crate) option: bool,
}

#[derive(Debug)]
struct Written {
    form: Arc<Form>,
    elements: Box<[Box<RawValue>]>,
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        Self { message: self.message.clone(), written: OnceLock::new() }
    }
}

impl From<Message> for SharedMessage {
    fn from(message: Message) -> Self {
        Self(Arc::new(Inner { message, written: OnceLock::new() }))
    }
}

impl Deref for SharedMessage {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.0.message
    }
}

impl DerefMut for SharedMessage {
    fn deref_mut(&mut self) -> &mut Message {
        let inner = Arc::make_mut(&mut self.0);
        inner.written = OnceLock::new();
        &mut inner.message
    }
}

impl PartialEq for SharedMessage {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl PartialEq<Message> for SharedMessage {
    fn eq(&self, other: &Message) -> bool {
        **self == *other
    }
}

impl SharedMessage {
    /// The elements of the message in a request's list, which `build` makes of it. The first form is remembered, unless it
    /// has an image, whose bytes are in no later request.
    pub(crate) fn elements<'m>(
        &'m self,
        form: &Arc<Form>,
        build: impl FnOnce(&'m Message) -> Vec<Json<'m>>,
    ) -> serde_json::Result<Vec<Json<'m>>> {
        if let Some(written) = self.0.written.get().filter(|written| written.form == *form) {
            return Ok(written.elements.iter().map(|element| Json::from(&**element)).collect());
        }
        let elements = build(self).iter().map(to_raw_value).collect::<serde_json::Result<Vec<_>>>()?;
        if self.0.written.get().is_none() && !self.blocks.iter().any(|block| matches!(block, Block::Image { .. })) {
            let written = Written { form: Arc::clone(form), elements: elements.clone().into() };
            // Another request may have been first. Its form is as good.
            drop(self.0.written.set(written));
        }
        Ok(elements.into_iter().map(|element| Json::Raw(Cow::Owned(element))).collect())
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::transcript::Role;

    use super::*;

    fn form(author: &str) -> Arc<Form> {
        Arc::new(Form { protocol: "p", author: author.to_owned(), option: false })
    }

    fn written(message: &SharedMessage, form: &Arc<Form>, text: &'static str) -> String {
        let elements = message.elements(form, |_| vec![Json::from(text)]).unwrap();
        elements.iter().map(|element| serde_json::to_string(element).unwrap()).collect()
    }

    #[test]
    fn a_form_is_written_once_until_the_message_changes() {
        let (own, other) = (form("a"), form("b"));
        let mut message = SharedMessage::from(Message::text(Role::User, "x"));
        let copy = message.clone();
        let texts = [("1", &own), ("2", &own), ("3", &form("a")), ("4", &other), ("5", &own)];
        assert_eq!(texts.map(|(text, form)| written(&copy, form, text)), ["\"1\"", "\"1\"", "\"1\"", "\"4\"", "\"1\""]);
        message.blocks.push(Block::Text { text: "y".into() });
        assert_eq!([written(&message, &own, "6"), written(&copy, &own, "7")], ["\"6\"", "\"1\""]);
        assert_eq!((message.blocks.len(), copy.blocks.len()), (2, 1));
        let image = Block::Image { media_type: "image/png".into(), data: "AA==".into() };
        let image = SharedMessage::from(Message { role: Role::User, blocks: vec![image] });
        assert_eq!([written(&image, &own, "8"), written(&image, &own, "9")], ["\"8\"", "\"9\""]);
    }
}
