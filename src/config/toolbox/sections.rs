//! The content of a `toolbox.yaml`, as documented structs.

use std::collections::BTreeMap;
use std::time::Duration;

use ghost_domain::tool_catalogue;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::idempotency::Declared;
use crate::kinds::{Count, Free, TEXT_MAX, Text, Variable, text_kind};
use crate::plan::toolbox::ToolboxAccess;
use crate::reader::is_name;
use crate::typed::{Hints, Spanned};
use crate::world_file::commands::Server;

/// The time of a command that names none.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of output that are kept if the tool names none.
pub(super) const OUTPUT: usize = 50 * 1_024;
/// The time of a call of an MCP server for which the manifest names none.
pub(super) const MCP_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a result of an MCP server that are kept if the manifest names no bound.
pub(super) const MCP_OUTPUT: usize = 256 * 1_024;
/// Longest time of a command, in seconds.
const TIMEOUT_MAX: u64 = 86_400;
/// Most programs or variables that a tool requires.
pub(super) const NEEDS_MAX: usize = 50;
/// Variables that a manifest may not set: the sandbox or ghostd does.
const OWN_VARIABLES: [&str; 3] = ["AGENT_WORKSPACE", "AGENT_ID", "WORLD_ID"];

/// First parts of built-in tool names. A toolbox with such a name could be mistaken for built-in
/// tools.
const RESERVED: [&str; 7] = ["channel", "group", "memory", "syscall", "tool", "util", "workspace"];

/// Whether it is a name in lower case that has a form on the wire of every provider.
fn is_lower_name(name: &str) -> bool {
    is_name(name) && name == name.to_ascii_lowercase() && !name.contains("__")
}

/// A `toolbox.yaml`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ManifestSection {
    /// The first part of the tools' names: `<name>.<tool>`. It has no dots.
    pub(super) name: Option<ToolboxName>,
    /// The version of this format. The default is 1.
    #[schemars(with = "Option<serde_json::Value>", title = "1")]
    pub(super) version: Option<Spanned<IgnoredAny>>,
    /// What the toolbox is for.
    pub(super) description: Option<Free<TEXT_MAX>>,
    /// What the tools are.
    #[schemars(extend("default" = "commands"))]
    pub(super) kind: Kind,
    /// Variables of its commands.
    #[schemars(title = "map of variables to texts")]
    pub(super) env: BTreeMap<EnvName, Free<TEXT_MAX>>,
    /// Variables of ghostd that its commands get. Their values are redacted on every way out.
    pub(super) passthrough_env: Option<Spanned<Vec<Variable>>>,
    /// Where the tools run. The default is the world's sandbox.
    pub(super) runtime: Option<Spanned<RuntimeSection>>,
    /// The directory of the toolbox where its own programs are.
    #[schemars(title = "directory")]
    pub(super) bin_dir: Option<Spanned<Text<1_024>>>,
    /// The tools, at most 2,000.
    pub(super) tools: Option<Spanned<Vec<Spanned<CommandSection>>>>,
    /// How the MCP server is reached. Required for `kind: mcp`.
    pub(super) server: Option<Spanned<ServerSection>>,
    /// Seconds of a call, of `kind: mcp`.
    #[schemars(extend("default" = MCP_TIMEOUT.as_secs()))]
    pub(super) timeout_seconds: Option<Spanned<Count<1, 3_600>>>,
    /// Bytes of a result that are kept, of `kind: mcp`.
    #[schemars(extend("default" = MCP_OUTPUT))]
    pub(super) output_limit_bytes: Option<Spanned<Count<1, 16_777_216>>>,
    /// By tool: how calls that the daemon's death cut off are settled, of `kind: mcp`.
    #[schemars(title = "map of tools to `key`, `person` or `{ ask }`")]
    pub(super) idempotency: BTreeMap<String, Spanned<Declared>>,
}

/// What the tools of a toolbox are.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Programs.
    #[default]
    Commands,
    /// Those of an MCP server.
    Mcp,
}

text_kind! {
    pub(super) ToolboxName(String), 1_024, "lower-case name", |name| {
        match is_lower_name(name) && !name.contains('.') && !RESERVED.contains(&name) {
            true => Ok(name.to_owned()),
            false => {
                let hint = format!("use lower-case letters, digits, `_` and `-`; not one of: {}", RESERVED.join(", "));
                Err(("the toolbox cannot have this name".into(), hint))
            }
        }
    }
}

