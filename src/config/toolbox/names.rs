//! Names of toolboxes and of their tools.

use crate::reader::is_name;

/// First parts of built-in tool names. A toolbox with such a name could be mistaken for built-in
/// tools.
pub(super) const RESERVED: [&str; 7] = ["channel", "group", "memory", "syscall", "tool", "util", "workspace"];

/// Whether it is a name in lower case that has a form on the wire of every provider.
pub(super) fn is_lower_name(name: &str) -> bool {
    is_name(name) && name == name.to_ascii_lowercase() && !name.contains("__")
}
