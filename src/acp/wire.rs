//! The two halves of a connection: what is read of the agent and written to it.
//!
//! The channels of the protocol's library have no bound. So nothing is put into them that is not counted here: at most
//! [`OPEN_MAX`] requests of the agent are without a written answer, only awaited answers are let in, and updates are
//! handled here, one by one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, PermissionOptionKind, Plan, PlanEntryStatus, SessionNotification, SessionUpdate,
    ToolCallUpdate,
};
use agent_client_protocol::{
    RawJsonRpcId, RawJsonRpcMessage, RawJsonRpcNotification, RawJsonRpcParams, RawJsonRpcRequest, RawJsonRpcResponse,
    TransportFrame,
};
use futures_util::{Stream, StreamExt as _};
use ghost_domain::json_text::{readable, readable_part};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::host::{Context, Cost, GARBAGE_MAX, Host, LINE_MAX, OPEN_MAX};
use crate::outcome::Why;
use crate::record::Record;

/// How much is read at once, in bytes.
const CHUNK: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Wire {
    state: Mutex<State>,
    /// Notified when an answer was written.
    answered: Notify,
    /// Cancelled when the agent's input cannot be written any more.
    pub(crate) broken: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// Requests of the agent without a written answer.
    open: usize,
    /// Our requests without an answer.
    awaited: HashSet<RawJsonRpcId>,
    /// Whether the prompt is in the agent's pipe.
    prompt_given: bool,
    /// The version of the protocol that the agent answered.
    version: Option<u64>,
    /// Why the connection ended.
    why: Option<Why>,
}

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one statement, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request of the agent. Waits while too many are open. For one caller at a time.
    async fn admit(&self) {
        loop {
            // A notification before the wait is kept, so nothing between the two is missed.
            let answered = self.answered.notified();
            {
                let mut state = self.state();
                if state.open < OPEN_MAX {
                    state.open += 1;
                    return;
                }
            }
            answered.await;
        }
    }

    /// An answer to a request of the agent was written, or cannot be.
    fn answered(&self) {
        let mut state = self.state();
        state.open = state.open.saturating_sub(1);
        drop(state);
        self.answered.notify_one();
    }

    /// The connection ends. The first reason counts, but of a process that ends, the pipes close in any order.
    fn ends(&self, why: Why) {
        let mut state = self.state();
        if matches!(state.why, None | Some(Why::Write(_))) {
            state.why = Some(why);
        }
    }

    /// Why the connection ended.
    pub(crate) fn why(&self) -> Option<Why> {
        self.state().why.clone()
    }

    /// Whether the prompt is in the agent's pipe.
    pub(crate) fn was_prompt_given(&self) -> bool {
        self.state().prompt_given
    }

    /// The version of the protocol that the agent answered.
    pub(crate) fn version(&self) -> Option<u64> {
        self.state().version
    }
}

pub(crate) struct Reader {
    pub(crate) wire: Arc<Wire>,
    pub(crate) record: Arc<Record>,
    pub(crate) host: Arc<dyn Host>,
}

impl Reader {
    /// Reads until the output ends or is not acceptable, and says why in the wire. `deliver` gets the messages for
    /// the library.
    pub(crate) async fn read(&self, output: impl AsyncRead + Unpin, mut deliver: impl FnMut(TransportFrame)) {
        let mut output = BufReader::with_capacity(CHUNK, output);
        let mut garbage = 0;
        let why = loop {
            let line = match next_line(&mut output, LINE_MAX).await {
                Ok(Some(line)) => line,
                Ok(None) => break Why::Ended,
                Err(why) => break why,
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
                            self.wire.state().version = Some(version);
                        }
                        id
                    }
                    RawJsonRpcResponse::Error { id, .. } => id,
                };
                self.wire.state().awaited.remove(id).then_some(RawJsonRpcMessage::Response(response))
            }
        }
    }
}

/// The next line, without its end; `None` at the end. Bytes that are not UTF-8 become `U+FFFD`: a wrong byte in a text
/// must not cost the whole message. A last line may lack its end.
async fn next_line(output: &mut (impl AsyncBufRead + Unpin), max: usize) -> Result<Option<String>, Why> {
    let mut line = Vec::new();
    let read = output.take(max as u64 + 1).read_until(b'\n', &mut line).await;
    if read.map_err(|error| Why::Read(error.to_string()))? == 0 {
        return Ok(None);
    }
    if line.ends_with(b"\n") {
        line.pop();
    }
    if line.len() > max {
        return Err(Why::LineTooLong { max });
    }
    let text = String::from_utf8(line);
    Ok(Some(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())))
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

