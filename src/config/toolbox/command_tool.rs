//! Reads one tool of a toolbox of commands.
//!
//! A command must never be a line for a shell.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_coding::Format;
use ghost_domain::text::clip;
use ghost_domain::tool_catalogue;
use serde_json::{Value, json};

use super::idempotency::idempotency;
use super::names::is_lower_name;
use super::template::{arguments, is_known};
use crate::files::is_plain_relative;
use crate::kinds::Variable;
use crate::plan::toolbox::{CommandTool, Cwd, Place, Program, ResultForm, Stdin, Stream, ToolboxAccess};
use crate::reader::{Field, Map};
use crate::typed::read_as;

/// Longest description of a tool, in bytes. Every request of an agent with the tool carries it.
const DESCRIPTION_MAX: usize = 2_048;
/// Largest schema of a tool's arguments, in bytes.
const SCHEMA_MAX: usize = 32 * 1_024;
/// Longest name on the wire of a provider, in bytes.
const WIRE_NAME_MAX: usize = 64;
/// Longest time of a command, in seconds.
const TIMEOUT_MAX: u64 = 86_400;
/// The time of a command that names none.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of output that are kept if the tool names none.
const OUTPUT: usize = 50 * 1_024;
/// Most programs or variables that a tool requires.
const NEEDS_MAX: usize = 50;

/// Where the files of a toolbox are.
pub(super) struct Files<'f> {
    /// Its directory.
    pub(super) dir: &'f Path,
    /// `bin_dir`, relative to that.
    pub(super) bin_dir: Option<PathBuf>,
    /// Whether the commands run where these files are.
    pub(super) are_there: bool,
}

/// Reads a tool of the toolbox called `toolbox`.
pub(super) fn command_tool(field: &Field<'_>, toolbox: &str, files: &Files<'_>) -> Option<CommandTool> {
    let map = field.map_of("{ name: search, description: Search the notes, command: [search] }")?;
    let name = tool_name(&map, toolbox);
    let description = description(&map, "Search the notes");
    let (parameters, names) = parameters(&map);
    let command = command(&map, files, &names);
    let args = map.get("args").map(|field| arguments(&field, &names)).unwrap_or_default();
    let stdin = map.get("stdin").filter(|field| !field.is_null()).and_then(|field| stdin(&field, &names));
    let stdin = stdin.unwrap_or(Stdin::Empty);
    let cwd = map.get("cwd").and_then(|field| cwd(&field, &names)).unwrap_or(Cwd::Home);
    let timeout = map.get("timeout_seconds").and_then(|field| field.count(1..=TIMEOUT_MAX)).map(Duration::from_secs);
    let (stream, result) = output(&map, name.as_deref().unwrap_or_default(), &stdin);
    let output_limit = map.get("output_limit_bytes").and_then(|field| field.count(1..=16_777_216));
    let access = match map.get("workspace_access").and_then(|field| field.choice(&["ro", "rw"])) {
        Some("ro") => ToolboxAccess::Read,
        _ => ToolboxAccess::Write,
    };
    let idempotency = map.get("idempotency").map(|field| idempotency(&field)).unwrap_or_default();
    let (bins, any_bins, needs_env) = requirements(&map);
    let passthrough_env = map
        .get("passthrough_env")
        .map(|field| field.list().iter().filter_map(|item| Some(read_as::<Variable>(item)?.0)).collect())
        .unwrap_or_default();
    map.finish(&[("timeout", "write `timeout_seconds`"), ("env", "write it beside `tools`; all tools get it")]);
    let (program, command) = command?;
    Some(CommandTool {
        name: name?,
        description: description?,
        command,
        program,
        parameters,
        args,
        stdin,
        cwd,
        timeout: timeout.unwrap_or(TIMEOUT),
        stream,
        result,
        output_limit: output_limit.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(OUTPUT),
        bins,
        any_bins,
        needs_env,
        passthrough_env,
        access,
        idempotency,
    })
}

/// The `stream` of an agent that speaks ACP.
const ACP: &str = "acp";

