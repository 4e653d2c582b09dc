//! The tools of an MCP server that an operator has trusted.
//!
//! A call must never reach a server whose definition of the tool is not the one that was trusted.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::ToolboxPlan;
use ghost_config::plan::toolbox::{Idempotency, McpPlan, McpTransport, ToolboxKind, TrustedTool};
use ghost_domain::Code;
use ghost_mcp::{CallError, CallOptions, CallResult, Progress};
use ghost_sandbox::{Sandbox, ToolboxDir};
use serde_json::Map;

use super::common::*;
use crate::effect::{AfterCrash, CALL_ID_META, OutsideTool, Run, question, settle};
use crate::mcp::{Asking, Part, QUESTION_TIME, connection_for};
use crate::parameters::lenient;
use crate::registry::SourceTools;
use crate::tool::Tool;

/// How much longer than its request a call may take, in seconds: the server may have to be started.
const MARGIN: u64 = 60;
/// How long a call waits for the reason of a server that has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The trusted tools of a server, and those that cannot be had.
pub(super) fn trusted_tools(
    toolbox: &Arc<ToolboxPlan>,
    mcp: &McpPlan,
    sandbox: Result<&Arc<dyn Sandbox>, &str>,
) -> SourceTools {
    let mut found = SourceTools::default();
    for tool in &mcp.trusted {
        let full = toolbox.full(&tool.tool);
        match usable_schema(toolbox, mcp, tool, sandbox) {
            Err(why) => found.absent.push((full, why)),
            Ok(schema) => {
                let seconds = mcp.timeout.saturating_add(QUESTION_TIME).as_secs().saturating_add(MARGIN);
                let run = Run::outside(McpTool { toolbox: Arc::clone(toolbox), tool: tool.clone() });
                let tool = Tool::with_schema(&full, &tool.description, schema, run)
                    .from_toolbox(toolbox)
                    .within(u32::try_from(seconds).unwrap_or(u32::MAX));
                found.tools.push(tool);
            }
        }
    }
    found
}

/// The schema of a tool's parameters, or why agents do not have the tool.
fn usable_schema(
    toolbox: &ToolboxPlan,
    mcp: &McpPlan,
    tool: &TrustedTool,
    sandbox: Result<&Arc<dyn Sandbox>, &str>,
) -> Result<Value, String> {
    if !toolbox.allows(&tool.tool) {
        return Err("`toolboxes` of the world file does not allow it".to_owned());
    }
    if let Err(problem) = ghost_mcp::check_schema(&tool.parameters) {
        return Err(format!("the schema of its parameters cannot be used: {problem}"));
    }
    let schema = lenient(&tool.parameters)?;
    if let McpTransport::Stdio { .. } = &mcp.transport {
        let sandbox = sandbox.map_err(|why| format!("there is no sandbox: {why}"))?;
        sandbox.toolbox_path(&ToolboxDir { name: toolbox.name.clone(), dir: toolbox.dir.clone() })?;
    }
    Ok(schema)
}

struct McpTool {
    toolbox: Arc<ToolboxPlan>,
    tool: TrustedTool,
}

