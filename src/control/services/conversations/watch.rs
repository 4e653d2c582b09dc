//! A conversation as a stream: its entries in order, the words of the turn that answers while they come, and its end.
//!
//! Must never: leave out an entry or send one twice. What is streamed besides is lost with the connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::{Event, EventFilter, EventKind};
use ghost_domain::{
    AgentId, AgentStatus, Code, ConversationEntry, ConversationId, Limits, Refusal, TurnId, TurnStatus,
};
use ghost_proto::v1::{TurnOver, WatchConversationResponse, watch_conversation_response::What};
use ghost_rules::feed::Subscription;
use ghost_world::World;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::screen::Screen;
use crate::control::Control;
use crate::convert::conversations as convert;
use crate::queries::{self, Answering};
use crate::refusal::status;
use crate::streams::{Seat, SeatedStream};

/// Messages that wait for one reader.
const QUEUE: usize = 64;
/// Entries read at once.
const PAGE: u32 = 200;

type Item = Result<WatchConversationResponse, Status>;

/// Opens a stream of what is said after `after`.
pub(super) async fn open(
    control: &Control,
    conversation_id: ConversationId,
    after: i64,
) -> Result<SeatedStream<Item>, Refusal> {
    let world = Arc::clone(&control.world);
    let (conversation, _) = queries::conversation(&world, conversation_id, i64::MAX, 1).await?;
    if after > conversation.last_seq {
        return Err(queries::beyond_the_end(&conversation, after));
    }
    let seat = Arc::new(control.readers.take(world.ctx().limits().subscribers_max)?);
    let patience = Limits::seconds(world.ctx().limits().reader_stall_seconds);
    let clock = Arc::clone(&world.ctx().ports.clock);
    let feed = listen(&world).await?;
    let (sender, items) = mpsc::channel(QUEUE + 1);
    // Kept for the end, so that a reader with a full queue is still told why.
    let last_word =
        sender.clone().try_reserve_owned().map_err(|_| Refusal::new(Code::Internal, "a new queue had no room"))?;
    let watcher = Watcher {
        world,
        conversation_id,
        feed,
        sender,
        patience,
        closed: control.closed.clone(),
        owner: conversation.owner,
        given_up: 0,
        seen: after,
        turns: BTreeMap::new(),
    };
    let feeder = tokio::spawn(watcher.run(last_word, Arc::clone(&seat)));
    Ok(SeatedStream::new(items, feeder, seat, clock, patience))
}

async fn listen(world: &World) -> Result<Subscription, Refusal> {
    let kinds = ["conversation.", "model.", "turn.", "agent.deleted", "agent.stopped", "agent.failed"]
        .map(str::to_owned)
        .to_vec();
    Subscription::open(world.store(), None, EventFilter { kinds, ..EventFilter::default() }, true).await
}

struct Watcher {
    world: Arc<World>,
    conversation_id: ConversationId,
    feed: Subscription,
    sender: mpsc::Sender<Item>,
    /// A reader without room is waited for so long.
    patience: Duration,
    closed: watch::Receiver<bool>,
    /// The agent that answers.
    owner: AgentId,
    /// The last thing said from outside of which was told that nobody answers it.
    given_up: i64,
    /// Every entry up to here was sent.
    seen: i64,
    /// The turns under way that answer here.
    turns: BTreeMap<String, Screen>,
}

/// Why a stream ends.
enum End {
    /// The reader has gone.
    Gone,
    /// The daemon goes.
    Stopping,
    /// The reader takes nothing.
    Lagged,
    /// It cannot go on.
    Failed(Refusal),
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Failed(refusal)
    }
}

impl Watcher {
    async fn run(mut self, last_word: mpsc::OwnedPermit<Item>, seat: Arc<Seat>) {
        let Err(end) = self.watch().await;
        let refusal = match end {
            End::Gone => return,
            End::Stopping => Refusal::new(Code::Unavailable, "the daemon is stopping")
                .hint(format!("watch again after {} when it is back; nothing that was said is lost", self.seen)),
            End::Lagged => {
                seat.lags();
                Refusal::new(Code::RateLimited, format!("this reader took nothing for {:?}", self.patience))
                    .hint(format!("watch again after {}; nothing that was said is lost", self.seen))
            }
            End::Failed(refusal) => refusal,
        };
        last_word.send(Err(status(&refusal)));
    }

