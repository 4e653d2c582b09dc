//! Writes to the agent's input.
//!
//! It must go on taking messages when the agent is gone: their number is counted, and the reader waits for it.

use agent_client_protocol::{RawJsonRpcMessage, TransportFrame};
use futures_util::{Stream, StreamExt as _};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::why::Why;
use crate::wire::Wire;

/// Writes `frames` until they end.
pub(crate) async fn write(
    wire: &Wire,
    mut input: impl AsyncWrite + Unpin,
    mut frames: impl Stream<Item = TransportFrame> + Unpin,
) {
    let mut gone = false;
    while let Some(frame) = frames.next().await {
        let TransportFrame::Single(message) = &frame else { continue };
        if let RawJsonRpcMessage::Request(request) = message {
            wire.awaits(request.id.clone());
        }
        if !gone {
            match frame.to_json() {
                Ok(line) => gone = put(wire, &mut input, line).await,
                Err(error) => tracing::warn!(code = error.code.value(), "a message has no JSON form"),
            }
        }
        match message {
            RawJsonRpcMessage::Request(request) if !gone && &*request.method == "session/prompt" => {
                wire.prompt_given();
            }
            RawJsonRpcMessage::Response(_) => wire.answered(),
            _ => {}
        }
    }
}

/// Writes a line. Returns whether the agent is gone.
async fn put(wire: &Wire, input: &mut (impl AsyncWrite + Unpin), mut line: String) -> bool {
    line.push('\n');
    let written = async {
        input.write_all(line.as_bytes()).await?;
        input.flush().await
    };
    let Err(error) = written.await else { return false };
    wire.ends(Why::Write(error.to_string()));
    wire.breaks();
    true
}
