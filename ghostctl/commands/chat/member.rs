//! `ghostctl chat invite` and `ghostctl chat remove`

use ghost_proto::json;
use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::{Channel, InviteRequest, RemoveMemberRequest};

use super::members::members;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Add an agent to a channel
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl chat invite planning subrosa")]
pub struct Invite {
    /// Channel name
    channel: String,
    /// Agent id
    agent_id: String,
    /// Act as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
}

impl Invite {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = InviteRequest {
            request_id: new_request_id(),
            channel: self.channel,
            agent_id: self.agent_id,
            as_agent: self.as_agent,
        };
        Ok(answer(&rpc!(client, ChatClient::invite, request).await?))
    }
}

/// Remove an agent from a channel
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl chat remove planning subrosa")]
pub struct Remove {
    /// Channel name
    channel: String,
    /// Agent id
    agent_id: String,
    /// Act as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
}

impl Remove {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = RemoveMemberRequest {
            request_id: new_request_id(),
            channel: self.channel,
            agent_id: self.agent_id,
            as_agent: self.as_agent,
        };
        Ok(answer(&rpc!(client, ChatClient::remove, request).await?))
    }
}

fn answer(channel: &Channel) -> Answer {
    Answer::object(json::value(channel), format!("#{}: {}", channel.channel, members(channel)))
}
