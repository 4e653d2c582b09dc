//! The tools of a toolbox whose tools are commands. A call becomes one argv, which runs in the sandbox.
//!
//! What a model writes must never reach a shell, become more than one argument where the manifest has one, or become an
//! option where the manifest has none.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::ToolboxPlan;
use ghost_config::plan::toolbox::{
    Argument, CommandTool, Cwd, Idempotency, Piece, Place, Program, ResultForm, Stdin, Stream, ToolboxAccess,
    ToolboxKind, ToolboxRuntime,
};
use ghost_domain::json_text::readable;
use ghost_domain::{Code, GrantId};
use ghost_sandbox::{Command, End, Sandbox, ToolboxDir};
use serde_json::Map;

use super::coding_agent::{self, AcpRun};
use super::commands::{directory, indexed, progress_of, result};
use super::common::*;
use super::mcp;
use super::repositories::git_identity;
use crate::context::Writable;
use crate::effect::{AfterCrash, CALL_ID, OutsideTool, Run, question, settle};
use crate::manifest::Before;
use crate::registry::SourceTools;
use crate::tool::Tool;

/// Bytes of all arguments of a command.
const ARGV_MAX: usize = 128 * 1_024;
/// How much longer than its command a call may take, in seconds.
const MARGIN: u64 = 10;
/// The same for an agent that speaks ACP, which must be told to stop.
const ACP_MARGIN: u64 = MARGIN + 2 * coding_agent::GRACE.as_secs();

/// The tools of `toolbox`, and those that cannot be had. `lacks` says what the sandbox lacks of the programs that a tool
/// needs. `sandbox` is where its programs run, the world's or that of its own server, or why they cannot run.
pub fn tools_of(
    toolbox: &Arc<ToolboxPlan>,
    sandbox: Result<&Arc<dyn Sandbox>, &str>,
    lacks: &dyn Fn(&CommandTool) -> Option<String>,
) -> SourceTools {
    let mut found = SourceTools::default();
    let (runtime, tools) = match &toolbox.kind {
        ToolboxKind::Commands { runtime, tools } => (runtime, tools),
        ToolboxKind::Mcp(server) => return mcp::trusted_tools(toolbox, server, sandbox),
    };
    for tool in tools {
        let full = toolbox.full(&tool.name);
        match why_absent(toolbox, runtime, tool, sandbox).or_else(|| lacks(tool)) {
            Some(why) => found.absent.push((full, why)),
            None => {
                let server = match (runtime, sandbox) {
                    (ToolboxRuntime::Remote(_), Ok(server)) => Some(Arc::clone(server)),
                    _ => None,
                };
                found.tools.push(built(toolbox, tool, full, server));
            }
        }
    }
    found
}

fn why_absent(
    toolbox: &ToolboxPlan,
    runtime: &ToolboxRuntime,
    tool: &CommandTool,
    sandbox: Result<&Arc<dyn Sandbox>, &str>,
) -> Option<String> {
    if !toolbox.allows(&tool.name) {
        return Some("`toolboxes` of the world file does not allow it".to_owned());
    }
    let is_remote = matches!(runtime, ToolboxRuntime::Remote(_));
    let sandbox = match sandbox {
        Ok(sandbox) => sandbox,
        Err(why) if is_remote => return Some(format!("its server cannot be used: {why}")),
        Err(why) => return Some(format!("there is no sandbox: {why}")),
    };
    if is_remote && matches!(tool.result, ResultForm::Acp(_)) {
        return Some("an agent that speaks ACP runs in the world's own sandbox".to_owned());
    }
    if let Some(problem) = schema_problem(&tool.parameters) {
        return Some(problem);
    }
    if let Some(name) = tool.needs_env.iter().find(|name| std::env::var_os(name).is_none_or(|value| value.is_empty())) {
        return Some(format!("the variable {name} is not set for ghostd"));
    }
    if let Program::Own(file) = &tool.program
        && !toolbox.dir.join(file).is_file()
    {
        return Some(format!("there is no file {} in the toolbox", file.display()));
    }
    if is_remote { None } else { sandbox.toolbox_path(&dir_of(toolbox)).err() }
}

