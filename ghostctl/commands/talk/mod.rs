//! `ghostctl talk`: a conversation with an agent, line by line.

mod input;
mod prompt;
mod screen;
mod session;

use std::io::IsTerminal as _;

use self::prompt::{Lines, Prompt};
use crate::connection::Client;
use crate::failure::Failure;
use crate::output::{Answer, Body, Output};

/// Talk with an agent
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line is a message. At a terminal the answers come while they are written, and these lines are commands:
  /attach PATH     a workspace file goes with the next message
  /handoff AGENT   give the conversation to another agent
  /help            these commands
  /quit            leave; Ctrl-D and Ctrl-C do the same
The arrow keys move in the line and bring back earlier ones, Ctrl-R looks for one. When standard input is no terminal, the answer to each line is waited for, up to --timeout, before the next is said.

Examples:
  ghostctl talk chora
  ID=$(ghostctl --json conversation list --agent chora | jq -r '.[0].conversation_id')
  ghostctl talk chora --conversation $ID
  echo 'What is still open?' | ghostctl talk chora
  printf 'one\\ntwo\\n' | ghostctl --json talk chora | jq -r 'select(.type == \"entry\").content'")]
pub struct Talk {
    /// The agent
    agent_id: String,
    /// Go on with this conversation
    #[arg(long, value_name = "ID")]
    conversation: Option<String>,
    /// A workspace file that goes with the first message; may be given several times
    #[arg(long, value_name = "PATH")]
    attach: Vec<String>,
}

impl Talk {
    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        let person = std::io::stdin().is_terminal();
        let screen = screen::Screen::new(as_json, person);
        let session =
            session::Session::begin(client, self.agent_id, self.conversation, self.attach, screen, out).await?;
        // Only where both ends are a terminal is there a line to edit.
        let edits = person && !as_json && out.screen().is_some();
        let failure = match edits.then(|| Prompt::open(&session.earlier)).flatten() {
            Some(prompt) => {
                out.flush()?;
                let mut page = Output::new(Box::new(prompt.page()), out.screen());
                session.talk(client, Lines::Prompt(prompt), person, &mut page).await?
            }
            None => session.talk(client, Lines::Plain(input::lines()), person, out).await?,
        };
        Ok(Answer { body: Body::Printed, note: None, failure })
    }
}
