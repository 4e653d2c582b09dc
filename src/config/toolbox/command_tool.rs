//! Reads one tool of a toolbox of commands.
//!
//! A command must never be a line for a shell.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_coding::Format;
use ghost_domain::text::{clip, one_line};
use serde_json::{Value, json};

use super::sections::{CommandSection, ManifestSection, NEEDS_MAX, OUTPUT, ProgramName, TIMEOUT, check_tool_name};
use super::template::{arguments, is_known};
use crate::files::is_plain_relative;
use crate::kinds::{Count, Text, Variable};
use crate::plan::toolbox::{CommandTool, Cwd, Place, Program, ResultForm, Stdin, Stream, ToolboxAccess};
use crate::reader::Field;
use crate::typed::{Read, Spanned, choice, read_as};

/// Largest schema of a tool's arguments, in bytes.
const SCHEMA_MAX: usize = 32 * 1_024;

/// Where the files of a toolbox are.
pub(super) struct Files<'f> {
    /// Its directory.
    pub(super) dir: &'f Path,
    /// `bin_dir`, relative to that.
    pub(super) bin_dir: Option<PathBuf>,
    /// Whether the commands run where these files are.
    pub(super) are_there: bool,
}

/// The tool of an entry, in the toolbox called `toolbox`. Reports what is wrong with it.
pub(super) fn command_tool(
    manifest: &Read<'_, ManifestSection>,
    section: &Spanned<CommandSection>,
    toolbox: &str,
    files: &Files<'_>,
) -> Option<CommandTool> {
    let name = section.name.as_ref().and_then(|name| match check_tool_name(toolbox, name) {
        Ok(()) => Some(name.0.clone()),
        Err((message, hint)) => {
            manifest.at(name).error(message, hint);
            None
        }
    });
    let (parameters, names) = section.parameters.as_ref().map_or_else(no_parameters, |at| parameters(manifest.at(at)));
    let command = section.command.as_ref().and_then(|at| command(manifest.at(at), files, &names));
    let args = section.args.as_ref().map(|at| arguments(manifest.at(at), &names)).unwrap_or_default();
    let stdin = section.stdin.as_ref().map(|at| manifest.at(at)).filter(|field| !field.is_null());
    let stdin = stdin.and_then(|field| stdin_of(field, &names)).unwrap_or(Stdin::Empty);
    let cwd = section.cwd.as_ref().and_then(|text| cwd(manifest.at(text), text, &names));
    let (stream, result) = output(manifest, section, name.as_deref().unwrap_or_default(), &stdin);
    let bins = |list: &[ProgramName]| list.iter().take(NEEDS_MAX).map(|name| name.0.clone()).collect();
    let variables = |list: &[Variable]| list.iter().map(|name| name.0.clone()).collect::<Vec<String>>();
    let mut needs_env = variables(&section.requires.env);
    needs_env.truncate(NEEDS_MAX);
    let (program, command) = command?;
    Some(CommandTool {
        name: name?,
        description: one_line(section.description.as_ref()?.trim()),
        command,
        program,
        parameters,
        args,
        stdin,
        cwd: cwd.unwrap_or(Cwd::Home),
        timeout: section.timeout_seconds.map_or(TIMEOUT, |seconds| Duration::from_secs(seconds.0)),
        stream,
        result,
        output_limit: section.output_limit_bytes.map_or(OUTPUT, Count::usize),
        bins: bins(&section.requires.bins),
        any_bins: bins(&section.requires.any_bins),
        needs_env,
        passthrough_env: variables(&section.passthrough_env),
        access: section.workspace_access.unwrap_or(ToolboxAccess::Write),
        idempotency: section.idempotency.0.clone(),
    })
}

/// The `stream` of an agent that speaks ACP.
const ACP: &str = "acp";

