//! What a server has, compared with what an operator has trusted. Its resources and prompts are two tools of Ghost's own,
//! `mcp.resources` and `mcp.prompts`, which are trusted like any other tool.
//!
//! Two definitions are the same only if their hashes are. What a server writes into a resource or a prompt is the result of
//! a call, never a text of the user or of Ghost.

use std::collections::{BTreeMap, BTreeSet};

use ghost_config::plan::toolbox::{McpPlan, TrustedTool};
use ghost_domain::text::one_line;
use ghost_domain::text_enum;
use ghost_mcp::{
    Annotations, Block, CallError, Connection, Definition, ListEnd, Listing, PromptArgument, PromptMessage, ServerInfo,
    ghost_names,
};
use serde_json::{Value, json};

use crate::effect::{Output, without_nulls};
use crate::parameters::lenient;

/// Longest description that is trusted, in bytes. Every request of an agent with the tool carries it.
const DESCRIPTION_MAX: usize = 2_048;

text_enum! {
    /// What trust an operator has in a tool of a server.
    TrustState, "state of trust" {
        /// It is as it was trusted.
        Trusted = "trusted",
        /// The server has it, and nobody trusted it.
        New = "new",
        /// Its definition is not the one that was trusted.
        Changed = "changed",
        /// It was trusted, and the server does not have it any more.
        Missing = "missing",
        /// It cannot be used.
        Unusable = "unusable",
    }
}

/// One tool of a server, for an operator who decides about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trust {
    /// The short name; that of the server, for a tool that cannot be used.
    pub tool: String,
    /// What trust there is.
    pub state: TrustState,
    /// Why it cannot be used, or what has changed.
    pub why: Option<String>,
    /// The definition as the server has it now; `None` if it has none that can be used.
    pub now: Option<TrustedTool>,
}

/// All tools of a listing and of the lock, by short name. `parts` are the tools of what else the server has.
pub(super) fn compare(listing: &Listing<Definition>, parts: Vec<TrustedTool>, mcp: &McpPlan) -> Vec<Trust> {
    let names = ghost_names(listing.items.iter().map(|definition| definition.name.as_str()));
    let short: BTreeMap<&str, &str> = names.names.iter().map(|(short, name)| (name.as_str(), short.as_str())).collect();
    let trusted: BTreeMap<&str, &TrustedTool> = mcp.trusted.iter().map(|tool| (tool.tool.as_str(), tool)).collect();
    let mut found: Vec<Trust> = Vec::new();
    for definition in &listing.items {
        let Some(tool) = short.get(definition.name.as_str()) else {
            let why = "its name has no form that agents can use, or the same form as another one";
            found.push(unusable(&definition.name, why));
            continue;
        };
        let description = one_line(definition.description.trim());
        if description.len() > DESCRIPTION_MAX {
            found.push(unusable(tool, "its description is longer than 2,048 bytes"));
            continue;
        }
        if let Err(why) = lenient(&definition.input_schema) {
            found.push(unusable(tool, &why));
            continue;
        }
        let now = TrustedTool {
            tool: (*tool).to_owned(),
            name: definition.name.clone(),
            hash: definition.hash(),
            description,
            parameters: definition.input_schema.clone(),
        };
        found.push(judged(now, &trusted));
    }
    found.extend(parts.into_iter().map(|part| judged(part, &trusted)));
    found.extend(listing.skipped.iter().map(|skipped| unusable(&skipped.name, &skipped.why)));
    let there: BTreeSet<String> = found.iter().map(|trust| trust.tool.clone()).collect();
    let gone = mcp.trusted.iter().filter(|tool| !there.contains(&tool.tool));
    found.extend(gone.map(|tool| Trust {
        tool: tool.tool.clone(),
        state: TrustState::Missing,
        why: Some("the server does not list it".to_owned()),
        now: None,
    }));
    found.sort_by(|one, other| one.tool.cmp(&other.tool));
    found
}

/// What trust there is in a definition.
fn judged(now: TrustedTool, trusted: &BTreeMap<&str, &TrustedTool>) -> Trust {
    let (state, why) = match trusted.get(now.tool.as_str()) {
        None => (TrustState::New, None),
        Some(before) if before.hash == now.hash && before.name == now.name => (TrustState::Trusted, None),
        Some(before) => (TrustState::Changed, Some(difference(before, &now))),
    };
    Trust { tool: now.tool.clone(), state, why, now: Some(now) }
}

fn unusable(tool: &str, why: &str) -> Trust {
    Trust { tool: tool.to_owned(), state: TrustState::Unusable, why: Some(why.to_owned()), now: None }
}

