//! Prints a conversation: streamed text at a terminal, whole answers in a pipe, or one JSON object per line.

use std::io::Write as _;

use ghost_proto::json;
use ghost_proto::v1::{Conversation, ConversationEntry, ToolProgress, TurnOver};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Output, json_line};
use crate::text::one_line;

/// Progress is truncated to this many characters.
const PROGRESS: usize = 200;

/// Printer of a conversation.
pub struct Screen {
    as_json: bool,
    /// Whether the output is for a person. If not, only complete answers are printed.
    person: bool,
    /// The part of the current answer that is already printed.
    streamed: String,
}

/// The output of `/help`.
const HELP: &str = "\
each line is a message; a line that starts with // is sent with one slash
/attach PATH     attach a workspace file to the next message
/handoff AGENT   hand the conversation over to another agent
/approve ID allow-once|allow-always|deny
                 answer an approval
/help            list these commands
/quit            leave; Ctrl-D and Ctrl-C do the same
arrow keys move in the line and recall earlier lines";

/// Prints a record as one line of JSON that says what it is.
fn tagged(kind: &str, record: &impl Serialize, out: &mut Output) -> Result<(), Failure> {
    let mut object = json::value(record);
    if let Value::Object(fields) = &mut object {
        fields.insert("type".into(), kind.into());
    }
    out.text(&json_line(&object))?;
    Ok(out.flush()?)
}

impl Screen {
    pub fn new(as_json: bool, person: bool) -> Self {
        Self { as_json, person, streamed: String::new() }
    }

    /// Prints a notice, if the output is for a person.
    pub fn notice(&mut self, text: &str, out: &mut Output) -> Result<(), Failure> {
        if self.person && !self.as_json {
            self.end_stream(out)?;
            out.text(&format!("-- {text}\n"))?;
            out.flush()?;
        }
        Ok(())
    }

    /// Prints the commands.
    pub fn help(&mut self, out: &mut Output) -> Result<(), Failure> {
        for line in HELP.lines() {
            self.notice(line, out)?;
        }
        Ok(())
    }

    /// Ends the current line of a streamed answer, so that the prompt can be shown below. The answer goes on in a new
    /// line.
    pub fn make_room(&mut self, out: &mut Output) -> Result<(), Failure> {
        if !self.as_json && !self.streamed.is_empty() && !self.streamed.ends_with('\n') {
            self.streamed.push('\n');
            out.text("\n")?;
        }
        Ok(out.flush()?)
    }

    /// Prints the id of this conversation.
    pub fn conversation(&mut self, conversation: &Conversation, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            return tagged("conversation", conversation, out);
        }
        let text = format!("conversation {} with {}", conversation.conversation_id, conversation.owner);
        if !self.person {
            // Standard output contains only answers. If standard error is closed, the line is lost.
            drop(writeln!(std::io::stderr(), "{text}"));
        }
        self.notice(&text, out)
    }

    /// Prints that the conversation has a new owner.
    pub fn changed(&mut self, conversation: &Conversation, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            return tagged("handoff", conversation, out);
        }
        self.end_stream(out)?;
        out.text(&format!("-- {} answers from now on\n", conversation.owner))?;
        Ok(out.flush()?)
    }

    /// Prints a piece of a streamed answer.
    pub fn delta(&mut self, text: &str, owner: &str, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            return tagged("delta", &json!({ "text": text }), out);
        } else if self.person {
            if self.streamed.is_empty() {
                out.text(&format!("{owner}> "))?;
            }
            self.streamed.push_str(text);
            out.text(text)?;
        }
        Ok(out.flush()?)
    }

    /// Marks the text streamed so far as not part of the answer.
    pub fn discard(&mut self, turn_id: &str, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            return tagged("discard", &json!({ "turn_id": turn_id }), out);
        } else if !self.streamed.is_empty() {
            self.end_stream(out)?;
            out.text("-- the text above is not the answer; the turn goes on\n")?;
        }
        Ok(out.flush()?)
    }

    /// Prints an entry. `own` marks a message of this client, which is on the screen already.
    pub fn entry(&mut self, entry: &ConversationEntry, own: bool, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            return tagged("entry", entry, out);
        }
        let from = entry.from.strip_prefix("agent:").unwrap_or(&entry.from);
        match entry.direction.as_str() {
            // An action gets its own line. The streamed answer continues below it.
            "out" if entry.action.is_some() => {
                self.end_stream(out)?;
                out.text(&format!("-- {}\n", entry.content))?;
                for option in entry.action.iter().flat_map(|action| &action.options) {
                    out.text(&format!("   - {option}\n"))?;
                }
            }
            "out" if entry.deleted => {
                self.end_stream(out)?;
                out.text(&format!("-- {from} deleted message {}\n", entry.seq))?;
            }
            "out" => {
                let rest = rest_to_print(&self.streamed, &entry.content).map(str::to_owned);
                self.end_stream(out)?;
                match rest {
                    None => out.text(&format!("{from}> {}\n", entry.content))?,
                    Some(rest) if rest.is_empty() => {}
                    Some(rest) => out.text(&format!("{rest}\n"))?,
                }
                for file in &entry.attachments {
                    out.text(&format!("   file {} ({} bytes): {}\n", file.name, file.bytes, file.path))?;
                }
            }
            "in" if !own => {
                self.end_stream(out)?;
                out.text(&format!("{from}> {}\n", entry.content))?;
            }
            // A note about a file is not printed; the file is listed with its reply.
            "note" if entry.delivery != "draft" && entry.attachments.is_empty() => {
                self.end_stream(out)?;
                out.text(&format!("-- {}\n", entry.content))?;
            }
            _ => {}
        }
        Ok(out.flush()?)
    }

    /// Prints what a tool reports while it runs.
    pub fn progress(&mut self, progress: &ToolProgress, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            return tagged("progress", progress, out);
        } else {
            self.end_stream(out)?;
            out.text(&format!("-- {}\n", one_line(&progress.text, PROGRESS)))?;
        }
        Ok(out.flush()?)
    }

    /// Ends the output of a turn that answers.
    pub fn over(&mut self, over: &TurnOver, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            return tagged("turn_over", over, out);
        } else {
            self.end_stream(out)?;
        }
        Ok(out.flush()?)
    }

    fn end_stream(&mut self, out: &mut Output) -> Result<(), Failure> {
        if !self.streamed.is_empty() {
            if !self.streamed.ends_with('\n') {
                out.text("\n")?;
            }
            self.streamed.clear();
        }
        Ok(())
    }
}

/// The part of an answer that is not printed yet, when `streamed` is. Empty if everything is
/// printed. If text was added, such as a note that the answer was truncated, the added text. `None`
/// if the printed text is not this answer.
fn rest_to_print<'e>(streamed: &str, entry: &'e str) -> Option<&'e str> {
    let (streamed, entry) = (streamed.trim(), entry.trim());
    if streamed.is_empty() {
        return None;
    }
    if streamed.ends_with(entry) {
        return Some("");
    }
    entry.strip_prefix(streamed).map(str::trim_start)
}

#[cfg(test)]
mod tests {
    use super::rest_to_print;

    #[test]
    fn streamed_text_is_not_printed_twice() {
        for (streamed, entry, rest) in [
            ("", "Yes.", None),
            ("Yes. \n", "Yes.", Some("")),
            ("Let me look.\nYes.", "Yes.", Some("")),
            ("first, the harbour is", "first, the harbour is\n\n[cut: x]", Some("[cut: x]")),
            ("No, wait", "Yes.", None),
        ] {
            assert_eq!(rest_to_print(streamed, entry), rest, "{streamed:?}");
        }
    }
}
