//! What is known of a run so far. The formats fill it; the summary is made of it.

use serde::de::{IgnoredAny, MapAccess};

use crate::collector::{Collector, Effect};
use crate::doubts::Doubts;
use crate::fields::{Loose, Scalar, Stats, Text, Usage, read_loosely};
use crate::text::{cut_middle, first_line, one_line};

/// How much of a message or a result is kept.
const MAX_TEXT: usize = 32 * 1024;

/// The longest note, in characters.
pub const NOTE_CHARS: usize = 120;

/// The longest id of a session that is kept. Real ones are UUIDs.
const MAX_ID: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) done: Collector,
    /// The last message of the agent.
    pub(crate) message: String,
    /// Whether the next part of a message continues [`Self::message`].
    message_open: bool,
    pub(crate) end: Option<End>,
    pub(crate) usage: Option<Usage>,
    pub(crate) session_id: Option<String>,
    pub(crate) duration_ms: Option<u64>,
    /// US dollars, if the agent tells them.
    pub(crate) cost_usd: Option<f64>,
    /// Why the last answer of the model ended.
    pub(crate) last_stop: Option<String>,
    /// The last error that the agent reported before its result.
    pub(crate) error: Option<String>,
    /// Whether there was an event of the format.
    pub(crate) known: bool,
    /// What speaks against it being done.
    pub(crate) doubts: Doubts,
    /// Notes of the current piece of the stream.
    pub(crate) notes: Notes,
}

/// The outcome that the agent reported.
#[derive(Debug, PartialEq)]
pub(crate) struct End {
    pub(crate) failed: bool,
    /// Why it ended, in one word, if it failed.
    pub(crate) reason: Option<String>,
    /// The result. Without it, the last message is the result.
    pub(crate) text: Option<String>,
}

/// Notes for people, up to a bound.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) kept: Vec<String>,
    pub(crate) most: usize,
    pub(crate) more: usize,
}

impl Run {
    pub(crate) fn note(&mut self, note: &str) {
        let note = first_line(note, NOTE_CHARS);
        if note.is_empty() {
        } else if self.notes.kept.len() < self.notes.most {
            self.notes.kept.push(note);
        } else {
            self.notes.more += 1;
        }
    }

    /// The id of the session, of which each event of some formats has a copy.
    pub(crate) fn session(&mut self, id: &Text<'_>) {
        if let Some(id) = id.get().filter(|_| self.session_id.is_none()) {
            self.session_id = Some(one_line(id, MAX_ID)).filter(|id| !id.is_empty());
        }
    }

    pub(crate) fn stats(&mut self, stats: &Stats) {
        self.usage = stats.usage.or(self.usage);
        self.duration_ms = stats.duration_ms.or(self.duration_ms);
    }