fn difference(before: &TrustedTool, now: &TrustedTool) -> String {
    let parts = [
        (before.name != now.name).then_some("name"),
        (before.description != now.description).then_some("description"),
        (before.parameters != now.parameters).then_some("parameters"),
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "its title or annotations are not those that were trusted".to_owned(),
        false => format!("not those that were trusted: {}", parts.join(", ")),
    }
}

/// Why trusted tools cannot be had from a server that lists this, by short name.
pub(super) fn withdrawn(found: &[Trust], mcp: &McpPlan) -> BTreeMap<String, String> {
    let is_trusted = |tool: &str| mcp.trusted.iter().any(|trusted| trusted.tool == tool);
    found
        .iter()
        .filter(|trust| trust.state != TrustState::Trusted && is_trusted(&trust.tool))
        .map(|trust| {
            let why = trust.why.clone().unwrap_or_default();
            let what = match trust.state {
                TrustState::Changed => {
                    format!("the server has changed its definition ({why}): an operator must trust it again")
                }
                _ => why,
            };
            (trust.tool.clone(), what)
        })
        .collect()
}

text_enum! {
    /// A part of a server that is no tool, by the short name of its tool. No server can give it to a tool of its own.
    Part, "part of a server" {
        /// Its resources.
        Resources = "mcp.resources",
        /// Its prompts.
        Prompts = "mcp.prompts",
    }
}

impl Part {
    /// The tools of the parts that the server says it has, as an operator would trust them.
    pub(crate) fn of(server: &ServerInfo) -> Vec<TrustedTool> {
        let has = |part: &Self| match part {
            Self::Resources => server.has_resources,
            Self::Prompts => server.has_prompts,
        };
        Self::ALL.iter().copied().filter(has).map(Self::tool).collect()
    }

    fn tool(self) -> TrustedTool {
        let (description, properties) = match self {
            Self::Resources => (
                "Lists the server's resources, or reads the one at `uri`",
                json!({ "uri": { "type": "string", "description": "from the list" } }),
            ),
            Self::Prompts => (
                "Lists the server's prompts, or fills in the one called `name`",
                json!({
                    "name": { "type": "string", "description": "from the list" },
                    "arguments": { "type": "object", "additionalProperties": { "type": "string" } },
                }),
            ),
        };
        let parameters = json!({ "type": "object", "properties": properties, "additionalProperties": false });
        let definition = Definition {
            name: self.as_str().to_owned(),
            title: None,
            description: description.to_owned(),
            input_schema: parameters,
            annotations: Annotations::default(),
        };
        TrustedTool {
            tool: self.as_str().to_owned(),
            hash: definition.hash(),
            name: definition.name,
            description: definition.description,
            parameters: definition.input_schema,
        }
    }

    /// Reads from the server what a call asks for.
    pub(crate) async fn read(self, connection: &Connection, arguments: &Value) -> Result<Output, CallError> {
        let text = |key: &str| arguments.get(key).and_then(Value::as_str);
        match (self, text("uri"), text("name")) {
            (Self::Resources, Some(uri), _) => {
                let (blocks, is_cut) = connection.read_resource(uri).await?;
                Ok(shown(&blocks, is_cut))
            }
            (Self::Resources, None, _) => Ok(listed(connection.resources().await?, |one| {
                json!({ "uri": one.uri, "name": one.name, "title": one.title, "description": one.description,
                        "mime": one.mime, "size": one.size })
            })),
            (Self::Prompts, _, Some(name)) => {
                let given = arguments.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
                let prompt = connection.get_prompt(name, given).await?;
                let said = |message: &PromptMessage| json!({ "role": message.role, "text": message.block.text() });
                let messages: Vec<Value> = prompt.messages.iter().map(said).collect();
                let content = json!({ "description": prompt.description, "messages": messages });
                Ok(Output::cut(content, prompt.is_cut))
            }
            (Self::Prompts, _, None) => Ok(listed(connection.prompts().await?, |one| {
                let argument = |argument: &PromptArgument| {
                    let (name, description) = (&argument.name, &argument.description);
                    without_nulls(json!({ "name": name, "description": description, "required": argument.is_required }))
                };
                let arguments: Vec<Value> = one.arguments.iter().map(argument).collect();
                json!({ "name": one.name, "title": one.title, "description": one.description, "arguments": arguments })
            })),
        }
    }
}

fn shown(blocks: &[Block], is_cut: bool) -> Output {
    let text: Vec<String> = blocks.iter().map(Block::text).collect();
    Output::cut(Value::String(text.join("\n")), is_cut)
}

fn listed<T>(listing: Listing<T>, row: impl Fn(&T) -> Value) -> Output {
    let rows: Vec<Value> = listing.items.iter().map(|item| without_nulls(row(item))).collect();
    let truncated = listing.end != ListEnd::Complete;
    Output::cut(Value::Array(rows), truncated)
}
