//! A message that several requests share, with the form in which a protocol sends it. So a log that grows is written once,
//! and not again for each call.
//!
//! A written form must never outlive a change of its message.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use ghost_domain::transcript::{Block, Message};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

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
    pub(crate) fn elements<'m, E: Serialize>(
        &'m self,
        form: &Arc<Form>,
        build: impl FnOnce(&'m Message) -> Vec<E>,
    ) -> serde_json::Result<Cow<'m, [Box<RawValue>]>> {
        if let Some(written) = self.0.written.get().filter(|written| written.form == *form) {
            return Ok(Cow::Borrowed(&written.elements));
        }
        let elements = build(self).iter().map(to_raw_value).collect::<serde_json::Result<Vec<_>>>()?;
        if self.0.written.get().is_none() && !self.blocks.iter().any(|block| matches!(block, Block::Image { .. })) {
            let written = Written { form: Arc::clone(form), elements: elements.clone().into() };
            // Another request may have been first. Its form is as good.
            drop(self.0.written.set(written));
        }
        Ok(Cow::Owned(elements))
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::transcript::Role;

    use super::*;

    fn form(author: &str) -> Arc<Form> {
        Arc::new(Form { protocol: "p", author: author.to_owned(), option: false })
    }

    fn written(message: &SharedMessage, form: &Arc<Form>, text: &str) -> String {
        message.elements(form, |_| vec![text]).unwrap().iter().map(|element| element.get()).collect()
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
