//! `ghostctl agent prompt`

use ghost_proto::json::parsed;
use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::{AgentPromptRequest, PromptSection};
use serde_json::json;

use crate::commands::tool::schema::description;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::table::Table;

/// Show the prompt of the agent's next turn: system prompt, briefing, history and tools, with their sizes
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl agent prompt chora | less")]
pub struct Prompt {
    /// Agent id
    agent_id: String,
}

impl Prompt {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = AgentPromptRequest { agent_id: self.agent_id.clone() };
        let prompt = rpc!(client, AgentsClient::prompt, request).await?;
        let sizes = table(&prompt.sections, client.view.screen);
        let tools = parsed(&prompt.tools_json);
        let parts = [
            ("System prompt", prompt.system.trim_end().to_owned()),
            ("Briefing", prompt.briefing.trim_end().to_owned()),
            ("History", prompt.history.trim_end().to_owned()),
            (
                "Tools of the request",
                tools.as_array().into_iter().flatten().map(|tool| format!("{}\n", description(tool))).collect(),
            ),
            ("Sizes", sizes),
        ];
        let shown = parts.iter().filter(|(_, text)| !text.is_empty());
        let text: String = shown.map(|(name, text)| format!("## {name}\n\n{}\n\n", text.trim_end())).collect();
        let json = json!({
            "agent_id": self.agent_id,
            "model": prompt.model,
            "system": prompt.system,
            "briefing": prompt.briefing,
            "history": prompt.history,
            "tools": tools,
            "system_hash": prompt.system_hash,
            "briefing_hash": prompt.briefing_hash,
            "sections": prompt.sections,
        });
        Ok(Answer::object(json, text.trim_end()))
    }
}

/// A table of the size of each section, with the total.
fn table(sections: &[PromptSection], screen: Option<usize>) -> String {
    let mut table = Table::new(&["PART", "SECTION", "BYTES", "TOKENS AT 3 BYTES"]);
    let (mut bytes, mut tokens) = (0_u64, 0_u64);
    for section in sections {
        bytes = bytes.saturating_add(section.bytes);
        tokens = tokens.saturating_add(section.estimated_tokens);
        let (bytes, tokens) = (section.bytes.to_string(), section.estimated_tokens.to_string());
        table.row([section.part.clone(), section.name.clone(), bytes, tokens]);
    }
    table.row(["total".to_owned(), String::new(), bytes.to_string(), tokens.to_string()]);
    table.render(screen)
}