text_kind! {
    #[derive(PartialOrd, Ord)]
    pub(super) EnvName(String), 1_024, "variable", |name| {
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit());
        match is_name && !OWN_VARIABLES.contains(&name) {
            true => Ok(name.to_owned()),
            false => {
                let hint = "use letters, digits and `_`; some names are Ghost's own";
                Err(("a variable cannot have this name".into(), hint.into()))
            }
        }
    }
}

/// `runtime`: where the commands run.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RuntimeSection {
    /// In the world's sandbox, or on a toolbox server of their own, where their programs are.
    #[schemars(extend("default" = "sandbox"))]
    pub(super) kind: Option<Spanned<RuntimeKind>>,
    /// The address of the toolbox server; `http` only for this machine.
    pub(super) url: Option<Server>,
    /// The variable with its token.
    pub(super) token_env: Option<Variable>,
    /// A PEM file with the only certificates that are trusted. The default are the system's.
    #[schemars(title = "path")]
    pub(super) ca_file: Option<Text<1_024>>,
}

text_kind! {
    /// The word of a runtime. The world decides which sandbox that is.
    pub(super) RuntimeKind(bool), 64, "`sandbox` or `remote`", |word| match word {
        "local" | "docker" => {
            let hint = "write `kind: sandbox`; `sandbox.kind` of the world file chooses";
            Err(("a toolbox does not choose the sandbox".into(), hint.into()))
        }
        _ => crate::typed::choice(word, &["remote", "sandbox"]).map(|word| word == "remote"),
    }
}

/// One entry of `tools`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CommandSection {
    /// The last part of its name. Name and toolbox together have at most 64 characters; a dot counts as two.
    #[schemars(title = "lower-case name")]
    pub(super) name: Option<Spanned<Text<1_024>>>,
    /// What agents see.
    pub(super) description: Option<Text<2_048>>,
    /// JSON Schema of an object: what a call must match. Unknown members are refused unless the schema allows them.
    /// The default is no parameters.
    #[schemars(with = "Option<serde_json::Value>", title = "map")]
    pub(super) parameters: Option<Spanned<IgnoredAny>>,
    /// The program and its first arguments. No shell reads it, and nothing is filled in: a `{parameter}` belongs to
    /// `args`. A name is looked up in `bin_dir`, then in the sandbox's `PATH`.
    #[schemars(with = "Option<serde_json::Value>", title = "list of texts")]
    pub(super) command: Option<Spanned<IgnoredAny>>,
    /// More arguments, with `{parameter}` in them.
    #[schemars(with = "Option<serde_json::Value>", title = "list of texts")]
    pub(super) args: Option<Spanned<IgnoredAny>>,
    /// All arguments of the call as JSON, or the text of one. The default is nothing.
    #[schemars(with = "Option<serde_json::Value>", title = "`\"{json}\"` or `\"{parameter}\"`")]
    pub(super) stdin: Option<Spanned<IgnoredAny>>,
    /// The directory: the agent's own, the workspace, or a path of the workspace. The default is `"{home}"`.
    #[schemars(title = "`\"{home}\"`, `\"{workspace}\"` or `\"{parameter}\"`")]
    pub(super) cwd: Option<Spanned<Text<200>>>,
    /// Seconds of a call; then the whole process tree dies.
    #[schemars(extend("default" = TIMEOUT.as_secs()))]
    pub(super) timeout_seconds: Option<Count<1, TIMEOUT_MAX>>,
    /// Whether and how output is shown as progress. The last five are for coding agents. The default is `lines`.
    #[schemars(title = "`lines`, `none`, `acp`, `cursor-json`, `claude-json`, `codex-json` or `gemini-json`")]
    pub(super) stream: Option<Spanned<Text<64>>>,
    /// Output as it is, parsed as JSON, or the summary of a coding agent's stream, which such a `stream` implies. The
    /// default is `raw`.
    #[schemars(title = "`raw`, `json` or `coding-agent`")]
    pub(super) result: Option<Spanned<Text<64>>>,
    /// Bytes of standard output that are kept.
    #[schemars(extend("default" = OUTPUT))]
    pub(super) output_limit_bytes: Option<Count<1, 16_777_216>>,
    /// What it may do to the workspace.
    #[schemars(extend("default" = "rw"))]
    pub(super) workspace_access: Option<ToolboxAccess>,
    /// How a call that the daemon's death cut off is settled.
    #[schemars(extend("default" = "none"))]
    pub(super) idempotency: Declared,
    /// Without these programs and variables the tool is absent.
    pub(super) requires: RequiresSection,
    /// Variables of ghostd that its command gets, besides those of the toolbox.
    pub(super) passthrough_env: Vec<Variable>,
}

