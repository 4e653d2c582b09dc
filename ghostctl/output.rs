//! The answer of a command and its output, as text or as JSON.
//!
//! Only the answer may be printed to standard output.

use std::io::{self, Write};

use serde_json::Value;

use crate::failure::Failure;
use crate::table::Table;
use crate::text::{escaped_json, harmless};

/// Standard output.
pub struct Output {
    writer: Box<dyn Write>,
    screen: Option<usize>,
}

impl Output {
    /// Writes answers to `writer`. `screen` is the width of the terminal in columns, if it is one.
    pub fn new(writer: Box<dyn Write>, screen: Option<usize>) -> Self {
        Self { writer, screen }
    }

    /// Width of the terminal in columns; `None` for a pipe or a file.
    pub fn screen(&self) -> Option<usize> {
        self.screen
    }

    /// Writes text, without control characters: also into a pipe, because what reads it may be a terminal in the end.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.writer.write_all(harmless(text).as_bytes())
    }

    /// Writes JSON. Its strings escape control characters themselves; those that it leaves as they are get an escape of
    /// JSON, which a program reads as the same text.
    pub fn json(&mut self, json: &str) -> io::Result<()> {
        self.writer.write_all(escaped_json(json).as_bytes())
    }

    /// Flushes the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// One object.
    Object {
        /// Printed with `--json`.
        json: Value,
        /// Printed without `--json`.
        text: String,
    },
    /// A list, printed as a table.
    List {
        /// Printed with `--json`.
        json: Vec<Value>,
        /// Printed without `--json`.
        table: Table,
    },
    /// A list whose items are too long for a table.
    Long {
        /// Printed with `--json`.
        json: Vec<Value>,
        /// Printed without `--json`.
        text: String,
    },
    /// An object or a list whose JSON is already formatted.
    Written {
        /// Printed with `--json`.
        json: String,
        /// Printed without `--json`.
        text: String,
    },
    /// Text, with or without `--json`.
    Text(String),
    /// Nothing more: the command printed its output itself.
    Printed,
}

/// A note to an answer, printed to standard error.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A note for people; not printed with `--json`.
    Word(String),
    /// A note that the list is incomplete. A program cannot see that in the list, so `--json` prints it as `{"note"}`.
    Cut(String),
}

/// A command's outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The answer to print.
    pub body: Body,
    /// A note for standard error.
    pub note: Option<Note>,
    /// Set if the command failed although there is an answer to print. It sets the exit code.
    pub failure: Option<Failure>,
}

impl From<Body> for Answer {
    fn from(body: Body) -> Self {
        Self { body, note: None, failure: None }
    }
}

impl Answer {
    /// An answer with one object.
    pub fn object(json: Value, text: impl Into<String>) -> Self {
        Body::Object { json, text: text.into() }.into()
    }

    /// Prints the body.
    pub fn print(&self, as_json: bool, out: &mut Output) -> io::Result<()> {
        match &self.body {
            Body::Object { json, .. } if as_json => out.json(&pretty(json))?,
            Body::List { json, .. } | Body::Long { json, .. } if as_json => {
                out.json(&pretty(&Value::Array(json.clone())))?
            }
            Body::Written { json, .. } if as_json => out.json(&with_newline(json))?,
            Body::Object { text, .. } | Body::Long { text, .. } | Body::Written { text, .. } | Body::Text(text) => {
                out.text(&with_newline(text))?
            }
            Body::List { table, .. } => {
                let screen = out.screen();
                out.text(&table.render(screen))?
            }
            Body::Printed => {}
        }
        out.flush()
    }
}

fn pretty(json: &Value) -> String {
    // `{:#}` of a Value is its indented JSON.
    format!("{json:#}\n")
}

/// The text with a line break at its end, unless it is empty.
fn with_newline(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// Prints a failure to standard error: one object with `--json`, else the message and its hint.
pub fn report(failure: &Failure, as_json: bool, err: &mut dyn Write) {
    if failure.is_silent() {
        return;
    }
    let written = if as_json {
        writeln!(err, "{}", escaped_json(&failure.to_json().to_string()))
    } else {
        let hint = failure.hint.as_deref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        writeln!(err, "error: {}", harmless(&format!("{}{hint}", failure.message)))
    };
    // If standard error is closed, only the exit code reports the failure.
    drop(written);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use serde_json::json;

    #[derive(Clone, Default)]
    struct Written(Rc<RefCell<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn printed(answer: &Answer, as_json: bool, screen: Option<usize>) -> String {
        let written = Written::default();
        answer.print(as_json, &mut Output::new(Box::new(written.clone()), screen)).unwrap();
        let bytes = written.0.borrow().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn no_way_out_carries_what_steers_a_terminal() {
        let hostile = "a\u{1b}]0;title\u{7}\u{1b}[2Jb\u{9b}31mc\u{7f}\u{202e}d\r\n\te\u{85}";
        let value = json!({ "text": hostile });
        let table = Table::new(&["text"]);
        for screen in [None, Some(80)] {
            for body in [
                Body::Object { json: value.clone(), text: hostile.into() },
                Body::Long { json: vec![value.clone()], text: hostile.into() },
                Body::Written { json: value.to_string(), text: hostile.into() },
                Body::Text(hostile.into()),
                Body::List { json: vec![value.clone()], table: table.clone() },
            ] {
                for as_json in [false, true] {
                    let shown = printed(&Answer::from(body.clone()), as_json, screen);
                    let steers = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}';
                    assert!(!shown.contains(steers), "{body:?} {as_json} {shown:?}");
                    if as_json && !matches!(body, Body::Text(_)) {
                        let read: Value = serde_json::from_str(&shown).unwrap();
                        assert!(read == value || read == json!([value]), "a program reads the same text: {shown}");
                    }
                }
            }
        }
    }

    #[test]
    fn failures_are_one_object_as_json_and_message_and_hint_as_text() {
        let failure = Failure::new("not_found", "there is no agent `x`").hint("did you mean `y`?");
        let (mut program, mut person) = (Vec::new(), Vec::new());
        report(&failure, true, &mut program);
        report(&failure, false, &mut person);
        let object: Value = serde_json::from_slice(&program).unwrap();
        assert_eq!(object, json!({"error": "there is no agent `x`", "code": "not_found", "hint": "did you mean `y`?"}));
        assert_eq!(String::from_utf8(person).unwrap(), "error: there is no agent `x`\nhint: did you mean `y`?\n");
    }
}
