//! The `Tools` service: lists the tools of an agent and calls them for an operator.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::{AgentId, CallStatus, Code, LedgerRow, Limits, Refusal, RequestKey, StoredAnswer, TurnId};
use ghost_operations::turns;
use ghost_proto::v1;
use ghost_store::tables::LedgerFilter;
use ghost_world::{OperatorCall, World};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::tools_watch;
use crate::control::Control;
use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result, stored_answer};
use crate::queries::{self, registry};
use crate::streams::PermitStream;

/// Largest length of a tool's name, in characters.
const NAME_MAX: usize = 128;
/// How often a repeated request checks whether the first one has ended.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// How much longer a repeated request waits than the first one may take.
const WAIT_MARGIN: Duration = Duration::from_secs(30);

/// A checked request to call a tool.
struct Call {
    agent_id: AgentId,
    tool: String,
    arguments: Value,
    /// How long the caller waits.
    timeout: Option<Duration>,
}

/// The stored state of a call, under its request key. A call cannot be undone, so its start is stored
/// before it runs, with the id of its turn. If the daemon dies, a repetition of the request finds the
/// outcome in that turn's journal.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredCall {
    Begun {
        epoch: i64,
        attempt: String,
        /// Missing in records of earlier versions. The outcome of such a call is unknown.
        #[serde(default)]
        turn_id: Option<TurnId>,
    },
    Done(Answer),
    Refused(Refusal),
}

/// The stored answer of a call.
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
    fn message(self) -> v1::CallToolResponse {
        v1::CallToolResponse {
            call_id: self.call_id,
            turn_id: self.turn_id,
            agent_id: self.agent_id.to_string(),
            tool: self.tool,
            status: self.status,
            result_json: self.result_json,
            refusal_json: self.refusal.as_ref().map(convert::refusal_json),
            duration_ms: self.duration_ms,
            truncated: self.truncated,
        }
    }
}

pub(crate) async fn list(cx: Query, request: v1::ListToolsRequest) -> Result<v1::ListToolsResponse> {
    let agent_id = input::parsed("agent_id", &request.agent_id)?;
    let after = input::unseal("tools", &request.cursor)?;
    let registry = registry(&cx.world, &agent_id).await?;
    let tools = registry.specs();
    let absent = match request.include_absent && after.is_empty() {
        true => registry.absent(),
        false => Vec::new(),
    };
    // The list has the order of the briefing, and contains each tool once. If the tool of the
    // cursor is gone, the list starts again.
    let start = tools.iter().position(|tool| tool.name == after).map_or(0, |at| at + 1);
    let (rest, limit) = (tools.get(start..).unwrap_or_default(), input::page(request.limit));
    let summaries = rest.iter().take(limit).map(|tool| v1::ToolSummary {
        name: tool.name.clone(),
        description: tool.description.clone(),
        label: tool.label().to_owned(),
        section: tool.section().unwrap_or_default().to_owned(),
    });
    let (tools, next_cursor) = queries::sealed("tools", summaries, rest.len() > limit, |last| &last.name);
    let absent = absent.into_iter().map(|(name, reason)| v1::AbsentTool { name, reason }).collect();
    Ok(v1::ListToolsResponse { tools, absent, next_cursor })
}

pub(crate) async fn describe(cx: Query, request: v1::DescribeToolRequest) -> Result<v1::ToolDescription> {
    let agent_id = input::parsed("agent_id", &request.agent_id)?;
    let name = input::line("tool", &request.tool, NAME_MAX)?;
    let registry = registry(&cx.world, &agent_id).await?;
    let (tool, _) = registry.find(&name)?;
    let (spec, toolbox) = (&tool.spec, tool.origin.toolbox());
    Ok(v1::ToolDescription {
        name: spec.name.clone(),
        description: spec.description.clone(),
        label: spec.label().to_owned(),
        section: spec.section().unwrap_or_default().to_owned(),
        parameters_json: tool.schema.to_string(),
        toolbox: toolbox.map(|toolbox| toolbox.name.clone()).unwrap_or_default(),
        skill: toolbox.and_then(|toolbox| toolbox.skill.clone()),
        effect: tool.run.effect_word().to_owned(),
        deferred: registry.is_deferred(&spec.name),
        hash: tool.hash().to_owned(),
    })
}

