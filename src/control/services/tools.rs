//! What an agent's registry holds, and calls of it from outside.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::transcript::ToolSpec;
use ghost_domain::{AgentId, Code, Refusal, RequestKey, TurnId};
use ghost_proto::v1;
use ghost_proto::v1::tools_server::Tools;
use ghost_rules::{requests, turns};
use ghost_world::{OperatorCall, World};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{self, input};
use crate::queries::CutOff;
use crate::refusal::to_status;
use crate::{caller, queries};

/// Characters of a tool's name.
const NAME_MAX: usize = 128;
/// How often a repeated request looks whether the first one has ended.
const LOOK: Duration = Duration::from_millis(50);
/// What a repeated request waits beyond the longest that the first one may take.
const SLACK: Duration = Duration::from_secs(30);

/// The service.
pub struct ToolsService(pub Control);

/// A request to call a tool, checked.
struct Call {
    agent_id: AgentId,
    tool: String,
    arguments: Value,
    /// How long the caller waits.
    timeout: Option<Duration>,
}

/// What is kept under the key of a call. A call cannot be undone, so that it began is kept before it begins, with the turn
/// that it is: who finds only that, from a daemon that is gone, finds in the turn's journal what came of it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    Begun {
        epoch: i64,
        attempt: String,
        /// None in a record of before the turn was chosen beforehand: of that call nobody knows what came of it.
        #[serde(default)]
        turn_id: Option<TurnId>,
    },
    Done(Answer),
    Refused(Refusal),
}

/// What a call left.
#[derive(Serialize, Deserialize)]
struct Answer {
    call_id: String,
    turn_id: String,
    agent_id: AgentId,
    tool: String,
    status: String,
    result_json: String,
    refusal: Option<Refusal>,
    duration_ms: u64,
    truncated: bool,
}

impl Answer {
    fn message(self) -> Result<v1::CallToolResponse, Refusal> {
        Ok(v1::CallToolResponse {
            call_id: self.call_id,
            turn_id: self.turn_id,
            agent_id: self.agent_id.to_string(),
            tool: self.tool,
            status: self.status,
            result_json: self.result_json,
            refusal_json: self.refusal.as_ref().map(convert::refusal_json).transpose()?,
            duration_ms: self.duration_ms,
            truncated: self.truncated,
        })
    }
}

/// The tools of an agent as its briefing lists them; for REST, too.
pub(crate) async fn listed(world: &World, agent_id: &AgentId) -> Result<Arc<[ToolSpec]>, Refusal> {
    Ok(world.preview(agent_id).await?.tools)
}

/// The same as text, `- name: description` a line.
pub(crate) fn brief(tools: &[ToolSpec]) -> String {
    tools.iter().map(|tool| format!("- {}: {}\n", tool.name, tool.description)).collect()
}

impl ToolsService {
    async fn page(&self, request: &v1::ListToolsRequest) -> Result<v1::ListToolsResponse, Refusal> {
        let agent_id = input::parsed("agent_id", &request.agent_id)?;
        let after = input::unseal("tools", &request.cursor)?;
        let tools = listed(&self.0.world, &agent_id).await?;
        // The list has the order of the briefing, and a tool stands in it once. One that is gone since begins it anew.
        let start = tools.iter().position(|tool| tool.name == after).map_or(0, |at| at + 1);
        let rest = tools.get(start..).unwrap_or_default();
        let summaries = rest.iter().take(input::page(request.limit)).map(|tool| v1::ToolSummary {
            name: tool.name.clone(),
            description: tool.description.clone(),
            label: tool.label().to_owned(),
            section: tool.section().unwrap_or_default().to_owned(),
        });
        let (tools, _) = queries::within_bytes(summaries, false);
        let next_cursor =
            tools.last().filter(|_| tools.len() < rest.len()).map(|last| input::seal("tools", &last.name));
        Ok(v1::ListToolsResponse { next_cursor: next_cursor.unwrap_or_default(), tools })
    }

