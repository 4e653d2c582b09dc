//! What may be requested for an agent: which addresses, where a redirect leads, which headers, and what a site leaves to
//! programs. Pure: whether a host may be reached is judged by [`crate::address`] when it is connected to, at every step.
//!
//! A header that changes where a request goes, how its body is framed, or what a proxy does never comes from an agent, and
//! no value breaks out of its line.

use std::collections::BTreeMap;

use ghost_domain::text::shown;
use ghost_domain::{Code, Refusal};
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use url::Url;

/// Bytes of an address.
const URL_MAX: usize = 8 * 1_024;

/// Parses the address of a request, as browsers do. Its fragment is dropped.
///
/// # Errors
/// `InvalidArguments` for what is no URL of a page: another scheme, a user or password in it, no host.
pub fn parse(text: &str) -> Result<Url, Refusal> {
    let text = text.trim();
    if text.len() > URL_MAX {
        return Err(wrong(text, &format!("has more than {URL_MAX} bytes")));
    }
    let url = Url::parse(text).map_err(|error| wrong(text, &format!("is not an absolute address: {error}")))?;
    check(url, text)
}

fn check(mut url: Url, text: &str) -> Result<Url, Refusal> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(text, "is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // The text may hold a password, so it is not shown.
        return Err(wrong("…", "has a user or a password in it"));
    }
    if url.host_str().is_none_or(str::is_empty) || url.port() == Some(0) {
        return Err(wrong(text, "names no host"));
    }
    url.set_fragment(None);
    Ok(url)
}

fn wrong(text: &str, why: &str) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("`{}` {why}", shown(text, 200)))
        .hint("give a whole address such as https://docs.example/page")
        .details(json!({ "field": "url" }))
}

/// A request that a redirect leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// Where to.
    pub url: Url,
    /// With which method.
    pub method: Method,
    /// Whether the body is sent again.
    pub keeps_body: bool,
    /// Whether it is another site, which must not get keys of the first.
    pub elsewhere: bool,
}

/// Where an answer with this status leads; `None` if it is no redirect.
///
/// # Errors
/// `ExecFailed` for a redirect that names no page; `PolicyDenied` for one from https to http, and for one that would
/// send a body to another site.
pub fn next(from: &Url, method: &Method, status: u16, location: Option<&str>) -> Result<Option<Next>, Refusal> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = location else { return Ok(None) };
    let bad = |refusal: Refusal| {
        Refusal::new(Code::ExecFailed, format!("{} redirects to a wrong address: {}", shown_url(from), refusal.message))
            .hint("the server is at fault; try another source")
    };
    if location.len() > URL_MAX {
        return Err(bad(wrong(location, "is too long")));
    }
    let joined = from.join(location).map_err(|error| bad(wrong(location, &error.to_string())))?;
    let url = check(joined, location).map_err(bad)?;
    if from.scheme() == "https" && url.scheme() == "http" {
        let what = format!("{} redirects from https to http: {}", shown_url(from), shown_url(&url));
        return Err(
            Refusal::new(Code::PolicyDenied, what).hint("fetch that address itself if it may be read in the clear")
        );
    }
    let elsewhere = from.origin() != url.origin();
    // Browsers turn a POST into a GET at 301 and 302, too.
    let becomes_get = match status {
        303 => *method != Method::HEAD,
        301 | 302 => *method == Method::POST,
        _ => false,
    };
    let method = if becomes_get { Method::GET } else { method.clone() };
    let keeps_body = !becomes_get && !matches!(method, Method::GET | Method::HEAD);
    if keeps_body && elsewhere {
        let what = format!("{} would send the body on to another site: {}", shown_url(from), shown_url(&url));
        return Err(Refusal::new(Code::PolicyDenied, what).hint("send it to that address itself if it is meant for it"));
    }
    Ok(Some(Next { url, method, keeps_body, elsewhere }))
}

/// An address in messages: its query may be long or hold a key.
pub(crate) fn shown_url(url: &Url) -> String {
    let query = if url.query().is_some() { "?…" } else { "" };
    shown(&format!("{}{}{query}", url.origin().ascii_serialization(), url.path()), 200)
}

/// Headers of one request.
const HEADERS_MAX: usize = 32;
/// Bytes of one value.
const VALUE_MAX: usize = 4 * 1_024;

/// Headers that this room sets itself, or that belong to one connection.
const OURS: [&str; 14] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
];

