//! `ghostctl skill show`

use ghost_proto::json;
use ghost_proto::v1::GetSkillRequest;
use ghost_proto::v1::skills_client::SkillsClient;

use crate::connection::{Client, required, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::table::fields;

/// Show a skill and its text, as agents get it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl skill show moderator-open-mic")]
pub struct Show {
    /// Name of the skill
    name: String,
}

impl Show {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let answer = rpc!(client, SkillsClient::get, GetSkillRequest { name: self.name }).await?;
        let json = json::value(&answer);
        let skill = required(answer.skill, "skill")?;
        let faults = match skill.faults {
            0 => String::new(),
            faults => format!("{faults}; `ghostd check` names them"),
        };
        let head = fields(
            client.view.screen,
            &[
                ("name", skill.name),
                ("description", skill.description),
                ("needs", skill.missing.join(", ")),
                ("faults", faults),
                ("path", skill.path),
            ],
        );
        Ok(Answer::object(json, format!("{head}\n{}\n", answer.document.trim_end())))
    }
}
