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
