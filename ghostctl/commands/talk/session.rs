//! One `talk` session: sends lines, prints answers, and reconnects when the connection breaks. A retry repeats the same
//! request with the same `request_id`, so no line is sent twice.

use std::collections::VecDeque;
use std::time::Duration;

use ghost_proto::v1::watch_conversation_response::What;
use ghost_proto::v1::{TurnOver, WatchConversationResponse};
use tokio::signal::unix::{SignalKind, signal};
use tonic::{Status, Streaming};

use super::prompt::{Lines, MESSAGE_MAX, Order, history_line, order};
use super::screen::Screen;
use crate::commands::message::WaitNotice;
use crate::commands::prelude::*;
use crate::connection::RetryWindow;
use crate::wait::Deadline;

/// If nothing of an answer has arrived for this long, the prompt is shown again.
const SILENCE: Duration = Duration::from_secs(10);
/// Entries of a continued conversation that are read for the line history.
const EARLIER: u32 = 200;
/// Number of turns whose end is remembered.
const TURNS_KEPT: usize = 16;

/// The client's state of a conversation.
pub struct Session {
    /// The agent to talk with: the owner of the conversation.
    owner: String,
    conversation_id: Option<String>,
    /// The user's earlier messages, oldest first, for the line history.
    pub earlier: Vec<String>,
    /// All entries up to this sequence number are printed.
    seen: i64,
    /// Files to attach to the next message.
    files: Vec<String>,
    /// Sequence number of the user's last message, while its answer is missing.
    unanswered: Option<i64>,
    screen: Screen,
    stream: Option<Streaming<WatchConversationResponse>>,
    /// Turns whose end was printed, newest first.
    over: VecDeque<String>,
    /// The end of the first answering turn that failed.
    failed: Option<TurnOver>,
}

/// The next thing to handle.
enum Next {
    Line(Option<Result<String, Failure>>),
    Update(Box<Result<Option<WatchConversationResponse>, Status>>),
    TimedOut,
    Silence,
    Waiting(String),
}

impl Session {
    /// Starts a session. A given conversation is continued after its last entry.
    pub async fn begin(
        client: &Client,
        agent_id: String,
        conversation: Option<String>,
        files: Vec<String>,
        screen: Screen,
        out: &mut Output,
    ) -> Result<Self, Failure> {
        let mut session = Self {
            owner: agent_id,
            conversation_id: None,
            earlier: Vec::new(),
            seen: 0,
            files,
            unanswered: None,
            screen,
            stream: None,
            over: VecDeque::new(),
            failed: None,
        };
        if let Some(typed) = conversation {
            let id = full_id(client, IdKind::CONVERSATION, typed).await?;
            let request = v1::GetConversationRequest { conversation_id: id.clone(), after_seq: None, limit: 1 };
            let found = client.call(request).await?;
            let found = required(found.conversation, "conversation")?;
            if found.owner != session.owner {
                return Err(Failure::new(
                    "conflict",
                    format!("conversation {id} belongs to {}, not to {}", found.owner, session.owner),
                )
                .hint(format!("ghostctl talk {} --conversation {id}", found.owner)));
            }
            session.screen.conversation(&found, out)?;
            session.seen = found.last_seq;
            let after_seq = Some(found.last_seq.saturating_sub(EARLIER.into()).max(0));
            let request = v1::GetConversationRequest { conversation_id: id.clone(), after_seq, limit: EARLIER };
            let past = client.call(request).await?;
            let own_messages = past.entries.iter().filter(|entry| entry.direction == "in");
            session.earlier = own_messages.filter_map(|entry| history_line(&entry.content)).collect();
            session.conversation_id = Some(id);
        } else {
            check_answers(client, &session.owner).await?;
        }
        Ok(session)
    }

    /// Runs until the input ends or Ctrl-C is pressed. Returns the failure of the first failed
    /// turn, unless a person has already seen it.
    pub async fn talk(
        mut self,
        client: &Client,
        mut lines: Lines,
        person: bool,
        out: &mut Output,
    ) -> Result<Option<Failure>, Failure> {
        // Ctrl-C works at any time, also while the client waits for an answer or for the daemon.
        let mut interrupts = signal(SignalKind::interrupt())
            .map_err(|error| Failure::new("internal", format!("cannot handle Ctrl-C: {error}")))?;
        let ended = tokio::select! {
            biased;
            _ = interrupts.recv() => {
                // The user interrupted, so unsent files are no failure.
                self.files.clear();
                Ok(())
            }
            ended = self.run(client, &mut lines, person, out) => ended,
        };
        lines.close();
        ended?;
        self.leave(person, out)
    }

