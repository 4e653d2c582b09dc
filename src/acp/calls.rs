//! The agent's calls of tools: what they are about, what they did, and the questions about them.
//!
//! A call comes in parts: its input and its kind can follow its beginning. Only the parts that a question or the manifest
//! needs are kept.

use std::collections::VecDeque;

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, SelectedPermissionOutcome, ToolCallContent,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use ghost_coding::text::{cut_middle, one_line, prefix_bytes};
use ghost_coding::{CALL_ID_MAX, CALLS_MAX, Collector, Effect};
use serde_json::Value;

use crate::host::{Action, ITEMS_MAX, Permission, PermissionAsk, RAW_INPUT_MAX};

/// The longest title, in characters.
const TITLE_CHARS: usize = 200;

/// The longest path or command that is looked at, in bytes.
const ITEM_BYTES: usize = 8 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Calls {
    open: VecDeque<Call>,
}

/// What is known of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) kind: Action,
    pub(crate) locations: Vec<String>,
    /// Its input as JSON, and whether it was cut.
    pub(crate) input: Option<(String, bool)>,
    /// The paths in its input.
    paths: Vec<String>,
    command: Option<String>,
    /// Whether the host runs it, which then knows the command.
    in_terminal: bool,
    /// Whether there was a note about it.
    told: bool,
    /// Whether a question was the first that was heard of it.
    from_question: bool,
}

impl Calls {
    /// Adds a part of a call; `question` tells that it comes with a question. Returns what a question about it shows,
    /// and a note for people.
    pub(crate) fn part(
        &mut self,
        collector: &mut Collector,
        update: ToolCallUpdate,
        question: bool,
    ) -> (Call, Option<String>) {
        let id = prefix_bytes(&update.tool_call_id.0, CALL_ID_MAX + 1).to_owned();
        let mut call = self.take(&id, question);
        if question && call.from_question && call.told {
            // Some agents give all questions one id. Nothing of the last question may be seen in this one, and its
            // answer must not change what the last one allowed.
            collector.ended(&id, false);
            call = Call { id: id.clone(), from_question: true, ..Call::default() };
        }
        let fields = update.fields;
        let status = fields.status;
        let diffs = call.merge(fields);
        let failed = status == Some(ToolCallStatus::Failed);
        let ended = failed || status == Some(ToolCallStatus::Completed);
        if ended && call.command.is_none() && call.kind == Action::Execute && !call.in_terminal {
            call.command = Some(call.title.trim_matches('`').to_owned());
        }
        call.count(collector, &diffs);
        let note = call.note(ended, failed);
        if ended {
            collector.ended(&id, failed);
        } else {
            self.open.push_back(call.clone());
        }
        (call, note)
    }

    /// The call `id`, or a new one.
    fn take(&mut self, id: &str, question: bool) -> Call {
        let known = self.open.iter().position(|call| call.id == id).and_then(|at| self.open.remove(at));
        if self.open.len() >= CALLS_MAX {
            self.open.pop_front();
        }
        known.unwrap_or_else(|| Call { id: id.to_owned(), from_question: question, ..Call::default() })
    }

    /// Counts the commands of calls that have not ended, of which only the title is known.
    pub(crate) fn count_open(&self, collector: &mut Collector) {
        for call in &self.open {
            if call.kind == Action::Execute && call.command.is_none() && !call.in_terminal {
                collector.add(Effect::Run, Some(&call.id), call.title.trim_matches('`'));
            }
        }
    }

    /// The call `id` was not allowed: only its title is kept, for the note about its end. Returns the title.
    pub(crate) fn not_allowed(&mut self, id: &str) -> String {
        let mut shown = String::new();
        if let Some(call) = self.open.iter_mut().find(|call| call.id == id) {
            shown.clone_from(&call.title);
            let (id, title) = (std::mem::take(&mut call.id), std::mem::take(&mut call.title));
            *call = Call { id, title, told: true, from_question: call.from_question, ..Call::default() };
        }
        shown
    }
}

