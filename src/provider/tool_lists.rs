//! A cache of tool lists as JSON. An agent's list is the same object from call to call, and
//! serialising its schemas again would cost more than the rest of the request.
//!
//! The cache must never hold more than [`LISTS_MAX`] lists.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use ghost_domain::transcript::ToolSpec;
use serde::Serialize;
use serde_json::value::RawValue;

/// Maximum lists in the cache.
const LISTS_MAX: usize = 256;

/// A tool list, and its JSON.
type Cached = (Arc<[ToolSpec]>, Arc<RawValue>);

/// The cache; the oldest list is dropped first.
#[derive(Default)]
pub(crate) struct ToolLists(Mutex<VecDeque<Cached>>);

impl ToolLists {
    /// The JSON of `tools`, from the cache or as `write` makes it; `None` if there are no tools.
    pub(crate) fn json<T: Serialize>(
        &self,
        tools: &Arc<[ToolSpec]>,
        write: impl FnOnce(&Arc<[ToolSpec]>) -> T,
    ) -> Result<Option<Arc<RawValue>>, serde_json::Error> {
        if tools.is_empty() {
            return Ok(None);
        }
        let lists = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, json)) = lists().iter().find(|(list, _)| Arc::ptr_eq(list, tools)) {
            return Ok(Some(Arc::clone(json)));
        }
        let json: Arc<RawValue> = serde_json::value::to_raw_value(&write(tools))?.into();
        let mut lists = lists();
        if lists.len() >= LISTS_MAX {
            lists.pop_front();
        }
        lists.push_back((Arc::clone(tools), Arc::clone(&json)));
        Ok(Some(json))
    }
}
