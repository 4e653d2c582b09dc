//! `ghostctl agent get`

use ghost_proto::json;
use ghost_proto::v1::GetAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use crate::connection::{Client, required, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::table::fields;

/// Show an agent
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl agent get chora")]
pub struct Get {
    /// Agent id
    agent_id: String,
}

impl Get {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let answer = rpc!(client, AgentsClient::get, GetAgentRequest { agent_id: self.agent_id }).await?;
        let json = json::value(&answer);
        let agent = required(answer.agent, "agent")?;
        let reason = agent.status_reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let view = &client.view;
        let text = fields(
            view.screen,
            &[
                ("agent_id", agent.agent_id),
                ("name", agent.name),
                ("archetype", agent.archetype),
                ("kind", agent.kind),
                ("team", agent.team.unwrap_or_default()),
                ("owner", agent.owner.unwrap_or_default()),
                ("status", format!("{}{reason}", agent.status)),
                ("activity", agent.activity.unwrap_or_default()),
                ("turn_id", answer.turn_id.unwrap_or_default()),
                ("inbox", format!("{} pending", answer.inbox_pending)),
                ("restarts", agent.restarts.to_string()),
                ("model", answer.model.unwrap_or_default()),
                ("tools", answer.tools.to_string()),
                ("access", answer.access.unwrap_or_default()),
                ("cannot run", answer.cannot_run.unwrap_or_default()),
                ("waiting for", answer.waits.unwrap_or_default()),
                ("created", view.when(agent.created_at_ms)),
                ("last active", agent.last_active_at_ms.map(|at| view.when(at)).unwrap_or_default()),
            ],
        );
        Ok(Answer::object(json, text))
    }
}
