//! Which addresses may be fetched, and where a redirect leads. Pure: whether a host may be reached is judged by
//! [`crate::address`] when it is connected to, at every step.

use ghost_domain::text::shown;
use ghost_domain::{Code, Refusal};
use hyper::Method;
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

#[cfg(test)]
mod tests {
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
