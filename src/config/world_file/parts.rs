//! What several sections of a world file are read with: references, names, restart intensities, variables, write prefixes.

use std::time::Duration;

use ghost_domain::AgentId;
use ghost_domain::restart::Intensity;
use ghost_domain::write_acl::WriteAcl;

use crate::reader::{Field, Map};

/// Longest free text of the file, in bytes.
pub const TEXT_MAX: usize = 8 * 1024;

/// A reference and what it names.
pub type Named<'n> = (Field<'n>, &'n str);

/// Reads the map under `key` with `read`, then reports the keys that it did not ask for.
pub fn section<'n, T>(map: &Map<'n>, key: &'static str, read: impl FnOnce(&Map<'n>) -> Option<T>) -> Option<T> {
    let inner = map.get(key)?.map()?;
    let value = read(&inner);
    inner.finish(&[]);
    value
}

/// `intensity: { max, window }` in `map`.
pub fn intensity(map: &Map<'_>) -> Option<Intensity> {
    section(map, "intensity", |inner| Some(read_intensity(inner)))
}

/// `max` and `window` in `map`.
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

/// A list of names.
pub fn names<'n>(field: &Field<'n>) -> Vec<Named<'n>> {
    field.list().into_iter().filter_map(|item| item.name().map(|name| (item.clone(), name))).collect()
}

/// An agent's list of write prefixes (ACL-02, ACL-03, ACL-08). Of one whose id cannot be read the shape alone is checked.
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

/// Whether `name` can be the name of an environment variable.
fn is_variable(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.as_bytes()[0].is_ascii_digit()
}

/// The name of an environment variable.
pub fn variable(field: &Field<'_>) -> Option<String> {
    let name = field.text(1_024)?;
    if field.written() != name {
        // What the variable holds may be the secret itself, and may look like a name.
        field.error("this is what a variable holds, not its name", "write the variable's name alone, without `${}`");
        return None;
    }
    if is_variable(name) {
        return Some(name.to_owned());
    }
    // What stands here may be the secret itself, so it is not shown.
    field.error(
        "this is not the name of an environment variable",
        "write the variable's name, such as OPENAI_API_KEY; never the value itself",
    );
    None
}
