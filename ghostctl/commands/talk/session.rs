//! One run of a conversation: lines go out, what is said comes in, over as many connections as it takes.
//!
//! Must never: say a line twice. The request is repeated as it is, under the same `request_id`.

use std::collections::VecDeque;
use std::time::Duration;

use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::conversations_client::ConversationsClient;
use ghost_proto::v1::watch_conversation_response::What;
use ghost_proto::v1::{
    CheckAttachmentsRequest, GetAgentRequest, GetConversationRequest, HandoffConversationRequest, SayRequest, TurnOver,
    WatchConversationRequest, WatchConversationResponse,
};
use tokio::signal::unix::{SignalKind, signal};
use tonic::{Status, Streaming};

use super::input::{MESSAGE_MAX, Order, order};
use super::prompt::{Lines, written};
use super::screen::Screen;
use crate::connection::{ANSWER_BYTES, Client, Patience, new_request_id, required, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Output;
use crate::wait::Deadline;
use crate::waits::Waits;

/// An answer of which nothing has come for so long keeps nobody from writing on.
const SILENCE: Duration = Duration::from_secs(10);
/// Entries of an earlier conversation among which a person finds what they have said.
const EARLIER: u32 = 200;
/// Turns whose end is remembered.
const TURNS_KEPT: usize = 16;

/// A conversation as this client sees it.
pub struct Session {
    /// The agent to begin with; the owner from then on.
    owner: String,
    conversation_id: Option<String>,
    /// What was said in it before, the oldest first.
    pub earlier: Vec<String>,
    /// Everything up to this entry is on the screen.
    seen: i64,
    /// Files that go with the next message.
    files: Vec<String>,
    /// The entry of what was said last, while its answer is out.
    waits_for: Option<i64>,
    screen: Screen,
    stream: Option<Streaming<WatchConversationResponse>>,
    /// The turns whose end is on the screen, the latest first.
    over: VecDeque<String>,
    /// How the first answering turn ended that did not end well.
    failed: Option<TurnOver>,
}

/// What comes next.
enum Next {
    Line(Option<Result<String, Failure>>),
    Told(Box<Result<Option<WatchConversationResponse>, Status>>),
    TooLate,
    Silent,
    Waits(String),
}

impl Session {
    /// Prepares a session; an earlier conversation is gone on with from its end.
    pub async fn begin(
        client: &Client,
        agent_id: String,
        conversation: Option<String>,
        files: Vec<String>,
        mut screen: Screen,
        out: &mut Output,
    ) -> Result<Self, Failure> {
        let mut session = Self {
            owner: agent_id,
            conversation_id: None,
            earlier: Vec::new(),
            seen: 0,
            files,
            waits_for: None,
            screen: Screen::new(false, false),
            stream: None,
            over: VecDeque::new(),
            failed: None,
        };
        if let Some(typed) = conversation {
            let id = ids::whole(client, ids::CONVERSATION, typed).await?;
            let request = GetConversationRequest { conversation_id: id.clone(), after_seq: None, limit: 1 };
            let found = rpc!(client, ConversationsClient::get, request).await?;
            let found = required(found.conversation, "conversation")?;
            if found.owner != session.owner {
                return Err(Failure::new(
                    "conflict",
                    format!("conversation {id} is with {}, not with {}", found.owner, session.owner),
                )
                .hint(format!("ghostctl talk {} --conversation {id}", found.owner)));
            }
            screen.conversation(&found, out)?;
            session.seen = found.last_seq;
            let after_seq = Some(found.last_seq.saturating_sub(EARLIER.into()).max(0));
            let request = GetConversationRequest { conversation_id: id.clone(), after_seq, limit: EARLIER };
            let past = rpc!(client, ConversationsClient::get, request).await?;
            let said = past.entries.iter().filter(|entry| entry.direction == "in");
            session.earlier = said.filter_map(|entry| written(&entry.content)).collect();
            session.conversation_id = Some(id);
        } else {
            check_answers(client, &session.owner).await?;
        }
        session.screen = screen;
        Ok(session)
    }

    /// Talks until the lines end, or someone breaks off. Gives what the first turn that failed
    /// did so with, if nobody sat by to read it.
    pub async fn talk(
        mut self,
        client: &Client,
        mut lines: Lines,
        person: bool,
        out: &mut Output,
    ) -> Result<Option<Failure>, Failure> {
        // Listened for all the time: who breaks off does not wait for an answer or for the daemon to come back.
        let mut interrupts = signal(SignalKind::interrupt())
            .map_err(|error| Failure::new("internal", format!("Ctrl-C cannot be listened for: {error}")))?;
        let ended = tokio::select! {
            biased;
            _ = interrupts.recv() => {
                // Who breaks off knows that nothing more is said.
                self.files.clear();
                Ok(())
            }
            ended = self.go_on(client, &mut lines, person, out) => ended,
        };
        lines.close();
        ended?;
        self.leave(person, out)
    }

    /// Says the lines and shows what comes, until there is no more of either.
    async fn go_on(
        &mut self,
        client: &Client,
        lines: &mut Lines,
        person: bool,
        out: &mut Output,
    ) -> Result<(), Failure> {
        let mut away: Option<Patience> = None;
        let mut deadline = None;
        // Until when a prompt waits for an answer to come first.
        let mut silence = None;
        let mut ended = false;
        let mut waits = Waits::default();
        loop {
            if self.stream.is_none() && self.conversation_id.is_some() {
                match self.watch(client).await? {
                    Ok(()) => {}
                    Err(status) => {
                        away.get_or_insert_with(|| client.patience(client.timeout)).bear(client, status).await?;
                        continue;
                    }
                }
            }
            if ended && self.waits_for.is_none() {
                break;
            }
            // Without a person, each line waits for the answer to the one before.
            let listens = !ended && (person || self.waits_for.is_none());
            if listens && lines.can_ask() && self.waits_for.is_none() {
                self.screen.make_room(out)?;
                lines.ask();
            }
            let hears = listens && lines.listen();
            let wait: Option<Deadline> = deadline.filter(|_| self.waits_for.is_some() && (!person || ended));
            let next = tokio::select! {
                biased;
                told = told(&mut self.stream) => Next::Told(Box::new(told)),
                line = lines.next(), if hears => Next::Line(line),
                () = late(wait) => Next::TooLate,
                () = late(silence), if listens && !hears => Next::Silent,
                line = waits.line(client, &self.owner), if self.waits_for.is_some() => Next::Waits(line),
            };
            match next {
                Next::Told(told) => match *told {
                    Ok(Some(response)) => {
                        away = None;
                        silence = Some(Deadline::after(SILENCE));
                        self.told(response, out)?;
                    }
                    ended => {
                        self.stream = None;
                        let status = ended.err().unwrap_or_else(|| Status::unavailable("the daemon stopped"));
                        away.get_or_insert_with(|| client.patience(client.timeout)).bear(client, status).await?;
                    }
                },
                Next::Line(Some(line)) => {
                    let done = match line {
                        Ok(line) => self.obey(&line, client, out).await,
                        Err(unreadable) => Err(unreadable),
                    };
                    match done {
                        Ok(true) => {}
                        Ok(false) => break,
                        // A person reads what was refused, and goes on.
                        Err(failure) if person && failure.code != "output_closed" && failure.code != "unavailable" => {
                            let hint = failure.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                            self.screen.word(&format!("not done: {failure}{hint}"), out)?;
                        }
                        Err(failure) => return Err(failure),
                    }
                    deadline = Some(Deadline::after(client.timeout));
                    silence = Some(Deadline::after(SILENCE));
                }
                // A person who closes the line has heard enough.
                Next::Line(None) if person => break,
                Next::Line(None) => ended = true,
                // Who has waited so long may write on; the answer comes above.
                Next::Silent => {
                    self.screen.make_room(out)?;
                    lines.ask();
                }
                Next::Waits(line) if person => self.screen.word(&line, out)?,
                Next::Waits(line) => client.word(&line),
                Next::TooLate => {
                    let owner = &self.owner;
                    return Err(Failure::new(
                        "timeout",
                        format!("{owner} has not answered within {:?}", client.timeout),
                    )
                    .hint("the message is there and will be answered; raise --timeout to wait longer"));
                }
            }
        }
        Ok(())
    }

    /// The last words of this client.
    fn leave(mut self, person: bool, out: &mut Output) -> Result<Option<Failure>, Failure> {
        if let Some(id) = &self.conversation_id {
            let text = format!("to go on: ghostctl talk {} --conversation {id}", self.owner);
            self.screen.word(&text, out)?;
        }
        if person {
            return Ok(None);
        }
        let unsent = (!self.files.is_empty()).then(|| {
            let what = format!("{} was attached to no message", self.files.join(", "));
            Failure::new("invalid_arguments", what).hint("a file goes with the message after it; say one")
        });
        let failed = self.failed.map(|over| {
            let reason = over.reason.unwrap_or_else(|| "no reason was given".to_owned());
            // A daemon that names no code is older than this client, or knows none.
            let code = over.error_code.unwrap_or_else(|| "ask_failed".to_owned());
            if over.turn_id.is_empty() {
                // No turn had begun: its agent cannot.
                return Failure::new(&code, reason);
            }
            Failure::new(&code, format!("the turn that should answer {}: {reason}", worded(&over.status)))
                .hint(format!("ghostctl turn show {}", over.turn_id))
        });
        Ok(failed.or(unsent))
    }

    /// Opens the stream from what is on the screen on.
    async fn watch(&mut self, client: &Client) -> Result<Result<(), Status>, Failure> {
        let request = WatchConversationRequest {
            conversation_id: self.conversation_id.clone().unwrap_or_default(),
            after_seq: self.seen,
        };
        let mut service = ConversationsClient::new(client.transport()).max_decoding_message_size(ANSWER_BYTES);
        match Deadline::after(client.timeout).within(service.watch(request)).await {
            None => Err(Failure::new("timeout", "the daemon did not open the conversation in time")
                .hint("is it busy? --timeout sets how long to wait")),
            Some(Ok(response)) => {
                client.meet();
                self.stream = Some(response.into_inner());
                Ok(Ok(()))
            }
            Some(Err(status)) => Ok(Err(status)),
        }
    }

    fn told(&mut self, response: WatchConversationResponse, out: &mut Output) -> Result<(), Failure> {
        match response.what {
            Some(What::Entry(entry)) if entry.seq > self.seen => {
                self.seen = entry.seq;
                self.screen.entry(&entry, self.waits_for == Some(entry.seq), out)?;
            }
            Some(What::Delta(text)) => self.screen.delta(&text, &self.owner, out)?,
            Some(What::Discard(turn_id)) => self.screen.discard(&turn_id, out)?,
            // What this client did itself is on the screen.
            Some(What::Changed(conversation)) if conversation.owner != self.owner => {
                self.owner.clone_from(&conversation.owner);
                self.screen.changed(&conversation, out)?;
            }
            Some(What::TurnOver(over)) => {
                // The end of a turn that was over before this was said is no answer to it.
                let heard = self.waits_for.is_some_and(|seq| self.seen >= seq);
                // A daemon that was away tells of the last turn once more.
                if over.turn_id.is_empty() || !self.over.contains(&over.turn_id) {
                    self.screen.over(&over, out)?;
                    self.over.truncate(TURNS_KEPT - 1);
                    self.over.push_front(over.turn_id.clone());
                }
                if heard && over.status != "split" {
                    self.waits_for = None;
                    let failed = (over.status != "finished").then_some(over);
                    self.failed = self.failed.take().or(failed);
                }
            }
            // Seen before, or of a daemon newer than this client.
            Some(What::Entry(_) | What::Changed(_)) | None => {}
        }
        Ok(())
    }

    /// Does what a line asks for; false if it is to leave.
    async fn obey(&mut self, line: &str, client: &Client, out: &mut Output) -> Result<bool, Failure> {
        match order(line) {
            Order::Nothing => {}
            Order::Quit => return Ok(false),
            Order::Help => self.screen.help(out)?,
            Order::Attach(path) => {
                let request = CheckAttachmentsRequest { attachments: vec![path.clone()] };
                rpc!(client, ConversationsClient::check_attachments, request).await?;
                self.screen.word(&format!("{path} goes with the next message"), out)?;
                self.files.push(path);
            }
            Order::Handoff(agent_id) => self.handoff(agent_id, client, out).await?,
            Order::Say(text) => self.say(text, client, out).await?,
            Order::Unknown(word) => {
                return Err(Failure::new("invalid_arguments", format!("there is no command /{word} of that form"))
                    .hint(
                        "/attach PATH, /handoff AGENT, /help, /quit; begin a message with // if it should begin with /",
                    ));
            }
        }
        Ok(true)
    }

    async fn say(&mut self, content: String, client: &Client, out: &mut Output) -> Result<(), Failure> {
        if content.len() > MESSAGE_MAX {
            let what = format!("the message has more than {MESSAGE_MAX} bytes, and no world takes one so long");
            return Err(Failure::new("too_large", what).hint(
                "write it to a workspace file and /attach that; limits.message_bytes is how much this world takes",
            ));
        }
        let begins = self.conversation_id.is_none();
        let request = SayRequest {
            request_id: new_request_id(),
            conversation_id: self.conversation_id.clone(),
            agent_id: begins.then(|| self.owner.clone()),
            content,
            attachments: self.files.clone(),
        };
        let heard = rpc!(client, ConversationsClient::say, request).await.map_err(|mut failure| {
            // Here it has no other name.
            if let Some(what) = failure.message.strip_prefix("content ") {
                failure.message = format!("the message {what}");
            }
            // Otherwise a file that is not there would stand in the way of every message to come.
            if self.files.is_empty() {
                return failure;
            }
            self.files.clear();
            let hint = failure.hint.as_deref().map(|hint| format!("{hint}; ")).unwrap_or_default();
            failure.hint(format!("{hint}no file is attached any more"))
        })?;
        let entry = required(heard.entry, "entry")?;
        let conversation = required(heard.conversation, "conversation")?;
        self.files.clear();
        self.waits_for = Some(entry.seq);
        if begins {
            self.screen.conversation(&conversation, out)?;
            self.conversation_id = Some(conversation.conversation_id);
        }
        Ok(())
    }

    async fn handoff(&mut self, agent_id: String, client: &Client, out: &mut Output) -> Result<(), Failure> {
        let Some(conversation_id) = self.conversation_id.clone() else {
            check_answers(client, &agent_id).await?;
            self.owner.clone_from(&agent_id);
            return self.screen.word(&format!("the conversation will begin with {agent_id}"), out);
        };
        let request =
            HandoffConversationRequest { request_id: new_request_id(), conversation_id, agent_id, reason: None };
        let conversation = rpc!(client, ConversationsClient::handoff, request).await?;
        // The stream tells of it too, but after the last line nobody listens any more.
        self.owner.clone_from(&conversation.owner);
        self.screen.changed(&conversation, out)
    }
}

/// What a turn of this status did.
fn worded(status: &str) -> &str {
    match status {
        "cancelled" => "was cancelled",
        "dead" => "was set aside",
        other => other,
    }
}

/// Refuses an agent that could not answer, as the daemon does when something is said to it.
async fn check_answers(client: &Client, agent_id: &str) -> Result<(), Failure> {
    let found = rpc!(client, AgentsClient::get, GetAgentRequest { agent_id: agent_id.to_owned() }).await?;
    let cannot_run = found.cannot_run;
    let agent = required(found.agent, "agent")?;
    if agent.deleted_at_ms.is_some() {
        return Err(Failure::new("not_found", format!("the agent `{agent_id}` was deleted"))
            .hint("`ghostctl agent list` shows who is there"));
    }
    let why = match (agent.desired.as_str(), agent.status.as_str()) {
        (_, "failed") => "has failed",
        ("stopped", _) | (_, "stopped" | "stopping") => "is stopped",
        _ => return Ok(()),
    };
    let reason = agent.status_reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    // Where no start would help, the daemon says what does.
    let start = || format!("start it with `ghostctl agent start {agent_id}`, or talk with someone else");
    Err(Failure::new("conflict", format!("{agent_id} {why} and cannot answer{reason}"))
        .hint(cannot_run.unwrap_or_else(start)))
}

/// The next message of the stream; never, while there is none.
async fn told(
    stream: &mut Option<Streaming<WatchConversationResponse>>,
) -> Result<Option<WatchConversationResponse>, Status> {
    match stream {
        Some(stream) => stream.message().await,
        None => std::future::pending().await,
    }
}

/// Ends when the deadline has passed; never without one.
async fn late(deadline: Option<Deadline>) {
    match deadline {
        // Nothing is waited for but the time.
        Some(deadline) => drop(deadline.within(std::future::pending::<()>()).await),
        None => std::future::pending().await,
    }
}