/// Writes `frames` until they end, also when the agent is gone: their number is counted, and the reader waits for it.
pub(crate) async fn write(
    wire: &Wire,
    mut input: impl AsyncWrite + Unpin,
    mut frames: impl Stream<Item = TransportFrame> + Unpin,
) {
    let mut gone = false;
    while let Some(frame) = frames.next().await {
        let TransportFrame::Single(message) = &frame else { continue };
        if let RawJsonRpcMessage::Request(request) = message {
            wire.state().awaited.insert(request.id.clone());
        }
        if !gone {
            match frame.to_json() {
                Ok(line) => gone = put(wire, &mut input, line).await,
                Err(error) => tracing::warn!(code = error.code.value(), "a message has no JSON form"),
            }
        }
        match message {
            RawJsonRpcMessage::Request(request) if !gone && &*request.method == "session/prompt" => {
                wire.state().prompt_given = true;
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
    wire.broken.cancel();
    true
}

/// Adds the update in `params`, and tells the host. Nothing here may wait. Updates of other sessions, of the past, and
/// of unknown kinds are skipped.
fn update(record: &Record, host: &dyn Host, params: Option<RawJsonRpcParams>) {
    // Most of a replay is not even parsed.
    let Some(RawJsonRpcParams::Object(params)) = params.filter(|_| record.is_live()) else { return };
    if !params.get("sessionId").and_then(Value::as_str).is_some_and(|id| record.is_session(id)) {
        return;
    }
    let Ok(notification) = serde_json::from_value::<SessionNotification>(Value::Object(params)) else {
        tracing::debug!("an update of the session has an unknown form");
        return;
    };
    let notes = match notification.update {
        SessionUpdate::AgentMessageChunk(chunk) => {
            let id = chunk.message_id.as_ref().map(|id| id.0.to_string());
            text(&chunk).map(|text| record.said(id.as_deref(), text)).unwrap_or_default()
        }
        SessionUpdate::ToolCall(call) => record.call(ToolCallUpdate::from(call), false).1,
        SessionUpdate::ToolCallUpdate(update) => record.call(update, false).1,
        SessionUpdate::Plan(plan) => record.plan(plan_line(&plan)),
        SessionUpdate::UsageUpdate(update) => {
            let usage = record.usage(|usage| {
                usage.context = Some(Context { used: update.used, size: update.size });
                if let Some(cost) = update.cost {
                    usage.cost = Some(Cost::new(cost.amount, &cost.currency));
                }
            });
            host.usage(usage);
            Vec::new()
        }
        _ => Vec::new(),
    };
    notes.into_iter().for_each(|note| host.progress(note));
}

fn text(chunk: &ContentChunk) -> Option<&str> {
    match &chunk.content {
        ContentBlock::Text(text) => Some(&text.text),
        _ => None,
    }
}

/// The plan in one line: how far it is, and what is next.
fn plan_line(plan: &Plan) -> String {
    let done = plan.entries.iter().filter(|entry| entry.status == PlanEntryStatus::Completed).count();
    let doing = plan.entries.iter().find(|entry| entry.status == PlanEntryStatus::InProgress);
    let next = doing.or_else(|| plan.entries.iter().find(|entry| entry.status == PlanEntryStatus::Pending));
    let next = next.map(|entry| format!(": {}", entry.content)).unwrap_or_default();
    format!("plan: {done} of {} done{next}", plan.entries.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_up_to_their_bound_and_the_last_one_may_be_open() {
        let mut output = &b"ab\n\nc\xffd\n12345\nrest"[..];
        for expected in ["ab", "", "c\u{fffd}d", "12345", "rest"] {
            assert_eq!(next_line(&mut output, 5).await.unwrap().as_deref(), Some(expected));
        }
        assert!(next_line(&mut output, 5).await.unwrap().is_none());
        assert_eq!(next_line(&mut &b"123456"[..], 5).await, Err(Why::LineTooLong { max: 5 }));
    }
}
