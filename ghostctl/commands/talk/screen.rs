//! How a conversation looks: words as they come for a person, one object a line for a program.

use std::io::Write as _;

use ghost_proto::v1::{Conversation, ConversationEntry, TurnOver};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;
use crate::record::conversations as record;

/// Where a conversation is printed.
pub struct Screen {
    as_json: bool,
    /// Whether someone reads along; otherwise only what was said whole is printed.
    person: bool,
    /// Words of the answer under way that are on the screen.
    streamed: String,
}

/// The commands, for whoever asks.
const HELP: &str = "\
each line is a message; one that begins with // is said with one slash
/attach PATH     a workspace file goes with the next message
/handoff AGENT   give the conversation to another agent
/help            these commands
/quit            leave; Ctrl-D and Ctrl-C do the same
arrow keys move in the line and bring back earlier ones";

fn tagged(kind: &str, mut object: Value) -> String {
    if let Value::Object(fields) = &mut object {
        fields.insert("type".into(), kind.into());
    }
    format!("{object}\n")
}

impl Screen {
    pub fn new(as_json: bool, person: bool) -> Self {
        Self { as_json, person, streamed: String::new() }
    }

    /// A word to the person at the keyboard.
    pub fn word(&mut self, text: &str, out: &mut Output) -> Result<(), Failure> {
        if self.person && !self.as_json {
            self.end_stream(out)?;
            out.text(&format!("-- {text}\n"))?;
            out.flush()?;
        }
        Ok(())
    }

    /// What can be done at a prompt.
    pub fn help(&mut self, out: &mut Output) -> Result<(), Failure> {
        for line in HELP.lines() {
            self.word(line, out)?;
        }
        Ok(())
    }

    /// Ends the line on which words come, so that something else can stand below; they go on in a new one.
    pub fn make_room(&mut self, out: &mut Output) -> Result<(), Failure> {
        if !self.as_json && !self.streamed.is_empty() && !self.streamed.ends_with('\n') {
            self.streamed.push('\n');
            out.text("\n")?;
        }
        Ok(out.flush()?)
    }

    /// The conversation that is talked in.
    pub fn conversation(&mut self, conversation: &Conversation, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            out.text(&tagged("conversation", record::conversation(conversation)))?;
            out.flush()?;
            return Ok(());
        }
        let text = format!("conversation {} with {}", conversation.conversation_id, conversation.owner);
        if !self.person {
            // Standard output has the answers alone. If nobody reads this, they are still worth having.
            drop(writeln!(std::io::stderr(), "{text}"));
        }
        self.word(&text, out)
    }

    /// It has another owner.
    pub fn changed(&mut self, conversation: &Conversation, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            out.text(&tagged("handoff", record::conversation(conversation)))?;
            out.flush()?;
            return Ok(());
        }
        self.end_stream(out)?;
        out.text(&format!("-- {} answers from now on\n", conversation.owner))?;
        Ok(out.flush()?)
    }

    /// Words while they come.
    pub fn delta(&mut self, text: &str, owner: &str, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            out.text(&tagged("delta", json!({ "text": text })))?;
        } else if self.person {
            if self.streamed.is_empty() {
                out.text(&format!("{owner}> "))?;
            }
            self.streamed.push_str(text);
            out.text(text)?;
        }
        Ok(out.flush()?)
    }

    /// The words so far were none of the answer.
    pub fn discard(&mut self, turn_id: &str, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            out.text(&tagged("discard", json!({ "turn_id": turn_id })))?;
        } else if !self.streamed.is_empty() {
            self.end_stream(out)?;
            out.text("-- that was not the answer yet\n")?;
        }
        Ok(out.flush()?)
    }

    /// Something that was said. `own` is what this client said itself.
    pub fn entry(&mut self, entry: &ConversationEntry, own: bool, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            out.text(&tagged("entry", record::entry(entry)))?;
            return Ok(out.flush()?);
        }
        let from = entry.from.strip_prefix("agent:").unwrap_or(&entry.from);
        match entry.direction.as_str() {
            // What was done besides is told in a line of its own; the answer under way goes on below it.
            "out" if entry.action.is_some() => {
                self.end_stream(out)?;
                out.text(&format!("-- {}\n", entry.content))?;
                for option in entry.action.iter().flat_map(|action| &action.options) {
                    out.text(&format!("   - {option}\n"))?;
                }
            }
            "out" if entry.deleted => {
                self.end_stream(out)?;
                out.text(&format!("-- {from} took message {} back\n", entry.seq))?;
            }
            "out" => {
                let rest = still_to_say(&self.streamed, &entry.content).map(str::to_owned);
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
            // A file to come is shown with the reply that brings it.
            "note" if entry.delivery != "draft" && entry.attachments.is_empty() => {
                self.end_stream(out)?;
                out.text(&format!("-- {}\n", entry.content))?;
            }
            _ => {}
        }
        Ok(out.flush()?)
    }

    /// The turn that answers has ended.
    pub fn over(&mut self, over: &TurnOver, out: &mut Output) -> Result<(), Failure> {
        if self.as_json {
            let object = json!({
                "turn_id": over.turn_id,
                "status": over.status,
                "reason": over.reason,
                "error_code": over.error_code,
            });
            out.text(&tagged("turn_over", object))?;
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

/// What of an answer is not on the screen yet, where `streamed` is: nothing if it came as it was written, its end if more was
/// said behind it, such as that it was cut. `None` if something else is there.
fn still_to_say<'e>(streamed: &str, entry: &'e str) -> Option<&'e str> {
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
    use super::still_to_say;

    #[test]
    fn what_was_streamed_is_not_said_twice() {
        for (streamed, entry, rest) in [
            ("", "Yes.", None),
            ("Yes. \n", "Yes.", Some("")),
            ("Let me look.\nYes.", "Yes.", Some("")),
            ("first, the harbour is", "first, the harbour is\n\n[cut: x]", Some("[cut: x]")),
            ("No, wait", "Yes.", None),
        ] {
            assert_eq!(still_to_say(streamed, entry), rest, "{streamed:?}");
        }
    }
}
