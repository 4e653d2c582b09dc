//! A conversation as a stream: its entries in order, the text of the turn that answers as it is written, and the end of that
//! turn. Of that text nothing is streamed that may turn out to be a silent token or a reply tag; it is never
//! authoritative, the entry that the turn ends with is.
//!
//! An entry must never be omitted or sent twice. All other items are lost if the connection breaks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::{Event, EventFilter, EventKind};
use ghost_domain::reply_tokens::{HEARTBEAT_OK, SILENT};
use ghost_domain::{
    AgentId, AgentStatus, Code, ConversationEntry, ConversationId, Limits, Refusal, TurnId, TurnStatus,
};
use ghost_operations::feed::Subscription;
use ghost_proto::v1::watch_conversation_response::What;
use ghost_proto::v1::{ToolProgress, TurnOver, WatchConversationResponse};
use ghost_store::for_people;
use ghost_world::World;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use crate::control::Control;
use crate::convert;
use crate::queries::{self, Answering};
use crate::refusal::status;
use crate::serving::connections::Peer;
use crate::streams::{DrainTimeout, PermitStream, StreamPermit};

/// Capacity of one reader's queue.
const QUEUE: usize = 64;
/// Entries read at once.
const PAGE: u32 = 200;

pub(super) type Item = Result<WatchConversationResponse, Status>;

/// Opens a stream of the entries after `after` for `peer`.
pub(super) async fn open(
    control: &Control,
    conversation_id: ConversationId,
    after: i64,
    peer: Option<Peer>,
) -> Result<PermitStream<Item>, Refusal> {
    let world = Arc::clone(&control.world);
    let (conversation, _) = queries::conversation(&world, conversation_id, i64::MAX, 1).await?;
    if after > conversation.last_seq {
        return Err(queries::beyond_the_end(&conversation, after));
    }
    let permit = control.reader_permit()?;
    let stall_timeout = Limits::seconds(world.ctx().limits().reader_stall_seconds);
    let drain_timeout = DrainTimeout::of(&world);
    let feed = listen(&world).await?;
    let (sender, items) = mpsc::channel(QUEUE + 1);
    // One slot is reserved for the final status, so that a reader with a full queue also gets it.
    let final_slot =
        sender.clone().try_reserve_owned().map_err(|_| Refusal::new(Code::Internal, "a new queue is full"))?;
    let watcher = Watcher {
        world,
        conversation_id,
        feed,
        sender,
        stall_timeout,
        closed: control.closed.clone(),
        owner: conversation.owner,
        reported_unanswered: 0,
        sent_seq: after,
        turns: BTreeMap::new(),
    };
    let feeder = tokio::spawn(for_people(watcher.run(final_slot, Arc::clone(&permit))));
    Ok(PermitStream::new(items, feeder, permit, drain_timeout, peer))
}

async fn listen(world: &World) -> Result<Subscription, Refusal> {
    let kinds = ["conversation.", "model.", "tool.progress", "turn.", "agent.deleted", "agent.stopped", "agent.failed"]
        .map(str::to_owned)
        .to_vec();
    Subscription::open(world.store(), None, EventFilter { kinds, ..EventFilter::default() }, true).await
}

struct Watcher {
    world: Arc<World>,
    conversation_id: ConversationId,
    feed: Subscription,
    sender: mpsc::Sender<Item>,
    /// A reader whose queue stays full for this long is disconnected.
    stall_timeout: Duration,
    closed: watch::Receiver<bool>,
    /// The agent that answers.
    owner: AgentId,
    /// Sequence number of the last incoming entry that was reported as unanswered.
    reported_unanswered: i64,
    /// Every entry up to this sequence number was sent.
    sent_seq: i64,
    /// The open turns that answer here, each with its text filter.
    turns: BTreeMap<String, StreamFilter>,
}

/// Why the stream ends.
enum End {
    /// The reader has disconnected.
    Disconnected,
    /// The daemon is stopping.
    Stopping,
    /// The reader reads nothing.
    Lagged,
    /// Reading failed.
    Failed(Refusal),
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Failed(refusal)
    }
}

