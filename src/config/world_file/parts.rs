//! Readers shared by several sections of `world-config.yaml`: references, names, restart
//! intensities, variables, write prefixes.

use std::time::Duration;

use ghost_domain::AgentId;
use ghost_domain::restart::Intensity;
use ghost_domain::write_acl::WriteAcl;

use crate::reader::{Field, Map};

/// The longest free text in the file, in bytes.
pub const TEXT_MAX: usize = 8 * 1024;

/// A name that refers to something, with its field.
pub type Named<'n> = (Field<'n>, &'n str);

/// Warns that a section or key has no effect yet.
pub fn unused(field: &Field<'_>) {
    field.warn("nothing uses this yet", "remove it, or leave it for a version of Ghost that does");
}

/// Reads a map and reports keys that `read` did not ask for.
pub fn with(field: &Field<'_>, read: impl FnOnce(&Map<'_>)) {
    if let Some(map) = field.map() {
        read(&map);
        map.finish(&[]);
    }
}

/// Reads the map under `key` with `read`, then reports its unknown keys.
pub fn section<'n, T>(map: &Map<'n>, key: &'static str, read: impl FnOnce(&Map<'n>) -> Option<T>) -> Option<T> {
    let inner = map.get(key)?.map()?;
    let value = read(&inner);
    inner.finish(&[]);
    value
}

/// Reads `intensity: { max, window }` in `map`.
pub fn intensity(map: &Map<'_>) -> Option<Intensity> {
    section(map, "intensity", |inner| Some(read_intensity(inner)))
}

/// Reads `max` and `window` in `map`.
pub fn read_intensity(map: &Map<'_>) -> Intensity {
    let default = Intensity::default();
    Intensity {
        max: map.get("max").and_then(|field| field.count32(0..=10_000)).unwrap_or(default.max),
        window: map
            .get("window")
            .and_then(|field| field.duration(Duration::from_secs(1)..=Duration::from_secs(7 * 86_400)))
            .unwrap_or(default.window),
    }
}

/// Reads a list of names.
pub fn names<'n>(field: &Field<'n>) -> Vec<Named<'n>> {
    field.list().into_iter().filter_map(|item| item.name().map(|name| (item.clone(), name))).collect()
}

/// Reads an agent's list of write prefixes (ACL-02, ACL-03, ACL-08). If the agent's id is invalid,
/// only the form is checked.
pub fn write_acl(field: &Field<'_>, agent: Option<&AgentId>) -> Option<WriteAcl> {
    let read = |prefixes: &[String]| match agent {
        Some(agent) => WriteAcl::of(agent, prefixes),
        None => WriteAcl::new(prefixes),
    };
    let mut prefixes = Vec::new();
    for (item, prefix) in field.texts(1_024) {
        match read(&[prefix.to_owned()]) {
            Ok(_) => prefixes.push(prefix.to_owned()),
            Err(refusal) => item.refused(refusal, "write a directory of the workspace that ends in `/`"),
        }
    }
    read(&prefixes).ok()
}

/// Whether `name` is a valid name of an environment variable.
fn is_variable(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.as_bytes()[0].is_ascii_digit()
}

/// Reads the name of an environment variable.
pub fn variable(field: &Field<'_>) -> Option<String> {
    let name = field.text(1_024)?;
    if field.written() != name {
        // The value of the variable may be the secret itself, so it is not accepted as a name.
        field.error("this is the value of a variable, not its name", "write the variable's name alone, without `${}`");
        return None;
    }
    if is_variable(name) {
        return Some(name.to_owned());
    }
    // The text may be the secret itself, so it is not shown.
    field.error(
        "this is not the name of an environment variable",
        "write the variable's name, such as OPENAI_API_KEY; never the value itself",
    );
    None
}
