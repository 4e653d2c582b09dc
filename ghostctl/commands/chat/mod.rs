//! `ghostctl chat`

mod create;
mod history;
mod list;
mod member;
mod members;
mod post;
mod send;
mod watch;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::{Answer, Output};

/// Subcommands of `chat`.
#[derive(Debug, clap::Subcommand)]
pub enum Chat {
    Create(create::Create),
    Send(send::Send),
    Invite(member::Invite),
    Remove(member::Remove),
    List(list::List),
    History(history::History),
    Watch(watch::Watch),
}

impl Chat {
    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        match self {
            Self::Create(verb) => verb.run(client).await,
            Self::Send(verb) => verb.run(client).await,
            Self::Invite(verb) => verb.run(client).await,
            Self::Remove(verb) => verb.run(client).await,
            Self::List(verb) => verb.run(client).await,
            Self::History(verb) => verb.run(client).await,
            Self::Watch(verb) => verb.run(client, as_json, out).await,
        }
    }
}