    async fn watch(&mut self) -> Result<std::convert::Infallible, End> {
        self.catch_up().await?;
        loop {
            let next = tokio::select! {
                biased;
                () = self.sender.closed() => return Err(End::Gone),
                next = self.feed.next() => next,
                _ = self.closed.wait_for(|closed| *closed) => return Err(End::Stopping),
            };
            match next {
                Ok(Some(event)) => self.take(&event).await?,
                Ok(None) => return Err(End::Stopping),
                // Too much happened at once. What counts is in the log, and is read from there.
                Err(refusal) if refusal.code == Code::RateLimited => {
                    self.feed = listen(&self.world).await?;
                    self.catch_up().await?;
                }
                Err(refusal) => return Err(End::Failed(refusal)),
            }
        }
    }

    /// Sends what the log has, and finds out whether a turn is at work on the last thing that was said, or has ended.
    async fn catch_up(&mut self) -> Result<(), End> {
        let (conversation, _) = queries::conversation(&self.world, self.conversation_id, i64::MAX, 1).await?;
        self.owner = conversation.owner;
        let answering = loop {
            self.entries().await?;
            let (last_in, answering) = queries::answering(&self.world, self.conversation_id).await?;
            // What came in since is sent first: the end of a turn stands behind the words that the turn took.
            if last_in <= self.seen {
                break answering;
            }
        };
        let before: Vec<String> = self.turns.keys().cloned().collect();
        let mut over = Vec::new();
        for turn_id in before.iter().filter_map(|id| id.parse::<TurnId>().ok()) {
            over.extend(queries::ended_turn(&self.world, turn_id).await?);
        }
        match answering {
            Some(Answering::UnderWay(turn_id)) => {
                self.turns.entry(turn_id.to_string()).or_default();
            }
            Some(Answering::Over(turn)) if !over.iter().any(|other| other.turn_id == turn.turn_id) => over.push(*turn),
            Some(Answering::Over(_)) | None => {}
        }
        for turn in over {
            self.over(turn.turn_id.to_string(), turn.status, turn.reason).await?;
        }
        self.nobody_answers(false).await
    }

    /// Tells whoever waits that the owner was deleted, was stopped or has failed: what was said last is answered by nobody for
    /// now. A turn that has ended over it has told its own end. After an event `of_owner` its record is looked at: the
    /// directory may not know yet.
    async fn nobody_answers(&mut self, of_owner: bool) -> Result<(), End> {
        let runs = !of_owner
            && self.world.directory().card(&self.owner).is_some_and(|card| {
                matches!(card.status, AgentStatus::Running | AgentStatus::Restarting | AgentStatus::Stopping)
            });
        if runs {
            return Ok(());
        }
        let Some(refusal) = queries::unanswerable(&self.world, &self.owner).await? else { return Ok(()) };
        let (last_in, answering) = queries::answering(&self.world, self.conversation_id).await?;
        let turn_id = match answering {
            Some(Answering::Over(_)) => return Ok(()),
            Some(Answering::UnderWay(turn_id)) => turn_id.to_string(),
            None => String::new(),
        };
        if last_in == 0 || last_in > self.seen || last_in == self.given_up {
            return Ok(());
        }
        self.given_up = last_in;
        let error_code = Some(refusal.code.as_str().to_owned());
        let reason = Some(self.world.ctx().redactor.redact(&refusal.to_string()));
        let status = TurnStatus::Cancelled.as_str().to_owned();
        self.send(What::TurnOver(TurnOver { turn_id, status, reason, error_code })).await
    }

