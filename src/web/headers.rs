//! The headers that an agent may add to a request. Pure.
//!
//! A header that changes where a request goes, how its body is framed, or what a proxy does must never come from an
//! agent, and no value may break out of its line.

use std::collections::BTreeMap;

use ghost_domain::text::shown;
use ghost_domain::{Code, Refusal};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

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
pub fn of_agent(headers: &BTreeMap<String, String>) -> Result<HeaderMap, Refusal> {
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
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> Result<HeaderMap, Code> {
        of_agent(&BTreeMap::from([(name.to_owned(), value.to_owned())])).map_err(|refusal| refusal.code)
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
        assert!(of_agent(&many).is_err());
        let twice = BTreeMap::from([("X-A".to_owned(), "1".to_owned()), ("x-a".to_owned(), "2".to_owned())]);
        assert!(of_agent(&twice).is_err());
        assert_eq!(of("Accept", "text/html").unwrap()["accept"], "text/html");
    }

    #[test]
    fn keys_do_not_go_on_to_another_site() {
        let names = ["Authorization", "Cookie", "X-Api-Key", "Accept", "Content-Type"];
        let mut headers = of_agent(&names.map(|name| (name.to_owned(), "1".to_owned())).into()).unwrap();
        for_another_site(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
