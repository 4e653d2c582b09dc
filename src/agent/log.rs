//! The log of a session, as prompts hold it: the messages of earlier turns, word for word, and how it is read from the
//! journals. A full log is cut to half at a round's edge, so that the beginning of the next prompts stays the same and
//! providers can cache it. A log never holds turns of two sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use ghost_domain::journal::{CallOutcome, JournalRow};
use ghost_domain::transcript::{Block, Message, Role};
use ghost_domain::{
    Agent, ConversationEntry, ConversationId, Limits, LogPlace, LogRange, LogStart, Refusal, Turn, TurnStatus,
};
use ghost_operations::conversations::said_elsewhere;
use ghost_operations::turns::BriefedLog;
use ghost_provider::SharedMessage;
use ghost_store::tables::SessionTurns;
use ghost_tools::Registry;
use ghost_tools::view::model_view;

use crate::engine::Engine;
use crate::images::leave_out;
use crate::transcript::{Transcript, View, calls_of, drop_state};
use crate::truncate::{CUT_MARK, bytes_of};

/// Stands for a result that no model has read, because its turn ended before.
const UNREAD: &str = "[The turn ended before this result was read.]";

/// The mail of a turn, or one answer with the results of its calls.
#[derive(Clone, Debug)]
struct Round {
    messages: Vec<SharedMessage>,
    bytes: usize,
    /// The messages with other ids of calls, as the last prompt had them, and the ids that were replaced.
    renamed: Option<(BTreeMap<String, String>, Vec<SharedMessage>)>,
}

impl Round {
    fn new(messages: Vec<SharedMessage>) -> Self {
        Self { bytes: bytes_of(&messages), messages, renamed: None }
    }

    /// The messages with these ids of calls replaced.
    fn with_ids(&mut self, ids: BTreeMap<String, String>) -> &[SharedMessage] {
        if ids.is_empty() {
            return &self.messages;
        }
        if self.renamed.as_ref().is_none_or(|(known, _)| *known != ids) {
            let mut messages = self.messages.clone();
            for block in messages.iter_mut().flat_map(|message| &mut message.blocks) {
                if let Block::ToolCall { id, .. } | Block::ToolResult { id, .. } = block
                    && let Some(own) = ids.get(id)
                {
                    id.clone_from(own);
                }
            }
            self.renamed = Some((ids, messages));
        }
        self.renamed.as_ref().map_or(&[], |(_, messages)| messages)
    }
}

/// One turn of a log.
#[derive(Clone, Debug)]
pub struct LoggedTurn {
    place: LogPlace,
    /// Whether a provider refused opaque state in this turn: that of all earlier rounds is of no use.
    state_dropped: bool,
    rounds: Vec<Round>,
}

impl LoggedTurn {
    /// An ended turn by its journal. `None` if the turn is not in the log.
    pub fn read(turn: &Turn, journal: &[JournalRow], view: View<'_>) -> Option<Self> {
        if !turn.is_in_log() {
            return None;
        }
        let mut transcript = Transcript::unfold(journal, view);
        if !transcript.open.is_empty() {
            let calls = transcript.messages.last().map(|answer| calls_of(answer)).unwrap_or_default();
            transcript.close_round(&calls, view);
        }
        let (_, mail) = transcript.opening?;
        let state_dropped = transcript.state_dropped;
        let mail = SharedMessage::from(Message::text(Role::User, mail));
        let messages = std::iter::once(mail).chain(transcript.messages).collect();
        Some(Self { state_dropped, ..Self::new(turn, messages) })
    }

    /// Whether a provider refused opaque state in this turn or in a later one.
    pub fn state_is_refused(&self) -> bool {
        self.state_dropped
    }

    /// Leaves out all opaque state, because a provider refused it in a later turn.
    pub fn refuse_state(&mut self) {
        for round in &mut self.rounds {
            drop_state(&mut round.messages);
            *round = Round::new(std::mem::take(&mut round.messages));
        }
        self.state_dropped = true;
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.rounds.iter().map(|round| round.bytes).sum()
    }

