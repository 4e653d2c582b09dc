//! `ghostctl tool`, `toolbox` and `skill`: the tools of an agent, those that come from outside ghostd, and the skills of
//! the world.

use std::cell::RefCell;

use ghost_proto::json::parsed;
use ghost_proto::v1::{CallToolResponse, ToolDescription, ToolboxTool};
use serde_json::{Map, Value, json};

use super::world::Reload;
use crate::arguments::text_or_stdin;
use crate::commands::prelude::*;
use crate::lists::collect;
use crate::text::one_line;

#[derive(Debug, clap::Subcommand)]
pub enum Tool {
    /// List the tools of an agent
    ///
    /// Examples:
    ///   ghostctl tool list chora
    ///   ghostctl tool list chora --all
    ///   ghostctl --json tool list chora | jq -r '.[].name'
    #[command(verbatim_doc_comment)]
    List {
        /// Agent id
        agent_id: String,
        /// Also list the tools that the agent does not have, with the reason
        #[arg(long = "all", id = "include_absent")]
        all: bool,
    },
    /// Print the tools of an agent as `- name: description`, with full descriptions
    ///
    /// Examples:
    ///   ghostctl tool brief chora
    ///   ghostctl tool brief chora workspace.read
    #[command(verbatim_doc_comment)]
    Brief {
        /// Agent id
        agent_id: String,
        /// Print only this tool
        tool: Option<String>,
    },
    /// Show a tool of an agent with its parameters
    ///
    /// Examples:
    ///   ghostctl tool describe chora workspace.read
    ///   ghostctl --json tool describe chora workspace.read | jq .parameters
    #[command(verbatim_doc_comment)]
    Describe {
        /// Agent id
        agent_id: String,
        /// Tool name or alias
        tool: String,
    },
    /// Call a tool as an agent, with the agent's access rights
    ///
    /// The call runs at once, in a turn of its own, even if the agent is stopped or the world is paused.
    ///
    /// An operator's call counts as approved: it also runs at once if calls of the tool wait for an approval
    /// (`ghostctl approval`). If the world file names approvers, such a call is refused.
    ///
    /// Examples:
    ///   ghostctl tool call chora workspace.read '{"path": "notes.md"}'
    #[command(verbatim_doc_comment)]
    Call {
        /// Agent id
        agent_id: String,
        /// Tool name
        tool: String,
        /// Arguments of the tool, a JSON object; - reads standard input
        #[arg(id = "arguments_json", value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
        arguments: String,
    },
}

impl Tool {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List { agent_id, all } => list_tools(client, agent_id, all).await,
            Self::Brief { agent_id, tool } => {
                let text = match tool {
                    Some(name) => brief(client, &agent_id, &name).await?,
                    None => client.call(v1::BriefToolsRequest { agent_id: agent_id.clone() }).await?.text,
                };
                Ok(Answer::new(&json!({ "agent_id": agent_id, "text": text }), text))
            }
            Self::Describe { agent_id, tool } => {
                Ok(described(&client.call(v1::DescribeToolRequest { agent_id, tool }).await?))
            }
            Self::Call { agent_id, tool, arguments } => {
                let (request_id, arguments_json) = (new_request_id(), object(text_or_stdin(arguments)?)?);
                let request = v1::CallToolRequest { request_id, agent_id, tool, arguments_json, timeout_ms: None };
                Ok(called(&client.call(request).await?))
            }
        }
    }
}

/// A tool, and what it is for or why it is absent.
type Described = (String, String);

const DESCRIBED: &[Column<Described>] =
    &[("TOOL", |(name, _), _| name.clone()), ("DESCRIPTION", |(_, about), _| about.clone())];

async fn list_tools(client: &Client, agent_id: String, include_absent: bool) -> Result<Answer, Failure> {
    let absent = RefCell::new(Vec::new());
    let tools = collect(&Bound::ALL, async |limit, cursor| {
        let request = v1::ListToolsRequest { agent_id: agent_id.clone(), limit, cursor, include_absent };
        let page = client.call(request).await?;
        absent.borrow_mut().extend(page.absent);
        Ok((page.tools, page.next_cursor))
    })
    .await?
    .rows;
    let absent = absent.into_inner();
    let has = tools.iter().map(|tool| json!({ "name": tool.name, "description": tool.description }));
    let has_not = absent.iter().map(|tool| json!({ "name": tool.name, "absent": tool.reason }));
    let json: Vec<Value> = has.chain(has_not).collect();
    // The other lines are instructions for models; `agent prompt` shows them.
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let has = tools.iter().map(|tool| (tool.name.clone(), first_line(&tool.description)));
    let has_not = absent.iter().map(|tool| (tool.name.clone(), format!("absent: {}", tool.reason)));
    let rows: Vec<Described> = has.chain(has_not).collect();
    Ok(Answer::new(&json, table(&rows, &client.view, DESCRIBED)))
}