    async fn take(&mut self, event: &Event) -> Result<(), End> {
        let text = |key: &str| event.payload[key].as_str().unwrap_or_default();
        let here = || text("conversation_id") == self.conversation_id.to_string();
        let turn_id = text("turn_id");
        match event.kind {
            EventKind::ConversationMessage if here() => {
                self.entries().await?;
                self.nobody_answers(false).await
            }
            EventKind::AgentDeleted | EventKind::AgentStopped | EventKind::AgentFailed
                if event.agent_id.as_ref() == Some(&self.owner) =>
            {
                self.entries().await?;
                self.nobody_answers(true).await
            }
            EventKind::ConversationHandedOver if here() => {
                self.entries().await?;
                let (conversation, _) = queries::conversation(&self.world, self.conversation_id, i64::MAX, 1).await?;
                self.owner = conversation.owner.clone();
                self.send(What::Changed(convert::conversation(&conversation))).await
            }
            EventKind::TurnStarted | EventKind::TurnResumed if here() => {
                self.turns.insert(turn_id.to_owned(), Screen::default());
                Ok(())
            }
            EventKind::ModelStarted => {
                if let Some(screen) = self.turns.get_mut(turn_id) {
                    *screen = Screen::default();
                }
                Ok(())
            }
            // What was shown was reasoning, or of an answer that broke off.
            EventKind::ModelDelta if event.payload["discard"] == true => self.discard(turn_id).await,
            EventKind::ModelFailed if event.payload["kept"] == true => Ok(()),
            EventKind::ModelFailed => self.discard(turn_id).await,
            EventKind::ModelDelta => {
                let shown = self.turns.get_mut(turn_id).and_then(|screen| screen.push(text("text")));
                match shown {
                    Some(delta) => self.send(What::Delta(delta)).await,
                    None => Ok(()),
                }
            }
            EventKind::TurnFinished if self.turns.contains_key(turn_id) => {
                self.entries().await?;
                let status = text("status").parse().unwrap_or(TurnStatus::Finished);
                let reason = event.payload["reason"].as_str().map(str::to_owned);
                self.over(turn_id.to_owned(), status, reason).await
            }
            _ => Ok(()),
        }
    }

    /// Tells that the words of a turn's model call so far are none of its answer, if any were sent.
    async fn discard(&mut self, turn_id: &str) -> Result<(), End> {
        match self.turns.get_mut(turn_id).map(std::mem::take) {
            Some(screen) if screen.has_shown() => self.send(What::Discard(turn_id.to_owned())).await,
            _ => Ok(()),
        }
    }

    async fn over(&mut self, turn_id: String, status: TurnStatus, reason: Option<String>) -> Result<(), End> {
        self.turns.remove(&turn_id);
        let error_code = queries::why_ended(status, reason.as_deref()).map(|(code, _)| code.as_str().to_owned());
        let reason = reason.map(|reason| self.world.ctx().redactor.redact(&reason));
        self.send(What::TurnOver(TurnOver { turn_id, status: status.as_str().to_owned(), reason, error_code })).await
    }

    /// Sends every entry that was not sent yet.
    async fn entries(&mut self) -> Result<(), End> {
        loop {
            let (_, entries) = queries::conversation(&self.world, self.conversation_id, self.seen, PAGE).await?;
            let full = entries.len() >= PAGE as usize;
            for entry in entries {
                self.entry(&entry).await?;
            }
            if !full {
                return Ok(());
            }
        }
    }

    async fn entry(&mut self, entry: &ConversationEntry) -> Result<(), End> {
        self.send(What::Entry(convert::entry(entry, &self.world.ctx().redactor))).await?;
        self.seen = entry.seq;
        Ok(())
    }

    async fn send(&mut self, what: What) -> Result<(), End> {
        let clock = Arc::clone(&self.world.ctx().ports.clock);
        let permit = tokio::select! {
            biased;
            permit = self.sender.reserve() => permit.map_err(|_| End::Gone)?,
            _ = self.closed.wait_for(|closed| *closed) => return Err(End::Stopping),
            () = clock.sleep(self.patience) => return Err(End::Lagged),
        };
        permit.send(Ok(WatchConversationResponse { what: Some(what) }));
        Ok(())
    }
}