    fn checked(&self, request: &v1::CallToolRequest) -> Result<Call, Refusal> {
        let most = self.0.world.ctx().limits().arguments_bytes;
        let arguments = match input::object("arguments_json", &request.arguments_json, most)? {
            Value::Null => Value::Object(Map::new()),
            arguments => arguments,
        };
        Ok(Call {
            agent_id: input::parsed("agent_id", &request.agent_id)?,
            tool: input::line("tool", &request.tool, NAME_MAX)?,
            arguments,
            timeout: input::wait("timeout_ms", request.timeout_ms)?,
        })
    }

    async fn call_once(&self, key: RequestKey, call: Call) -> Result<Answer, Refusal> {
        let world = &self.0.world;
        let (epoch, attempt) = (world.ctx().epoch, world.ctx().id().to_string());
        let turn_id = TurnId(world.ctx().id());
        let mark = Kept::Begun { epoch, attempt: attempt.clone(), turn_id: Some(turn_id) };
        let kept =
            requests::once(world.store(), world.ctx(), key.clone(), move |_| Box::pin(async move { Ok(mark) })).await?;
        match kept {
            Kept::Done(answer) => Ok(answer),
            Kept::Refused(refusal) => Err(refusal),
            Kept::Begun { attempt: of, .. } if of == attempt => self.run_in_time(key, call, turn_id, false).await,
            Kept::Begun { epoch: of, turn_id: None, .. } if of != epoch => Err(unknown()),
            Kept::Begun { epoch: of, turn_id: Some(turn_id), attempt: before } if of != epoch => {
                let found = kept_text(&Kept::Begun { epoch: of, attempt: before, turn_id: Some(turn_id) })?;
                let ours = kept_text(&Kept::Begun { epoch, attempt, turn_id: Some(turn_id) })?;
                match queries::take_over_call(world, key.clone(), turn_id, found, ours).await? {
                    CutOff::Ours => self.run_in_time(key, call, turn_id, true).await,
                    CutOff::Lost => Err(unknown()),
                    CutOff::Others => self.wait_for_other(key, call.timeout).await,
                }
            }
            Kept::Begun { .. } => self.wait_for_other(key, call.timeout).await,
        }
    }

    /// Runs the call in a task of its own: it goes on to its end and its answer is kept, whether or not the caller stays.
    async fn run_in_time(&self, key: RequestKey, call: Call, turn_id: TurnId, again: bool) -> Result<Answer, Refusal> {
        let (world, timeout) = (&self.0.world, call.timeout);
        let call = OperatorCall { turn_id, again, agent_id: call.agent_id, tool: call.tool, arguments: call.arguments };
        let running = tokio::spawn(run(Arc::clone(world), key, call));
        tokio::select! {
            biased;
            ended = running => ended.unwrap_or_else(|_| Err(unknown())),
            () = passed(world, timeout) => Err(waited()),
        }
    }

    /// Waits for the call that another request with the same id runs in this daemon.
    async fn wait_for_other(&self, key: RequestKey, timeout: Option<Duration>) -> Result<Answer, Refusal> {
        let world = &self.0.world;
        let limits = world.ctx().limits();
        let longest = Duration::from_secs(limits.call_seconds.max(limits.ask_seconds).into()) + SLACK;
        tokio::select! {
            biased;
            ended = ended(world, &key) => ended,
            () = passed(world, Some(timeout.unwrap_or(longest))) => Err(waited()),
        }
    }
}

fn kept_text(kept: &Kept) -> Result<String, Refusal> {
    serde_json::to_string(kept)
        .map_err(|error| Refusal::new(Code::Internal, format!("the answer cannot be kept: {error}")))
}

async fn passed(world: &World, timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => world.ctx().ports.clock.sleep(timeout).await,
        None => pending().await,
    }
}

fn waited() -> Refusal {
    Refusal::new(Code::Timeout, "the call has not ended within timeout_ms").hint(
        "it goes on within its own deadline; send the same request_id again to get its outcome, or see the ledger",
    )
}

fn unknown() -> Refusal {
    Refusal::new(Code::OutcomeUnknown, "this call had begun when the daemon lost it; what came of it is not known")
        .hint("look at the ledger and at what the tool changes, then call again with a fresh request_id")
}