    /// A whole message of the agent.
    pub(crate) fn say(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.message = cut_middle(text, MAX_TEXT);
            self.note(text);
        }
    }

    /// A part of a message. Parts with no call between them are one message.
    pub(crate) fn say_part(&mut self, text: &str) {
        if !self.message_open {
            // The white space after a call is not yet the next message.
            if text.trim().is_empty() {
                return;
            }
            self.message.clear();
            self.message_open = true;
        }
        self.message.push_str(text);
        if self.message.len() > 2 * MAX_TEXT {
            self.message = cut_middle(&self.message, MAX_TEXT);
        }
    }

    /// Ends a message that came in parts.
    pub(crate) fn said(&mut self) {
        if std::mem::take(&mut self.message_open) {
            let line = first_line(&self.message, NOTE_CHARS);
            self.note(&line);
        }
    }

    /// A call of a tool.
    pub(crate) fn call(&mut self, id: &Text<'_>, name: &str, args: &Args<'_>) {
        if let Some(id) = id.get() {
            self.doubts.called(id, name);
        }
        match (Kind::of(name), args.path.get(), args.command.get()) {
            (Kind::Command, _, Some(command)) => self.command(command),
            (Kind::Read, Some(path), _) => self.file(Effect::Read, id.get(), path),
            (Kind::Write, Some(path), _) => self.file(Effect::Write, id.get(), path),
            (Kind::Delete, Some(path), _) => self.file(Effect::Delete, id.get(), path),
            (_, path, _) => {
                let about = match args.detail.get() {
                    Some(detail) => first_line(detail, NOTE_CHARS),
                    None => path.map(|path| self.done.shown(path)).unwrap_or_default(),
                };
                self.note(&format!("{} {about}", one_line(name, 40)));
            }
        }
    }

    /// A call `id` that reads or changes a file.
    pub(crate) fn file(&mut self, effect: Effect, id: Option<&str>, path: &str) {
        let path = self.done.shown(path);
        let verb = match effect {
            Effect::Read => "read",
            Effect::Delete => "delete",
            _ => "write",
        };
        self.note(&format!("{verb} {path}"));
        self.done.add_shown(effect, id, path);
    }

    pub(crate) fn command(&mut self, command: &str) {
        let command = in_shell(command);
        self.done.add(Effect::Run, None, command);
        self.note(&format!("run {}", one_line(command, NOTE_CHARS)));
    }

    pub(crate) fn ended(&mut self, id: &Text<'_>, failed: bool) {
        if let Some(id) = id.get() {
            self.done.ended(id, failed);
        }
    }

    /// The outcome. A later one replaces an earlier one: an agent can recover from an error.
    pub(crate) fn end(&mut self, failed: bool, reason: Option<&str>, text: Option<&str>) {
        self.said();
        let reason = reason.map(|reason| one_line(reason, 60)).filter(|reason| failed && !reason.is_empty());
        self.end = Some(End { failed, reason, text: text.map(|text| cut_middle(text, MAX_TEXT)) });
        self.note(match (failed, self.doubts.reason()) {
            (true, _) => "failed",
            (false, Some(_)) => "incomplete",
            (false, None) => "done",
        });
    }

    /// A warning of the agent.
    pub(crate) fn warn(&mut self, text: &str) {
        self.doubts.warned(text);
        self.note(&format!("warning: {}", first_line(text, NOTE_CHARS)));
    }

    /// A tool was not allowed.
    pub(crate) fn denied(&mut self, tool: &str) {
        self.doubts.denied(tool);
        self.note(&format!("denied: {}", one_line(tool, NOTE_CHARS)));
    }

    /// An error that does not end the run.
    pub(crate) fn trouble(&mut self, message: &str) {
        self.error = Some(cut_middle(message, MAX_TEXT));
        self.note(&format!("error: {}", first_line(message, NOTE_CHARS)));
    }

    /// An upper bound of the bytes that are held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let texts = [Some(&self.message), self.error.as_ref(), self.end.as_ref().and_then(|end| end.text.as_ref())];
        let notes: usize = self.notes.kept.iter().map(String::len).sum();
        self.done.held() + self.doubts.held() + notes + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

/// What a call of a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Delete,
    Command,
    Other,
}

impl Kind {
    /// What the tool `name` does. All agents use one table: names of one agent mean the same with
    /// another one.
    pub(crate) fn of(name: &str) -> Self {
        // No known name is longer.
        let mut plain = [0; 32];
        let letters = name.bytes().filter(u8::is_ascii_alphanumeric);
        let length = plain.iter_mut().zip(letters).map(|(to, byte)| *to = byte.to_ascii_lowercase()).count();
        match std::str::from_utf8(&plain[..length]).unwrap_or_default() {
            "read" | "readfile" | "readmanyfiles" | "notebookread" | "viewfile" => Self::Read,
            "write" | "writefile" | "createfile" | "edit" | "editfile" | "multiedit" | "replace" | "searchreplace"
            | "strreplace" | "notebookedit" | "editnotebook" | "applypatch" => Self::Write,
            "delete" | "deletefile" => Self::Delete,
            "shell" | "bash" | "runshellcommand" | "runterminalcmd" | "runterminalcommand" => Self::Command,
            _ => Self::Other,
        }
    }
}