    /// Sends lines and prints updates until the input ends and the last message is answered.
    async fn run(&mut self, client: &Client, lines: &mut Lines, person: bool, out: &mut Output) -> Result<(), Failure> {
        let mut retries: Option<RetryWindow> = None;
        let mut deadline = None;
        // Until then, the prompt stays hidden because an answer is expected.
        let mut silence = None;
        let mut ended = false;
        let mut wait_notice = WaitNotice::default();
        loop {
            if self.stream.is_none() && self.conversation_id.is_some() {
                match self.watch(client).await? {
                    Ok(()) => {}
                    Err(status) => {
                        retries
                            .get_or_insert_with(|| client.retry_window(client.timeout))
                            .wait_or_fail(client, status)
                            .await?;
                        continue;
                    }
                }
            }
            if ended && self.unanswered.is_none() {
                break;
            }
            // Input from a pipe: the next line is sent after the answer to the previous one.
            let accepts_line = !ended && (person || self.unanswered.is_none());
            if accepts_line && lines.can_ask() && self.unanswered.is_none() {
                self.screen.make_room(out)?;
                lines.ask();
            }
            let reads_line = accepts_line && lines.listen();
            let wait: Option<Deadline> = deadline.filter(|_| self.unanswered.is_some() && (!person || ended));
            let next = tokio::select! {
                biased;
                update = next_update(&mut self.stream) => Next::Update(Box::new(update)),
                line = lines.next(), if reads_line => Next::Line(line),
                () = expired(wait) => Next::TimedOut,
                () = expired(silence), if accepts_line && !reads_line => Next::Silence,
                line = wait_notice.line(client, &self.owner), if self.unanswered.is_some() => Next::Waiting(line),
            };
            match next {
                Next::Update(update) => match *update {
                    Ok(Some(response)) => {
                        retries = None;
                        silence = Some(Deadline::after(SILENCE));
                        self.print_update(response, out)?;
                    }
                    ended => {
                        self.stream = None;
                        let status = ended.err().unwrap_or_else(|| Status::unavailable("the daemon stopped"));
                        retries
                            .get_or_insert_with(|| client.retry_window(client.timeout))
                            .wait_or_fail(client, status)
                            .await?;
                    }
                },
                Next::Line(Some(line)) => {
                    let done = match line {
                        Ok(line) => self.execute(&line, client, out).await,
                        Err(unreadable) => Err(unreadable),
                    };
                    match done {
                        Ok(true) => {}
                        Ok(false) => break,
                        // A person reads the refusal and can go on.
                        Err(failure) if person && failure.code != "output_closed" && failure.code != "unavailable" => {
                            let hint = failure.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                            self.screen.notice(&format!("not done: {failure}{hint}"), out)?;
                        }
                        Err(failure) => return Err(failure),
                    }
                    deadline = Some(Deadline::after(client.timeout));
                    silence = Some(Deadline::after(SILENCE));
                }
                // Ctrl-D at the prompt ends the session without waiting for an answer.
                Next::Line(None) if person => break,
                Next::Line(None) => ended = true,
                // The answer takes long: show the prompt; the answer will be printed above it.
                Next::Silence => {
                    self.screen.make_room(out)?;
                    lines.ask();
                }
                Next::Waiting(line) if person => self.screen.notice(&line, out)?,
                Next::Waiting(line) => client.word(&line),
                Next::TimedOut => {
                    let owner = &self.owner;
                    return Err(Failure::new(
                        "timeout",
                        format!("{owner} has not answered within {:?}", client.timeout),
                    )
                    .hint("the message is stored and will be answered; raise --timeout to wait longer"));
                }
            }
        }
        Ok(())
    }

