//! `ghostctl turn show`

use ghost_proto::json;
use ghost_proto::v1::turns_client::TurnsClient;
use ghost_proto::v1::{GetTurnRequest, JournalRow, Turn};
use serde_json::Value;

use crate::connection::{Client, required, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::{Answer, Note};
use crate::table::{Table, fields};
use crate::text::{cost, plural};
use crate::view::View;

/// Journal rows per request.
const PAGE: u32 = 200;
/// Reading stops after this many rows. A turn has far fewer; more rows would mean that the daemon
/// sends the same page again.
const ROWS_MAX: usize = 100_000;

/// Show a turn and its journal
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ID=$(ghostctl --json turn list --agent chora --limit 1 | jq -r '.[0].turn_id')\n  ghostctl turn show $ID\n  ghostctl turn show $ID --full | less\n  ghostctl --json turn show $ID | jq '.steps[].step'"
)]
pub struct Show {
    /// Turn id
    turn_id: String,
    /// Print every step in full
    #[arg(long)]
    full: bool,
}

impl Show {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let turn_id = ids::full_id(client, ids::TURN, self.turn_id).await?;
        let mut steps: Vec<JournalRow> = Vec::new();
        let (turn, cut) = loop {
            let after_seq = steps.last().map_or(0, |row| row.seq);
            let request = GetTurnRequest { turn_id: turn_id.clone(), limit: PAGE, after_seq };
            let page = rpc!(client, TurnsClient::get, request).await?;
            let moved = page.steps.last().is_some_and(|row| row.seq > after_seq);
            steps.extend(page.steps);
            if !page.more || !moved || steps.len() >= ROWS_MAX {
                break (required(page.turn, "turn")?, page.more);
            }
        };
        let mut json = json::value(&turn);
        json["steps"] = json::value(&steps);
        let note = cut.then(|| Note::Cut(format!("only the first {} steps are shown", steps.len())));
        Ok(Answer { note, ..Answer::object(json, text(turn, &steps, self.full, &client.view)) })
    }
}

fn text(turn: Turn, steps: &[JournalRow], full: bool, view: &View) -> String {
    let screen = view.screen.filter(|_| !full);
    let reason = turn.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let mut text = fields(
        screen,
        &[
            ("turn_id", turn.turn_id),
            ("agent_id", turn.agent_id),
            ("status", format!("{}{reason}", turn.status)),
            ("source", turn.source),
            ("about", turn.about),
            ("root_id", format!("{} (hop {})", turn.root_id, turn.hop)),
            ("model", turn.model.unwrap_or_default()),
            ("rounds", format!("{}, with {}", turn.rounds, plural(turn.calls, "tool call"))),
            ("tokens", format!("{} in, {} out", turn.input_tokens, turn.output_tokens)),
            ("cost", cost(turn.cost_micros, turn.unpriced_tokens)),
            ("started", view.when(turn.started_at_ms)),
            ("ended", turn.ended_at_ms.map(|at| view.when(at)).unwrap_or_default()),
            ("crashes", if turn.crashes == 0 { String::new() } else { turn.crashes.to_string() }),
        ],
    );
    text.push('\n');
    if full {
        for row in steps {
            text.push_str(&format!("{}  {}  {}\n", row.seq, view.moment(row.recorded_at_ms), row.step));
            indented(&fact(&row.step_json), 2, &mut text);
        }
    } else {
        let mut table = Table::new(&["SEQ", "AT", "STEP", "FACT"]);
        for row in steps {
            let fact = fact(&row.step_json).to_string();
            table.row([row.seq.to_string(), view.moment(row.recorded_at_ms), row.step.clone(), fact]);
        }
        text.push_str(&table.render(screen));
    }
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

/// The data of a journal row without the name of the step.
fn fact(json: &str) -> Value {
    let mut fact = json::parsed(json);
    if let Value::Object(object) = &mut fact {
        object.remove("step");
    }
    fact
}

/// Writes a fact over several indented lines. Texts keep their line breaks.
fn indented(fact: &Value, by: usize, text: &mut String) {
    match fact {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                match value {
                    Value::String(words) if words.contains('\n') => {
                        text.push_str(&format!("{:by$}{name}:\n", ""));
                        for line in words.lines() {
                            text.push_str(&format!("{:by$}  {line}\n", ""));
                        }
                    }
                    Value::String(words) => text.push_str(&format!("{:by$}{name}: {words}\n", "")),
                    Value::Object(_) => {
                        text.push_str(&format!("{:by$}{name}:\n", ""));
                        indented(value, by + 2, text);
                    }
                    Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
                        text.push_str(&format!("{:by$}{name}:\n", ""));
                        for item in items {
                            text.push_str(&format!("{:by$}  -\n", ""));
                            indented(item, by + 4, text);
                        }
                    }
                    other => text.push_str(&format!("{:by$}{name}: {other}\n", "")),
                }
            }
        }
        Value::Null => {}
        Value::String(words) => words.lines().for_each(|line| text.push_str(&format!("{:by$}{line}\n", ""))),
        other => text.push_str(&format!("{:by$}{other}\n", "")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_full_step_loses_nothing_and_keeps_its_line_breaks() {
        let long = "x".repeat(1_000);
        let fact = json!({ "text": "one\ntwo", "calls": [{ "tool": "t", "n": 1 }], "long": long, "none": null, "of": { "a": [1, 2] } });
        let mut text = String::new();
        indented(&fact, 2, &mut text);
        for part in
            ["  text:\n    one\n    two\n", "  calls:\n    -\n", "      tool: t\n", long.as_str(), "    a: [1,2]\n"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("none"), "{text}");
    }
}
