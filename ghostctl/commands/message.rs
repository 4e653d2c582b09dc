//! `ghostctl ask` and `send`: messages to agents; and `ghostctl dead`: messages that no agent could process.

use std::pin::pin;
use std::time::Duration;

use ghost_proto::json;
use ghost_proto::v1::{AskResponse, DeadChange, DeadLetter};
use serde_json::json;

use crate::arguments::{millis, optional_text, text_or_stdin};
use crate::commands::prelude::*;
use crate::text::one_line;
use crate::wait::{Deadline, pause};

/// Send a message to an agent and return when it is stored in the agent's inbox
///
/// Examples:
///   ghostctl send chora 'The figures of May are in notes/may.md'
///   ghostctl send chora --subject Minus -- '-5 degrees'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Send {
    /// Agent id
    agent_id: String,
    /// The message; - reads standard input; put -- before a text that begins with -
    #[arg(value_name = "TEXT")]
    body: String,
    /// Set the subject, one line
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
}

impl Send {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = v1::SendRequest {
            request_id: new_request_id(),
            agent_id: self.agent_id.clone(),
            body: text_or_stdin(self.body)?,
            subject: optional_text(self.subject)?,
            attachments: Vec::new(),
        };
        let sent = client.call(request).await?;
        let waits = sent.waits.as_ref().map(|why| format!("\n{why}")).unwrap_or_default();
        let text = format!("{} is in the inbox of {}{waits}", sent.message_id, self.agent_id);
        let json = json!({
            "message_id": sent.message_id,
            "agent_id": self.agent_id,
            "seq": sent.seq,
            "root_id": sent.root_id,
            "waits": sent.waits,
        });
        Ok(Answer::new(&json, text))
    }
}

/// The daemon ends an ask at its deadline. The client waits this much longer for that answer.
const GRACE: Duration = Duration::from_millis(750);

/// Ask an agent, wait for its reply and print it
///
/// If there is no reply, the exit code tells the reason, such as 6 for a timeout and 8 for a spent budget.
///
/// Examples:
///   ghostctl ask chora 'What is still open?'
///   ghostctl --timeout 10m ask chora 'Review output/'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Ask {
    /// Agent id
    agent_id: String,
    /// The question; - reads standard input; put -- before a text that begins with -
    #[arg(value_name = "TEXT")]
    body: String,
}

impl Ask {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = v1::AskRequest {
            request_id: new_request_id(),
            agent_id: self.agent_id.clone(),
            body: text_or_stdin(self.body)?,
            timeout_ms: Some(millis(client.timeout)),
        };
        let patience = client.timeout.saturating_add(GRACE);
        let mut asked = pin!(client.call_within(patience, request));
        let mut waits = WaitNotice::default();
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut asked => break answer?,
                line = waits.line(client, &self.agent_id) => client.word(&line),
            }
        };
        if answer.status != "answered" {
            return Err(unanswered(self.agent_id, answer));
        }
        let json = json!({
            "ask_id": answer.ask_id,
            "agent_id": self.agent_id,
            "status": answer.status,
            "reply": answer.reply,
            "truncated": answer.truncated,
        });
        let note = answer.truncated.then(|| {
            let text = "the reply was cut: the model reached its token limit for one answer (limits.answer_tokens, \
                         the archetype's max_tokens, or what a budget had left), or its provider paused it";
            Note::Word(text.to_owned())
        });
        Ok(Answer { note, ..Answer::new(&json, answer.reply.unwrap_or_default()) })
    }
}

/// The failure of an ask without a reply. Its details name the ask.
fn unanswered(agent_id: String, answer: AskResponse) -> Failure {
    Failure {
        // Only a daemon older than this client gives no code.
        code: answer.error_code.unwrap_or_else(|| "ask_failed".to_owned()),
        message: answer.error.unwrap_or_else(|| format!("{agent_id} has not answered")),
        hint: answer.hint,
        details: Some(json!({ "ask_id": answer.ask_id, "agent_id": agent_id, "status": answer.status })),
    }
}

/// Interval between two reads of the agent's state, and the time limit of each.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A reason is truncated to this many characters.
const REASON_CHARACTERS: usize = 300;

/// Tells a user who waits for an answer that the agent waits, too: for a model that is down, for a spent budget or for
/// an approval. It never delays or fails the call that the user waits for.
#[derive(Debug, Default)]
pub struct WaitNotice {
    /// Whether the current wait was reported.
    reported: bool,
}

impl WaitNotice {
    /// Completes when the agent starts to wait, with the line to print. Reports each wait once.
    pub async fn line(&mut self, client: &Client, agent_id: &str) -> String {
        loop {
            pause(POLL_INTERVAL).await;
            let request = v1::GetAgentRequest { agent_id: agent_id.to_owned() };
            // Errors are ignored here: the call that the user waits for reports its own.
            let Some(Ok(answer)) = Deadline::after(POLL_INTERVAL).within(client.once(request)).await else { continue };
            match answer.waits {
                Some(reason) if !self.reported => {
                    self.reported = true;
                    return format!("{agent_id} waits: {}", one_line(&reason, REASON_CHARACTERS));
                }
                waits => self.reported = waits.is_some(),
            }
        }
    }
}