    /// Ends the session. Prints how to continue the conversation. Returns a failure that no person
    /// has seen.
    fn leave(mut self, person: bool, out: &mut Output) -> Result<Option<Failure>, Failure> {
        if let Some(id) = &self.conversation_id {
            let text = format!("to continue: ghostctl talk {} --conversation {id}", self.owner);
            self.screen.notice(&text, out)?;
        }
        if person {
            return Ok(None);
        }
        let unsent = (!self.files.is_empty()).then(|| {
            let what = format!("{} was not sent: no message followed", self.files.join(", "));
            Failure::new("invalid_arguments", what).hint("a file is sent with the next message")
        });
        let failed = self.failed.map(|over| {
            let reason = over.reason.unwrap_or_else(|| "no reason was given".to_owned());
            // An older daemon gives no code.
            let code = over.error_code.unwrap_or_else(|| "ask_failed".to_owned());
            if over.turn_id.is_empty() {
                // The agent could not start a turn.
                return Failure::new(&code, reason);
            }
            Failure::new(&code, format!("the turn that should answer {}: {reason}", worded(&over.status)))
                .hint(format!("ghostctl turn show {}", over.turn_id))
        });
        Ok(failed.or(unsent))
    }

    /// Opens the update stream after the last printed entry.
    async fn watch(&mut self, client: &Client) -> Result<Result<(), Status>, Failure> {
        let request = v1::WatchConversationRequest {
            conversation_id: self.conversation_id.clone().unwrap_or_default(),
            after_seq: self.seen,
        };
        let opened = client.open("conversation", request).await?;
        Ok(opened.map(|stream| self.stream = Some(stream)))
    }

    fn print_update(&mut self, response: WatchConversationResponse, out: &mut Output) -> Result<(), Failure> {
        match response.what {
            Some(What::Entry(entry)) if entry.seq > self.seen => {
                self.seen = entry.seq;
                self.screen.entry(&entry, self.unanswered == Some(entry.seq), out)?;
            }
            Some(What::Delta(text)) => self.screen.delta(&text, &self.owner, out)?,
            Some(What::Progress(progress)) => self.screen.progress(&progress, out)?,
            Some(What::Discard(turn_id)) => self.screen.discard(&turn_id, out)?,
            // A handoff by this client is printed already.
            Some(What::Changed(conversation)) if conversation.owner != self.owner => {
                self.owner.clone_from(&conversation.owner);
                self.screen.changed(&conversation, out)?;
            }
            Some(What::TurnOver(over)) => {
                // A turn that ended before this message is not its answer.
                let answers = self.unanswered.is_some_and(|seq| self.seen >= seq);
                // After a reconnect, the daemon repeats the end of the last turn.
                if over.turn_id.is_empty() || !self.over.contains(&over.turn_id) {
                    self.screen.over(&over, out)?;
                    self.over.truncate(TURNS_KEPT - 1);
                    self.over.push_front(over.turn_id.clone());
                }
                if answers && over.status != "split" {
                    self.unanswered = None;
                    let failed = (over.status != "finished").then_some(over);
                    self.failed = self.failed.take().or(failed);
                }
            }
            // Already printed, or a kind of update that only newer clients know.
            Some(What::Entry(_) | What::Changed(_)) | None => {}
        }
        Ok(())
    }

    /// Executes a line. Returns false if the session ends.
    async fn execute(&mut self, line: &str, client: &Client, out: &mut Output) -> Result<bool, Failure> {
        match order(line) {
            Order::Nothing => {}
            Order::Quit => return Ok(false),
            Order::Help => self.screen.help(out)?,
            Order::Attach(path) => {
                let request = v1::CheckAttachmentsRequest { attachments: vec![path.clone()] };
                client.call(request).await?;
                self.screen.notice(&format!("{path} will be sent with the next message"), out)?;
                self.files.push(path);
            }
            Order::Handoff(agent_id) => self.handoff(agent_id, client, out).await?,
            Order::Approve(line) => self.approve(line, client).await?,
            Order::Say(text) => self.say(text, client, out).await?,
            Order::Unknown(word) => {
                return Err(Failure::new(
                    "invalid_arguments",
                    format!("unknown command /{word}, or its argument is missing"),
                )
                .hint(
                    "commands: /attach PATH, /handoff AGENT, /approve ID ANSWER, /help, /quit; start a message with // to send one slash",
                ));
            }
        }
        Ok(true)
    }