/// Whether the toolbox `toolbox` can have a tool `name`; else what is wrong with it.
pub(super) fn check_tool_name(toolbox: &str, name: &str) -> Result<(), (String, &'static str)> {
    /// Longest name on the wire of a provider, in bytes.
    const WIRE_NAME_MAX: usize = 64;
    let full = format!("{toolbox}.{name}");
    if !is_lower_name(name) || !tool_catalogue::expand(&full).is_empty() {
        return Err(("a tool cannot have this name".into(), "use lower-case letters, digits, `.`, `_` and `-`"));
    }
    if full.replace('.', "__").len() > WIRE_NAME_MAX {
        let message = format!("`{full}` is too long: providers take names of at most {WIRE_NAME_MAX} characters");
        return Err((message, "shorten it; a dot counts as two"));
    }
    Ok(())
}

/// `requires`: what a tool needs on the machine.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RequiresSection {
    /// Programs that must all be there.
    pub(super) bins: Vec<ProgramName>,
    /// Programs of which one is enough.
    pub(super) any_bins: Vec<ProgramName>,
    /// Variables that must be set.
    pub(super) env: Vec<Variable>,
}

text_kind! {
    pub(super) ProgramName(String), 100, "program", |text| {
        let is_char = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        match text.chars().all(is_char) && !text.starts_with('-') {
            true => Ok(text.to_owned()),
            false => {
                Err((format!("`{text}` is not the name of a program"), "write its name alone, such as git".into()))
            }
        }
    }
}

/// `server` of `kind: mcp`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ServerSection {
    /// A program that runs in the sandbox, with `{home}`, `{workspace}` and `{toolbox}` in its words.
    pub(super) command: Option<Spanned<Vec<Spanned<Text<4_096>>>>>,
    /// Or an address: `https`, or `http` on this machine.
    #[schemars(title = "URL")]
    pub(super) url: Option<Spanned<Text<2_000>>>,
    /// The variable of ghostd with the token of a `url`.
    pub(super) token_env: Option<Variable>,
}

/// What messages say of the maps of a manifest.
pub(crate) static HINTS: [Hints; 6] = [
    Hints {
        of: "ManifestSection",
        need: &[("name", "devtools")],
        misplaced: &[&[("command", "write it for each tool under `tools`, or under `server` with `kind: mcp`")]],
        ..Hints::NONE
    },
    Hints {
        of: "RuntimeSection",
        such_as: "{ kind: sandbox }",
        misplaced: &[&[("endpoint", "write `url`"), ("image", "the sandbox of the world has the image")]],
        ..Hints::NONE
    },
    Hints {
        of: "CommandSection",
        such_as: "{ name: search, description: Search the notes, command: [search] }",
        need: &[("name", "search"), ("description", "Search the notes"), ("command", "[search]")],
        misplaced: &[&[("timeout", "write `timeout_seconds`"), ("env", "write it beside `tools`; all tools get it")]],
        ..Hints::NONE
    },
    Hints {
        of: "AskSection",
        misplaced: &[&[("tool", "write `ask`"), ("key", "write `idempotency: key`")]],
        ..Hints::NONE
    },
    Hints { of: "RequiresSection", such_as: "{ bins: [git] }", ..Hints::NONE },
    Hints {
        of: "ServerSection",
        such_as: "{ command: [node, server.js] } or { url: 'https://mcp.example/mcp' }",
        misplaced: &[&[
            ("token", "the file never has the value: name the variable with `token_env`"),
            ("headers", "the token of `token_env` is the only header that is sent"),
            ("env", "write it beside `server`"),
        ]],
        ..Hints::NONE
    },
];
