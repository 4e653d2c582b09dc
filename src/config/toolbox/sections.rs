//! The content of a `toolbox.yaml`, as documented structs.

use std::collections::BTreeMap;

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
    /// The name of the toolbox, the first part of the names of its tools.
    pub(super) name: Option<ToolboxName>,
    /// The version of the format: 1.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(super) version: Option<Spanned<IgnoredAny>>,
    /// What the toolbox is for.
    pub(super) description: Option<Free<TEXT_MAX>>,
    /// `commands` (the default) or `mcp`.
    pub(super) kind: Kind,
    /// Variables that all tools get.
    pub(super) env: BTreeMap<EnvName, Free<TEXT_MAX>>,
    /// Variables of the daemon that all tools get.
    pub(super) passthrough_env: Option<Spanned<Vec<Variable>>>,
    /// Where the commands run: in the sandbox of the world (the default), or on a toolbox server.
    pub(super) runtime: Option<Spanned<RuntimeSection>>,
    /// The directory with the programs of the toolbox.
    pub(super) bin_dir: Option<Spanned<Text<1_024>>>,
    /// The tools of a toolbox of commands.
    pub(super) tools: Option<Spanned<Vec<Spanned<CommandSection>>>>,
    /// The server of `kind: mcp`.
    pub(super) server: Option<Spanned<ServerSection>>,
    /// Seconds of one call, of `kind: mcp`.
    pub(super) timeout_seconds: Option<Spanned<Count<1, 3_600>>>,
    /// Bytes of one result, of `kind: mcp`.
    pub(super) output_limit_bytes: Option<Spanned<Count<1, 16_777_216>>>,
    /// How calls of the tools of a server are settled that were cut off.
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
    pub(super) ToolboxName(String), 1_024, |name| {
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
    pub(super) EnvName(String), 1_024, |name| {
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
    /// `sandbox` or `remote`.
    pub(super) kind: Option<Spanned<RuntimeKind>>,
    /// The address of the toolbox server.
    pub(super) url: Option<Server>,
    /// The variable with its token.
    pub(super) token_env: Option<Variable>,
    /// A PEM file with the only certificate authorities that are trusted.
    pub(super) ca_file: Option<Text<1_024>>,
}

text_kind! {
    /// The word of a runtime. The world decides which sandbox that is.
    pub(super) RuntimeKind(bool), 64, |word| match word {
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
    /// The name, after that of the toolbox.
    pub(super) name: Option<Spanned<Text<1_024>>>,
    /// What models read of the tool.
    pub(super) description: Option<Text<2_048>>,
    /// JSON Schema of the arguments.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(super) parameters: Option<Spanned<IgnoredAny>>,
    /// The program and its first arguments. No shell reads it.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(super) command: Option<Spanned<IgnoredAny>>,
    /// Further arguments, with `{parameter}` in them.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(super) args: Option<Spanned<IgnoredAny>>,
    /// The input: `{json}` for all arguments, or `{name}` for one.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(super) stdin: Option<Spanned<IgnoredAny>>,
    /// The working directory: `{home}` (the default), `{workspace}` or `{parameter}`.
    pub(super) cwd: Option<Spanned<Text<200>>>,
    /// The most seconds of a call.
    pub(super) timeout_seconds: Option<Count<1, TIMEOUT_MAX>>,
    /// What the output is while the command runs.
    pub(super) stream: Option<Spanned<Text<64>>>,
    /// What the output is as a result.
    pub(super) result: Option<Spanned<Text<64>>>,
    /// Bytes of output that are kept.
    pub(super) output_limit_bytes: Option<Count<1, 16_777_216>>,
    /// What the command may do to the workspace: `ro` or `rw` (the default).
    pub(super) workspace_access: Option<ToolboxAccess>,
    /// How a call is settled that was cut off.
    pub(super) idempotency: Declared,
    /// What the tool needs.
    pub(super) requires: RequiresSection,
    /// Variables of the daemon that the tool gets.
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
    /// Programs.
    pub(super) bins: Vec<ProgramName>,
    /// Programs of which one is enough.
    pub(super) any_bins: Vec<ProgramName>,
    /// Variables.
    pub(super) env: Vec<Variable>,
}

text_kind! {
    pub(super) ProgramName(String), 100, |text| {
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
    /// The program and its arguments.
    pub(super) command: Option<Spanned<Vec<Spanned<Text<4_096>>>>>,
    /// The address.
    pub(super) url: Option<Spanned<Text<2_000>>>,
    /// The variable with the token of a server with a `url`.
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