/// What is wrong with the schema of a tool's parameters: no call could match it.
pub fn schema_problem(schema: &Value) -> Option<String> {
    if let Err(error) = jsonschema::validator_for(schema) {
        return Some(format!("the schema of its parameters is not valid: {error}"));
    }
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let known = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut unknown = required.filter(|name| closed && known.is_none_or(|known| !known.contains_key(*name)));
    unknown.next().map(|name| format!("the schema requires `{name}`, which is none of its properties"))
}

fn dir_of(toolbox: &ToolboxPlan) -> ToolboxDir {
    ToolboxDir { name: toolbox.name.clone(), dir: toolbox.dir.clone() }
}

fn built(toolbox: &Arc<ToolboxPlan>, tool: &CommandTool, full: String, server: Option<Arc<dyn Sandbox>>) -> Tool {
    let margin = if matches!(tool.result, ResultForm::Acp(_)) { ACP_MARGIN } else { MARGIN };
    let seconds = tool.timeout.as_secs().saturating_add(margin);
    let run = Run::outside(ToolboxCommand { toolbox: Arc::clone(toolbox), tool: tool.clone(), server });
    Tool::with_schema(&full, &tool.description, tool.parameters.clone(), run)
        .from_toolbox(toolbox)
        .within(u32::try_from(seconds).unwrap_or(u32::MAX))
}

struct ToolboxCommand {
    toolbox: Arc<ToolboxPlan>,
    tool: CommandTool,
    /// The toolbox's own server; `None` for the sandbox of the world.
    server: Option<Arc<dyn Sandbox>>,
}

/// What a call needs to run.
struct Prepared {
    sandbox: Arc<dyn Sandbox>,
    command: Command,
    grants: Vec<GrantId>,
    before: Before,
}

#[async_trait]
impl OutsideTool for ToolboxCommand {
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        let full = self.toolbox.full(&self.tool.name);
        let Prepared { sandbox, command, grants, before } = self.prepared(call, &arguments).await?;
        let dir = command.dir.clone();
        let output = match &self.tool.result {
            ResultForm::Acp(task) => {
                call.hold_money(&full, call.services.plan().coding.run_budget).await?;
                match self.acp(call, &sandbox, command, &arguments, task).run(None).await {
                    Ok(output) => output,
                    Err(refusal) => {
                        call.release_money().await?;
                        return Err(refusal);
                    }
                }
            }
            ResultForm::CodingAgent(format) => {
                call.hold_money(&full, call.services.plan().coding.run_budget).await?;
                let workspace = sandbox.workspace_path();
                let folder = if dir.is_empty() { workspace } else { format!("{workspace}/{dir}") };
                match coding_agent::run(call, &*sandbox, command, *format, folder).await {
                    Ok((Some(output), _)) => output,
                    Ok((None, done)) => result(&done, &dir, self.tool.timeout),
                    Err(refusal) => {
                        // Any other failure of the sandbox may have come after the start.
                        if matches!(refusal.code, Code::InvalidArguments | Code::NotFound | Code::PathDenied) {
                            call.release_money().await?;
                        }
                        return Err(refusal);
                    }
                }
            }
            form => {
                let progress = progress_of(call);
                let done = match self.tool.stream {
                    Stream::Lines => sandbox.run(command, &progress).await?,
                    Stream::None => sandbox.run(command, &|_| {}).await?,
                };
                match (form, done.end) {
                    (ResultForm::Json, End::Exited(0)) => self.json(&done.stdout.text, done.stdout.truncated)?,
                    _ => result(&done, &dir, self.tool.timeout),
                }
            }
        };
        Ok(indexed(call, output, before, grants).await)
    }

    async fn resume(&self, call: &CallContext, arguments: Value, session: &str) -> Result<Output> {
        let full = self.toolbox.full(&self.tool.name);
        let ResultForm::Acp(task) = &self.tool.result else {
            return Err(refusal!(OutcomeUnknown, "{full} has no session that can be continued")
                .hint("check which effects it had before you do it again"));
        };
        // A refusal of this must not hide that the agent was at work.
        let uncertain = |refusal: Refusal| {
            let what = format!("{full} was at work when the daemon stopped, and cannot go on: {}", refusal.message);
            Refusal::new(Code::OutcomeUnknown, what).hint("look at what it changed before you give it the task again")
        };
        let Prepared { sandbox, command, grants, before } = self.prepared(call, &arguments).await.map_err(uncertain)?;
        call.hold_money(&full, call.services.plan().coding.run_budget).await.map_err(uncertain)?;
        match self.acp(call, &sandbox, command, &arguments, task).run(Some(session)).await {
            Ok(output) => Ok(indexed(call, output, before, grants).await),
            Err(refusal) => {
                // Nothing was done now. What the crash cut is charged already.
                call.release_money().await?;
                Err(refusal)
            }
        }
    }

    fn after_crash(&self) -> AfterCrash {
        AfterCrash::of(&self.tool.idempotency)
    }

    async fn settle(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        let full = self.toolbox.full(&self.tool.name);
        let asked = match &self.tool.idempotency {
            Idempotency::Ask(name) => match self.asked(name) {
                Some(tool) => Some(tool.run(call, question(call)).await),
                None => Some(Err(Refusal::not_found("tool", name, None))),
            },
            Idempotency::Key | Idempotency::Person | Idempotency::None => None,
        };
        settle(&full, asked, || self.run(call, arguments)).await
    }
}