    /// A turn that has just ended, by its messages, of which the first is its mail. Its images are left out.
    pub fn new(turn: &Turn, mut messages: Vec<SharedMessage>) -> Self {
        leave_out(&mut messages, None);
        let mut rounds: Vec<Vec<SharedMessage>> = Vec::new();
        for message in messages {
            match rounds.last_mut() {
                Some(round) if message.role != Role::Assistant => round.push(message),
                _ => rounds.push(vec![message]),
            }
        }
        if turn.status != TurnStatus::Finished
            && let Some(last) = rounds.last_mut()
        {
            // No model has accepted what came after the last answer. If that is why the turn ended, it would end every
            // later turn of the session, too.
            last.retain(|message| message.role != Role::User);
            for block in last.iter_mut().flat_map(|message| &mut message.blocks) {
                if let Block::ToolResult { content, .. } = block {
                    UNREAD.clone_into(content);
                }
            }
            let status = turn.status.as_str();
            let text = match &turn.text {
                Some(text) => {
                    format!("[This turn ended here at a bound: {status}. Its reader got, as cut off: {text}]")
                }
                None => format!("[This turn ended here without an answer: {status}.]"),
            };
            last.push(Message::text(Role::User, text).into());
        }
        Self { place: turn.log_place(), state_dropped: false, rounds: rounds.into_iter().map(Round::new).collect() }
    }
}

/// The log of one session, or its newest part.
#[derive(Clone, Debug, Default)]
pub struct Log {
    start: Option<LogStart>,
    /// Oldest first.
    turns: Vec<LoggedTurn>,
}

impl Log {
    /// The log that begins at `start`. `turns` are the newest turns of the session, oldest first.
    pub fn new(start: Option<LogStart>, mut turns: Vec<LoggedTurn>) -> Self {
        if let Some(refused) = turns.iter().rposition(|turn| turn.state_dropped) {
            turns[..refused].iter_mut().for_each(LoggedTurn::refuse_state);
        }
        if let (Some(start), Some(first)) = (start, turns.first_mut())
            && first.place == start.place
        {
            first.rounds.drain(..first.rounds.len().min(start.round as usize));
        }
        turns.retain(|turn| !turn.rounds.is_empty());
        Self { start, turns }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.turns.iter().map(LoggedTurn::bytes).sum()
    }

    /// Adds a turn that has ended after all others.
    pub fn push(&mut self, turn: LoggedTurn) {
        self.turns.push(turn);
    }

    /// Cuts the log to half of `limit` if it is larger than `limit`. Returns the new start, if it was cut.
    pub fn fit(&mut self, limit: usize) -> Option<LogStart> {
        if self.bytes() <= limit {
            return None;
        }
        let last = self.turns.last()?.place;
        let mut left = limit / 2;
        let (mut turn_index, mut round_index) = (self.turns.len(), 0);
        'all: for (index, turn) in self.turns.iter().enumerate().rev() {
            for (number, round) in turn.rounds.iter().enumerate().rev() {
                let Some(rest) = left.checked_sub(round.bytes) else { break 'all };
                (left, turn_index, round_index) = (rest, index, number);
            }
        }
        let start = match self.turns.get(turn_index) {
            Some(turn) => LogStart { place: turn.place, round: self.rounds_before(turn, round_index), cut: true },
            None => LogStart { place: last, round: u32::MAX, cut: true },
        };
        self.turns.drain(..turn_index);
        if let Some(first) = self.turns.first_mut() {
            first.rounds.drain(..round_index);
        }
        self.start = Some(start);
        Some(start)
    }

