//! What a command answers, and how it is printed: tables and sentences for people, JSON for programs.
//!
//! Must never: print anything but the answer to standard output.

use std::io::{self, Write};

use serde_json::Value;

use crate::failure::Failure;
use crate::table::Table;
use crate::text::harmless;

/// Where answers go.
pub struct Output {
    writer: Box<dyn Write>,
    screen: Option<usize>,
}

impl Output {
    /// Answers go to `writer`; `screen` is how many columns the terminal has through which a person looks at it.
    pub fn new(writer: Box<dyn Write>, screen: Option<usize>) -> Self {
        Self { writer, screen }
    }

    /// The columns of the reader's screen; none if no person looks.
    pub fn screen(&self) -> Option<usize> {
        self.screen
    }

    /// Writes text as it is, but for what could drive a terminal.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        if self.screen.is_some() {
            self.writer.write_all(harmless(text).as_bytes())
        } else {
            self.writer.write_all(text.as_bytes())
        }
    }

    /// Hands on what was written so far.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// What the daemon's answer comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// One thing.
    Object {
        /// With `--json`.
        json: Value,
        /// Without.
        text: String,
    },
    /// Many of one sort.
    List {
        /// With `--json`.
        json: Vec<Value>,
        /// Without.
        table: Table,
    },
    /// Many of one sort, too long for the columns of a table.
    Long {
        /// With `--json`.
        json: Vec<Value>,
        /// Without.
        text: String,
    },
    /// One thing or many, with the JSON as it is to be printed.
    Written {
        /// With `--json`.
        json: String,
        /// Without.
        text: String,
    },
    /// Text either way.
    Text(String),
    /// It was printed as it came.
    Printed,
}

/// A word beside an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// To the person at the keyboard.
    Word(String),
    /// That a list ends where nobody asked it to: a program cannot see that either, and is told as `{"note"}`.
    Cut(String),
}

/// A command's outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What to print.
    pub body: Body,
    /// A word beside the answer, to standard error.
    pub note: Option<Note>,
    /// Set when there is an answer and yet what was asked for did not come about: it decides the exit code.
    pub failure: Option<Failure>,
}

impl From<Body> for Answer {
    fn from(body: Body) -> Self {
        Self { body, note: None, failure: None }
    }
}

impl Answer {
    /// One thing.
    pub fn object(json: Value, text: impl Into<String>) -> Self {
        Body::Object { json, text: text.into() }.into()
    }

    /// Prints the body.
    pub fn print(&self, as_json: bool, out: &mut Output) -> io::Result<()> {
        match &self.body {
            Body::Object { json, .. } if as_json => out.text(&pretty(json))?,
            Body::List { json, .. } | Body::Long { json, .. } if as_json => {
                out.text(&pretty(&Value::Array(json.clone())))?
            }
            Body::Written { json, .. } if as_json => out.text(&ended(json))?,
            Body::Object { text, .. } | Body::Long { text, .. } | Body::Written { text, .. } | Body::Text(text) => {
                out.text(&ended(text))?
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
    // `{:#}` of a Value is its indented JSON and cannot fail on a String.
    format!("{json:#}\n")
}

/// The text with a line break at its end, unless it is empty.
fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// Tells of a failure: one object with `--json`, a sentence and its hint without.
pub fn report(failure: &Failure, as_json: bool, err: &mut dyn Write) {
    if failure.is_silent() {
        return;
    }
    let told = if as_json {
        writeln!(err, "{}", failure.to_json())
    } else {
        let hint = failure.hint.as_deref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        writeln!(err, "error: {}", harmless(&format!("{}{hint}", failure.message)))
    };
    // Standard error is the last place to say anything; when it is gone the exit code has to do.
    drop(told);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refusals_are_one_object_for_programs_and_a_hint_for_people() {
        let failure = Failure::new("not_found", "there is no agent `x`").hint("did you mean `y`?");
        let (mut program, mut person) = (Vec::new(), Vec::new());
        report(&failure, true, &mut program);
        report(&failure, false, &mut person);
        let object: Value = serde_json::from_slice(&program).unwrap();
        assert_eq!(object, json!({"error": "there is no agent `x`", "code": "not_found", "hint": "did you mean `y`?"}));
        assert_eq!(String::from_utf8(person).unwrap(), "error: there is no agent `x`\nhint: did you mean `y`?\n");
    }
}