impl Call {
    /// Takes over what is new. Returns the paths of its diffs.
    fn merge(&mut self, fields: ToolCallUpdateFields) -> Vec<String> {
        if let Some(title) = fields.title {
            self.title = one_line(&title, TITLE_CHARS);
        }
        if let Some(kind) = fields.kind {
            self.kind = action(kind);
        }
        if let Some(locations) = fields.locations {
            let paths = locations.iter().take(ITEMS_MAX).map(|location| location.path.to_string_lossy());
            self.locations = paths.map(|path| prefix_bytes(&path, ITEM_BYTES).to_owned()).collect();
        }
        if let Some(input) = fields.raw_input {
            self.paths = paths(&input);
            self.command = command(&input).or(self.command.take());
            let text = input.to_string();
            self.input = Some((cut_middle(&text, RAW_INPUT_MAX), text.len() > RAW_INPUT_MAX));
        }
        let mut diffs = Vec::new();
        for content in fields.content.into_iter().flatten() {
            match content {
                ToolCallContent::Diff(diff) if diffs.len() < 16 * ITEMS_MAX => {
                    diffs.push(prefix_bytes(&diff.path.to_string_lossy(), ITEM_BYTES).to_owned());
                }
                ToolCallContent::Terminal(_) => self.in_terminal = true,
                _ => {}
            }
        }
        diffs
    }

    fn count(&self, collector: &mut Collector, diffs: &[String]) {
        let id = Some(self.id.as_str());
        let effect = match self.kind {
            Action::Read => Some(Effect::Read),
            Action::Edit | Action::Move => Some(Effect::Write),
            Action::Delete => Some(Effect::Delete),
            _ => None,
        };
        if let Some(effect) = effect {
            let paths = if self.locations.is_empty() { &self.paths } else { &self.locations };
            paths.iter().for_each(|path| collector.add(effect, id, path));
        }
        // A diff is a change, whatever the kind says.
        diffs.iter().for_each(|path| collector.add(Effect::Write, id, path));
        if let Some(command) = self.command.as_ref().filter(|_| self.kind == Action::Execute) {
            collector.add(Effect::Run, id, command);
        }
    }

    fn note(&mut self, ended: bool, failed: bool) -> Option<String> {
        let title = if self.title.is_empty() { "a call of a tool" } else { &self.title };
        let known = std::mem::replace(&mut self.told, true);
        match (ended, failed, known) {
            (true, true, _) => Some(format!("failed: {title}")),
            (true, false, _) => Some(format!("done: {title}")),
            (false, _, false) => Some(title.to_owned()),
            (false, _, true) => None,
        }
    }
}

fn action(kind: ToolKind) -> Action {
    match kind {
        ToolKind::Read => Action::Read,
        ToolKind::Edit => Action::Edit,
        ToolKind::Delete => Action::Delete,
        ToolKind::Move => Action::Move,
        ToolKind::Search => Action::Search,
        ToolKind::Execute => Action::Execute,
        ToolKind::Think => Action::Think,
        ToolKind::Fetch => Action::Fetch,
        ToolKind::SwitchMode => Action::SwitchMode,
        _ => Action::Other,
    }
}

/// The path in the input of a call.
fn paths(input: &Value) -> Vec<String> {
    let keys = ["path", "file_path", "filePath", "absolute_path", "abs_path", "target_file", "notebook_path"];
    let path = keys.iter().find_map(|key| input.get(key)?.as_str());
    path.map(|path| prefix_bytes(path, ITEM_BYTES).to_owned()).into_iter().collect()
}

/// The command in the input of a call: a text, or a list of words.
fn command(input: &Value) -> Option<String> {
    let value = input.get("command").or_else(|| input.get("cmd"))?;
    let words = |value: &Value| -> Vec<String> {
        let words = value.as_array().map(Vec::as_slice).unwrap_or_default();
        words.iter().filter_map(|word| Some(prefix_bytes(word.as_str()?, ITEM_BYTES).to_owned())).take(64).collect()
    };
    let mut all = match value.as_str() {
        Some(text) => vec![prefix_bytes(text, ITEM_BYTES).to_owned()],
        None => words(value),
    };
    all.extend(input.get("args").map(words).unwrap_or_default());
    (!all.is_empty()).then(|| in_shell(&all))
}