    async fn say(&mut self, content: String, client: &Client, out: &mut Output) -> Result<(), Failure> {
        if content.len() > MESSAGE_MAX {
            let what = format!("the message is longer than {MESSAGE_MAX} bytes, the maximum of any world");
            return Err(Failure::new("too_large", what).hint(
                "write it to a workspace file and /attach the file; limits.message_bytes is the limit of this world",
            ));
        }
        let begins = self.conversation_id.is_none();
        let request = v1::SayRequest {
            request_id: new_request_id(),
            conversation_id: self.conversation_id.clone(),
            agent_id: begins.then(|| self.owner.clone()),
            content,
            attachments: self.files.clone(),
        };
        let answer = client.call(request).await.map_err(|mut failure| {
            // In `talk` there is no option or argument for the content.
            if let Some(what) = failure.message.strip_prefix("content ") {
                failure.message = format!("the message {what}");
            }
            // Otherwise a missing file would make every later message fail, too.
            if self.files.is_empty() {
                return failure;
            }
            self.files.clear();
            let hint = failure.hint.as_deref().map(|hint| format!("{hint}; ")).unwrap_or_default();
            failure.hint(format!("{hint}the attachments were removed"))
        })?;
        let entry = required(answer.entry, "entry")?;
        let conversation = required(answer.conversation, "conversation")?;
        self.files.clear();
        self.unanswered = Some(entry.seq);
        if begins {
            self.screen.conversation(&conversation, out)?;
            self.conversation_id = Some(conversation.conversation_id);
        }
        Ok(())
    }

    /// Answers an approval. The daemon adds a note to the conversation, which is printed like any other.
    async fn approve(&mut self, content: String, client: &Client) -> Result<(), Failure> {
        let Some(conversation_id) = self.conversation_id.clone() else {
            return Err(Failure::new("invalid_arguments", "the conversation has not begun")
                .hint("answer with `ghostctl approval approve` or `ghostctl approval deny`"));
        };
        let request = v1::SayRequest {
            request_id: new_request_id(),
            conversation_id: Some(conversation_id),
            content,
            ..v1::SayRequest::default()
        };
        client.call(request).await?;
        Ok(())
    }

    async fn handoff(&mut self, agent_id: String, client: &Client, out: &mut Output) -> Result<(), Failure> {
        let Some(conversation_id) = self.conversation_id.clone() else {
            check_answers(client, &agent_id).await?;
            self.owner.clone_from(&agent_id);
            return self.screen.notice(&format!("the conversation will start with {agent_id}"), out);
        };
        let request =
            v1::HandoffConversationRequest { request_id: new_request_id(), conversation_id, agent_id, reason: None };
        let conversation = client.call(request).await?;
        // The stream reports the handoff, too, but after the last line it is not read any more.
        self.owner.clone_from(&conversation.owner);
        self.screen.changed(&conversation, out)
    }
}

/// The status of a failed turn as the predicate of a sentence.
fn worded(status: &str) -> &str {
    match status {
        "cancelled" => "was cancelled",
        "timed_out" => "timed out",
        "dead" => "became a dead letter",
        other => other,
    }
}

/// Fails if the agent cannot answer. The daemon refuses a message to such an agent in the same way.
async fn check_answers(client: &Client, agent_id: &str) -> Result<(), Failure> {
    let found = client.call(v1::GetAgentRequest { agent_id: agent_id.to_owned() }).await?;
    let cannot_run = found.cannot_run;
    let agent = required(found.agent, "agent")?;
    if agent.deleted_at_ms.is_some() {
        return Err(Failure::new("not_found", format!("the agent `{agent_id}` was deleted"))
            .hint("`ghostctl agent list` shows all agents"));
    }
    let why = match (agent.desired.as_str(), agent.status.as_str()) {
        (_, "failed") => "has failed",
        ("stopped", _) | (_, "stopped" | "stopping") => "is stopped",
        _ => return Ok(()),
    };
    let reason = agent.status_reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    // If starting the agent would not help, the daemon gives another hint in `cannot_run`.
    let start = || format!("start it with `ghostctl agent start {agent_id}`, or talk to another agent");
    Err(Failure::new("conflict", format!("{agent_id} {why} and cannot answer{reason}"))
        .hint(cannot_run.unwrap_or_else(start)))
}

/// The next message of the stream; never completes without a stream.
async fn next_update(
    stream: &mut Option<Streaming<WatchConversationResponse>>,
) -> Result<Option<WatchConversationResponse>, Status> {
    match stream {
        Some(stream) => stream.message().await,
        None => std::future::pending().await,
    }
}

/// Completes when the deadline has passed; never completes without a deadline.
async fn expired(deadline: Option<Deadline>) {
    match deadline {
        // The inner future never completes, so this waits only for the deadline.
        Some(deadline) => drop(deadline.within(std::future::pending::<()>()).await),
        None => std::future::pending().await,
    }
}