impl Watcher {
    async fn run(mut self, final_slot: mpsc::OwnedPermit<Item>, permit: Arc<StreamPermit>) {
        let Err(end) = self.watch().await;
        let refusal = match end {
            End::Disconnected => return,
            End::Stopping => Refusal::new(Code::Unavailable, "the daemon is stopping")
                .hint(format!("watch again after {} when it is back; no entry is lost", self.sent_seq)),
            End::Lagged => {
                permit.count_cut_off();
                Refusal::new(Code::RateLimited, format!("this reader read nothing for {:?}", self.stall_timeout))
                    .hint(format!("watch again after {}; no entry is lost", self.sent_seq))
            }
            End::Failed(refusal) => refusal,
        };
        final_slot.send(Err(status(&refusal)));
    }

    async fn watch(&mut self) -> Result<std::convert::Infallible, End> {
        self.catch_up().await?;
        loop {
            let next = tokio::select! {
                biased;
                () = self.sender.closed() => return Err(End::Disconnected),
                next = self.feed.next() => next,
                _ = self.closed.wait_for(|closed| *closed) => return Err(End::Stopping),
            };
            match next {
                Ok(Some(event)) => self.handle(&event).await?,
                Ok(None) => return Err(End::Stopping),
                // The subscription fell behind. The entries are read from the conversation's log.
                Err(refusal) if refusal.code == Code::RateLimited => {
                    self.feed = listen(&self.world).await?;
                    self.catch_up().await?;
                }
                Err(refusal) => return Err(End::Failed(refusal)),
            }
        }
    }

    /// Sends the entries in the log, then finds out whether a turn is working on the last incoming
    /// entry or has ended.
    async fn catch_up(&mut self) -> Result<(), End> {
        let (conversation, _) = queries::conversation(&self.world, self.conversation_id, i64::MAX, 1).await?;
        self.owner = conversation.owner;
        let answering = loop {
            self.send_entries().await?;
            let (last_in, answering) = queries::answering(&self.world, self.conversation_id).await?;
            // An entry that came in since is sent first: the end of a turn must follow the entries that
            // the turn took.
            if last_in <= self.sent_seq {
                break answering;
            }
        };
        let before: Vec<String> = self.turns.keys().cloned().collect();
        let mut ended_turns = Vec::new();
        for turn_id in before.iter().filter_map(|id| id.parse::<TurnId>().ok()) {
            ended_turns.extend(queries::ended_turn(&self.world, turn_id).await?);
        }
        match answering {
            Some(Answering::UnderWay(turn_id)) => {
                self.turns.entry(turn_id.to_string()).or_default();
            }
            Some(Answering::Over(turn)) if !ended_turns.iter().any(|other| other.turn_id == turn.turn_id) => {
                ended_turns.push(*turn)
            }
            Some(Answering::Over(_)) | None => {}
        }
        for turn in ended_turns {
            self.end_turn(turn.turn_id.to_string(), turn.status, turn.reason).await?;
        }
        self.report_unanswered(false).await
    }

    /// If the owner was deleted, was stopped or has failed, reports that the last incoming entry gets
    /// no answer for now. A turn that ended because of it has already reported its own end. After an
    /// event about the owner (`of_owner`), its stored row is read, because the directory may not know
    /// yet.
    async fn report_unanswered(&mut self, of_owner: bool) -> Result<(), End> {
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
        if last_in == 0 || last_in > self.sent_seq || last_in == self.reported_unanswered {
            return Ok(());
        }
        self.reported_unanswered = last_in;
        let error_code = Some(refusal.code.as_str().to_owned());
        let reason = Some(self.world.ctx().redactor.redact(&refusal.to_string()));
        let status = TurnStatus::Cancelled.as_str().to_owned();
        self.send(What::TurnOver(TurnOver { turn_id, status, reason, error_code })).await
    }