fn check(cx: &Control, request: &v1::CallToolRequest) -> Result<Call> {
    let limit = cx.world.ctx().limits().arguments_bytes;
    let arguments = match input::object("arguments_json", &request.arguments_json, limit)? {
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

async fn call_once(cx: &Mutation, call: Call) -> Result<Answer> {
    let world = &cx.world;
    let (epoch, attempt) = (world.ctx().epoch, world.ctx().id().to_string());
    let turn_id = TurnId(world.ctx().id());
    let mark = StoredCall::Begun { epoch, attempt: attempt.clone(), turn_id: Some(turn_id) };
    let stored = cx.answer(mark).await?;
    match stored {
        StoredCall::Done(answer) => Ok(answer),
        StoredCall::Refused(refusal) => Err(refusal),
        StoredCall::Begun { attempt: earlier, .. } if earlier == attempt => run_in_time(cx, call, turn_id, false).await,
        StoredCall::Begun { epoch: earlier, turn_id: None, .. } if earlier != epoch => Err(outcome_unknown()),
        StoredCall::Begun { epoch: earlier, turn_id: Some(turn_id), attempt: before } if earlier != epoch => {
            let found = stored_text(&StoredCall::Begun { epoch: earlier, attempt: before, turn_id: Some(turn_id) })?;
            let ours = stored_text(&StoredCall::Begun { epoch, attempt, turn_id: Some(turn_id) })?;
            match take_over(world, cx.key.clone(), turn_id, found, ours).await? {
                TakeOver::Ours => run_in_time(cx, call, turn_id, true).await,
                TakeOver::Lost => Err(outcome_unknown()),
                TakeOver::Others => wait_for_other(cx, call.timeout).await,
            }
        }
        StoredCall::Begun { .. } => wait_for_other(cx, call.timeout).await,
    }
}

/// Runs the call in a task of its own. It runs to its end and its answer is stored, even if the
/// caller disconnects.
async fn run_in_time(cx: &Mutation, call: Call, turn_id: TurnId, resumed: bool) -> Result<Answer> {
    let (world, timeout) = (&cx.world, call.timeout);
    let call =
        OperatorCall { turn_id, again: resumed, agent_id: call.agent_id, tool: call.tool, arguments: call.arguments };
    let running = tokio::spawn(run(Arc::clone(world), cx.key.clone(), call));
    tokio::select! {
        biased;
        ended = running => ended.unwrap_or_else(|_| Err(outcome_unknown())),
        () = timed_out(world, timeout) => Err(still_running()),
    }
}

/// Waits for the call that another request with the same id runs in this daemon.
async fn wait_for_other(cx: &Mutation, timeout: Option<Duration>) -> Result<Answer> {
    let world = &cx.world;
    let limits = world.ctx().limits();
    let longest = Duration::from_secs(limits.call_seconds.max(limits.ask_seconds).into()) + WAIT_MARGIN;
    tokio::select! {
        biased;
        ended = ended(world, &cx.key) => ended,
        () = timed_out(world, Some(timeout.unwrap_or(longest))) => Err(still_running()),
    }
}

fn stored_text(stored: &StoredCall) -> Result<String> {
    serde_json::to_string(stored)
        .map_err(|error| Refusal::new(Code::Internal, format!("the answer cannot be stored: {error}")))
}

async fn timed_out(world: &World, timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => world.ctx().ports.clock.sleep(timeout).await,
        None => pending().await,
    }
}

fn still_running() -> Refusal {
    Refusal::new(Code::Timeout, "the call has not ended within timeout_ms").hint(
        "the call continues until its own deadline; send the same request_id again to get its outcome, or see the ledger",
    )
}

fn outcome_unknown() -> Refusal {
    Refusal::new(Code::OutcomeUnknown, "the daemon lost this call after it had started; its outcome is unknown")
        .hint("check the ledger and what the tool changes, then call again with a fresh request_id")
}

/// Runs a call and stores its outcome.
async fn run(world: Arc<World>, key: RequestKey, call: OperatorCall) -> Result<Answer> {
    let caller = Arc::clone(&world);
    // A separate task, so that a panic of the tool ends only the call.
    let ended = tokio::spawn(async move { answer(&caller, call).await }).await;
    let result = ended.unwrap_or_else(|_| Err(outcome_unknown()));
    let stored = match result {
        Ok(answer) => StoredCall::Done(answer),
        Err(refusal) => StoredCall::Refused(refusal),
    };
    let text = stored_text(&stored)?;
    if let Err(refusal) = store_answer(&world, key, text).await {
        // The caller still gets the outcome; only a repetition will not.
        tracing::warn!(%refusal, "the answer to a tool call could not be stored");
    }
    match stored {
        StoredCall::Done(answer) => Ok(answer),
        StoredCall::Refused(refusal) => Err(refusal),
        StoredCall::Begun { .. } => Err(outcome_unknown()),
    }
}

async fn answer(world: &World, call: OperatorCall) -> Result<Answer> {
    let (turn_id, agent_id, tool, resumed) = (call.turn_id, call.agent_id.clone(), call.tool.clone(), call.again);
    let outcome = world.call_tool(call).await?;
    if resumed && let Some(refusal) = outcome.refusal.as_ref().filter(|refusal| refusal.code == Code::OutcomeUnknown) {
        return Err(refusal.clone());
    }
    let row = call_of_turn(world, turn_id).await?;
    Ok(Answer {
        call_id: row.as_ref().map(|row| row.call_id.to_string()).unwrap_or_default(),
        turn_id: turn_id.to_string(),
        agent_id,
        tool: row.as_ref().map_or(tool, |row| row.tool.clone()),
        // A result that tells of a failure is a result; only the ledger counts it as a failed call.
        status: match &outcome.refusal {
            None => CallStatus::Ok,
            Some(_) => turns::ledger_status(&outcome),
        }
        .as_str()
        .to_owned(),
        result_json: world.ctx().redactor.redact_json(&outcome.content).to_string(),
        truncated: outcome.truncated || row.as_ref().is_some_and(|row| row.truncated),
        refusal: outcome.refusal,
        duration_ms: row.and_then(|row| row.duration_ms).unwrap_or(0),
    })
}

/// Waits until a call that runs in this daemon has stored its answer.
async fn ended(world: &World, key: &RequestKey) -> Result<Answer> {
    loop {
        let Some(text) = stored_answer(world, key).await? else { return Err(outcome_unknown()) };
        let stored: StoredCall = serde_json::from_str(&text)
            .map_err(|error| Refusal::new(Code::Internal, format!("the stored answer cannot be parsed: {error}")))?;
        match stored {
            StoredCall::Done(answer) => return Ok(answer),
            StoredCall::Refused(refusal) => return Err(refusal),
            StoredCall::Begun { .. } => world.ctx().ports.clock.sleep(POLL_EVERY).await,
        }
    }
}

pub(crate) async fn watch(cx: Query, request: v1::WatchToolsRequest) -> Result<PermitStream<tools_watch::Item>> {
    let agent_id = input::parsed("agent_id", &request.agent_id)?;
    tools_watch::open(&cx, agent_id, cx.peer.clone()).await
}

pub(crate) async fn brief(cx: Query, request: v1::BriefToolsRequest) -> Result<v1::BriefToolsResponse> {
    let agent_id = input::parsed("agent_id", &request.agent_id)?;
    let tools = registry(&cx.world, &agent_id).await?.specs();
    let text = tools.iter().map(|tool| format!("- {}: {}\n", tool.name, tool.description)).collect();
    Ok(v1::BriefToolsResponse { text })
}

pub(crate) async fn call(cx: Mutation, request: v1::CallToolRequest) -> Result<v1::CallToolResponse> {
    let call = check(&cx, &request)?;
    // A separate task from the marker on. Otherwise a caller that disconnects between the
    // marker and the call would leave a call that is recorded as started but never runs.
    let called = tokio::spawn(async move { call_once(&cx, call).await });
    called.await.unwrap_or_else(|_| Err(outcome_unknown())).map(Answer::message)
}

/// The call of an operator's turn, which has exactly one.
async fn call_of_turn(world: &World, turn_id: TurnId) -> Result<Option<LedgerRow>> {
    let filter = LedgerFilter { turn_id: Some(turn_id), limit: 1, ..LedgerFilter::default() };
    let rows = world.store().read(move |r| r.call_list(&filter)).await?;
    Ok(rows.into_iter().next())
}

/// Stores the answer of a request that has ended, in place of the marker that it had started.
async fn store_answer(world: &World, key: RequestKey, answer: String) -> Result<()> {
    let at = world.ctx().now();
    world.store().write(move |w| w.request_put(&StoredAnswer { key, answer, at })).await.map_err(Refusal::from)
}

/// The request that continues a call of an earlier daemon process, if any.
enum TakeOver {
    /// This request continues it.
    Ours,
    /// Another request with the same id has already taken it over.
    Others,
    /// No one: its turn may have been pruned, so its outcome is unknown.
    Lost,
}

/// Replaces `found`, the marker of an earlier daemon process, by `ours`, the marker of this one.
async fn take_over(world: &World, key: RequestKey, turn_id: TurnId, found: String, ours: String) -> Result<TakeOver> {
    world
        .write(move |w| {
            let stored = w.request_get(&key.principal, &key.request_id)?;
            let Some(stored) = stored.filter(|stored| stored.answer == found) else { return Ok(TakeOver::Others) };
            let oldest = w.ctx.now().minus(Limits::days(w.ctx.limits().journal_days));
            if stored.at <= oldest && w.turn_get(turn_id)?.is_none() {
                return Ok(TakeOver::Lost);
            }
            w.request_put(&StoredAnswer { answer: ours, ..stored })?;
            Ok(TakeOver::Ours)
        })
        .await
}

#[cfg(test)]
mod tests;
