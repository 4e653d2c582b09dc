//! `ghostctl dead show`

use ghost_proto::json;
use ghost_proto::v1::GetDeadRequest;
use ghost_proto::v1::messages_client::MessagesClient;

use crate::connection::{Client, required, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::{Answer, Note};
use crate::table::fields;

/// Show a dead letter with its messages
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl dead list\n  ID=$(ghostctl --json dead list | jq -r '.[0].dead_letter_id')\n  ghostctl dead show $ID"
)]
pub struct Show {
    /// Dead letter id
    dead_letter_id: String,
}

impl Show {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let dead_letter_id = ids::full_id(client, ids::DEAD_LETTER, self.dead_letter_id).await?;
        let request = GetDeadRequest { dead_letter_id };
        let answer = rpc!(client, MessagesClient::get_dead, request).await?;
        let letter = required(answer.dead_letter, "dead letter")?;
        let mut json = json::value(&letter);
        json["envelopes"] = json::value(&answer.envelopes);
        let view = &client.view;
        let mut text = fields(
            view.screen,
            &[
                ("dead_letter_id", letter.dead_letter_id),
                ("agent_id", letter.agent_id),
                ("turn_id", letter.turn_id),
                ("status", letter.status),
                ("reason", letter.reason),
                ("crashes", letter.crashes.to_string()),
                ("since", view.when(letter.created_at_ms)),
                ("resolved", letter.resolved_at_ms.map(|at| view.when(at)).unwrap_or_default()),
            ],
        );
        for mail in answer.envelopes {
            let subject = mail.subject.map(|subject| format!(": {subject}")).unwrap_or_default();
            let head = format!("{} {} from {}{subject}", mail.kind, mail.message_id, mail.from);
            text.push_str(&format!("\n{head}\n{}\n", mail.body));
        }
        let note = "the last messages are omitted: the answer is limited to 1 MiB of messages".to_owned();
        let note = answer.truncated.then_some(Note::Cut(note));
        Ok(Answer { note, ..Answer::object(json, text) })
    }
}
