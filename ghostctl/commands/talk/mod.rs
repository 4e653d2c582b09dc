//! `ghostctl talk`: an interactive conversation with an agent.

mod prompt;
mod screen;
mod session;

use std::io::IsTerminal as _;

use self::prompt::{Lines, Prompt};

use crate::commands::prelude::*;

/// Have a conversation with an agent
///
/// Each line is a message. These lines are commands:
///   /attach PATH     attach a workspace file to the next message
///   /handoff AGENT   hand the conversation over to another agent
///   /approve ID ANSWER
///                    answer an approval: allow-once, allow-always or deny
///   /help            list these commands
///   /quit            leave; Ctrl-D and Ctrl-C do the same
/// At a terminal, answers are printed while the model writes them. The arrow keys move in the line and recall earlier
/// lines; Ctrl-R searches them. If standard input is not a terminal, ghostctl waits for the answer to each line, up to
/// --timeout, before it sends the next line.
///
/// Examples:
///   ghostctl talk chora
///   ID=$(ghostctl --json conversation list --agent chora | jq -r '.[0].conversation_id')
///   ghostctl talk chora --conversation $ID
///   echo 'What is still open?' | ghostctl talk chora
///   printf 'one\ntwo\n' | ghostctl --json talk chora | jq -r 'select(.type == "entry").content'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Talk {
    /// Agent id
    agent_id: String,
    /// Continue this conversation
    #[arg(long = "conversation", id = "conversation_id", value_name = "ID")]
    conversation: Option<String>,
    /// Attach this workspace file to the first message; may be repeated
    #[arg(long = "attach", id = "attachments", value_name = "PATH")]
    attach: Vec<String>,
}

impl Talk {
    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        let person = std::io::stdin().is_terminal();
        let screen = screen::Screen::new(as_json, person);
        let session =
            session::Session::begin(client, self.agent_id, self.conversation, self.attach, screen, out).await?;
        // Line editing needs a terminal for both input and output.
        let edits = person && !as_json && out.screen().is_some();
        let failure = match edits.then(|| Prompt::open(&session.earlier)).flatten() {
            Some(prompt) => {
                out.flush()?;
                let mut page = Output::new(Box::new(prompt.page()), out.screen());
                session.talk(client, Lines::Prompt(prompt), person, &mut page).await?
            }
            None => session.talk(client, Lines::Plain(prompt::lines()), person, out).await?,
        };
        Ok(Answer { failure, ..Answer::default() })
    }
}
