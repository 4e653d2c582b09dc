//! `ghostctl turn show`

use ghost_proto::v1::turns_client::TurnsClient;
use ghost_proto::v1::{GetTurnRequest, JournalRow, Turn};
use serde_json::Value;

use crate::connection::{Client, required, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Note};
use crate::record;
use crate::table::{Table, fields};
use crate::text::{cost, moment};

/// Journal rows asked for at once.
const PAGE: u32 = 200;
/// A turn has far fewer rows; more would be a daemon that repeats itself.
const ROWS: usize = 100_000;

/// Show a turn and its journal
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ID=$(ghostctl --json turn list --agent chora --limit 1 | jq -r '.[0].turn_id')\n  ghostctl turn show $ID\n  ghostctl --json turn show $ID | jq '.steps[].step'"
)]
pub struct Show {
    /// The turn
    turn_id: String,
}

impl Show {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let mut steps: Vec<JournalRow> = Vec::new();
        let (turn, cut) = loop {
            let after_seq = steps.last().map_or(0, |row| row.seq);
            let request = GetTurnRequest { turn_id: self.turn_id.clone(), limit: PAGE, after_seq };
            let page = rpc!(client, TurnsClient::get, request).await?;
            let moved = page.steps.last().is_some_and(|row| row.seq > after_seq);
            steps.extend(page.steps);
            if !page.more || !moved || steps.len() >= ROWS {
                break (required(page.turn, "turn")?, page.more);
            }
        };
        let mut json = record::turn(&turn);
        if let Value::Object(object) = &mut json {
            object.insert("steps".into(), steps.iter().map(record::step).collect());
        }
        let note = cut.then(|| Note::Cut(format!("only the first {} steps are shown", steps.len())));
        Ok(Answer { note, ..Answer::object(json, text(turn, &steps)) })
    }
}

fn text(turn: Turn, steps: &[JournalRow]) -> String {
    let reason = turn.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let mut text = fields(&[
        ("turn_id", turn.turn_id),
        ("agent_id", turn.agent_id),
        ("status", format!("{}{reason}", turn.status)),
        ("source", turn.source),
        ("about", turn.about),
        ("root_id", format!("{} (hop {})", turn.root_id, turn.hop)),
        ("model", turn.model.unwrap_or_default()),
        ("rounds", format!("{}, with {} tool calls", turn.rounds, turn.calls)),
        ("tokens", format!("{} in, {} out", turn.input_tokens, turn.output_tokens)),
        ("cost", cost(turn.cost_micros, turn.unpriced_tokens)),
        ("started", moment(turn.started_at_ms)),
        ("ended", turn.ended_at_ms.map(moment).unwrap_or_default()),
        ("crashes", if turn.crashes == 0 { String::new() } else { turn.crashes.to_string() }),
    ]);
    let mut table = Table::new(&["SEQ", "AT", "STEP", "FACT"]);
    for row in steps {
        table.row([row.seq.to_string(), moment(row.recorded_at_ms), row.step.clone(), fact(&row.step_json)]);
    }
    text.push('\n');
    text.push_str(&table.render());
    if let Some(last) = turn.text {
        let cut = if turn.truncated {
            "\n\n[cut: the answer reached its token limit, or its provider paused it]"
        } else {
            ""
        };
        text.push_str(&format!("\n{last}{cut}\n"));
    }
    text
}

/// What a row says beside the step's name.
fn fact(json: &str) -> String {
    let mut fact = record::parsed(json);
    if let Value::Object(object) = &mut fact {
        object.remove("step");
    }
    fact.to_string()
}
