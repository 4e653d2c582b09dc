//! `ghostctl grant`: directories that agents may write to for some time.

mod add;
mod list;
mod revoke;

use ghost_proto::v1::Grant as GrantRow;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `grant`.
#[derive(Debug, clap::Subcommand)]
pub enum Grant {
    Add(add::Add),
    List(list::List),
    Revoke(revoke::Revoke),
}

impl Grant {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Add(verb) => verb.run(client).await,
            Self::List(verb) => verb.run(client).await,
            Self::Revoke(verb) => verb.run(client).await,
        }
    }
}

/// A grant in one sentence, after what became of it.
fn told(grant: &GrantRow, what: &str, client: &Client) -> String {
    let until = client.view.moment(grant.expires_at_ms);
    format!("grant {} {what}: {} may write {} until {until}", grant.grant_id, grant.agent_id, grant.prefix)
}