/// Runs a call and keeps what came of it.
async fn run(world: Arc<World>, key: RequestKey, call: OperatorCall) -> Result<Answer, Refusal> {
    let caller = Arc::clone(&world);
    // Apart, so that a tool's panic ends only the call.
    let ended = tokio::spawn(async move { answer(&caller, call).await }).await;
    let answered = ended.unwrap_or_else(|_| Err(unknown()));
    let kept = match answered {
        Ok(answer) => Kept::Done(answer),
        Err(refusal) => Kept::Refused(refusal),
    };
    let text = kept_text(&kept)?;
    if let Err(refusal) = queries::keep_answer(&world, key, text).await {
        // The caller still learns what came of it; only a repetition will not.
        tracing::warn!(%refusal, "the answer to a tool call could not be kept");
    }
    match kept {
        Kept::Done(answer) => Ok(answer),
        Kept::Refused(refusal) => Err(refusal),
        Kept::Begun { .. } => Err(unknown()),
    }
}

async fn answer(world: &World, call: OperatorCall) -> Result<Answer, Refusal> {
    let (turn_id, agent_id, tool, again) = (call.turn_id, call.agent_id.clone(), call.tool.clone(), call.again);
    let outcome = world.call_tool(call).await?;
    if again && let Some(refusal) = outcome.refusal.as_ref().filter(|refusal| refusal.code == Code::OutcomeUnknown) {
        return Err(refusal.clone());
    }
    let row = queries::call_of_turn(world, turn_id).await?;
    Ok(Answer {
        call_id: row.as_ref().map(|row| row.call_id.to_string()).unwrap_or_default(),
        turn_id: turn_id.to_string(),
        agent_id,
        tool: row.as_ref().map_or(tool, |row| row.tool.clone()),
        status: turns::ledger_status(&outcome).as_str().to_owned(),
        result_json: world.ctx().redactor.redact_json(&outcome.content).to_string(),
        truncated: outcome.truncated || row.as_ref().is_some_and(|row| row.truncated),
        refusal: outcome.refusal,
        duration_ms: row.and_then(|row| row.duration_ms).unwrap_or(0),
    })
}

/// Waits until a call that runs in this daemon has left its answer.
async fn ended(world: &World, key: &RequestKey) -> Result<Answer, Refusal> {
    loop {
        let Some(text) = queries::kept_answer(world, key).await? else { return Err(unknown()) };
        let kept: Kept = serde_json::from_str(&text)
            .map_err(|error| Refusal::new(Code::Internal, format!("the stored answer does not read back: {error}")))?;
        match kept {
            Kept::Done(answer) => return Ok(answer),
            Kept::Refused(refusal) => return Err(refusal),
            Kept::Begun { .. } => world.ctx().ports.clock.sleep(LOOK).await,
        }
    }
}

#[tonic::async_trait]
impl Tools for ToolsService {
    async fn list(&self, request: Request<v1::ListToolsRequest>) -> Result<Response<v1::ListToolsResponse>, Status> {
        caller::party(&request)?;
        self.page(request.get_ref()).await.map(Response::new).map_err(to_status)
    }

    async fn brief(&self, request: Request<v1::BriefToolsRequest>) -> Result<Response<v1::BriefToolsResponse>, Status> {
        caller::party(&request)?;
        let agent_id = input::parsed("agent_id", &request.get_ref().agent_id).map_err(to_status)?;
        let tools = listed(&self.0.world, &agent_id).await.map_err(to_status)?;
        Ok(Response::new(v1::BriefToolsResponse { text: brief(&tools) }))
    }

    async fn call(&self, request: Request<v1::CallToolRequest>) -> Result<Response<v1::CallToolResponse>, Status> {
        let key = caller::key(&request, "tools.call", &request.get_ref().request_id)?;
        let call = self.checked(request.get_ref()).map_err(to_status)?;
        // A task of its own from the mark on: a caller that goes away between the mark and the call would leave a call that
        // is recorded as begun and never runs.
        let service = Self(self.0.clone());
        let called = tokio::spawn(async move { service.call_once(key, call).await });
        let answer = called.await.unwrap_or_else(|_| Err(unknown())).and_then(Answer::message).map_err(to_status)?;
        Ok(Response::new(answer))
    }
}

#[cfg(test)]
mod tests;
