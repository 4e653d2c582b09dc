//! `ghostctl approval`

mod decide;
mod list;
mod revoke;
mod show;
mod watch;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::{Answer, Output};

/// Subcommands of `approval`.
#[derive(Debug, clap::Subcommand)]
pub enum Approval {
    List(list::List),
    Show(show::Show),
    Watch(watch::Watch),
    Approve(decide::Approve),
    Deny(decide::Deny),
    Revoke(revoke::Revoke),
}

impl Approval {
    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Show(verb) => verb.run(client).await,
            Self::Watch(verb) => verb.run(client, as_json, out).await,
            Self::Approve(verb) => verb.run(client).await,
            Self::Deny(verb) => verb.run(client).await,
            Self::Revoke(verb) => verb.run(client).await,
        }
    }
}