/// How the output becomes progress and the result. The name of a coding agent says its format, unless the tool does.
fn output(map: &Map<'_>, name: &str, stdin: &Stdin) -> (Stream, ResultForm) {
    let formats = Format::ALL.map(Format::name);
    let words: Vec<&str> = ["lines", "none", ACP].into_iter().chain(formats).collect();
    let result = map.get("result");
    let stream = map.get("stream").and_then(|field| field.choice(&words));
    let by_name = || match () {
        () if stream.is_some() || result.is_some() => None,
        () if name.ends_with("cursor-agent") => Some(Format::Cursor),
        () if name.ends_with("claude-agent") => Some(Format::Claude),
        () => None,
    };
    let form = match (stream, stdin) {
        (Some(ACP), Stdin::Parameter(task)) => Some(ResultForm::Acp(task.clone())),
        (Some(ACP), _) => {
            let hint = "write `stdin: \"{task}\"`, if `task` is the parameter with the task";
            let at = map.get("stdin");
            let what = match &at {
                Some(_) => "with `stream: acp`, the input is one parameter: that with the task of the agent",
                None => "`stream: acp` needs the parameter with the task of the agent",
            };
            at.as_ref().unwrap_or(map.field()).error(what, hint);
            return (Stream::Lines, ResultForm::Raw);
        }
        _ => stream.and_then(|word| word.parse().ok()).or_else(by_name).map(ResultForm::CodingAgent),
    };
    let shown = if stream == Some("none") { Stream::None } else { Stream::Lines };
    match (result.as_ref().and_then(|field| field.choice(&["coding-agent", "json", "raw"])), form) {
        (None | Some("coding-agent"), Some(form)) => (Stream::Lines, form),
        (Some(_), Some(_)) => {
            map.field().error("this `stream` is that of a coding agent, and so is its result", "leave `result` out");
            (shown, ResultForm::Raw)
        }
        (Some("coding-agent"), None) => {
            let hint = format!("write one of: {ACP}, {}", formats.join(", "));
            map.field().error("`result: coding-agent` needs the `stream` of the agent", hint);
            (shown, ResultForm::Raw)
        }
        (Some("json"), None) => (shown, ResultForm::Json),
        _ => (shown, ResultForm::Raw),
    }
}

fn tool_name(map: &Map<'_>, toolbox: &str) -> Option<String> {
    let field = map.need("name", "search")?;
    let name = field.text(1_024)?;
    let full = format!("{toolbox}.{name}");
    if !is_lower_name(name) || !tool_catalogue::expand(&full).is_empty() {
        field.error("a tool cannot have this name", "use lower-case letters, digits, `.`, `_` and `-`");
        return None;
    }
    if full.replace('.', "__").len() > WIRE_NAME_MAX {
        field.error(
            format!("`{full}` is too long: providers take names of at most {WIRE_NAME_MAX} characters"),
            "shorten it; a dot counts as two",
        );
        return None;
    }
    Some(name.to_owned())
}

/// Reads `description`: what models read.
pub(super) fn description(map: &Map<'_>, such_as: &str) -> Option<String> {
    let text = map.need("description", such_as)?.text(DESCRIPTION_MAX)?;
    Some(ghost_domain::text::one_line(text.trim()))
}

/// The schema, and the names of the parameters in it.
fn parameters(map: &Map<'_>) -> (Value, BTreeSet<String>) {
    let nothing = || (json!({ "type": "object", "properties": {}, "additionalProperties": false }), BTreeSet::new());
    let Some(field) = map.get("parameters") else { return nothing() };
    let mut schema = field.json();
    let example = "for example { type: object, properties: { query: { type: string } }, required: [query] }";
    let Some(object) = schema.as_object_mut() else {
        field.error("the schema is not a map", example);
        return nothing();
    };
    if object.get("type").is_some_and(|kind| kind != "object") {
        field.error("the arguments of a tool are an object", "write `type: object`");
    }
    object.entry("type").or_insert_with(|| json!("object"));
    let names: BTreeSet<String> = match object.get("properties") {
        None => BTreeSet::new(),
        Some(Value::Object(properties)) => properties.keys().cloned().collect(),
        Some(_) => {
            field.error("`properties` is not a map", example);
            BTreeSet::new()
        }
    };
    // A misspelt argument must not be ignored.
    object.entry("additionalProperties").or_insert(Value::Bool(false));
    if let Some((word, _)) = Place::ALL.iter().find(|(word, _)| names.contains(*word)) {
        field
            .error(format!("a parameter cannot be called `{word}`"), format!("`{{{word}}}` is a directory; rename it"));
    }
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_MAX {
        field.error(format!("the schema has {bytes} bytes; at most {SCHEMA_MAX} are taken"), "shorten it");
        return nothing();
    }
    (schema, names)
}

/// Whether a word looks as if a parameter or a directory were filled in.
fn has_placeholder(word: &str, parameters: &BTreeSet<String>) -> bool {
    word.split('{').skip(1).filter_map(|rest| rest.split_once('}')).any(|(name, _)| {
        let name = name.strip_suffix("...").unwrap_or(name);
        parameters.contains(name) || Place::ALL.iter().any(|(place, _)| *place == name)
    })
}