#[async_trait]
impl OutsideTool for McpTool {
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        let full = self.toolbox.full(&self.tool.tool);
        let (ToolboxKind::Mcp(mcp), Some(connections)) = (&self.toolbox.kind, call.services.mcp()) else {
            return Err(refusal!(Unavailable, "{full} has no server"));
        };
        let open = connection_for(connections, call, &self.toolbox, mcp).await?;
        if let Some(why) = open.withdrawn(&self.tool.tool) {
            return Err(refusal!(Unsupported, "{full} is not available: {why}").hint("do it without this tool"));
        }
        let asking = Asking { call: call.clone(), full: full.clone(), arguments: arguments.clone() };
        let running = open.questions.begin(call.call_id.to_string(), Arc::new(asking));
        let options = CallOptions {
            timeout: mcp.timeout.saturating_add(QUESTION_TIME),
            idle: Some(mcp.timeout),
            result_limit: mcp.output_limit,
            label: Some(Arc::clone(&running.label)),
            meta: self.meta(mcp, call),
        };
        let progress = |progress: Progress| call.progress(&shown(&progress));
        let done = match self.tool.tool.parse::<Part>() {
            Ok(part) => part.read(open.connection(), &arguments).await,
            Err(_) => {
                let arguments = arguments.as_object().cloned().unwrap_or_default();
                let done = open.connection().call(&self.tool.name, arguments, options, progress).await;
                done.map(|result| output(&result))
            }
        };
        drop(running);
        open.used(call.services.ctx.ports.clock.steady());
        match done {
            Ok(output) => Ok(output),
            Err(error) => {
                if matches!(error, CallError::Closed { .. }) {
                    // The reason of a server that dies comes just after its last output.
                    tokio::select! {
                        biased;
                        () = open.process_ended() => {}
                        () = call.services.ctx.ports.clock.sleep(LAST_WORDS) => {}
                    }
                }
                Err(refusal(&full, &error, &open.last_words()))
            }
        }
    }

    fn after_crash(&self) -> AfterCrash {
        match &self.toolbox.kind {
            ToolboxKind::Mcp(mcp) => AfterCrash::of(self.idempotency(mcp)),
            ToolboxKind::Commands { .. } => AfterCrash::Unknown,
        }
    }

    async fn settle(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        let full = self.toolbox.full(&self.tool.tool);
        let ToolboxKind::Mcp(mcp) = &self.toolbox.kind else { return self.run(call, arguments).await };
        let asked = match self.idempotency(mcp) {
            Idempotency::Ask(name) => {
                match mcp.trusted.iter().find(|tool| tool.tool == *name && self.toolbox.allows(name)) {
                    Some(tool) => {
                        let tool = Self { toolbox: Arc::clone(&self.toolbox), tool: tool.clone() };
                        Some(tool.run(call, question(call)).await)
                    }
                    None => Some(Err(refusal!(NotFound, "the server has no trusted tool `{name}`"))),
                }
            }
            Idempotency::Key | Idempotency::Person | Idempotency::None => None,
        };
        settle(&full, asked, || self.run(call, arguments)).await
    }
}

impl McpTool {
    fn idempotency<'p>(&self, mcp: &'p McpPlan) -> &'p Idempotency {
        mcp.idempotency.get(&self.tool.tool).unwrap_or(&Idempotency::None)
    }

    /// The id of the call for a server that declares to know it again.
    fn meta(&self, mcp: &McpPlan, call: &CallContext) -> Map<String, Value> {
        let key = (*self.idempotency(mcp) != Idempotency::None).then_some((CALL_ID_META, call.call_id));
        key.into_iter().map(|(name, call_id)| (name.to_owned(), json!(call_id))).collect()
    }
}

fn shown(progress: &Progress) -> String {
    let of = progress.total.map(|total| format!(" of {total}")).unwrap_or_default();
    match &progress.message {
        Some(message) => format!("{}{of}: {message}", progress.done),
        None => format!("{}{of}", progress.done),
    }
}

fn output(result: &CallResult) -> Output {
    let text = result.text();
    let content = match &result.structured {
        None => Value::String(text),
        Some(structured) => without_nulls(json!({
            "structured": structured, "text": (!text.is_empty()).then_some(text),
            "truncated": result.is_cut.then_some(true),
        })),
    };
    Output {
        content,
        truncated: result.is_cut,
        failed: result.is_error.then_some(Code::ExecFailed),
        ..Output::default()
    }
}

fn refusal(full: &str, error: &CallError, last_words: &str) -> Refusal {
    let words = if last_words.is_empty() { String::new() } else { format!("; {last_words}") };
    let what = format!("{full}: {error}{words}");
    let refusal = match error {
        CallError::Timeout { .. } => Refusal::new(Code::Timeout, what),
        CallError::ArgumentsTooLarge { .. } | CallError::TooLarge { .. } => Refusal::new(Code::TooLarge, what),
        _ if error.may_have_happened() => Refusal::new(Code::OutcomeUnknown, what),
        CallError::Refused { .. } => Refusal::new(Code::ExecFailed, what),
        _ => Refusal::new(Code::Unavailable, what),
    };
    match error.may_have_happened() {
        true => refusal.hint("the server may have acted: look before you repeat it"),
        false => refusal.hint("the server did not act; change the call, or do it without this tool"),
    }
}