#[derive(Debug, clap::Subcommand)]
pub enum Dead {
    /// List dead letters, newest first
    ///
    /// Examples:
    ///   ghostctl dead list
    ///   ghostctl dead list --status all
    #[command(verbatim_doc_comment)]
    List {
        /// Show only dead letters of this agent
        #[arg(long = "agent", id = "agent_id", value_name = "A")]
        agent: Option<String>,
        /// Show this status: held, retried, dropped or all (default: held)
        #[arg(long, value_name = "S")]
        status: Option<String>,
        #[command(flatten)]
        bound: Bound,
    },
    /// Show a dead letter with its messages
    ///
    /// Examples:
    ///   ghostctl dead list
    ///   ID=$(ghostctl --json dead list | jq -r '.[0].dead_letter_id')
    ///   ghostctl dead show $ID
    #[command(verbatim_doc_comment)]
    Show {
        /// Dead letter id
        dead_letter_id: String,
    },
    /// Deliver a dead letter again; its turn resumes from its journal
    ///
    /// Examples:
    ///   ID=$(ghostctl --json dead list | jq -r '.[0].dead_letter_id')
    ///   ghostctl dead retry $ID
    ///   ghostctl dead retry $ID --fresh
    #[command(verbatim_doc_comment)]
    Retry {
        /// Dead letter id
        dead_letter_id: String,
        /// Start a new turn instead of resuming the old one
        #[arg(long)]
        fresh: bool,
    },
    /// Drop a dead letter: its messages will not be processed
    ///
    /// Examples:
    ///   ID=$(ghostctl --json dead list | jq -r '.[0].dead_letter_id')
    ///   ghostctl dead drop $ID
    #[command(verbatim_doc_comment)]
    Drop {
        /// Dead letter id
        dead_letter_id: String,
    },
}

const LETTERS: &[Column<DeadLetter>] = columns![
    "DEAD LETTER" dead_letter_id, "AGENT" agent_id, "STATUS" status, "SINCE" moment created_at_ms,
    "AGE" age created_at_ms,
    "MAIL" => |letter, _| letter.messages.len().to_string(),
    "CRASHES" crashes, "REASON" reason,
];

impl Dead {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request_id = new_request_id();
        match self {
            Self::List { agent: agent_id, status, bound } => {
                let request = v1::ListDeadRequest { agent_id, status, ..<_>::default() };
                list(client, &bound, request, LETTERS).await
            }
            Self::Show { dead_letter_id } => show(client, dead_letter_id).await,
            Self::Retry { dead_letter_id, fresh } => {
                let dead_letter_id = full_id(client, IdKind::DEAD_LETTER, dead_letter_id).await?;
                let request = v1::RetryDeadRequest { request_id, dead_letter_id, fresh };
                changed(&client.call(request).await?)
            }
            Self::Drop { dead_letter_id } => {
                let dead_letter_id = full_id(client, IdKind::DEAD_LETTER, dead_letter_id).await?;
                changed(&client.call(v1::DropDeadRequest { request_id, dead_letter_id }).await?)
            }
        }
    }
}

/// Describes the dead letter after a change.
fn changed(change: &DeadChange) -> Result<Answer, Failure> {
    let letter = required(change.dead_letter.as_ref(), "dead letter")?;
    let already = if change.changed { "" } else { "already " };
    let text = format!("dead letter {} of {} is {already}{}", letter.dead_letter_id, letter.agent_id, letter.status);
    Ok(Answer::new(change, text))
}

async fn show(client: &Client, typed: String) -> Result<Answer, Failure> {
    let dead_letter_id = full_id(client, IdKind::DEAD_LETTER, typed).await?;
    let answer = client.call(v1::GetDeadRequest { dead_letter_id }).await?;
    let letter = required(answer.dead_letter, "dead letter")?;
    let mut json = json::value(&letter);
    json["envelopes"] = json::value(&answer.envelopes);
    let view = &client.view;
    let shown = [
        ("dead_letter_id", letter.dead_letter_id),
        ("agent_id", letter.agent_id),
        ("turn_id", letter.turn_id),
        ("status", letter.status),
        ("reason", letter.reason),
        ("crashes", letter.crashes.to_string()),
        ("since", view.when(letter.created_at_ms)),
        ("resolved", letter.resolved_at_ms.map(|at| view.when(at)).unwrap_or_default()),
    ];
    let mut text = fields(view.screen, &shown);
    for mail in answer.envelopes {
        let subject = mail.subject.map(|subject| format!(": {subject}")).unwrap_or_default();
        let head = format!("{} {} from {}{subject}", mail.kind, mail.message_id, mail.from);
        text.push_str(&format!("\n{head}\n{}\n", mail.body));
    }
    let note = "the last messages are omitted: the answer is limited to 1 MiB of messages".to_owned();
    Ok(Answer { note: answer.truncated.then_some(Note::Cut(note)), ..Answer::new(&json, text) })
}