impl ToolboxCommand {
    /// The tool that says what became of a call of this one.
    fn asked(&self, name: &str) -> Option<Self> {
        let ToolboxKind::Commands { tools, .. } = &self.toolbox.kind else { return None };
        let tool = tools.iter().find(|tool| tool.name == name && self.toolbox.allows(name))?.clone();
        Some(Self { toolbox: Arc::clone(&self.toolbox), tool, server: self.server.clone() })
    }

    async fn prepared(&self, call: &CallContext, arguments: &Value) -> Result<Prepared> {
        let Some(sandbox) = self.server.as_ref().or_else(|| call.services.sandbox()) else {
            return Err(refusal!(Unavailable, "this world has no sandbox").hint("do it without this tool"));
        };
        let unavailable = |why| refusal!(Unavailable, "{}: {why}", self.toolbox.full(&self.tool.name));
        // The files of a toolbox with a server are there, where no manifest knows their place.
        let own = self.server.is_none().then(|| dir_of(&self.toolbox));
        let dir_inside = own.as_ref().map(|dir| sandbox.toolbox_path(dir)).transpose().map_err(unavailable)?;
        let dir_inside = dir_inside.unwrap_or_default();
        let workspace = sandbox.workspace_path();
        let place = |place: Place| match place {
            Place::Workspace => workspace.clone(),
            Place::Home => format!("{workspace}/{}", call.caller.agent_id.home()),
            Place::Toolbox => dir_inside.clone(),
        };
        let given = arguments.as_object().cloned().unwrap_or_default();
        let mut argv = match &self.tool.program {
            Program::Own(file) => vec![format!("{dir_inside}/{}", file.display())],
            Program::OfSandbox(name) => vec![name.clone()],
        };
        argv.extend(self.tool.command.iter().skip(1).cloned());
        argv.extend(filled(&self.tool.args, &given, &place)?);
        let dir = match &self.tool.cwd {
            Cwd::Home => directory(&call.caller, None)?,
            Cwd::Workspace => String::new(),
            Cwd::Parameter(name) => directory(&call.caller, given.get(name).and_then(Value::as_str))?,
        };
        let stdin = match (&self.tool.result, &self.tool.stdin) {
            // Its input is the protocol.
            (ResultForm::Acp(_), _) | (_, Stdin::Empty) => Vec::new(),
            (_, Stdin::Json) => arguments.to_string().into_bytes(),
            (_, Stdin::Parameter(name)) => given.get(name).map(text).unwrap_or_default().into_bytes(),
        };
        let Writable { prefixes, grants } = match self.tool.access {
            ToolboxAccess::Read => Writable { prefixes: Vec::new(), grants: Vec::new() },
            ToolboxAccess::Write => call.writable().await?,
        };
        let plan = call.services.plan();
        let before = Before::look(call, &prefixes).await;
        let command = Command {
            agent_id: call.caller.agent_id.clone(),
            conversation_id: call.conversation_id,
            argv,
            dir,
            env: self.env(call, &plan.world_id),
            stdin,
            feed: None,
            drain: None,
            toolbox: own,
            timeout: self.tool.timeout,
            writable: prefixes,
            stdout_limit: self.tool.output_limit,
            stderr_limit: plan.sandbox.stderr_limit,
        };
        Ok(Prepared { sandbox: Arc::clone(sandbox), command, grants, before })
    }

