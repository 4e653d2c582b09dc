//! What a server says about itself. None of it is checked: it is text of the server.

use rmcp::model::{ProtocolVersion, ServerPeerInfo};

use crate::text::{shown, start};

/// Bytes of the instructions that are kept.
const INSTRUCTIONS_MAX: usize = 16 * 1_024;

/// What a server says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The version of the protocol that both use, for example `2026-07-28`.
    pub protocol: String,
    /// Whether that version has no handshake (2026-07-28 and later).
    pub is_modern: bool,
    /// Its name.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// What it says about its use, at most 16 KiB.
    pub instructions: Option<String>,
    /// Whether it says that it has tools.
    pub has_tools: bool,
    /// Whether it says that it has resources.
    pub has_resources: bool,
    /// Whether it says that it has prompts.
    pub has_prompts: bool,
    /// Whether it says that it reports changes of its tools.
    pub reports_changes: bool,
}

impl ServerInfo {
    /// What `info` says; `None` if its protocol version is unknown here.
    pub(crate) fn of(info: &ServerPeerInfo) -> Option<Self> {
        let is_known = ProtocolVersion::KNOWN_VERSIONS.contains(&info.protocol_version);
        let tools = info.capabilities.tools.as_ref();
        is_known.then(|| Self {
            protocol: info.protocol_version.as_str().to_owned(),
            is_modern: !info.protocol_version.has_initialize(),
            name: info.server_info.as_ref().map(|server| shown(&server.name)),
            version: info.server_info.as_ref().map(|server| shown(&server.version)),
            instructions: info.instructions.as_deref().map(|text| start(text, INSTRUCTIONS_MAX).to_owned()),
            has_tools: tools.is_some(),
            has_resources: info.capabilities.resources.is_some(),
            has_prompts: info.capabilities.prompts.is_some(),
            reports_changes: tools.is_some_and(|tools| tools.list_changed == Some(true)),
        })
    }
}
