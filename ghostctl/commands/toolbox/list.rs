//! `ghostctl toolbox list`

use ghost_proto::json;
use ghost_proto::v1::ListToolboxesRequest;
use ghost_proto::v1::toolboxes_client::ToolboxesClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body};
use crate::table::Table;

/// List the toolboxes of the world and of its skills
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl toolbox list\n  ghostctl --json toolbox list | jq '.[].tools[].name'")]
pub struct List {}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let toolboxes = rpc!(client, ToolboxesClient::list, ListToolboxesRequest {}).await?.toolboxes;
        let mut table = Table::new(&["TOOLBOX", "KIND", "TOOLS", "ABSENT", "SOURCE"]);
        for toolbox in &toolboxes {
            let absent = toolbox.tools.iter().filter(|tool| tool.state == "absent").count();
            let source = match &toolbox.skill {
                Some(skill) => format!("{} of the skill {skill}", toolbox.source),
                None => toolbox.source.clone(),
            };
            let count = (toolbox.tools.len() - absent).to_string();
            table.row([toolbox.name.clone(), toolbox.kind.clone(), count, absent.to_string(), source]);
        }
        Ok(Body::List { json: toolboxes.iter().map(json::value).collect(), table }.into())
    }
}