/// The command as people write it: that of `bash -lc …` without the shell.
pub(crate) fn in_shell(words: &[String]) -> String {
    match words {
        [shell, flag, inner] if matches!(flag.as_str(), "-c" | "-lc") => {
            let shell = shell.rsplit('/').next().unwrap_or(shell);
            if matches!(shell, "bash" | "sh" | "zsh" | "dash") { inner.clone() } else { words.join(" ") }
        }
        _ => words.join(" "),
    }
}

/// The longest path in a question, in characters.
const PATH_CHARS: usize = 400;

/// The question about `call`.
pub(crate) fn question(call: Call, options: &[PermissionOption]) -> PermissionAsk {
    let (raw_input, raw_input_cut) = call.input.map_or((None, false), |(text, cut)| (Some(text), cut));
    PermissionAsk {
        title: call.title,
        kind: call.kind,
        tool_call_id: prefix_bytes(&call.id, CALL_ID_MAX).to_owned(),
        locations: call.locations.iter().map(|path| one_line(path, PATH_CHARS)).collect(),
        raw_input,
        raw_input_cut,
        options: options.iter().map(|option| one_line(&option.name, 120)).take(ITEMS_MAX).collect(),
    }
}

/// The option that is `permission`, and whether it allows. Without one, the next stricter answer is given.
pub(crate) fn choose(options: &[PermissionOption], permission: Permission) -> (RequestPermissionOutcome, bool) {
    let of_kind = |kind: PermissionOptionKind| {
        let option = options.iter().find(|option| option.kind == kind)?;
        Some(RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone())))
    };
    if permission == Permission::Cancelled {
        return (RequestPermissionOutcome::Cancelled, false);
    }
    let allow = of_kind(PermissionOptionKind::AllowOnce).filter(|_| permission == Permission::AllowOnce);
    match allow {
        Some(allow) => (allow, true),
        None => (of_kind(PermissionOptionKind::RejectOnce).unwrap_or(RequestPermissionOutcome::Cancelled), false),
    }
}

#[cfg(test)]
mod calls_tests {
    use super::*;
    use serde_json::json;

    fn part(calls: &mut Calls, collector: &mut Collector, update: Value) -> (Call, Option<String>) {
        calls.part(collector, serde_json::from_value(update).unwrap(), false)
    }

    #[test]
    fn a_call_that_comes_in_parts_is_one_call() {
        let (mut calls, mut collector) = (Calls::default(), Collector::new("/w"));
        let (_, note) = part(&mut calls, &mut collector, json!({"toolCallId": "1", "title": "Edit", "kind": "edit"}));
        assert_eq!(note.as_deref(), Some("Edit"));
        let (call, note) = part(
            &mut calls,
            &mut collector,
            json!({"toolCallId": "1", "rawInput": {"file_path": "/w/a.rs", "new": "x".repeat(50_000)}}),
        );
        assert_eq!((call.title.as_str(), call.kind, note), ("Edit", Action::Edit, None));
        let (input, cut) = call.input.unwrap();
        assert!(cut && input.len() <= RAW_INPUT_MAX && input.starts_with("{\"file_path\":\"/w/a.rs\""));
        let done = json!({"toolCallId": "1", "status": "completed", "content": [
            {"type": "diff", "path": "/w/b.rs", "oldText": null, "newText": "y"}]});
        assert_eq!(part(&mut calls, &mut collector, done).1.as_deref(), Some("done: Edit"));
        assert_eq!(collector.manifest().written, ["a.rs", "b.rs"]);
        assert!(calls.open.is_empty());
    }

