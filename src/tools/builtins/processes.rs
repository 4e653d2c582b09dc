//! `tool.process`: an agent's background commands.

use std::time::Duration;

use super::commands::{ended_as, shown};
use super::common::*;
use crate::effect::{Typed, choose, outside, read};
use crate::processes::{Piece, Process, ProcessState};

/// Characters of a command line in a list.
const LINE: usize = 160;
/// Bytes of output in one result, unless the call says less.
const PIECE: usize = 16 * 1024;
/// The longest that a poll waits.
const POLL_MAX: Duration = Duration::from_secs(60);

// Comments on the variants would make the schema larger; `action` explains them.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Action {
    List,
    Poll,
    Log,
    Write,
    Kill,
    Clear,
    Remove,
}

params! {
    pub(super) struct ProcessParams {
        /// What to do: list them; poll output since the last poll; log output from offset on; write to the input; kill;
        /// clear those that have ended; remove one.
        action: Action,
        /// The command; not for list and clear.
        session_id: Option<String>,
        /// Text for write.
        data: Option<String>,
        /// For write: whether the input ends here.
        #[serde(default)]
        end: bool,
        /// For log: where to begin, in bytes.
        offset: Option<u64>,
        /// For poll and log: bytes of output.
        limit: Option<u32>,
        /// For poll: milliseconds to wait.
        timeout_ms: Option<u64>,
    }
}

/// The kind of a call: what changes nothing may run again after a crash.
pub(super) fn process() -> Typed<ProcessParams> {
    let (reads, changes) = (read(act).run, outside(act).run);
    choose(move |arguments: &Value| match arguments.get("action").and_then(Value::as_str) {
        Some("list" | "poll" | "log") => reads.clone(),
        _ => changes.clone(),
    })
}

async fn act(call: &CallContext, params: ProcessParams) -> Result<Output> {
    let (processes, agent_id) = (&call.services.processes, &call.caller.agent_id);
    let one = || {
        let session_id = params.session_id.as_deref().ok_or_else(|| {
            refusal!(InvalidArguments, "session_id is missing")
                .hint("`list` shows the session_id of each background command")
        })?;
        processes.one(agent_id, session_id)
    };
    let limit = params.limit.map_or(PIECE, |limit| (limit as usize).clamp(1, PIECE));
    let clock = &call.services.ctx.ports.clock;
    match params.action {
        Action::List => {
            let rows: Vec<Value> = processes.of(agent_id).iter().map(|process| row(call, process)).collect();
            Ok(json!({ "count": rows.len(), "processes": rows }).into())
        }
        Action::Poll => {
            let process = one()?;
            let wait = params.timeout_ms.map_or(Duration::ZERO, Duration::from_millis).min(POLL_MAX);
            let piece = process.poll(&**clock, wait, limit).await;
            Ok(with_output(call, &process, piece).into())
        }
        Action::Log => {
            let process = one()?;
            let offset = params.offset.unwrap_or_else(|| process.bytes().saturating_sub(limit as u64));
            let piece = process.read(offset, limit);
            Ok(with_output(call, &process, piece).into())
        }
        Action::Write => {
            let process = one()?;
            let data = params.data.as_deref().unwrap_or_default();
            if data.is_empty() && !params.end {
                return Err(refusal!(InvalidArguments, "data is missing")
                    .hint("give the text to write, or `end: true` to end the input"));
            }
            process.write(data.as_bytes(), params.end)?;
            Ok(json!({ "session_id": process.session_id, "bytes": data.len(), "ended": params.end }).into())
        }
        Action::Kill => {
            let process = one()?;
            process.kill();
            Ok(row(call, &process).into())
        }
        Action::Remove => {
            let process = one()?;
            processes.remove(&process);
            Ok(json!({ "session_id": process.session_id, "removed": 1 }).into())
        }
        Action::Clear => {
            let ended: Vec<_> = processes.of(agent_id).into_iter().filter(|process| !process.runs()).collect();
            ended.iter().for_each(|process| processes.remove(process));
            Ok(json!({ "removed": ended.len() }).into())
        }
    }
}

/// The word for a state, and how the command ended.
fn state(process: &Process) -> Value {
    match process.state() {
        ProcessState::Running => json!({ "status": "running" }),
        ProcessState::Killed => json!({ "status": "killed" }),
        ProcessState::Lost(refusal) => json!({ "status": "lost", "error": refusal.message }),
        ProcessState::Ended(finished) => {
            let (exit_code, signal) = ended_as(&finished);
            json!({ "status": finished.end.status(), "exit_code": exit_code, "signal": signal })
        }
    }
}

fn row(call: &CallContext, process: &Process) -> Value {
    let ran = match process.state() {
        ProcessState::Ended(finished) => finished.duration,
        _ => call.services.ctx.now().since(process.began_at),
    };
    let mut row = json!({
        "session_id": process.session_id, "command": clip(&process.line, LINE), "cwd": shown(&process.dir),
        "duration_ms": u64::try_from(ran.as_millis()).unwrap_or(u64::MAX), "bytes": process.bytes(),
    });
    extend(&mut row, state(process));
    row
}

fn with_output(call: &CallContext, process: &Process, piece: Piece) -> Value {
    let mut row = row(call, process);
    let output = json!({
        "output": piece.text, "offset": piece.offset, "next_offset": piece.next_offset,
        "missed": (piece.missed > 0).then_some(piece.missed),
    });
    extend(&mut row, output);
    row
}