/// The line of one tool.
async fn brief(client: &Client, agent_id: &str, name: &str) -> Result<String, Failure> {
    let request = v1::ListToolsRequest { agent_id: agent_id.to_owned(), ..<_>::default() };
    let tools = pages(client, &Bound::ALL, request).await?.rows;
    let tool = tools.into_iter().find(|tool| tool.name == name).ok_or_else(|| {
        Failure::new("unknown_tool", format!("{agent_id} has no tool `{}`", one_line(name, 100)))
            .hint(format!("`ghostctl tool list {agent_id}` lists its tools"))
    })?;
    Ok(format!("- {}: {}\n", tool.name, tool.description))
}

fn described(tool: &ToolDescription) -> Answer {
    let parameters = parsed(&tool.parameters_json);
    let mut text =
        description(&json!({ "name": tool.name, "description": tool.description, "parameters": parameters }));
    let from = match (&tool.skill, tool.toolbox.as_str()) {
        (_, "") => "Ghost".to_owned(),
        (Some(skill), toolbox) => format!("the toolbox {toolbox} of the skill {skill}"),
        (None, toolbox) => format!("the toolbox {toolbox}"),
    };
    text.push_str(&format!("  from: {from}\n  effect: {}\n", tool.effect));
    if tool.deferred {
        text.push_str("  requests leave its parameters out: a model runs it through syscall.tool.call\n");
    }
    Answer::new(tool, text)
}

/// Checks that the text is a JSON object and returns it unchanged. The daemon must see the original text, because
/// parsing loses information, such as a duplicate key.
fn object(text: String) -> Result<String, Failure> {
    match serde_json::from_str::<Map<String, Value>>(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::new("invalid_arguments", format!("JSON is not a JSON object: {error}"))
            .hint("write the arguments as in '{\"path\": \"notes.md\"}'; `ghostctl agent prompt AGENT` shows a tool's parameters")),
    }
}

fn called(call: &CallToolResponse) -> Answer {
    let result = parsed(&call.result_json);
    let refusal = call
        .refusal_json
        .as_deref()
        .map(|json| Failure::from_refusal_json(json.as_bytes()).unwrap_or_else(|| Failure::new("internal", json)));
    let failure = refusal.or_else(|| match call.status.as_str() {
        "ok" => None,
        "unknown" => Some(
            Failure::new("outcome_unknown", format!("{} may or may not have run", call.tool))
                .hint("check what it changes before you call it again"),
        ),
        status => Some(
            Failure::new("exec_failed", format!("{} ended as {status}", call.tool))
                .hint("`ghostctl turn show TURN` shows its output"),
        ),
    });
    let text = match &result {
        // As text, the refusal on standard error is the whole answer.
        _ if failure.is_some() => String::new(),
        Value::String(text) => text.clone(),
        other => format!("{other:#}"),
    };
    let json = json!({
        "call_id": call.call_id,
        "turn_id": call.turn_id,
        "agent_id": call.agent_id,
        "tool": call.tool,
        "status": call.status,
        "error_code": failure.as_ref().map(|failure| failure.code.as_str()),
        "result": result,
        "duration_ms": call.duration_ms,
        "truncated": call.truncated,
    });
    Answer { failure, ..Answer::new(&json, text) }
}

/// Formats a tool `{name, description, parameters}` with its parameters.
pub fn description(tool: &Value) -> String {
    let text = |name: &str| tool[name].as_str().unwrap_or_default();
    let mut lines = format!("{}\n", text("name"));
    for line in text("description").lines() {
        lines.push_str(&format!("  {line}\n"));
    }
    let schema = &tool["parameters"];
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, parameter) in schema["properties"].as_object().into_iter().flatten() {
        let needed = if required.contains(&name.as_str()) { ", required" } else { "" };
        let about = parameter["description"].as_str().unwrap_or_default();
        let about = if about.is_empty() { String::new() } else { format!("  {}", one_line(about, usize::MAX - 1)) };
        lines.push_str(&format!("  - {name} ({}{needed}){about}\n", type_text(parameter, schema, 0)));
    }
    lines
}