    #[test]
    fn commands_are_read_from_the_input_or_else_from_the_title() {
        let (mut calls, mut collector) = (Calls::default(), Collector::new("/w"));
        for (id, input) in [
            ("1", json!({"command": "ls -l"})),
            ("2", json!({"command": ["/bin/bash", "-lc", "cargo test"]})),
            ("3", json!({"command": "git", "args": ["status", 7]})),
            ("4", json!({"cmd": []})),
        ] {
            let call = json!({"toolCallId": id, "title": "`make`", "kind": "execute", "rawInput": input});
            part(&mut calls, &mut collector, call);
        }
        assert_eq!(collector.manifest().commands, ["ls -l", "cargo test", "git status"]);
        calls.count_open(&mut collector);
        assert_eq!(collector.manifest().commands.last().unwrap(), "make");
        part(&mut calls, &mut collector, json!({"toolCallId": "4", "status": "failed"}));
        assert_eq!(collector.manifest().commands.len(), 4, "a command that failed did run");
    }

    #[test]
    fn questions_with_one_id_are_not_mixed_up() {
        let (mut calls, mut collector) = (Calls::default(), Collector::new("/w"));
        let first = json!({"toolCallId": "pending", "title": "Run", "kind": "execute", "rawInput": {"command": "ls"}});
        calls.part(&mut collector, serde_json::from_value(first).unwrap(), true);
        let second = json!({"toolCallId": "pending", "kind": "edit", "locations": [{"path": "/w/a"}]});
        let (call, _) = calls.part(&mut collector, serde_json::from_value(second).unwrap(), true);
        assert_eq!((call.title.as_str(), call.input), ("", None), "nothing of the first question is left");
        calls.not_allowed("pending");
        collector.taken_back("pending");
        let manifest = collector.manifest();
        assert_eq!((manifest.commands, manifest.written), (vec!["ls".to_owned()], vec![]));
    }

    #[test]
    fn calls_without_end_and_odd_ids_are_bounded() {
        let (mut calls, mut collector) = (Calls::default(), Collector::new("/w"));
        for n in 0..500 {
            let id = format!("{n}{}", "i".repeat(10_000));
            let many: Vec<Value> = (0..100).map(|n| json!({"path": format!("/w/{n}")})).collect();
            part(&mut calls, &mut collector, json!({"toolCallId": id, "kind": "read", "locations": many}));
        }
        assert!(calls.open.len() <= CALLS_MAX);
        assert!(calls.open.iter().all(|call| call.locations.len() <= ITEMS_MAX && call.id.len() <= CALL_ID_MAX + 1));
        assert_eq!(collector.manifest().read.len(), ITEMS_MAX);
    }
}

#[cfg(test)]
mod permission_tests {
    use super::*;
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};

    fn chosen(kinds: &[PermissionOptionKind], permission: Permission) -> String {
        let option = |kind: &PermissionOptionKind| PermissionOption::new(format!("{kind:?}"), "Allow", *kind);
        let options: Vec<_> = kinds.iter().map(option).collect();
        let (outcome, allowed) = choose(&options, permission);
        let id = match outcome {
            RequestPermissionOutcome::Selected(selected) => selected.option_id.0.to_string(),
            _ => "cancelled".to_owned(),
        };
        assert_eq!(allowed, id == "AllowOnce");
        id
    }

    #[test]
    fn an_option_is_chosen_by_its_kind_and_never_one_that_is_remembered() {
        let all = [AllowAlways, RejectAlways, RejectOnce, AllowOnce];
        assert_eq!(chosen(&all, Permission::AllowOnce), "AllowOnce");
        assert_eq!(chosen(&all, Permission::RejectOnce), "RejectOnce");
        assert_eq!(chosen(&all, Permission::Cancelled), "cancelled");
        assert_eq!(chosen(&[AllowAlways, RejectOnce], Permission::AllowOnce), "RejectOnce");
        assert_eq!(chosen(&[AllowAlways, RejectAlways], Permission::AllowOnce), "cancelled");
        assert_eq!(chosen(&[AllowOnce, RejectAlways], Permission::RejectOnce), "cancelled");
        assert_eq!(chosen(&[], Permission::AllowOnce), "cancelled");
    }
}
