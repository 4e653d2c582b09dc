//! The tools of coding agents: what a call does, by the name of its tool.

use std::borrow::Cow;

use serde::de::{IgnoredAny, MapAccess};

use crate::fields::{Loose, Text, read_loosely};

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
    fn text(text: Cow<'de, str>) -> Self {
        match text.starts_with('{') {
            true => serde_json::from_str::<Args<'_>>(&text).map(Args::into_owned).unwrap_or_default(),
            false => Self::default(),
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
