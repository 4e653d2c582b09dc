//! Results without empty members, which would only cost tokens.

use serde_json::Value;

/// Removes the members of `object` that are null.
pub(crate) fn without_nulls(mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    object
}
