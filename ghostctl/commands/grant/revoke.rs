//! `ghostctl grant revoke`

use ghost_proto::json;
use ghost_proto::v1::RevokeGrantRequest;
use ghost_proto::v1::grants_client::GrantsClient;

use super::told::told;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;

/// Take a write grant back; the agent's next call is refused
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ID=$(ghostctl --json grant list --agent chora | jq -r '.[0].grant_id')\n  ghostctl grant revoke $ID"
)]
pub struct Revoke {
    /// Grant id
    grant_id: String,
}

impl Revoke {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let grant_id = ids::full_id(client, ids::GRANT, self.grant_id).await?;
        let request = RevokeGrantRequest { request_id: new_request_id(), grant_id };
        let grant = rpc!(client, GrantsClient::revoke, request).await?;
        Ok(Answer::object(json::value(&grant), told(&grant, "revoked", client)))
    }
}