/// Headers that go on to another site after a redirect. The others may hold a key that only the first site may have.
const FOR_ALL: [&str; 3] = ["accept", "accept-language", "user-agent"];

/// Checks the headers of an agent.
///
/// # Errors
/// `InvalidArguments` with the header's name.
pub fn headers_of_agent(headers: &BTreeMap<String, String>) -> Result<HeaderMap, Refusal> {
    let wrong = |name: &str, why: &str| {
        Refusal::new(Code::InvalidArguments, format!("the header `{}` {why}", shown(name, 60)))
            .hint("leave it out, or write a plain name and a value on one line")
            .details(json!({ "field": "headers" }))
    };
    if headers.len() > HEADERS_MAX {
        return Err(wrong("…", &format!("is one of {}; at most {HEADERS_MAX} are sent", headers.len())));
    }
    let mut found = HeaderMap::new();
    for (name, value) in headers {
        let parsed: HeaderName = name.parse().map_err(|_| wrong(name, "has no valid name"))?;
        let text = parsed.as_str();
        if OURS.contains(&text) || text.starts_with("proxy-") || text.starts_with("sec-") {
            return Err(wrong(name, "is set by Ghost"));
        }
        if value.len() > VALUE_MAX {
            return Err(wrong(name, &format!("has more than {VALUE_MAX} bytes")));
        }
        // This refuses line breaks and other control characters.
        let value = HeaderValue::from_str(value).map_err(|_| wrong(name, "has a value that is not on one line"))?;
        if found.insert(parsed, value).is_some() {
            return Err(wrong(name, "is there twice"));
        }
    }
    Ok(found)
}

/// Drops the headers that another site must not get.
pub fn for_another_site(headers: &mut HeaderMap) {
    let dropped: Vec<HeaderName> = headers.keys().filter(|name| !FOR_ALL.contains(&name.as_str())).cloned().collect();
    for name in dropped {
        headers.remove(name);
    }
}

#[cfg(test)]
mod headers_tests {
    use super::*;

    fn of(name: &str, value: &str) -> Result<HeaderMap, Code> {
        headers_of_agent(&BTreeMap::from([(name.to_owned(), value.to_owned())])).map_err(|refusal| refusal.code)
    }

    // covers: BI-13
    #[test]
    fn no_header_breaks_out_of_its_line_or_changes_the_request() {
        for (name, value) in [
            ("X-A", "1\r\nHost: evil"),
            ("X-A", "1\nb"),
            ("X-A", "1\0"),
            ("X-A\r\nHost", "evil"),
            ("X A", "1"),
            ("", "1"),
            ("Host", "evil"),
            ("content-LENGTH", "5"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "x"),
            ("Proxy-Authorization", "x"),
            ("Accept-Encoding", "zstd"),
            ("Upgrade", "websocket"),
            ("Expect", "100-continue"),
            ("X-A:", "1"),
            ("X-Ä", "1"),
        ] {
            assert_eq!(of(name, value), Err(Code::InvalidArguments), "{name}: {value}");
        }
        assert_eq!(of("X-A", &"x".repeat(VALUE_MAX + 1)), Err(Code::InvalidArguments));
        let many = (0..=HEADERS_MAX).map(|n| (format!("x-{n}"), String::new())).collect();
        assert!(headers_of_agent(&many).is_err());
        let twice = BTreeMap::from([("X-A".to_owned(), "1".to_owned()), ("x-a".to_owned(), "2".to_owned())]);
        assert!(headers_of_agent(&twice).is_err());
        assert_eq!(of("Accept", "text/html").unwrap()["accept"], "text/html");
    }

