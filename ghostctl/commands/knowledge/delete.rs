//! `ghostctl knowledge delete`

use ghost_proto::v1::DeleteKnowledgeRequest;
use ghost_proto::v1::knowledge_client::KnowledgeClient;

use super::list::without_text;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::text::from_1;

/// Delete a knowledge entry and its earlier versions
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl knowledge delete style/headlines --expect 4")]
pub struct Delete {
    /// Entry id
    entry_id: String,
    /// Fail unless the entry has this version
    #[arg(long = "expect", id = "expected_version", value_name = "N", value_parser = from_1::<i64>)]
    expect: Option<i64>,
    /// Act as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
}

impl Delete {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = DeleteKnowledgeRequest {
            request_id: new_request_id(),
            entry_id: self.entry_id,
            expected_version: self.expect,
            as_agent: self.as_agent,
        };
        let entry = rpc!(client, KnowledgeClient::delete, request).await?;
        Ok(Answer::object(without_text(&entry), format!("{} deleted", entry.entry_id)))
    }
}
