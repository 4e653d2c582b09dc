//! `ghostctl skill list`

use ghost_proto::json;
use ghost_proto::v1::ListSkillsRequest;
use ghost_proto::v1::skills_client::SkillsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::collect_all;
use crate::output::{Answer, Body};
use crate::table::Table;

/// List the skills of the world, or those that an agent may hold
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl skill list\n  ghostctl skill list --agent chora")]
pub struct List {
    /// Show only the skills that this agent may hold, and which of them it holds
    #[arg(long = "agent", id = "agent_id", value_name = "AGENT")]
    agent: Option<String>,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let skills = collect_all(async |limit, cursor| {
            let request = ListSkillsRequest { agent_id: self.agent.clone(), limit, cursor };
            let page = rpc!(client, SkillsClient::list, request).await?;
            Ok((page.skills, page.next_cursor))
        })
        .await?;
        let json = skills.iter().map(json::value).collect();
        let mut table = Table::new(&["SKILL", "STATE", "DESCRIPTION"]);
        for skill in skills {
            let state = match (skill.active, skill.held, skill.eligible) {
                (_, _, false) => format!("needs {}", skill.missing.join(", ")),
                (true, ..) => "active".to_owned(),
                (_, true, _) => "held".to_owned(),
                _ => "available".to_owned(),
            };
            table.row([skill.name, state, skill.description]);
        }
        Ok(Body::List { json, table }.into())
    }
}
