//! Shared state: versioned JSON values under dotted keys, always written whole, with
//! compare-and-set.
//!
//! A version of a key must never be used twice. A deleted key leaves no row, so the highest version
//! of any deleted key is stored, and new keys start above it.

use ghost_domain::shared_state::{JsonText, check_key, check_prefix, is_system};

use crate::prelude::*;

/// The world fact that stores the highest version of any deleted key.
const FLOOR: &str = "state_version_floor";
/// Maximum keys that are compared for a suggestion.
const NEAR_MAX: u32 = 200;

/// The parameters of a write.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The key.
    pub key: String,
    /// The value. Null deletes the key.
    pub value: JsonText,
    /// The version that the writer has read. 0 means that the key must not exist. `None` skips the
    /// check.
    pub expected_version: Option<i64>,
}

/// A page of entries, ordered by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The entries.
    pub entries: Vec<StateEntry>,
    /// Whether more entries follow.
    pub more: bool,
}

/// Returns one entry.
///
/// # Errors
/// `NotFound`; `InvalidArguments` for a malformed key.
pub fn get(r: &mut StoreTx, key: &str) -> Result<StateEntry> {
    check_key(key)?;
    let Some(entry) = r.state_get(key)? else { return Err(missing(r, key)?) };
    Ok(entry)
}

/// Returns at most `limit` entries whose key begins with `prefix` and comes after `after`.
pub fn list(r: &mut StoreTx, prefix: &str, after: &str, limit: u32) -> Result<Listed> {
    check_prefix(prefix)?;
    let mut entries = r.state_list(prefix, after, limit.saturating_add(1))?;
    let more = entries.len() > limit as usize;
    entries.truncate(limit as usize);
    Ok(Listed { entries, more })
}

/// Writes one value, or deletes it if the value is null. A deletion returns the entry with a null
/// value and the next version. `through` is the operator that acts as the agent `by`, if there is
/// one.
pub fn set(w: &mut Tx, by: &Party, through: Option<&Party>, new: Setting) -> Result<StateEntry> {
    check_key(&new.key)?;
    if by.agent().is_some() && is_system(&new.key) {
        return Err(refusal!(AccessDenied, "`{}` is read-only: agents cannot write keys under `system.`", new.key)
            .hint("use another key"));
    }
    if let Some(version) = new.expected_version.filter(|version| *version < 0) {
        return Err(refusal!(InvalidArguments, "expected_version is {version}")
            .hint("give the version that you have read, or 0 if the key must not exist yet"));
    }
    let limits = w.ctx.limits();
    let bytes = new.value.as_str().len();
    if bytes > limits.state_bytes as usize {
        let most = limits.state_bytes;
        return Err(refusal!(TooLarge, "the value has {bytes} bytes as JSON; limits.state_bytes is {most}")
            .hint("split it over several keys, or write a workspace file and store its path"));
    }
    let before = w.state_get(&new.key)?;
    let current = before.as_ref().map_or(0, |entry| entry.version);
    if let Some(expected) = new.expected_version.filter(|expected| *expected != current) {
        let what = match &before {
            Some(_) => format!("`{}` is at version {current}, not at {expected}", new.key),
            None => format!("`{}` does not exist, so it is not at version {expected}", new.key),
        };
        return Err(Refusal::new(Code::Conflict, what)
            .hint("read it again, and write the new value with that version")
            .details(json!({ "key": new.key, "version": current })));
    }
    let deletes = new.value.is_null();
    let version = match &before {
        Some(entry) => entry.version + 1,
        None if deletes => return Err(missing(w, &new.key)?),
        None => {
            let hint = "delete a key by writing null to it, or combine several values in one key";
            at_most("state_keys_max", w.state_count()?, limits.state_keys_max, "keys are in the shared state", hint)?;
            floor(w)? + 1
        }
    };
    let entry = StateEntry { key: new.key, value: new.value, version, writer: by.clone(), updated_at: w.ctx.now() };
    if deletes {
        w.state_remove(&entry.key)?;
        if version > floor(w)? {
            w.meta_put(FLOOR, &version.to_string())?;
        }
    } else {
        w.state_put(&entry)?;
    }
    let mut payload = json!({ "key": entry.key, "version": entry.version, "writer": by, "deleted": deletes });
    if let Some(through) = through {
        payload["through"] = json!(through);
    }
    let event = NewEvent::new(EventKind::StateChanged, payload);
    w.emit(NewEvent { agent_id: by.agent().cloned(), ..event })?;
    Ok(entry)
}

fn floor(r: &mut StoreTx) -> Result<i64> {
    let Some(text) = r.meta_get(FLOOR)? else { return Ok(0) };
    text.parse()
        .map_err(|_| refusal!(Internal, "`{text}` is stored as a version of the shared state, but is not a number"))
}

fn missing(r: &mut StoreTx, key: &str) -> Result<Refusal> {
    // A typing mistake is rarely in the first letter, and a world may have very many keys.
    let first: String = key.chars().take(1).collect();
    let near = r.state_list(&first, "", NEAR_MAX)?;
    let near = nearest(key, near.iter().map(|entry| entry.key.as_str()));
    Ok(not_among("state key", key, near, "list the keys to see which there are"))
}