/// The program and its first arguments, which are the same in every call.
fn command(map: &Map<'_>, files: &Files<'_>, parameters: &BTreeSet<String>) -> Option<(Program, Vec<String>)> {
    let field = map.need("command", "[search]")?;
    if field.is_single() {
        let hint =
            format!("write a list: the program, then each of its arguments, such as [{}]", clip(&field.shown(), 40));
        field.error("a command is a list; no shell reads it", hint);
        return None;
    }
    let words: Vec<String> = field.texts(4_096).into_iter().map(|(_, text)| text.to_owned()).collect();
    let Some(first) = words.first() else {
        field.error("the command is empty", "for example `command: [search]`");
        return None;
    };
    if first.starts_with('-')
        || first.contains(|c: char| c.is_whitespace() || c.is_control() || "|&;<>()$`\\\"'*?".contains(c))
    {
        let hint =
            "write the program alone; no shell reads this, so a pipe or a variable belongs into a script in `bin_dir`";
        field.error(format!("`{}` is not the name of a program", clip(first, 60)), hint);
        return None;
    }
    if let Some(word) = words.iter().find(|word| has_placeholder(word, parameters)) {
        let what = format!("nothing is filled in here, so the program would get `{}` as it is", clip(word, 60));
        field.error(what, format!("move it to `args`, such as: args: [\"{}\"]", clip(word, 60)));
        return None;
    }
    let program = program(&field, first, files)?;
    Some((program, words))
}

fn program(field: &Field<'_>, first: &str, files: &Files<'_>) -> Option<Program> {
    if first.starts_with('/') {
        return Some(Program::OfSandbox(first.to_owned()));
    }
    if !is_plain_relative(first) {
        field.error(
            format!("`{}` leaves the toolbox", clip(first, 60)),
            "name a file of the toolbox, or a program of the sandbox",
        );
        return None;
    }
    let candidate = match (&files.bin_dir, first.contains('/')) {
        (_, true) => PathBuf::from(first),
        (Some(bin_dir), false) => bin_dir.join(first),
        (None, false) => return Some(Program::OfSandbox(first.to_owned())),
    };
    let path = files.dir.join(&candidate);
    match path.canonicalize().and_then(|real| real.metadata().map(|about| (real, about))) {
        Ok((real, _)) if !real.starts_with(files.dir) => {
            field.error(
                format!("`{first}` is a symbolic link that leaves the toolbox"),
                "copy the file into the toolbox",
            );
            None
        }
        Ok((_, about)) if about.is_file() && about.permissions().mode() & 0o111 == 0 => {
            field.error(format!("`{first}` is not executable"), format!("run: chmod +x {}", path.display()));
            None
        }
        Ok((_, about)) if about.is_file() => match files.are_there {
            true => Some(Program::Own(candidate)),
            // A toolbox server has its own files.
            false => Some(Program::OfSandbox(first.to_owned())),
        },
        _ if first.contains('/') && files.are_there => {
            field.warn(
                format!("there is no file `{first}` in the toolbox: the tool will be absent"),
                "add the file, or remove the tool",
            );
            Some(Program::Own(candidate))
        }
        _ => Some(Program::OfSandbox(first.to_owned())),
    }
}

fn stdin(field: &Field<'_>, parameters: &BTreeSet<String>) -> Option<Stdin> {
    let text = field.text(200)?;
    if text == "{json}" {
        return Some(Stdin::Json);
    }
    let Some(name) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        field.error(
            format!("`{}` cannot be the input", field.shown()),
            "write `{json}` for all arguments, or `{name}` for one",
        );
        return None;
    };
    is_known(field, name, parameters).then(|| Stdin::Parameter(name.to_owned()))
}

fn cwd(field: &Field<'_>, parameters: &BTreeSet<String>) -> Option<Cwd> {
    let text = field.text(200)?;
    match text {
        "{home}" => return Some(Cwd::Home),
        "{workspace}" => return Some(Cwd::Workspace),
        _ => {}
    }
    let Some(name) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        field.error(
            format!("`{}` is no directory for a command", field.shown()),
            "write `{home}`, `{workspace}` or `{parameter}`",
        );
        return None;
    };
    is_known(field, name, parameters).then(|| Cwd::Parameter(name.to_owned()))
}

/// `requires`: programs, programs of which one is enough, variables.
pub(super) fn requirements(map: &Map<'_>) -> (Vec<String>, Vec<String>, Vec<String>) {
    let Some(map) = map.get("requires").and_then(|field| field.map_of("{ bins: [git] }")) else {
        return Default::default();
    };
    let bins = |key: &'static str| -> Vec<String> {
        let Some(field) = map.get(key) else { return Vec::new() };
        let named = |(item, text): (Field<'_>, &str)| {
            let is_program =
                text.chars().all(|c| c.is_ascii_alphanumeric() || "._+-".contains(c)) && !text.starts_with('-');
            if !is_program {
                item.error(
                    format!("`{}` is not the name of a program", item.shown()),
                    "write its name alone, such as git",
                );
            }
            is_program.then(|| text.to_owned())
        };
        field.texts(100).into_iter().filter_map(named).take(NEEDS_MAX).collect()
    };
    let (all, any) = (bins("bins"), bins("any_bins"));
    let env = map.get("env").map(|field| field.list()).unwrap_or_default();
    let env = env.iter().filter_map(|item| Some(read_as::<Variable>(item)?.0)).take(NEEDS_MAX).collect();
    map.finish(&[]);
    (all, any, env)
}
