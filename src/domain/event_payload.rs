//! The payload of an event, as a JSON value or as JSON text. The other form is made on demand: most
//! events that are read from storage are sent as text and never parsed.
//!
//! A payload must never contain a text that is not JSON.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The payload of an event. It dereferences to its JSON value.
#[derive(Clone)]
pub struct EventPayload {
    text: OnceLock<Box<str>>,
    value: OnceLock<Value>,
}

impl EventPayload {
    /// A payload from JSON text.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub fn read(text: String) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<IgnoredAny>(&text)?;
        Ok(Self { text: OnceLock::from(text.into_boxed_str()), value: OnceLock::new() })
    }

    /// The payload as JSON.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| self.deref().to_string().into_boxed_str())
    }

    /// The payload as JSON text alone. What keeps or passes on many payloads does so with one piece of memory each.
    #[must_use]
    pub fn into_text(self) -> Self {
        // Made here, if nobody has asked for it.
        let _ = self.text();
        Self { value: OnceLock::new(), ..self }
    }
}

impl Deref for EventPayload {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value.get_or_init(|| {
            // Either form exists from the start, and the text is JSON. A text that is nested too
            // deeply for `Value` gives null.
            let text = self.text.get().map_or("null", |text| text);
            serde_json::from_str(text).unwrap_or_default()
        })
    }
}

impl From<Value> for EventPayload {
    fn from(value: Value) -> Self {
        Self { text: OnceLock::new(), value: OnceLock::from(value) }
    }
}

impl PartialEq for EventPayload {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl PartialEq<Value> for EventPayload {
    fn eq(&self, other: &Value) -> bool {
        **self == *other
    }
}

impl fmt::Debug for EventPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for EventPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for EventPayload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.deref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EventPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn payloads_from_a_value_and_from_text_are_equal() {
        let value = json!({ "b": [1, "ä\u{1}"], "a": null });
        let made = EventPayload::from(value.clone());
        let read = EventPayload::read(made.text().to_owned()).unwrap();
        assert_eq!((&*read, read.text(), &read), (&value, value.to_string().as_str(), &made));
        assert_eq!(read["b"][0], 1);
        assert!(EventPayload::read("{\"a\":".into()).is_err() && EventPayload::read("{} {}".into()).is_err());
    }
}
