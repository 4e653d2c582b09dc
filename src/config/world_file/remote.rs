//! Reads the toolbox server of `sandbox: { kind: remote }` (TBX-07).
//!
//! The token must never be accepted. The file names the environment variable instead.

use std::net::IpAddr;
use std::path::PathBuf;

use super::parts::variable;
use crate::plan::{RemotePlan, SandboxKind};
use crate::reader::{Field, Map};

/// Longest path of a file.
const PATH_MAX: usize = 1_024;

/// Reads the keys of a server. With another kind than `remote` they have no effect.
pub fn remote(map: &Map<'_>, kind: SandboxKind) -> Option<RemotePlan> {
    let is_remote = kind == SandboxKind::Remote;
    let get = |key: &'static str, such_as: &str| if is_remote { map.need(key, such_as) } else { map.get(key) };
    let (url, token_env) = (get("url", "https://toolbox.example:9090"), get("token_env", "GHOST_TOOLBOX_TOKEN"));
    let ca_file = map.get("ca_file");
    if !is_remote {
        for field in [&url, &token_env, &ca_file].into_iter().flatten() {
            field.warn("it has an effect in the sandbox `remote` only", "remove it, or write `kind: remote`");
        }
    }
    let url = url.and_then(|field| address(&field));
    let token_env = token_env.and_then(|field| variable(&field));
    let ca_file = ca_file.and_then(|field| field.text(PATH_MAX)).map(PathBuf::from);
    is_remote.then_some(RemotePlan { url: url?, token_env: token_env?, ca_file })
}

/// The address of a server: a scheme, a host and perhaps a port.
pub fn address(field: &Field<'_>) -> Option<String> {
    let text = field.text(2_000)?;
    let (scheme, host) = text.trim_end_matches('/').split_once("://").unwrap_or(("", text));
    let is_plain =
        !host.is_empty() && !host.contains(['/', '?', '#', '@', '\\']) && host.bytes().all(|b| b.is_ascii_graphic());
    match scheme {
        "https" if is_plain => {}
        "http" if is_plain && is_this_machine(host) => {}
        "http" if is_plain => {
            field.error(
                "the token and the files would travel in the open",
                "write https://HOST:PORT; http is for a server on this machine (127.0.0.1, ::1, localhost)",
            );
            return None;
        }
        _ => {
            field.error(format!("`{}` is not the address of a server", field.shown()), "write it as https://HOST:PORT");
            return None;
        }
    }
    Some(format!("{scheme}://{host}"))
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::problems_of;

    // covers: TBX-07
    #[test]
    fn a_server_becomes_a_plan() {
        for (given, url) in [
            ("https://box.example:9090", "https://box.example:9090"),
            ("https://10.0.0.7/", "https://10.0.0.7"),
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
            ("'http://[::1]:9090'", "http://[::1]:9090"),
            ("http://localhost", "http://localhost"),
        ] {
            let text = format!("url: {given}\ntoken_env: T\nca_file: ca.pem\n");
            let problems = problems_of(&text, |map| {
                let plan = remote(map, SandboxKind::Remote).unwrap();
                assert_eq!((plan.url.as_str(), plan.token_env.as_str()), (url, "T"));
                assert_eq!(plan.ca_file, Some("ca.pem".into()));
            });
            assert_eq!(problems, "", "{given}");
        }
    }

    #[test]
    fn every_mistake_has_its_field_and_a_hint() {
        for (text, field, hint) in [
            ("token_env: T\n", "url", "https://toolbox.example:9090"),
            ("url: https://a\n", "token_env", "GHOST_TOOLBOX_TOKEN"),
            ("url: http://box.example:9090\ntoken_env: T\n", "url", "https://HOST:PORT"),
            ("url: http://127.0.0.1.example\ntoken_env: T\n", "url", "https://HOST:PORT"),
            ("url: https://a/b\ntoken_env: T\n", "url", "https://HOST:PORT"),
            ("url: https://user@a\ntoken_env: T\n", "url", "https://HOST:PORT"),
            ("url: box.example\ntoken_env: T\n", "url", "https://HOST:PORT"),
            ("url: https://a\ntoken_env: 'no name'\n", "token_env", "never the value"),
        ] {
            let found = problems_of(text, |map| assert_eq!(remote(map, SandboxKind::Remote), None));
            assert!(found.contains(field) && found.contains(hint), "{text}: {found}");
        }
        let found = problems_of("url: https://a\n", |map| assert_eq!(remote(map, SandboxKind::Local), None));
        assert!(found.starts_with("warning: ") && found.contains("kind: remote"), "{found}");
    }
}