    async fn handle(&mut self, event: &Event) -> Result<(), End> {
        let text = |key: &str| event.payload[key].as_str().unwrap_or_default();
        let in_this_conversation = || text("conversation_id") == self.conversation_id.to_string();
        let turn_id = text("turn_id");
        match event.kind {
            EventKind::ConversationMessage if in_this_conversation() => {
                self.send_entries().await?;
                self.report_unanswered(false).await
            }
            EventKind::AgentDeleted | EventKind::AgentStopped | EventKind::AgentFailed
                if event.agent_id.as_ref() == Some(&self.owner) =>
            {
                self.send_entries().await?;
                self.report_unanswered(true).await
            }
            EventKind::ConversationHandedOver if in_this_conversation() => {
                self.send_entries().await?;
                let (conversation, _) = queries::conversation(&self.world, self.conversation_id, i64::MAX, 1).await?;
                self.owner = conversation.owner.clone();
                self.send(What::Changed(convert::conversation(&conversation))).await
            }
            EventKind::TurnStarted | EventKind::TurnResumed if in_this_conversation() => {
                self.turns.insert(turn_id.to_owned(), StreamFilter::default());
                Ok(())
            }
            EventKind::ModelStarted => {
                if let Some(filter) = self.turns.get_mut(turn_id) {
                    *filter = StreamFilter::default();
                }
                Ok(())
            }
            // The text was reasoning, or belongs to an interrupted answer.
            EventKind::ModelDelta if event.payload["discard"] == true => self.discard(turn_id).await,
            EventKind::ModelFailed if event.payload["kept"] == true => Ok(()),
            EventKind::ModelFailed => self.discard(turn_id).await,
            EventKind::ModelDelta => {
                let visible = self.turns.get_mut(turn_id).and_then(|filter| filter.push(text("text")));
                match visible {
                    Some(delta) => self.send(What::Delta(delta)).await,
                    None => Ok(()),
                }
            }
            EventKind::ToolProgress if self.turns.contains_key(turn_id) => {
                let (call_id, line) = (text("call_id").to_owned(), text("text").to_owned());
                self.send(What::Progress(ToolProgress { turn_id: turn_id.to_owned(), call_id, text: line })).await
            }
            EventKind::TurnFinished if self.turns.contains_key(turn_id) => {
                self.send_entries().await?;
                let status = text("status").parse().unwrap_or(TurnStatus::Finished);
                let reason = event.payload["reason"].as_str().map(str::to_owned);
                self.end_turn(turn_id.to_owned(), status, reason).await
            }
            _ => Ok(()),
        }
    }

    /// Reports that the text of the turn's model call so far is void, if any was sent.
    async fn discard(&mut self, turn_id: &str) -> Result<(), End> {
        match self.turns.get_mut(turn_id).map(std::mem::take) {
            Some(filter) if filter.has_shown() => self.send(What::Discard(turn_id.to_owned())).await,
            _ => Ok(()),
        }
    }

    async fn end_turn(&mut self, turn_id: String, status: TurnStatus, reason: Option<String>) -> Result<(), End> {
        self.turns.remove(&turn_id);
        let error_code = queries::why_ended(status, reason.as_deref()).map(|(code, _)| code.as_str().to_owned());
        let reason = reason.map(|reason| self.world.ctx().redactor.redact(&reason));
        self.send(What::TurnOver(TurnOver { turn_id, status: status.as_str().to_owned(), reason, error_code })).await
    }

    /// Sends every entry that was not sent yet.
    async fn send_entries(&mut self) -> Result<(), End> {
        loop {
            let (_, entries) = queries::conversation(&self.world, self.conversation_id, self.sent_seq, PAGE).await?;
            let full = entries.len() >= PAGE as usize;
            for entry in entries {
                self.send_entry(&entry).await?;
            }
            if !full {
                return Ok(());
            }
        }
    }

    async fn send_entry(&mut self, entry: &ConversationEntry) -> Result<(), End> {
        self.send(What::Entry(convert::conversation_entry(entry, &self.world.ctx().redactor))).await?;
        self.sent_seq = entry.seq;
        Ok(())
    }