    #[test]
    fn keys_do_not_go_on_to_another_site() {
        let names = ["Authorization", "Cookie", "X-Api-Key", "Accept", "Content-Type"];
        let mut headers = headers_of_agent(&names.map(|name| (name.to_owned(), "1".to_owned())).into()).unwrap();
        for_another_site(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}

/// Bytes of a file that are read; the standard demands no more.
pub(crate) const ROBOTS_MAX: usize = 500 * 1_024;
/// SiteRules that are kept of one file.
const RULES_MAX: usize = 5_000;
/// Stars in one rule; the time to match grows with them.
const STARS_MAX: usize = 16;

/// What `robots.txt` of one site (RFC 9309) says for us; [`crate::fetch`] reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteRules(Vec<(bool, String)>);

impl SiteRules {
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
mod requests_tests {
    use super::*;

    fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
        let refusal = result.unwrap_err();
        assert!(refusal.hint.is_some(), "{refusal}");
        refusal.code
    }

    // covers: BI-13
    #[test]
    fn only_addresses_of_pages_are_parsed() {
        for bad in [
            "",
            "docs.example",
            "/a",
            "//docs.example",
            "file:///etc/passwd",
            "gopher://a/",
            "ftp://a/",
            "data:text/html,x",
            "javascript:alert(1)",
            "unix:/run/x",
            "http://",
            "http:///",
            "https://u:p@a/",
            "https://u@a/",
            "http://a:0/",
            "http://a:99999/",
            "http://[::1",
            "http://a b/",
            "view-source:http://a/",
            "http://a\0b/",
        ] {
            assert_eq!(code(parse(bad)), Code::InvalidArguments, "{bad}");
        }
        assert!(!parse("https://u:geheim@a/").unwrap_err().message.contains("geheim"));
        assert_eq!(code(parse(&format!("http://a/{}", "x".repeat(URL_MAX)))), Code::InvalidArguments);
        // Line breaks are dropped or escaped, as in browsers, so they never reach a request line.
        assert_eq!(parse("http://a/b\r\nHost: x#f").unwrap().as_str(), "http://a/bHost:%20x");
        assert_eq!(parse(" HTTPS://A:443/x?y#z ").unwrap().as_str(), "https://a/x?y");
    }

    #[test]
    fn redirects_follow_the_rules_of_browsers_and_our_own() {
        let from = Url::parse("https://a.example/x/y?q=1").unwrap();
        let to = |method: &Method, status, location| next(&from, method, status, Some(location));
        let get = to(&Method::GET, 302, "../z").unwrap().unwrap();
        assert_eq!((get.url.as_str(), get.elsewhere, get.keeps_body), ("https://a.example/z", false, false));
        assert!(to(&Method::GET, 301, "https://b.example/").unwrap().unwrap().elsewhere);
        assert_eq!(to(&Method::POST, 303, "/z").unwrap().unwrap().method, Method::GET);
        assert_eq!(to(&Method::POST, 302, "/z").unwrap().unwrap().method, Method::GET);
        assert_eq!(to(&Method::HEAD, 303, "/z").unwrap().unwrap().method, Method::HEAD);
        let post = to(&Method::POST, 307, "/z").unwrap().unwrap();
        assert!(post.keeps_body && post.method == Method::POST);
        assert_eq!(to(&Method::PUT, 301, "/z").unwrap().unwrap().method, Method::PUT);
        assert_eq!(code(to(&Method::POST, 308, "https://b.example/")), Code::PolicyDenied);
        assert_eq!(code(to(&Method::GET, 302, "http://a.example/")), Code::PolicyDenied);
        for bad in ["file:///etc/passwd", "gopher://a/", "https://u:p@a/", "https://", "http://[::1"] {
            assert_eq!(code(to(&Method::GET, 302, bad)), Code::ExecFailed, "{bad}");
        }
        assert_eq!(to(&Method::GET, 304, "/z").unwrap(), None);
        assert_eq!(to(&Method::GET, 200, "/z").unwrap(), None);
        assert_eq!(next(&from, &Method::GET, 302, None).unwrap(), None);
    }
}

#[cfg(test)]
mod robots_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_rule_of_the_right_group_decides() {
        let file = "User-agent: other\nDisallow: /\n\nuser-agent: *\nDisallow: /private # no\nAllow: /private/open\nDisallow: /*.pdf$\nDisallow:\n";
        let rules = SiteRules::parse(file, "ghostd");
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
        assert!(SiteRules::parse(&format!("{file}User-agent: GhostD\nAllow: /\n"), "ghostd").allow("/private"));
        assert!(SiteRules::parse("User-agent: ghostd\nUser-agent: x\nDisallow: /a\n", "ghostd").allow("/b"));
        assert!(!SiteRules::parse("User-agent: x\nUser-agent: ghostd\nDisallow: /a\n", "ghostd").allow("/a"));
        assert!(SiteRules::parse("<html>not found</html>", "ghostd").allow("/"));
        assert!(!SiteRules::nothing_allowed().allow("/x"));
        let equal = SiteRules::parse("User-agent: *\nDisallow: /a\nAllow: /a\n", "ghostd");
        assert!(equal.allow("/a"));
        assert!(SiteRules::parse(&format!("User-agent: *\nDisallow: /{}\n", "*a".repeat(99)), "g").allow("/aaa"));
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
            let _ = SiteRules::parse(&text, "ghostd").allow("/x");
        }
    }
}