    /// The run of an agent that speaks ACP, whose task is in the parameter `task`.
    fn acp<'r>(
        &'r self,
        call: &'r CallContext,
        sandbox: &'r Arc<dyn Sandbox>,
        command: Command,
        arguments: &Value,
        task: &str,
    ) -> AcpRun<'r> {
        let timeout = self.tool.timeout;
        AcpRun {
            call,
            sandbox,
            tool: self.toolbox.full(&self.tool.name),
            command: Command { timeout: timeout + 2 * coding_agent::GRACE, ..command },
            task: arguments.get(task).map(text).unwrap_or_default(),
            timeout,
        }
    }

    /// Variables of the file, of the daemon, and of the call; the last ones win.
    fn env(&self, call: &CallContext, world_id: &str) -> Vec<(String, String)> {
        let passed = self
            .toolbox
            .passthrough_env
            .iter()
            .chain(&self.tool.passthrough_env)
            .filter(|name| call.services.redacts(name));
        let passed = passed.filter_map(|name| std::env::var(name).ok().map(|value| (name.clone(), value)));
        let own = [
            ("AGENT_ID", call.caller.agent_id.to_string()),
            ("WORLD_ID", world_id.to_owned()),
            (CALL_ID, call.call_id.to_string()),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value)).into_iter();
        let env: Vec<(String, String)> = self.toolbox.env.clone().into_iter().chain(passed).chain(own).collect();
        let set = env.iter().map(|(name, _)| name);
        let identity = git_identity(&call.services.plan(), &call.caller.agent_id, set);
        identity.into_iter().chain(env).collect()
    }

    fn json(&self, text: &str, is_cut: bool) -> Result<Output> {
        let full = self.toolbox.full(&self.tool.name);
        if is_cut {
            return Err(refusal!(TooLarge, "{full} printed more than {} bytes of JSON", self.tool.output_limit)
                .hint("ask it for less"));
        }
        let content: Value = serde_json::from_str(&readable(text)).map_err(|error| {
            refusal!(ExecFailed, "what {full} printed is not JSON: {error}")
                .hint("it has run; the tool itself needs a repair")
        })?;
        Ok(content.into())
    }
}

/// A value as one argument.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The arguments of a call.
fn filled(arguments: &[Argument], given: &Map<String, Value>, place: &dyn Fn(Place) -> String) -> Result<Vec<String>> {
    let mut argv = Vec::new();
    for argument in arguments {
        if let Some(mut words) = one(argument, given, place, &argv)? {
            argv.append(&mut words);
        }
    }
    if argv.iter().any(|word| word.contains('\0')) {
        return Err(refusal!(InvalidArguments, "an argument contains a zero byte").hint("remove it"));
    }
    if argv.iter().map(String::len).sum::<usize>() > ARGV_MAX {
        return Err(refusal!(TooLarge, "the arguments have more than {ARGV_MAX} bytes")
            .hint("write long text to a file, and name the file"));
    }
    Ok(argv)
}