/// References, alternatives and array items are followed to this depth.
const DEPTH_MAX: usize = 4;

/// The type of a value, such as `string`, `integer, 1 to 9`, `"a" or "b"` or `array of string`.
fn type_text(schema: &Value, whole: &Value, depth: usize) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).filter(|_| depth < DEPTH_MAX) {
        return type_text(&whole["$defs"][name], whole, depth + 1);
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().filter(|value| !value.is_null()).map(Value::to_string).collect::<Vec<_>>().join(" or ");
    }
    for alternatives in ["anyOf", "oneOf"] {
        if let Some(sorts) = schema[alternatives].as_array().filter(|_| depth < DEPTH_MAX) {
            let mut sorts: Vec<String> = sorts.iter().map(|one| type_text(one, whole, depth + 1)).collect();
            sorts.retain(|sort| sort != "null");
            return sorts.join(" or ");
        }
    }
    let sorts = match &schema["type"] {
        Value::String(sort) => sort.clone(),
        Value::Array(sorts) => {
            let sorts: Vec<&str> = sorts.iter().filter_map(Value::as_str).filter(|sort| *sort != "null").collect();
            sorts.join(" or ")
        }
        _ => "any value".to_owned(),
    };
    let of = match schema.get("items") {
        Some(items) if depth < DEPTH_MAX => format!(" of {}", type_text(items, whole, depth + 1)),
        _ => String::new(),
    };
    // The largest number of an integer type is no useful limit for a reader.
    let maximum = schema.get("maximum").filter(|value| value.as_u64().is_none_or(|value| value < u32::MAX.into()));
    let bounds = match (schema.get("minimum"), maximum) {
        (Some(min), Some(max)) => format!(", {min} to {max}"),
        (Some(min), None) => format!(", {min} or more"),
        (None, Some(max)) => format!(", at most {max}"),
        (None, None) => String::new(),
    };
    let default = match schema.get("default") {
        Some(default) if !default.is_null() => format!(", {default} by default"),
        _ => String::new(),
    };
    format!("{sorts}{of}{bounds}{default}")
}

#[derive(Debug, clap::Subcommand)]
pub enum Toolbox {
    /// List the toolboxes of the world and of its skills
    ///
    /// Examples:
    ///   ghostctl toolbox list
    ///   ghostctl --json toolbox list | jq '.[].tools[].name'
    #[command(verbatim_doc_comment)]
    List {},
    /// Show the tools of a toolbox; of an MCP server, what it has now and what is trusted
    ///
    /// Examples:
    ///   ghostctl toolbox check devtools
    ///   ghostctl --json toolbox check files | jq -r '.[] | select(.state == "changed").name'
    #[command(verbatim_doc_comment)]
    Check {
        /// Toolbox name
        toolbox: String,
    },
    /// Trust tools of an MCP server as they are now, and reload the world
    ///
    /// Agents get only tools that are trusted. Their definitions are written to mcp.lock beside toolbox.yaml. A tool whose
    /// definition the server changes later is absent until you trust it again. Look first with `ghostctl toolbox check`.
    ///
    /// Examples:
    ///   ghostctl toolbox trust files
    ///   ghostctl toolbox trust files read_file list_directory
    ///   ghostctl toolbox trust files read_file=3f2a9c0d11aa
    #[command(verbatim_doc_comment)]
    Trust {
        /// Toolbox name
        toolbox: String,
        /// Tools, each with the beginning of its hash after = if it must have that; all if none
        tools: Vec<String>,
    },
    Reload(Reload),
}

/// Digits of a hash that the table shows.
const HASH_DIGITS: usize = 12;
/// Characters of a description in the table.
const ABOUT: usize = 100;
/// The same for a definition that has changed.
const CHANGED: usize = 600;

const TOOLBOXES: &[Column<v1::Toolbox>] = columns![
    "TOOLBOX" name, "KIND" kind,
    "TOOLS" => |toolbox, _| (toolbox.tools.len() - absent(toolbox)).to_string(),
    "ABSENT" => |toolbox, _| absent(toolbox).to_string(),
    "SOURCE" => |toolbox, _| match &toolbox.skill {
        Some(skill) => format!("{} of the skill {skill}", toolbox.source),
        None => toolbox.source.clone(),
    },
];

