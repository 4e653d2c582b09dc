//! `ghostctl agent`

mod change;
mod create;
mod delete;
mod get;
mod inspect;
mod list;
mod prompt;
mod start;
mod stop;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `agent`.
#[derive(Debug, clap::Subcommand)]
pub enum Agent {
    List(list::List),
    Create(create::Create),
    Get(get::Get),
    Inspect(inspect::Inspect),
    Start(start::Start),
    Stop(stop::Stop),
    Delete(delete::Delete),
    Prompt(prompt::Prompt),
}

impl Agent {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Create(verb) => verb.run(client).await,
            Self::Get(verb) => verb.run(client).await,
            Self::Inspect(verb) => verb.run(client).await,
            Self::Start(verb) => verb.run(client).await,
            Self::Stop(verb) => verb.run(client).await,
            Self::Delete(verb) => verb.run(client).await,
            Self::Prompt(verb) => verb.run(client).await,
        }
    }
}