    /// How many rounds of `turn` lie before its round `index` in this log. Earlier ones may already be left out.
    fn rounds_before(&self, turn: &LoggedTurn, index: usize) -> u32 {
        let gone = self.start.filter(|start| start.place == turn.place).map_or(0, |start| start.round);
        gone.saturating_add(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The messages, oldest first. Ids of calls are unique, because some providers refuse a conversation in which two
    /// calls have the same.
    pub fn messages(&mut self) -> Vec<SharedMessage> {
        let mark = self.start.filter(|start| start.cut).map(|_| Message::text(Role::User, CUT_MARK).into());
        let mut messages: Vec<SharedMessage> = mark.into_iter().collect();
        // For each id the number from which a free one is looked for. Lower ones stay taken.
        let mut used: BTreeMap<String, u32> = BTreeMap::new();
        for round in self.turns.iter_mut().flat_map(|turn| &mut turn.rounds) {
            let mut ids = BTreeMap::new();
            for (id, _, _) in round.messages.iter().flat_map(|message| message.calls()) {
                let Some(next) = used.get(id).copied() else {
                    used.insert(id.to_owned(), 2);
                    continue;
                };
                let free = (next..).map(|n| (n, format!("{id}-{n}"))).find(|(_, own)| !used.contains_key(own));
                let (n, own) = free.unwrap_or_default();
                used.insert(id.to_owned(), n.saturating_add(1));
                used.insert(own.clone(), 2);
                ids.insert(id.to_owned(), own);
            }
            messages.extend_from_slice(round.with_ids(ids));
        }
        messages
    }

    /// The part of the session's log that [`Self::messages`] shows; `None` if it shows nothing.
    pub fn range(&self) -> Option<LogRange> {
        let mark = self.start.filter(|start| start.cut).map(|start| start.place);
        let end = self.turns.last().map(|turn| turn.place).or(mark)?;
        Some(LogRange { start: self.start, end })
    }

    /// The first turn that the log quotes.
    pub fn first(&self) -> Option<LogPlace> {
        self.turns.first().map(|turn| turn.place)
    }

    /// The place after which the next turn's log continues.
    pub fn end(&self) -> Option<LogPlace> {
        self.turns.last().map(|turn| turn.place).or(self.start.map(|start| start.place))
    }
}

/// Source of a cron job's own turn.
pub(crate) const CRON: &str = "cron";
/// Turns that are read at a time. A turn may have large results, and all of its journal is read.
const PAGE: u32 = 4;
/// Bytes of text that count as one token.
const TOKEN_BYTES: usize = 4;
/// Turns of cron jobs that a prompt mentions.
const JOBS_MAX: u32 = 6;

/// A session, and how its results are shown.
pub(crate) struct SessionLog<'e> {
    pub(crate) engine: &'e Arc<Engine>,
    pub(crate) registry: &'e Registry,
    /// Turns of an earlier agent with this id are not in its logs.
    pub(crate) agent: &'e Agent,
    pub(crate) conversation_id: Option<ConversationId>,
    /// Bytes of a result that the agent sees.
    pub(crate) view_bytes: u32,
}

/// Maximum bytes of a log in a prompt of an agent whose conversation may have `context_bytes`.
pub(crate) fn log_room(limits: &Limits, context_bytes: u32) -> usize {
    (limits.session_tokens as usize).saturating_mul(TOKEN_BYTES).min(context_bytes as usize / 4)
}

impl SessionLog<'_> {
    /// The log for a new turn, at least up to `room` bytes.
    pub(crate) async fn newest(&self, room: usize) -> Result<Log, Refusal> {
        if room == 0 {
            return Ok(Log::default());
        }
        let (agent_id, conversation_id) = (self.agent.agent_id.clone(), self.conversation_id);
        let store = &self.engine.services.store;
        let start = store
            .read_latest(move |r| r.session_start(&agent_id, conversation_id))
            .await?
            .map(|start| start.start)
            .filter(|start| start.place.ended_at >= self.agent.created_at);
        self.read(start, None, room).await
    }

    /// The log that the prompt of a turn held.
    pub(crate) async fn range(&self, range: LogRange) -> Result<Log, Refusal> {
        self.read(range.start, Some(range.end.next()), usize::MAX).await
    }

