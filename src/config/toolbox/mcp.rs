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
use super::sections::{MCP_OUTPUT, MCP_TIMEOUT, ManifestSection, ServerSection};
use super::template::pieces;
use crate::files::text_of;
use crate::plan::toolbox::{McpPlan, McpTransport, TrustedTool};
use crate::reader::Field;
use crate::report::FileReport;
use crate::typed::{Read, Spanned};

/// The file beside the manifest with the trusted tools.
pub const LOCK_FILE: &str = "mcp.lock";
/// Largest size of that file, in bytes.
pub const LOCK_MAX: u64 = 4 * 1_024 * 1_024;
/// The version of that file.
pub const LOCK_VERSION: u32 = 1;

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

/// The plan of a server, in the toolbox at `dir`.
pub(super) fn mcp(
    manifest: &Read<'_, ManifestSection>,
    root: &Field<'_>,
    dir: &Path,
    report: &FileReport<'_>,
) -> Option<McpPlan> {
    if root.get("server").is_none() {
        root.error("`server` is missing", "for example `server: { command: [node, server.js] }`");
    }
    let transport = manifest.server.as_ref().and_then(|server| transport(manifest, server));
    let trusted = trusted(dir, report);
    let idempotency = idempotency::of_server(manifest, &manifest.idempotency, &trusted);
    if trusted.is_empty() {
        root.warn(
            "no tool of this server is trusted, so no agent has one",
            "look at them with `ghostctl toolbox check NAME`, and trust them with `ghostctl toolbox trust NAME`",
        );
    }
    Some(McpPlan {
        transport: transport?,
        timeout: manifest.timeout_seconds.as_ref().map_or(MCP_TIMEOUT, |seconds| Duration::from_secs(seconds.0)),
        output_limit: manifest.output_limit_bytes.as_ref().map_or(MCP_OUTPUT, |bytes| bytes.usize()),
        trusted,
        idempotency,
    })
}

fn transport(manifest: &Read<'_, ManifestSection>, server: &Spanned<ServerSection>) -> Option<McpTransport> {
    let field = manifest.at(server);
    match (&server.command, &server.url) {
        (Some(command), None) => {
            if server.token_env.is_some() {
                field.error("`token_env` is for a server with a `url`", "name the variable under `passthrough_env`");
            }
            if command.is_empty() {
                let hint = "for example `command: [node, \"{toolbox}/server.js\"]`";
                manifest.at(command).error("the command is empty", hint);
                return None;
            }
            let none = BTreeSet::new();
            let words =
                command.iter().map(|word| pieces(manifest.at(word), word, &none)).collect::<Option<Vec<_>>>()?;
            Some(McpTransport::Stdio { command: words })
        }
        (None, Some(url)) => {
            let token_env = server.token_env.as_ref().map(|name| name.0.clone());
            Some(McpTransport::Http { url: address(manifest.at(url), url)?, token_env })
        }
        _ => {
            field.error("a server has either a `command` or a `url`", "write one of them");
            None
        }
    }
}

/// The address of a server. The token would travel in the open over `http`, so that is for this machine only.
fn address(field: &Field<'_>, text: &str) -> Option<String> {
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
