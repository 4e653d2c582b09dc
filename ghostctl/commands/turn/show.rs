//! `ghostctl turn show`

use ghost_proto::json;
use ghost_proto::v1::ledger_client::LedgerClient;
use ghost_proto::v1::turns_client::TurnsClient;
use ghost_proto::v1::{GetTurnRequest, JournalRow, LedgerRow, ListLedgerRequest, Turn};

use super::clip::{Bounds, clip};
use super::steps::words;
use crate::connection::{Client, required, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::lists::collect_all;
use crate::output::{Answer, Body, Note};
use crate::table::fields;
use crate::text::{cost, plural};
use crate::view::View;

/// Journal rows per request.
const PAGE: u32 = 200;
/// Reading stops after this many rows. A turn has far fewer; more rows would mean that the daemon
/// sends the same page again.
const ROWS_MAX: usize = 100_000;

/// Show a turn: who said what, what was called, what came back, how long it took
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Long texts are cut, with the number of characters that were cut.\n\nExamples:\n  ID=$(ghostctl --json turn list --agent chora --limit 1 | jq -r '.[0].turn_id')\n  ghostctl turn show $ID\n  ghostctl turn show $ID --full | less\n  ghostctl turn show $ID --raw | jq .fact\n  ghostctl --json turn show $ID | jq '.steps[].step'"
)]
pub struct Show {
    /// Turn id
    turn_id: String,
    /// Print every step in full
    #[arg(long)]
    full: bool,
    /// Print the steps as the journal has them: JSON, one line for each
    #[arg(long, conflicts_with = "full")]
    raw: bool,
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
        let text = if self.raw {
            steps.iter().map(|row| format!("{}\n", json::value(row))).collect()
        } else {
            let calls = calls(client, &turn_id, &steps).await?;
            text(turn, &steps, &calls, self.full, &client.view)
        };
        Ok(Answer { note, ..Body::Object { json, text }.into() })
    }
}

/// The ledger of the turn. It has the durations, which the journal has not for all tools.
async fn calls(client: &Client, turn_id: &str, steps: &[JournalRow]) -> Result<Vec<LedgerRow>, Failure> {
    if !steps.iter().any(|row| row.step == "call_finished") {
        return Ok(Vec::new());
    }
    collect_all(async |limit, cursor| {
        let request =
            ListLedgerRequest { turn_id: Some(turn_id.to_owned()), limit, cursor, ..ListLedgerRequest::default() };
        let page = rpc!(client, LedgerClient::list, request).await?;
        Ok((page.rows, page.next_cursor))
    })
    .await
}

fn text(turn: Turn, steps: &[JournalRow], calls: &[LedgerRow], full: bool, view: &View) -> String {
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
    let bounds = if full { Bounds::NONE } else { Bounds::BRIEF };
    let told = words(steps, calls, bounds, view);
    text.push_str(&told.text);
    // The answer of most turns is what the model said last, which is in the last step.
    let answer = turn.text.filter(|last| told.said.as_ref() != Some(last));
    if let Some(last) = answer {
        text.push_str(&format!("\n{}\n", clip(&last, bounds.step)));
    }
    if turn.truncated {
        text.push_str("\n[cut: the answer reached its token limit, or its provider paused it]\n");
    }
    text
}
