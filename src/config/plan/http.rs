//! The hosts and origins that the HTTP listener accepts besides its own address: names given by
//! proxies, containers and clusters, and web pages of other origins.
//!
//! A text that a browser would read differently must never be accepted as a host.

use std::net::Ipv6Addr;

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer};

use crate::kinds::{AtMost, at_most, schema, text, text_kind};

/// Settings of the HTTP listener. By default it accepts only its own address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpPlan {
    /// Further names under which the HTTP listener may be called, such as `ghost.example` or `ghost:8080`; without a
    /// port, any port.
    #[serde(deserialize_with = "at_most::<100, _, _>")]
    #[schemars(with = "AtMost<100, HostPort>")]
    pub allowed_hosts: Vec<HostPort>,
    /// Web pages of other origins that may call it, such as `https://dash.example`. They still need the token.
    #[serde(deserialize_with = "origins")]
    #[schemars(with = "AtMost<100, WebOrigin>")]
    pub allowed_origins: Vec<String>,
}

/// The content of a `Host` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an address, in lower case; an IPv6 address without its brackets.
    pub host: String,
    /// The port, if one was given.
    pub port: Option<u16>,
}

impl HostPort {
    /// Parses `host`, `host:port`, `[v6]` or `[v6]:port`. Nothing may follow the port.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(text) => {
                let (address, rest) = text.split_once(']')?;
                (address.parse::<Ipv6Addr>().ok()?.to_string(), rest)
            }
            None => {
                let end = text.find(':').unwrap_or(text.len());
                let (host, rest) = text.split_at(end);
                let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                if host.is_empty() || host.len() > 253 || !host.bytes().all(valid) {
                    return None;
                }
                (host.to_ascii_lowercase(), rest)
            }
        };
        let port = match rest.strip_prefix(':') {
            // `parse` would accept `+80`.
            Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().ok()?)
            }
            None if rest.is_empty() => None,
            Some(_) | None => return None,
        };
        Some(Self { host, port })
    }
}

schema!(HostPort, _ => json_schema!({ "title": "host", "type": "string" }));

impl<'de> Deserialize<'de> for HostPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::<D, Self, 300>(deserializer, |text| {
            let hint = "write a name or an address, with a port if only that one is meant, such as ghost.example or ghost:8080";
            Self::parse(text).ok_or_else(|| (format!("`{text}` is not a host"), hint.into()))
        })
    }
}

text_kind! {
    /// An origin as browsers write it.
    pub WebOrigin(String), 300, "origin", |text| {
        let hint = "write scheme and host alone, with the port if it is not the scheme's own, such as https://dash.example";
        origin(text).ok_or_else(|| (format!("`{text}` is not an origin as browsers write it"), hint.into()))
    }
}

fn origins<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(at_most::<100, WebOrigin, D>(deserializer)?.into_iter().map(|origin| origin.0).collect())
}

/// Parses an origin as browsers write it: `scheme://host`, with a port if it is not the scheme's
/// default. Returns it in lower case.
#[must_use]
pub fn origin(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let port = HostPort::parse(host)?.port;
    let default = if text.starts_with("https:") { 443 } else { 80 };
    (port != Some(default)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_hosts_are_parsed() {
        let read = |text: &str| HostPort::parse(text).map(|found| (found.host, found.port));
        for (text, host, port) in [
            ("localhost", "localhost", None),
            ("LOCALHOST:80", "localhost", Some(80)),
            ("ghost_1.svc.cluster.local:8080", "ghost_1.svc.cluster.local", Some(8_080)),
            ("127.0.0.1:28083", "127.0.0.1", Some(28_083)),
            ("[::1]", "::1", None),
            ("[0:0::1]:9", "::1", Some(9)),
        ] {
            assert_eq!(read(text), Some((host.to_owned(), port)), "{text}");
        }
        for text in [
            "",
            ":80",
            "a:",
            "a:+80",
            "a:65536",
            "a:80:80",
            "127.0.0.1:28083.evil.com",
            "a b",
            "a@b",
            "a/b",
            "*",
            "[::1",
            "[a]",
            "[::1]x",
            "::1",
            "ü",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        assert_eq!(origin("https://Dash.example").as_deref(), Some("https://dash.example"));
        assert_eq!(origin("http://a:3000").as_deref(), Some("http://a:3000"));
        for text in ["dash.example", "https://a/", "https://a:443", "http://a:80", "ftp://a", "null", "https://", "*"] {
            assert_eq!(origin(text), None, "{text}");
        }
    }
}
