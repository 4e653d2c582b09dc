//! Reads a toolbox of `kind: mcp`: how its server is reached, and the tools that an operator has trusted.
//!
//! A tool that is not in the lock file must never become a tool of an agent: whoever runs the server writes its
//! descriptions, and models read them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::idempotency;
use super::template::pieces;
use crate::files::text_of;
use crate::kinds::Variable;
use crate::plan::toolbox::{McpPlan, McpTransport, TrustedTool};
use crate::reader::{Field, Map};
use crate::report::FileReport;
use crate::typed::read_as;

/// The file beside the manifest with the trusted tools.
pub const LOCK_FILE: &str = "mcp.lock";
/// Largest size of that file, in bytes.
pub const LOCK_MAX: u64 = 4 * 1_024 * 1_024;
/// The version of that file.
pub const LOCK_VERSION: u32 = 1;
/// The time of a call for which the manifest names none.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time of a call, in seconds.
const TIMEOUT_MAX: u64 = 3_600;
/// Bytes of a result that are kept if the manifest names no bound.
const OUTPUT: usize = 256 * 1_024;

/// The content of the lock file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// [`LOCK_VERSION`].
    pub version: u32,
    /// The tools, by name.
    pub tools: Vec<TrustedTool>,
}

/// The text of a lock file with these tools.
///
/// # Errors
/// If they cannot be written as JSON.
pub fn lock_text(tools: &[TrustedTool]) -> Result<String, serde_json::Error> {
    let lock = Lock { version: LOCK_VERSION, tools: tools.to_vec() };
    Ok(format!("{}\n", serde_json::to_string_pretty(&lock)?))
}

/// Reads the keys of a server in the toolbox at `dir`.
pub(super) fn mcp(map: &Map<'_>, dir: &Path, report: &FileReport<'_>) -> Option<McpPlan> {
    let transport = map.need("server", "{ command: [node, server.js] }").and_then(|field| transport(&field));
    let timeout = map.get("timeout_seconds").and_then(|field| field.count(1..=TIMEOUT_MAX)).map(Duration::from_secs);
    let output_limit = map.get("output_limit_bytes").and_then(|field| field.count(1..=16_777_216));
    let trusted = trusted(dir, report);
    let idempotency = idempotency::of_server(map, &trusted);
    if trusted.is_empty() {
        map.field().warn(
            "no tool of this server is trusted, so no agent has one",
            "look at them with `ghostctl toolbox check NAME`, and trust them with `ghostctl toolbox trust NAME`",
        );
    }
    Some(McpPlan {
        transport: transport?,
        timeout: timeout.unwrap_or(TIMEOUT),
        output_limit: output_limit.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(OUTPUT),
        trusted,
        idempotency,
    })
}

fn transport(field: &Field<'_>) -> Option<McpTransport> {
    let map = field.map_of("{ command: [node, server.js] } or { url: 'https://mcp.example/mcp' }")?;
    let (command, url) = (map.get("command"), map.get("url"));
    let token_env = map.get("token_env").and_then(|field| read_as::<Variable>(&field).map(|name| name.0));
    map.finish(&[
        ("token", "the file never has the value: name the variable with `token_env`"),
        ("headers", "the token of `token_env` is the only header that is sent"),
        ("env", "write it beside `server`"),
    ]);
    match (command, url) {
        (Some(command), None) => {
            if token_env.is_some() {
                field.error("`token_env` is for a server with a `url`", "name the variable under `passthrough_env`");
            }
            let none = BTreeSet::new();
            let words = command.texts(4_096);
            if words.is_empty() {
                command.error("the command is empty", "for example `command: [node, \"{toolbox}/server.js\"]`");
                return None;
            }
            let words = words.iter().map(|(item, text)| pieces(item, text, &none)).collect::<Option<Vec<_>>>()?;
            Some(McpTransport::Stdio { command: words })
        }
        (None, Some(url)) => Some(McpTransport::Http { url: address(&url)?, token_env }),
        _ => {
            field.error("a server has either a `command` or a `url`", "write one of them");
            None
        }
    }
}

/// The address of a server. The token would travel in the open over `http`, so that is for this machine only.
fn address(field: &Field<'_>) -> Option<String> {
    let text = field.text(2_000)?;
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(inner) => inner.split_once(']').map_or(inner, |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_here = name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let is_plain = !host.is_empty() && !host.contains(['@', '\\']) && text.bytes().all(|b| b.is_ascii_graphic());
    if is_plain && (scheme == "https" || (scheme == "http" && is_here)) {
        return Some(text.to_owned());
    }
    let hint = "write https://HOST/PATH; http is for a server on this machine, and a token belongs into `token_env`";
    field.error(format!("`{}` is not the address of a server", field.shown()), hint);
    None
}

/// The tools that an operator has trusted. A missing file is none.
fn trusted(dir: &Path, report: &FileReport<'_>) -> Vec<TrustedTool> {
    let path = dir.join(LOCK_FILE);
    let file = report.whole().file(&path);
    if path.symlink_metadata().is_err() {
        return Vec::new();
    }
    let again = "remove it, or write it anew";
    let text = match text_of(&path, dir, LOCK_MAX) {
        Ok(text) => text,
        Err(unread) => {
            file.error(unread.line, "", unread.message, again);
            return Vec::new();
        }
    };
    match serde_json::from_str::<Lock>(&text) {
        Ok(lock) if lock.version == LOCK_VERSION => lock.tools,
        Ok(lock) => {
            file.error(1, "version", format!("version {} is not known", lock.version), again);
            Vec::new()
        }
        Err(error) => {
            file.error(error.line(), "", format!("it is no lock file: {error}"), again);
            Vec::new()
        }
    }
}