/// How the output becomes progress and the result. The name of a coding agent says its format, unless the tool does.
fn output(
    manifest: &Read<'_, ManifestSection>,
    section: &Spanned<CommandSection>,
    name: &str,
    stdin: &Stdin,
) -> (Stream, ResultForm) {
    let place = manifest.at(section);
    let formats = Format::ALL.map(Format::name);
    let words: Vec<&str> = ["lines", "none", ACP].into_iter().chain(formats).collect();
    let one_of = |word: &Option<Spanned<Text<64>>>, words: &[&str]| {
        let word = word.as_ref()?;
        let wrong = |(message, hint)| manifest.at(word).error(message, hint);
        choice(word, words).map_err(wrong).ok()
    };
    let stream = one_of(&section.stream, &words);
    let result = one_of(&section.result, &["coding-agent", "json", "raw"]);
    let by_name = || match () {
        () if stream.is_some() || section.result.is_some() => None,
        () if name.ends_with("cursor-agent") => Some(Format::Cursor),
        () if name.ends_with("claude-agent") => Some(Format::Claude),
        () => None,
    };
    let form = match (stream.as_deref(), stdin) {
        (Some(ACP), Stdin::Parameter(task)) => Some(ResultForm::Acp(task.clone())),
        (Some(ACP), _) => {
            let hint = "write `stdin: \"{task}\"`, if `task` is the parameter with the task";
            match &section.stdin {
                Some(stdin) => {
                    let what = "with `stream: acp`, the input is one parameter: that with the task of the agent";
                    manifest.at(stdin).error(what, hint);
                }
                None => place.error("`stream: acp` needs the parameter with the task of the agent", hint),
            }
            return (Stream::Lines, ResultForm::Raw);
        }
        (word, _) => word.and_then(|word| word.parse().ok()).or_else(by_name).map(ResultForm::CodingAgent),
    };
    let shown = if stream.as_deref() == Some("none") { Stream::None } else { Stream::Lines };
    match (result.as_deref(), form) {
        (None | Some("coding-agent"), Some(form)) => (Stream::Lines, form),
        (Some(_), Some(_)) => {
            place.error("this `stream` is that of a coding agent, and so is its result", "leave `result` out");
            (shown, ResultForm::Raw)
        }
        (Some("coding-agent"), None) => {
            let hint = format!("write one of: {ACP}, {}", formats.join(", "));
            place.error("`result: coding-agent` needs the `stream` of the agent", hint);
            (shown, ResultForm::Raw)
        }
        (Some("json"), None) => (shown, ResultForm::Json),
        _ => (shown, ResultForm::Raw),
    }
}

fn no_parameters() -> (Value, BTreeSet<String>) {
    (json!({ "type": "object", "properties": {}, "additionalProperties": false }), BTreeSet::new())
}

/// The schema, and the names of the parameters in it.
fn parameters(field: &Field<'_>) -> (Value, BTreeSet<String>) {
    let mut schema = field.json();
    let example = "for example { type: object, properties: { query: { type: string } }, required: [query] }";
    let Some(object) = schema.as_object_mut() else {
        field.error("the schema is not a map", example);
        return no_parameters();
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
        return no_parameters();
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
fn command(field: &Field<'_>, files: &Files<'_>, parameters: &BTreeSet<String>) -> Option<(Program, Vec<String>)> {
    if field.is_single() {
        let hint =
            format!("write a list: the program, then each of its arguments, such as [{}]", clip(&field.shown(), 40));
        field.error("a command is a list; no shell reads it", hint);
        return None;
    }
    let words: Vec<String> = read_as::<Vec<Text<4_096>>>(field)?.into_iter().map(|word| word.0).collect();
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
    let program = program(field, first, files)?;
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

fn stdin_of(field: &Field<'_>, parameters: &BTreeSet<String>) -> Option<Stdin> {
    let text = read_as::<Text<200>>(field)?.0;
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

fn cwd(field: &Field<'_>, text: &str, parameters: &BTreeSet<String>) -> Option<Cwd> {
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