    async fn send(&mut self, what: What) -> Result<(), End> {
        let clock = Arc::clone(&self.world.ctx().ports.clock);
        let permit = tokio::select! {
            biased;
            permit = self.sender.reserve() => permit.map_err(|_| End::Disconnected)?,
            _ = self.closed.wait_for(|closed| *closed) => return Err(End::Stopping),
            () = clock.sleep(self.stall_timeout) => return Err(End::Lagged),
        };
        permit.send(Ok(WatchConversationResponse { what: Some(what) }));
        Ok(())
    }
}

/// Longest text that can still become a reply tag, in bytes.
const TAG_MAX: usize = 160;
/// The beginning of a reply tag.
const TAG: &str = "[[reply_to";

/// Filters the text of one model call.
#[derive(Default)]
struct StreamFilter {
    buffered: String,
    /// Whether a tag was removed. The white space after it is removed as well.
    tagged: bool,
    open: bool,
}

impl StreamFilter {
    /// Whether any text passed the filter.
    fn has_shown(&self) -> bool {
        self.open
    }

    /// Takes more text; returns the text that may be shown.
    fn push(&mut self, text: &str) -> Option<String> {
        if self.open {
            return Some(text.to_owned());
        }
        self.buffered.push_str(text);
        loop {
            let beginning = self.buffered.trim_start();
            match leading_tag(beginning) {
                Tag::Complete(rest) => {
                    self.buffered = rest.to_owned();
                    self.tagged = true;
                }
                Tag::Incomplete => return None,
                Tag::None => break,
            }
        }
        let beginning = self.buffered.trim_start();
        if SILENT.iter().chain(&[HEARTBEAT_OK]).any(|token| may_be(beginning, token)) {
            return None;
        }
        self.open = true;
        let buffered = std::mem::take(&mut self.buffered);
        Some(if self.tagged { buffered.trim_start().to_owned() } else { buffered })
    }
}

/// Whether the text is a prefix of the token, or the token and white space.
fn may_be(text: &str, token: &str) -> bool {
    token.starts_with(text) || text.strip_prefix(token).is_some_and(|rest| rest.trim().is_empty())
}

enum Tag<'t> {
    /// A tag, followed by this text.
    Complete(&'t str),
    /// A text that may still become a tag.
    Incomplete,
    /// A text that is not a tag.
    None,
}

fn leading_tag(text: &str) -> Tag<'_> {
    if TAG.starts_with(text) {
        // Empty text may become anything, so the token check withholds it.
        return if text.is_empty() { Tag::None } else { Tag::Incomplete };
    }
    if !text.starts_with(TAG) {
        return Tag::None;
    }
    match text.find("]]") {
        Some(end) => Tag::Complete(text[end + 2..].trim_start()),
        None if text.len() <= TAG_MAX => Tag::Incomplete,
        None => Tag::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn visible_text(text: &str, size: usize) -> String {
        let mut filter = StreamFilter::default();
        let characters: Vec<char> = text.chars().collect();
        characters.chunks(size).filter_map(|piece| filter.push(&piece.iter().collect::<String>())).collect()
    }

    #[test]
    fn tokens_and_tags_are_not_shown() {
        for size in [1, 3, 100] {
            for silent in ["%%NO_REPLY%%", " NO_REPLY\n", "HEARTBEAT_OK", "[[reply_to_current]] NO_REPLY", "", "  "] {
                assert_eq!(visible_text(silent, size), "", "{silent:?}");
            }
            assert_eq!(visible_text("[[reply_to_current]] Yes, it is.", size), "Yes, it is.");
            assert_eq!(visible_text("[[reply_to:m-1]]\nYes.", size), "Yes.");
            for text in ["NO_REPLY is a word.", "[[a]] b", "[link]", "No.", "Hello [[reply_to_current]]"] {
                assert_eq!(visible_text(text, size), text);
            }
        }
    }

    proptest! {
        #[test]
        fn ordinary_text_passes_unchanged(text in "[a-z][a-z ,.\n]{0,80}", size in 1usize..20) {
            prop_assert_eq!(visible_text(&text, size), text);
        }

        #[test]
        fn any_text_is_filtered_without_a_panic(text in "[\\[\\]%A-Z_: a-zé]{0,200}", size in 1usize..9) {
            prop_assert!(visible_text(&text, size).len() <= text.len());
        }
    }
}
