//! The resources and prompts of an MCP server, as two tools of Ghost's own: `mcp.resources` and `mcp.prompts`. An operator
//! trusts them like any tool of the server.
//!
//! What a server writes into a resource or a prompt is the result of a call, never a text of the user or of Ghost.

use ghost_config::plan::toolbox::TrustedTool;
use ghost_mcp::{
    Annotations, Block, CallError, Connection, Definition, ListEnd, Listing, PromptArgument, PromptMessage, ServerInfo,
};
use serde_json::{Value, json};

use crate::effect::Output;
use crate::effect::without_nulls;

/// A part of a server that is no tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its resources.
    Resources,
    /// Its prompts.
    Prompts,
}

impl Part {
    const ALL: [Self; 2] = [Self::Resources, Self::Prompts];

    /// The short name of its tool. No server can give it to a tool of its own.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Resources => "mcp.resources",
            Self::Prompts => "mcp.prompts",
        }
    }

    /// The part with this short name.
    pub(crate) fn named(tool: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.name() == tool)
    }

    /// The tools of the parts that the server says it has, as an operator would trust them.
    pub(crate) fn of(server: &ServerInfo) -> Vec<TrustedTool> {
        let has = |part: &Self| match part {
            Self::Resources => server.has_resources,
            Self::Prompts => server.has_prompts,
        };
        Self::ALL.into_iter().filter(has).map(Self::tool).collect()
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
            name: self.name().to_owned(),
            title: None,
            description: description.to_owned(),
            input_schema: parameters,
            annotations: Annotations::default(),
        };
        TrustedTool {
            tool: self.name().to_owned(),
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
