//! Names of a server's tools in the form that Ghost uses. Two tools must never get the same one.

use std::collections::BTreeMap;

/// Longest name, in bytes.
pub const GHOST_NAME_MAX: usize = 64;

/// The names of the tools of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GhostNames {
    /// The names of the server by the names that Ghost uses.
    pub names: BTreeMap<String, String>,
    /// Names of the server that would get the same name; by that name. None of them is in `names`.
    pub clashes: BTreeMap<String, Vec<String>>,
    /// Names of the server that have no form here.
    pub impossible: Vec<String>,
}

/// The name that Ghost uses for a tool: in lower case, 1 to [`GHOST_NAME_MAX`] of the characters `a-z 0-9 - _`. It
/// begins with a letter or a digit and has no two underscores in a row. `None` if nothing is left of it, or too much.
#[must_use]
pub fn ghost_name(name: &str) -> Option<String> {
    let mut short = String::with_capacity(name.len());
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
        let is_wanted = match c {
            '_' => !short.is_empty() && !short.ends_with('_'),
            '-' => !short.is_empty(),
            _ => true,
        };
        if is_wanted {
            short.push(c);
        }
    }
    short.truncate(short.trim_end_matches('_').len());
    (1..=GHOST_NAME_MAX).contains(&short.len()).then_some(short)
}

/// The names of a whole list. Each name of the server has to be in it once.
pub fn ghost_names<'a>(names: impl IntoIterator<Item = &'a str>) -> GhostNames {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut result = GhostNames::default();
    for name in names {
        match ghost_name(name) {
            Some(short) => all.entry(short).or_default().push(name.to_owned()),
            None => result.impossible.push(name.to_owned()),
        }
    }
    for (short, mut servers) in all {
        match (servers.pop(), servers.is_empty()) {
            (Some(only), true) => {
                result.names.insert(short, only);
            }
            (Some(last), false) => {
                servers.push(last);
                result.clashes.insert(short, servers);
            }
            (None, _) => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_the_form_that_ghost_uses() {
        let cases = [
            ("read_file", "read_file"),
            ("Get-Sum", "get-sum"),
            ("files/read.all", "files_read_all"),
            ("a__b", "a_b"),
            ("__init__", "init"),
            ("-x", "x"),
            ("a_/.b", "a_b"),
        ];
        for (name, short) in cases {
            assert_eq!(ghost_name(name).as_deref(), Some(short), "{name}");
        }
        for name in ["", "_", "./-", &"x".repeat(65)] {
            assert_eq!(ghost_name(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_clash_are_reported_and_none_of_them_is_used() {
        let names = ghost_names(["read", "a.b", "a/b", "A_b", "..."]);
        assert_eq!(names.names, BTreeMap::from([("read".to_owned(), "read".to_owned())]));
        let clash = vec!["a.b".to_owned(), "a/b".to_owned(), "A_b".to_owned()];
        assert_eq!(names.clashes, BTreeMap::from([("a_b".to_owned(), clash)]));
        assert_eq!(names.impossible, ["..."]);
    }
}
