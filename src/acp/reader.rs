//! Reads the agent's output, and gives the protocol's library only what is counted.
//!
//! It must never let the agent fill memory: updates are handled here one by one, requests wait for their turn, and
//! everything else is dropped.

use std::borrow::Cow;
use std::sync::Arc;

use agent_client_protocol::v1::schema::PermissionOptionKind;
use agent_client_protocol::{
    RawJsonRpcMessage, RawJsonRpcNotification, RawJsonRpcParams, RawJsonRpcRequest, RawJsonRpcResponse, TransportFrame,
};
use ghost_domain::json_text::{readable, readable_part};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::io::AsyncRead;

use crate::bounds::{GARBAGE_MAX, LINE_MAX};
use crate::host::Host;
use crate::lines::{LineError, Lines};
use crate::record::Record;
use crate::updates::update;
use crate::why::Why;
use crate::wire::Wire;

pub(crate) struct Reader {
    pub(crate) wire: Arc<Wire>,
    pub(crate) record: Arc<Record>,
    pub(crate) host: Arc<dyn Host>,
}

impl Reader {
    /// Reads until the output ends or is not acceptable, and says why in the wire. `deliver` gets the messages for
    /// the library.
    pub(crate) async fn read(&self, output: impl AsyncRead + Unpin, mut deliver: impl FnMut(TransportFrame)) {
        let mut lines = Lines::new(output, LINE_MAX);
        let mut garbage = 0;
        let why = loop {
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                Ok(None) => break Why::Ended,
                Err(LineError::TooLong) => break Why::LineTooLong { max: LINE_MAX },
                Err(LineError::Io(error)) => break Why::Read(error.to_string()),
            };
            if line.trim().is_empty() {
                continue;
            }
            // Programs print other lines, too, for example about a new version of them.
            let Some(message) = parse(&line) else {
                garbage += 1;
                if garbage > GARBAGE_MAX {
                    break Why::NotTheProtocol { lines: garbage };
                }
                continue;
            };
            drop(line);
            if let Some(message) = self.message(message).await {
                deliver(TransportFrame::Single(message));
            }
            // A flood must not keep the other half of the run from its turn.
            tokio::task::consume_budget().await;
        };
        self.wire.ends(why);
    }

    /// The message, if the library gets it.
    async fn message(&self, message: RawJsonRpcMessage) -> Option<RawJsonRpcMessage> {
        match message {
            RawJsonRpcMessage::Notification(RawJsonRpcNotification { method, params }) => {
                if &*method == "session/update" {
                    update(&self.record, &*self.host, params);
                }
                None
            }
            RawJsonRpcMessage::Request(mut request) => {
                drop_unknown_options(&mut request);
                self.wire.admit().await;
                Some(RawJsonRpcMessage::Request(request))
            }
            RawJsonRpcMessage::Response(response) => {
                let id = match &response {
                    RawJsonRpcResponse::Result { id, result } => {
                        // The library turns another version into an error of its own, without the number.
                        if let Some(version) = result.get("protocolVersion").and_then(Value::as_u64) {
                            self.wire.set_version(version);
                        }
                        id
                    }
                    RawJsonRpcResponse::Error { id, .. } => id,
                };
                self.wire.takes(id).then_some(RawJsonRpcMessage::Response(response))
            }
        }
    }
}

fn parse(line: &str) -> Option<RawJsonRpcMessage> {
    let read = |text: &str| match TransportFrame::parse_json(text) {
        TransportFrame::Single(message) => Some(message),
        _ => None,
    };
    let part = readable_part(line);
    let message = read(&part)?;
    // Only the message of an agent comes in parts, and only in updates.
    match (part, &message) {
        (Cow::Owned(_), RawJsonRpcMessage::Request(_) | RawJsonRpcMessage::Response(_)) => read(&readable(line)),
        _ => Some(message),
    }
}

/// Drops the options of a permission question whose kind is not known. They cannot be chosen, and one of them would
/// make the whole question unreadable.
fn drop_unknown_options(request: &mut RawJsonRpcRequest) {
    if &*request.method != "session/request_permission" {
        return;
    }
    let Some(RawJsonRpcParams::Object(params)) = &mut request.params else { return };
    if let Some(Value::Array(options)) = params.get_mut("options") {
        options.retain(|option| {
            option.get("optionId").is_some_and(Value::is_string)
                && option.get("name").is_some_and(Value::is_string)
                && option.get("kind").is_some_and(|kind| PermissionOptionKind::deserialize(kind).is_ok())
        });
    }
}