/// The arguments of a call that matter here.
#[derive(Debug, Default)]
pub(crate) struct Args<'a> {
    pub(crate) path: Text<'a>,
    pub(crate) command: Text<'a>,
    /// What a search or another tool is about.
    pub(crate) detail: Text<'a>,
}

read_loosely!(Args<'a>);

impl<'de> Loose<'de> for Args<'de> {
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut args = Args::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            let field = match key.as_str() {
                "path" | "file_path" | "filePath" | "absolute_path" | "target_file" | "notebook_path" => &mut args.path,
                "command" => &mut args.command,
                "pattern" | "globPattern" | "query" | "url" | "description" | "dir_path" => &mut args.detail,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let text = map.next_value::<Text<'de>>()?;
            // The first one counts: a call has a file before it has other paths.
            if field.get().is_none() {
                *field = text;
            }
        }
        Ok(args)
    }

    // Some calls have their arguments as JSON in a text.
    fn scalar(value: Scalar<'de>) -> Self {
        match value {
            Scalar::Text(text) if text.starts_with('{') => {
                serde_json::from_str::<Args<'_>>(&text).map(Args::into_owned).unwrap_or_default()
            }
            _ => Self::default(),
        }
    }
}

impl Args<'_> {
    fn into_owned<'a>(self) -> Args<'a> {
        Args { path: self.path.into_owned(), command: self.command.into_owned(), detail: self.detail.into_owned() }
    }
}

/// The command inside `bash -lc '…'`, if `command` is a simple one. Codex runs all commands in a
/// login shell.
pub(crate) fn in_shell(command: &str) -> &str {
    let Some((shell, inner)) = command.split_once(" -lc ") else { return command };
    let shell = shell.rsplit('/').next().unwrap_or(shell);
    if !matches!(shell, "bash" | "sh" | "zsh") {
        return command;
    }
    for quote in ['\'', '"'] {
        if let Some(text) = inner.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) {
            return if text.contains([quote, '\\']) { command } else { text };
        }
    }
    inner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_of_all_agents_are_known() {
        for (name, kind) in [
            ("read", Kind::Read),
            ("read_file", Kind::Read),
            ("MultiEdit", Kind::Write),
            ("replace", Kind::Write),
            ("delete", Kind::Delete),
            ("Bash", Kind::Command),
            ("run_shell_command", Kind::Command),
            ("grep_search", Kind::Other),
            ("", Kind::Other),
        ] {
            assert_eq!(Kind::of(name), kind, "{name}");
        }
    }

    #[test]
    fn arguments_are_objects_or_texts() {
        let json = r#"{"content":[{"path":"no"}],"file_path":"a\nb","path":"second","command":"ls","pattern":"x*"}"#;
        for json in [json.to_owned(), serde_json::to_string(json).unwrap()] {
            let args: Args<'_> = serde_json::from_str(&json).unwrap();
            assert_eq!(
                (args.path.get(), args.command.get(), args.detail.get()),
                (Some("a\nb"), Some("ls"), Some("x*"))
            );
        }
        for other in ["null", "7", "[]", "\"ls\"", "\"{broken\"", "{\"path\":{}}"] {
            assert_eq!(serde_json::from_str::<Args<'_>>(other).unwrap().path.get(), None, "{other}");
        }
    }

    #[test]
    fn the_login_shell_is_not_shown() {
        for (command, shown) in [
            ("bash -lc ls", "ls"),
            ("/bin/zsh -lc 'cargo test -q'", "cargo test -q"),
            ("bash -lc \"echo 'a'\"", "echo 'a'"),
            ("bash -lc 'a' && 'b'", "bash -lc 'a' && 'b'"),
            ("bash -lc \"echo \\\"a\\\"\"", "bash -lc \"echo \\\"a\\\"\""),
            ("tool -lc x", "tool -lc x"),
            ("ls", "ls"),
        ] {
            assert_eq!(in_shell(command), shown);
        }
    }
}