const TOOLS: &[Column<ToolboxTool>] = columns![
    "TOOL" name, "STATE" state,
    "HASH" => |tool, _| tool.hash.as_deref().unwrap_or_default().chars().take(HASH_DIGITS).collect(),
    "ABOUT" => |tool, _| match (tool.reason.as_deref(), tool.description.as_deref()) {
        // An operator who decides about a change must see what it is now.
        (Some(why), Some(now)) => one_line(&format!("{why}; now: {now}"), CHANGED),
        (why, about) => one_line(why.or(about).unwrap_or_default(), ABOUT),
    },
];

fn absent(toolbox: &v1::Toolbox) -> usize {
    toolbox.tools.iter().filter(|tool| tool.state == "absent").count()
}

impl Toolbox {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List {} => {
                let toolboxes = client.call(v1::ListToolboxesRequest {}).await?.toolboxes;
                Ok(Rows::from(toolboxes).answer(&client.view, TOOLBOXES))
            }
            Self::Check { toolbox } => {
                let found = client.call(v1::CheckToolboxRequest { toolbox }).await?;
                Ok(Rows::from(found.tools).answer(&client.view, TOOLS))
            }
            Self::Trust { toolbox, tools } => {
                let request = v1::TrustToolboxRequest { request_id: new_request_id(), toolbox, tools };
                let found = client.call(request).await?;
                Ok(Rows::from(found.tools).answer(&client.view, TOOLS))
            }
            Self::Reload(verb) => verb.run(client).await,
        }
    }
}

#[derive(Debug, clap::Subcommand)]
pub enum Skill {
    /// List the skills of the world, or those that an agent may hold
    ///
    /// Examples:
    ///   ghostctl skill list
    ///   ghostctl skill list --agent chora
    #[command(verbatim_doc_comment)]
    List {
        /// Show only the skills that this agent may hold, and which of them it holds
        #[arg(long = "agent", id = "agent_id", value_name = "AGENT")]
        agent: Option<String>,
    },
    /// Show a skill and its text, as agents get it
    ///
    /// Examples:
    ///   ghostctl skill show moderator-open-mic
    #[command(verbatim_doc_comment)]
    Show {
        /// Name of the skill
        name: String,
    },
}

const SKILLS: &[Column<v1::Skill>] = columns![
    "SKILL" name,
    "STATE" => |skill, _| match (skill.active, skill.held, skill.eligible) {
        (_, _, false) => format!("needs {}", skill.missing.join(", ")),
        (true, ..) => "active".to_owned(),
        (_, true, _) => "held".to_owned(),
        _ => "available".to_owned(),
    },
    "DESCRIPTION" description,
];

impl Skill {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List { agent: agent_id } => {
                let request = v1::ListSkillsRequest { agent_id, ..<_>::default() };
                list(client, &Bound::ALL, request, SKILLS).await
            }
            Self::Show { name } => {
                let answer = client.call(v1::GetSkillRequest { name }).await?;
                let skill = required(answer.skill.clone(), "skill")?;
                let faults = match skill.faults {
                    0 => String::new(),
                    faults => format!("{faults}; `ghostd check` names them"),
                };
                let shown = [
                    ("name", skill.name),
                    ("description", skill.description),
                    ("needs", skill.missing.join(", ")),
                    ("faults", faults),
                    ("path", skill.path),
                ];
                let head = fields(client.view.screen, &shown);
                Ok(Answer::new(&answer, format!("{head}\n{}\n", answer.document.trim_end())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_parameter_is_listed() {
        let tool = json!({ "name": "t", "description": "Does it.\nWell.", "parameters": {
            "required": ["path"],
            "$defs": { "Scope": { "enum": ["agent", "world"] } },
            "properties": {
                "path": { "type": "string", "description": "Where\nto look" },
                "depth": { "type": ["integer", "null"], "minimum": 1, "maximum": 9, "default": 3 },
                "scope": { "anyOf": [{ "$ref": "#/$defs/Scope" }, { "type": "null" }] },
                "tags": { "type": "array", "items": { "type": "string" } },
                "odd": true,
            },
        } });
        let text = description(&tool);
        let mut lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.drain(..3).collect::<Vec<_>>(), ["t", "  Does it.", "  Well."]);
        lines.sort_unstable();
        let wanted = [
            "  - depth (integer, 1 to 9, 3 by default)",
            "  - odd (any value)",
            "  - path (string, required)  Where to look",
            "  - scope (\"agent\" or \"world\")",
            "  - tags (array of string)",
        ];
        assert_eq!(lines, wanted);
    }
}