/// The words of one argument; `None` if a parameter of it is absent. `before` are the words so far.
fn one(
    argument: &Argument,
    given: &Map<String, Value>,
    place: &dyn Fn(Place) -> String,
    before: &[String],
) -> Result<Option<Vec<String>>> {
    match argument {
        Argument::Spread(name) => Ok(match given.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::Array(values)) => Some(values.iter().map(text).collect()),
            Some(value) => Some(vec![text(value)]),
        }),
        Argument::Together(inner) => {
            let mut words = Vec::new();
            for argument in inner {
                match one(argument, given, place, &[before, &words].concat())? {
                    Some(mut more) => words.append(&mut more),
                    None => return Ok(None),
                }
            }
            Ok(Some(words))
        }
        Argument::One(pieces) => {
            let mut word = String::new();
            for piece in pieces {
                match piece {
                    Piece::Text(text) => word.push_str(text),
                    Piece::Place(at) => word.push_str(&place(*at)),
                    Piece::Parameter(name) => match given.get(name) {
                        None | Some(Value::Null) => return Ok(None),
                        Some(value) => word.push_str(&text(value)),
                    },
                }
            }
            // A program takes a word that begins so for one of its options, unless `--` came before.
            if let Some(Piece::Parameter(name)) = pieces.first()
                && word.starts_with('-')
                && given.get(name).is_some_and(Value::is_string)
                && !before.iter().any(|word| word == "--")
            {
                return Err(refusal!(
                    InvalidArguments,
                    "`{name}` begins with `-`, so the program would take it for an option"
                )
                .hint("write it without the `-`"));
            }
            Ok(Some(vec![word]))
        }
    }
}

/// A script that prints those of its arguments that are no programs of the sandbox.
pub const PROBE: &str = "for p in \"$@\"; do command -v -- \"$p\" >/dev/null || printf '%s\\n' \"$p\"; done";
/// How long the probe may take.
pub const PROBE_TIME: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameter(name: &str) -> Argument {
        Argument::One(vec![Piece::Parameter(name.into())])
    }

    fn words(arguments: &[Argument], given: Value) -> Result<Vec<String>, Code> {
        let place = |place: Place| format!("/{place:?}");
        filled(arguments, given.as_object().unwrap(), &place).map_err(|refusal| refusal.code)
    }

    // covers: TBX-05
    #[test]
    fn what_a_call_gives_stays_one_argument() {
        let query = Argument::One(vec![Piece::Text("--query=".into()), Piece::Parameter("q".into())]);
        let limit = Argument::Together(vec![Argument::One(vec![Piece::Text("-n".into())]), parameter("n")]);
        let spread = Argument::Spread("tags".into());
        let all = [query, limit, Argument::One(vec![Piece::Place(Place::Home)]), spread];
        assert_eq!(
            words(&all, json!({ "q": "a b; $(rm -rf /) `x` \"", "n": 3, "tags": ["x y", 1, true] })).unwrap(),
            ["--query=a b; $(rm -rf /) `x` \"", "-n", "3", "/Home", "x y", "1", "true"]
        );
        assert_eq!(
            words(&all, json!({ "n": null })).unwrap(),
            ["/Home"],
            "what is absent is left out, with its option"
        );
        assert_eq!(words(&all, json!({ "q": "a\0b" })), Err(Code::InvalidArguments));
        assert_eq!(words(&all, json!({ "q": "a".repeat(ARGV_MAX) })), Err(Code::TooLarge));
    }

    // covers: TBX-05
    #[test]
    fn a_value_is_no_option_unless_the_manifest_says_so() {
        let end = || Argument::One(vec![Piece::Text("--".into())]);
        let path = || parameter("path");
        let hostile = || json!({ "path": "--upload-pack=touch x" });
        assert_eq!(words(&[path()], hostile()), Err(Code::InvalidArguments));
        assert_eq!(words(&[end(), path()], hostile()).unwrap(), ["--", "--upload-pack=touch x"]);
        assert_eq!(words(&[path()], json!({ "path": -5 })).unwrap(), ["-5"], "a number is no option");
    }
}
