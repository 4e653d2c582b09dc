//! How models spell the names of tools. Only for finding the tool that is meant; records have its own name.

/// Prefixes that models add to tool names.
const PREFIXES: [&str; 5] = ["api.", "default.api.", "function.", "functions.", "tools."];

/// A name in lower case, with a dot for every separator that models use.
pub(crate) fn plain(name: &str) -> String {
    name.to_ascii_lowercase()
        .split(['.', '_', '-', '/', ':'])
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(".")
}

/// A [`plain`] name without a prefix that models add; `None` if it has none.
pub(crate) fn without_prefix(plain: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|word| plain.strip_prefix(word))
}