    /// The log from `start` to `before`, or its newest part if it is larger than `room` bytes.
    async fn read(&self, start: Option<LogStart>, mut before: Option<LogPlace>, room: usize) -> Result<Log, Refusal> {
        let limits = self.engine.services.ctx.limits();
        let shown = |tool: &str, outcome: &_| view(self.registry, &limits, self.view_bytes, tool, outcome);
        let first = LogPlace::first_at(self.agent.created_at);
        let (mut turns, mut bytes) = (Vec::new(), 0);
        loop {
            let query = SessionTurns {
                agent_id: self.agent.agent_id.clone(),
                conversation_id: self.conversation_id,
                source: "mail",
                from: Some(start.map_or(first, |start| start.place)),
                before,
                limit: PAGE,
            };
            let page = self.page(query).await?;
            let last = page.len() < PAGE as usize;
            for (turn, journal) in page {
                before = Some(turn.log_place());
                if let Some(mut turn) = LoggedTurn::read(&turn, &journal, &shown) {
                    if turns.last().is_some_and(|later: &LoggedTurn| later.state_is_refused()) {
                        turn.refuse_state();
                    }
                    bytes += turn.bytes();
                    turns.push(turn);
                }
                if bytes > room {
                    break;
                }
            }
            if last || bytes > room {
                break;
            }
        }
        turns.reverse();
        Ok(Log::new(start, turns))
    }

    async fn page(&self, query: SessionTurns) -> Result<Vec<(Turn, Vec<JournalRow>)>, Refusal> {
        let read = self.engine.services.store.read_latest(move |r| {
            let mut page = Vec::new();
            for turn in r.session_turns(&query)? {
                let journal = r.journal_of(turn.turn_id)?;
                page.push((turn, journal));
            }
            Ok::<_, Refusal>(page)
        });
        read.await
    }

    /// What the agent has said in the session's conversation since the end of `log`, in other sessions.
    pub(crate) async fn said_since(&self, log: &Log) -> Result<Vec<ConversationEntry>, Refusal> {
        let Some(conversation_id) = self.conversation_id else { return Ok(Vec::new()) };
        let (agent_id, since) =
            (self.agent.agent_id.clone(), log.end().map_or(self.agent.created_at, |end| end.next().ended_at));
        let store = &self.engine.services.store;
        let read = store.read_latest(move |r| said_elsewhere(r, &agent_id, conversation_id, since));
        read.await
    }

    /// Finished turns of the session's cron jobs since the end of `log`, newest first.
    pub(crate) async fn jobs_since(&self, log: &Log) -> Result<Vec<Turn>, Refusal> {
        let query = SessionTurns {
            agent_id: self.agent.agent_id.clone(),
            conversation_id: self.conversation_id,
            source: CRON,
            from: Some(log.end().unwrap_or(LogPlace::first_at(self.agent.created_at))),
            before: None,
            limit: JOBS_MAX,
        };
        let store = &self.engine.services.store;
        let mut turns = store.read_latest(move |r| r.session_turns(&query)).await?;
        turns.retain(|turn| turn.status == TurnStatus::Finished);
        Ok(turns)
    }
}

/// The text of an outcome for the model, of which it sees `own` bytes unless the tool says otherwise; and whether it is a
/// refusal.
pub(crate) fn view(
    registry: &Registry,
    limits: &Limits,
    own: u32,
    tool: &str,
    outcome: &CallOutcome,
) -> (String, bool) {
    let bytes = registry.find(tool).ok().and_then(|(tool, _)| tool.view_bytes).unwrap_or(own);
    model_view(outcome, Some(bytes), limits)
}

/// What a new turn journals of its log, once the log has room.
pub(crate) fn briefed(log: &mut Log, room: usize) -> BriefedLog {
    let new_start = log.fit(room);
    BriefedLog { range: log.range(), first: log.first().map(|place| place.ended_at), new_start }
}

/// The messages as text, each with its author.
pub fn log_text(messages: &[SharedMessage]) -> String {
    let mut lines = Vec::new();
    for message in messages {
        let author = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        for block in &message.blocks {
            match block {
                Block::Text { text } => lines.push(format!("{author}: {text}")),
                Block::ToolCall { name, arguments, .. } => lines.push(format!("{author}: calls {name} {arguments}")),
                Block::ToolResult { name, content, .. } => lines.push(format!("{author}: {name}: {content}")),
                Block::ImageFile(image) => lines.push(format!("{author}: {}", image.note(None))),
                Block::Image { media_type, .. } => lines.push(format!("{author}: an image ({media_type})")),
                Block::Thinking { .. } | Block::Opaque(_) => {}
            }
        }
    }
    lines.join("\n")
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
