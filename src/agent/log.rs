//! The log of a session, as prompts hold it: the messages of earlier turns, word for word. A full log is cut to
//! half at a round's edge, so that the beginning of the next prompts stays the same and providers can cache it.
//!
//! This module must never read the store, and a log must never hold turns of two sessions.

use std::collections::BTreeMap;

use ghost_domain::journal::JournalRow;
use ghost_domain::transcript::{Block, Message, Role};
use ghost_domain::{LogPlace, LogRange, LogStart, Turn, TurnStatus};
use ghost_provider::SharedMessage;

use crate::images::leave_out;
use crate::transcript::{Transcript, View, drop_state};
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
    #[must_use]
    pub fn read(turn: &Turn, journal: &[JournalRow], view: View<'_>) -> Option<Self> {
        if !turn.is_in_log() {
            return None;
        }
        let mut transcript = Transcript::unfold(journal, view);
        if !transcript.open.is_empty() {
            let last = transcript.messages.last().into_iter().flat_map(|message| message.calls());
            let calls: Vec<_> =
                last.map(|(id, name, arguments)| (id.to_owned(), name.to_owned(), arguments.clone())).collect();
            transcript.close_round(&calls, view);
        }
        let (_, mail) = transcript.opening?;
        let state_dropped = transcript.state_dropped;
        let mail = SharedMessage::from(Message::text(Role::User, mail));
        let messages = std::iter::once(mail).chain(transcript.messages).collect();
        Some(Self { state_dropped, ..Self::new(turn, messages) })
    }

    /// Whether a provider refused opaque state in this turn or in a later one.
    #[must_use]
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
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rounds.iter().map(|round| round.bytes).sum()
    }

    /// A turn that has just ended, by its messages, of which the first is its mail. Its images are left out.
    #[must_use]
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
    #[must_use]
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
    #[must_use]
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
    #[must_use]
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
    #[must_use]
    pub fn range(&self) -> Option<LogRange> {
        let mark = self.start.filter(|start| start.cut).map(|start| start.place);
        let end = self.turns.last().map(|turn| turn.place).or(mark)?;
        Some(LogRange { start: self.start, end })
    }

    /// The first turn that the log quotes.
    #[must_use]
    pub fn first(&self) -> Option<LogPlace> {
        self.turns.first().map(|turn| turn.place)
    }

    /// The place after which the next turn's log continues.
    #[must_use]
    pub fn end(&self) -> Option<LogPlace> {
        self.turns.last().map(|turn| turn.place).or(self.start.map(|start| start.place))
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::Timestamp;
    use ghost_domain::transcript::Opaque;
    use proptest::prelude::*;

    use super::*;

    fn turn(n: u64, status: TurnStatus) -> Turn {
        serde_json::from_value(serde_json::json!({
            "turn_id": uuid::Uuid::from_u128(n.into()), "agent_id": "a", "incarnation": 1,
            "root_id": uuid::Uuid::nil(), "source": "mail", "status": status, "model": null, "rounds": 1, "calls": 0,
            "input_tokens": 0, "output_tokens": 0, "cost": 0, "text": null, "started_at": n, "ended_at": n,
        }))
        .unwrap()
    }

    fn of(turn: &Turn, mail: &str, messages: impl IntoIterator<Item = Message>) -> LoggedTurn {
        let mail = Message::text(Role::User, mail);
        LoggedTurn::new(turn, std::iter::once(mail).chain(messages).map(Into::into).collect())
    }

    fn logged(n: u64, rounds: &[usize]) -> LoggedTurn {
        let answers = rounds.iter().map(|bytes| Message::text(Role::Assistant, "x".repeat(*bytes)));
        of(&turn(n, TurnStatus::Finished), &format!("mail {n}"), answers)
    }

    fn texts(log: &mut Log) -> Vec<String> {
        log.messages().iter().map(|message| message.visible_text()).collect()
    }

    #[test]
    fn a_turn_without_an_answer_says_so() {
        let said = Message::text(Role::Assistant, "so");
        let texts = texts(&mut Log::new(None, vec![of(&turn(1, TurnStatus::Failed), "mail", [said])]));
        assert_eq!(texts[..2], ["mail", "so"]);
        assert_eq!((texts.len(), texts[2].contains("failed")), (3, true));
    }

    #[test]
    fn ids_of_calls_are_unique_over_the_log() {
        let call = Block::ToolCall { id: "x".into(), name: "t".into(), arguments: serde_json::json!({}) };
        let result = Block::ToolResult { id: "x".into(), name: "t".into(), content: "r".into(), is_error: false };
        let round =
            [Message { role: Role::Assistant, blocks: vec![call] }, Message { role: Role::Tool, blocks: vec![result] }];
        let of = |n| of(&turn(n, TurnStatus::Finished), "mail", round.to_vec());
        let mut log = Log::new(None, vec![of(1), of(2), of(3)]);
        let messages = log.messages();
        assert_eq!(log.messages(), messages);
        let ids: Vec<&str> = messages
            .iter()
            .flat_map(|message| &message.blocks)
            .filter_map(|block| match block {
                Block::ToolCall { id, .. } | Block::ToolResult { id, .. } => Some(id.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(ids, ["x", "x", "x-2", "x-2", "x-3", "x-3"]);
    }

    #[test]
    fn refused_state_is_left_out_of_all_earlier_turns() {
        let opaque = |n: u64| {
            let state = Block::Opaque(Opaque { author: "p/m".into(), json: n.to_string(), attached: false });
            let message = Message { role: Role::Assistant, blocks: vec![state, Block::Text { text: "so".into() }] };
            of(&turn(n, TurnStatus::Finished), "mail", [message])
        };
        let mut log = Log::new(None, vec![opaque(1), LoggedTurn { state_dropped: true, ..opaque(2) }, opaque(3)]);
        let messages = log.messages();
        let state = messages.iter().flat_map(|message| &message.blocks).filter_map(|block| match block {
            Block::Opaque(opaque) => Some(opaque.json.as_str()),
            _ => None,
        });
        assert_eq!(state.collect::<Vec<_>>(), ["2", "3"]);
        assert!(log.bytes() < Log::new(None, vec![opaque(1), opaque(2), opaque(3)]).bytes());
    }

    #[test]
    fn an_empty_log_has_no_range() {
        assert_eq!((Log::default().range(), Log::default().messages().len()), (None, 0));
        let reset = LogStart { place: turn(1, TurnStatus::Finished).log_place(), round: u32::MAX, cut: false };
        let mut log = Log::new(Some(reset), vec![logged(1, &[5])]);
        assert_eq!((log.range(), log.messages().len()), (None, 0));
    }

    #[test]
    fn a_log_without_room_for_one_round_is_only_a_mark() {
        let mut log = Log::new(None, vec![logged(1, &[500])]);
        let start = log.fit(100).unwrap();
        assert_eq!(texts(&mut log), [CUT_MARK]);
        let mut again = Log::new(Some(start), vec![logged(1, &[500])]);
        assert_eq!((again.messages(), again.range()), (log.messages(), log.range()));
    }

    proptest! {
        /// Whatever is cut and whenever, a log that is read again from its range has the same messages.
        #[test]
        fn a_log_read_from_its_range_is_the_same(
            turns in prop::collection::vec(prop::collection::vec(0_usize..200, 0..5), 1..12),
            limit in 40_usize..900,
        ) {
            let all: Vec<LoggedTurn> = turns.iter().zip(1..).map(|(rounds, n)| logged(n, rounds)).collect();
            let mut log = Log::default();
            for (index, turn) in all.iter().enumerate() {
                let before = log.range();
                log.push(turn.clone());
                let whole = log.bytes();
                match log.fit(limit) {
                    Some(_) => prop_assert!(log.bytes() <= limit / 2),
                    None => prop_assert!(whole <= limit && log.range().unwrap().start == before.and_then(|range| range.start)),
                }
                let range = log.range().unwrap();
                let kept = all[..=index].iter().filter(|turn| {
                    turn.place <= range.end && range.start.is_none_or(|start| turn.place >= start.place)
                });
                let mut again = Log::new(range.start, kept.cloned().collect());
                prop_assert_eq!(again.messages(), log.messages());
                prop_assert_eq!(again.range(), log.range());
                prop_assert!(log.messages().iter().all(|message| message.role != Role::Tool));
            }
            prop_assert_eq!(Timestamp(i64::try_from(turns.len()).unwrap()), log.end().unwrap().ended_at);
        }
    }
}
