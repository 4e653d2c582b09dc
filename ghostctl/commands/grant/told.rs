//! What became of a grant, in words.

use ghost_proto::v1::Grant;

use crate::connection::Client;

/// A grant in one sentence, after what became of it.
pub(super) fn told(grant: &Grant, what: &str, client: &Client) -> String {
    let until = client.view.moment(grant.expires_at_ms);
    format!("grant {} {what}: {} may write {} until {until}", grant.grant_id, grant.agent_id, grant.prefix)
}
