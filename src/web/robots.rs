//! `robots.txt` (RFC 9309): whether a site lets programs fetch a path. Pure; [`crate::fetch`] reads the file.

/// Bytes of a file that are read; the standard demands no more.
pub(crate) const FILE_MAX: usize = 500 * 1_024;
/// Rules that are kept of one file.
const RULES_MAX: usize = 5_000;
/// Stars in one rule; the time to match grows with them.
const STARS_MAX: usize = 16;

/// The rules of one site for us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<(bool, String)>);

impl Rules {
    /// Reads a file for the program `product`: the groups that name it, else those for `*`.
    #[must_use]
    pub fn parse(text: &str, product: &str) -> Self {
        let (mut ours, mut general) = (None::<Vec<_>>, Vec::new());
        let (mut for_us, mut for_all, mut in_rules) = (false, false, false);
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            match key.as_str() {
                "user-agent" => {
                    if std::mem::take(&mut in_rules) {
                        (for_us, for_all) = (false, false);
                    }
                    for_us |= value.eq_ignore_ascii_case(product);
                    for_all |= value == "*";
                    if for_us {
                        ours.get_or_insert_default();
                    }
                }
                "allow" | "disallow" => {
                    in_rules = true;
                    if value.is_empty() || value.matches('*').count() > STARS_MAX {
                        continue;
                    }
                    let rule = (key == "allow", value.to_owned());
                    if for_us {
                        ours.get_or_insert_default().push(rule.clone());
                    }
                    if for_all && general.len() < RULES_MAX {
                        general.push(rule);
                    }
                }
                _ => {}
            }
        }
        let mut rules = ours.unwrap_or(general);
        rules.truncate(RULES_MAX);
        Self(rules)
    }

    /// The rules of a site that is to be left alone.
    #[must_use]
    pub fn nothing_allowed() -> Self {
        Self(vec![(false, "/".to_owned())])
    }

    /// Whether a path, with its query, may be fetched: the longest rule that matches decides, and of equal ones the
    /// kinder.
    #[must_use]
    pub fn allow(&self, path: &str) -> bool {
        let matching = self.0.iter().filter(|(_, pattern)| matches(pattern, path));
        matching.max_by_key(|(allow, pattern)| (pattern.len(), *allow)).is_none_or(|(allow, _)| *allow)
    }
}

/// Whether a pattern matches the start of `path`: `*` is any run of characters, and `$` at the end is the end.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, whole) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return !whole || rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    if whole { rest.ends_with(last) } else { rest.contains(last) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_rule_of_the_right_group_decides() {
        let file = "User-agent: other\nDisallow: /\n\nuser-agent: *\nDisallow: /private # no\nAllow: /private/open\nDisallow: /*.pdf$\nDisallow:\n";
        let rules = Rules::parse(file, "ghostd");
        for (path, allowed) in [
            ("/", true),
            ("/private", false),
            ("/private/x", false),
            ("/private/open/x", true),
            ("/a.pdf", false),
            ("/a.pdf?x", true),
            ("/x/private", true),
        ] {
            assert_eq!(rules.allow(path), allowed, "{path}");
        }
        // A group of our own replaces the general one, also if it allows everything.
        assert!(Rules::parse(&format!("{file}User-agent: GhostD\nAllow: /\n"), "ghostd").allow("/private"));
        assert!(Rules::parse("User-agent: ghostd\nUser-agent: x\nDisallow: /a\n", "ghostd").allow("/b"));
        assert!(!Rules::parse("User-agent: x\nUser-agent: ghostd\nDisallow: /a\n", "ghostd").allow("/a"));
        assert!(Rules::parse("<html>not found</html>", "ghostd").allow("/"));
        assert!(!Rules::nothing_allowed().allow("/x"));
        let equal = Rules::parse("User-agent: *\nDisallow: /a\nAllow: /a\n", "ghostd");
        assert!(equal.allow("/a"));
        assert!(Rules::parse(&format!("User-agent: *\nDisallow: /{}\n", "*a".repeat(99)), "g").allow("/aaa"));
    }

    proptest! {
        #[test]
        fn patterns_agree_with_a_recursive_definition(pattern in "/[ab*]{0,6}[$]?", path in "/[ab]{0,8}") {
            fn plain(p: &[u8], t: &[u8]) -> bool {
                match (p.first(), t.first()) {
                    (None, _) => true,
                    (Some(b'$'), None) if p.len() == 1 => true,
                    (Some(b'*'), _) => plain(&p[1..], t) || (!t.is_empty() && plain(p, &t[1..])),
                    (Some(a), Some(b)) if a == b => plain(&p[1..], &t[1..]),
                    _ => false,
                }
            }
            prop_assert_eq!(matches(&pattern, &path), plain(pattern.as_bytes(), path.as_bytes()));
        }

        #[test]
        fn no_file_causes_a_panic(text in "(?s).{0,200}") {
            let _ = Rules::parse(&text, "ghostd").allow("/x");
        }
    }
}
