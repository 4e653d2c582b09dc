//! `ghostctl turn`

mod steps;
#[cfg(test)]
mod steps_tests;

use ghost_proto::json;
use ghost_proto::v1::{JournalRow, LedgerRow};

use self::steps::{Bounds, clip, words};
use crate::arguments::since;
use crate::commands::prelude::*;
use crate::text::{cost, plural};

/// Journal rows per request.
const PAGE: u32 = 200;
/// Reading stops after this many rows. A turn has far fewer; more rows would mean that the daemon
/// sends the same page again.
const ROWS_MAX: usize = 100_000;

#[derive(Debug, clap::Subcommand)]
pub enum Turn {
    /// List turns, newest first
    ///
    /// Examples:
    ///   ghostctl turn list --agent chora --limit 20
    ///   ghostctl turn list --status open
    #[command(verbatim_doc_comment)]
    List {
        /// Show only turns of this agent
        #[arg(long = "agent", id = "agent_id", value_name = "A")]
        agent: Option<String>,
        /// Show only this status: open, parked, finished, failed, timed_out, cancelled, split or dead
        #[arg(long, value_name = "S")]
        status: Option<String>,
        /// Show only turns of this root: the event that started a chain of work
        #[arg(long = "root", id = "root_id", value_name = "ID")]
        root: Option<String>,
        #[command(flatten)]
        bound: Bound,
    },
    /// Show a turn: who said what, what was called, what came back, how long it took
    ///
    /// Long texts are cut, with the number of characters that were cut.
    ///
    /// Examples:
    ///   ID=$(ghostctl --json turn list --agent chora --limit 1 | jq -r '.[0].turn_id')
    ///   ghostctl turn show $ID
    ///   ghostctl turn show $ID --full | less
    ///   ghostctl turn show $ID --raw | jq .fact
    ///   ghostctl --json turn show $ID | jq '.steps[].step'
    #[command(verbatim_doc_comment)]
    Show {
        /// Turn id
        turn_id: String,
        /// Print every step in full
        #[arg(long)]
        full: bool,
        /// Print the steps as the journal has them: JSON, one line for each
        #[arg(long, conflicts_with = "full")]
        raw: bool,
    },
    /// Cancel an open turn
    ///
    /// Examples:
    ///   ID=$(ghostctl --json turn list --status open --agent chora | jq -r '.[0].turn_id')
    ///   ghostctl turn cancel $ID --reason 'asked the wrong thing'
    #[command(verbatim_doc_comment)]
    Cancel {
        /// Turn id
        turn_id: String,
        /// Record this reason in the turn
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Retry a parked turn now, or all turns that failed for good
    ///
    /// Examples:
    ///   ghostctl turn list --status parked
    ///   ID=$(ghostctl --json turn list --status parked | jq -r '.[0].turn_id')
    ///   ghostctl turn retry $ID
    ///   ghostctl turn retry --failed --since 2h
    ///
    /// A turn that failed for good leaves its mail as a dead letter (`ghostctl dead list`). With --failed these are delivered
    /// again, oldest first, and their turns resume from their journals.
    #[command(verbatim_doc_comment)]
    Retry {
        /// Turn id of a parked turn
        #[arg(required_unless_present = "failed", conflicts_with = "failed")]
        turn_id: Option<String>,
        /// Retry every turn whose mail is held as a dead letter
        #[arg(long)]
        failed: bool,
        /// With --failed: only those that failed since then, such as 2h or 2026-11-29T08:00:00Z
        #[arg(long, value_name = "T", value_parser = since, requires = "failed")]
        since: Option<i64>,
        /// With --failed: only those of this agent
        #[arg(long = "agent", id = "agent_id", value_name = "A", requires = "failed")]
        agent: Option<String>,
    },
    /// Say what became of a call whose outcome nobody knows
    ///
    /// Examples:
    ///   ghostctl ledger --status unknown
    ///   CALL=$(ghostctl --json ledger --status unknown | jq -r '.[0].call_id')
    ///   ghostctl turn settle $CALL happened --note 'the invoice is paid'
    ///
    /// A call is `unknown` if the daemon died while it ran. The ledger gets what you say. A turn that waits for it
    /// (`idempotency: person`) goes on; otherwise the agent is told with a message. Nothing is called again.
    #[command(verbatim_doc_comment)]
    Settle {
        /// Call id, as `ghostctl ledger` prints it
        call_id: String,
        /// What became of it
        #[arg(value_parser = ["happened", "did-not"])]
        outcome: String,
        /// Tell the agent this, too
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
}

const TURNS: &[Column<v1::Turn>] = columns![
    "TURN" turn_id, "AGENT" agent_id, "STATUS" status, "STARTED" moment started_at_ms, "AGE" age started_at_ms,
    "ROUNDS" rounds, "CALLS" calls,
    "TOKENS" => |turn, _| turn.input_tokens.saturating_add(turn.output_tokens).to_string(),
    "COST" => |turn, _| cost(turn.cost_micros, turn.unpriced_tokens),
    "ABOUT" => |turn, _| turn.reason.clone().unwrap_or_else(|| turn.about.clone()),
];

impl Turn {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request_id = new_request_id();
        match self {
            Self::List { agent: agent_id, status, root: root_id, bound } => {
                let request = v1::ListTurnsRequest { agent_id, status, root_id, ..<_>::default() };
                list(client, &bound, request, TURNS).await
            }
            Self::Show { turn_id, full, raw } => show(client, turn_id, full, raw).await,
            Self::Cancel { turn_id, reason } => {
                let turn_id = full_id(client, IdKind::TURN, turn_id).await?;
                let answer = client.call(v1::CancelTurnRequest { request_id, turn_id, reason }).await?;
                let turn = required(answer.turn.as_ref(), "turn")?;
                let already = if answer.changed { "" } else { "already " };
                let text = format!("turn {} of {} is {already}{}", turn.turn_id, turn.agent_id, turn.status);
                Ok(Answer::new(&answer, text))
            }
            Self::Retry { turn_id: Some(turn_id), .. } => {
                let turn_id = full_id(client, IdKind::TURN, turn_id).await?;
                let answer = client.call(v1::RetryTurnRequest { request_id, turn_id }).await?;
                let turn = required(answer.turn, "turn")?;
                let text = format!("turn {} of {} will be retried now", turn.turn_id, turn.agent_id);
                Ok(Answer::new(&turn, text))
            }
            Self::Retry { turn_id: None, since, agent, .. } => retry_failed(client, agent, since).await,
            Self::Settle { call_id, outcome, note } => {
                let request = v1::SettleCallRequest { request_id, call_id, outcome, note };
                let call = required(client.call(request).await?.call, "call")?;
                let text =
                    format!("call {} of {} by {} is {} now", call.call_id, call.tool, call.agent_id, call.status);
                Ok(Answer::new(&call, text))
            }
        }
    }
}

async fn show(client: &Client, typed: String, full: bool, raw: bool) -> Result<Answer, Failure> {
    let turn_id = full_id(client, IdKind::TURN, typed).await?;
    let mut steps: Vec<JournalRow> = Vec::new();
    let (turn, cut) = loop {
        let after_seq = steps.last().map_or(0, |row| row.seq);
        let request = v1::GetTurnRequest { turn_id: turn_id.clone(), limit: PAGE, after_seq };
        let page = client.call(request).await?;
        let moved = page.steps.last().is_some_and(|row| row.seq > after_seq);
        steps.extend(page.steps);
        if !page.more || !moved || steps.len() >= ROWS_MAX {
            break (required(page.turn, "turn")?, page.more);
        }
    };
    let mut json = json::value(&turn);
    json["steps"] = json::value(&steps);
    let note = cut.then(|| Note::Cut(format!("only the first {} steps are shown", steps.len())));
    let text = if raw {
        steps.iter().map(|row| format!("{}\n", json::value(row))).collect()
    } else {
        // The ledger has the durations, which the journal has not for all tools.
        let called = steps.iter().any(|row| row.step == "call_finished");
        let request = v1::ListLedgerRequest { turn_id: Some(turn_id), ..<_>::default() };
        let calls = match called {
            true => pages(client, &Bound::ALL, request).await?.rows,
            false => Vec::new(),
        };
        text(turn, &steps, &calls, full, &client.view)
    };
    Ok(Answer { note, ..Answer::new(&json, text) })
}

fn text(turn: v1::Turn, steps: &[JournalRow], calls: &[LedgerRow], full: bool, view: &View) -> String {
    let reason = turn.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let shown = [
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
    ];
    let mut text = fields(view.screen.filter(|_| !full), &shown);
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

/// A dead letter that is retried: its id, its agent, its messages, and what it is now.
type Retried = (String, String, usize, String);

const RETRIED: &[Column<Retried>] = &[
    ("DEAD LETTER", |(id, ..), _| id.clone()),
    ("AGENT", |(_, agent_id, ..), _| agent_id.clone()),
    ("MAIL", |(_, _, mail, _), _| mail.to_string()),
    ("NOW", |(.., now), _| now.clone()),
];

async fn retry_failed(client: &Client, agent_id: Option<String>, since: Option<i64>) -> Result<Answer, Failure> {
    let request = v1::ListDeadRequest { agent_id, ..<_>::default() };
    let mut letters = pages(client, &Bound::ALL, request).await?.rows;
    letters.retain(|letter| since.is_none_or(|since| letter.created_at_ms >= since));
    let (mut changes, mut rows, mut failure) = (Vec::new(), Vec::new(), None);
    // The list has the newest first. The oldest mail came first.
    for letter in letters.into_iter().rev() {
        let id = letter.dead_letter_id;
        let request = v1::RetryDeadRequest { request_id: new_request_id(), dead_letter_id: id.clone(), fresh: false };
        let now = match client.call(request).await {
            Ok(change) => {
                let status = change.dead_letter.as_ref().map_or_else(String::new, |letter| letter.status.clone());
                changes.push(change);
                status
            }
            // The others are retried all the same; the exit code tells.
            Err(refused) => {
                let word = refused.to_string();
                failure.get_or_insert(refused);
                word
            }
        };
        rows.push((id, letter.agent_id, letter.messages.len(), now));
    }
    Ok(Answer { failure, ..Answer::new(&changes, table(&rows, &client.view, RETRIED)) })
}
