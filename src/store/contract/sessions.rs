//! The logs of sessions.

use super::tools::*;

/// Turn `n` of agent a, which ended at second `n`, in a conversation or in its own work.
fn ended(n: u64, conversation: Option<u64>, status: TurnStatus) -> Turn {
    let conversation_id = conversation.map(conversation_id);
    Turn { conversation_id, ended_at: Some(at(n)), rounds: 1, ..turn(n, "a", status) }
}

fn query(conversation: Option<u64>) -> SessionTurns {
    let conversation_id = conversation.map(conversation_id);
    SessionTurns { agent_id: id_of("a"), conversation_id, source: "mail", from: None, before: None, limit: 9 }
}

/// Where the log of a session starts: at turn `n`.
pub(super) fn start(agent: &str, conversation: Option<u64>, n: u64) -> SessionStart {
    let (conversation_id, reset) = (conversation.map(conversation_id), conversation.map(log_place));
    let start = LogStart { place: log_place(n), round: 4, cut: true };
    SessionStart { agent_id: id_of(agent), conversation_id, start, reset }
}

// covers: LOOP-01
pub(super) async fn a_session_has_its_own_ended_turns(store: Bench) {
    use TurnStatus::{Cancelled, Dead, Failed, Finished, Open, Split};
    // Turn 11 started first and ended last.
    put!(&store, {
        turn_put: ended(1, None, Finished), ended(2, Some(1), Failed), ended(3, Some(2), Finished),
            ended(4, Some(1), Cancelled), ended(5, Some(1), Split), ended(6, Some(1), Dead), ended(7, Some(1), Open),
            ended(9, Some(1), Finished), Turn { source: "cron".to_owned(), ..ended(8, Some(1), Finished) },
            Turn { agent_id: id_of("b"), ..ended(10, Some(1), Finished) },
            Turn { rounds: 0, ..ended(12, Some(1), Failed) },
            Turn { ended_at: Some(at(20)), started_at: at(1), ..ended(11, Some(1), Finished) };
    });
    let next = Some(log_place(9).next());
    for (query, wanted) in [
        (query(None), &[1][..]),
        (query(Some(2)), &[3]),
        (query(Some(1)), &[11, 9, 4, 2]),
        (SessionTurns { source: "cron", ..query(Some(1)) }, &[8]),
        (SessionTurns { from: Some(log_place(4)), ..query(Some(1)) }, &[11, 9, 4]),
        (SessionTurns { before: Some(log_place(9)), ..query(Some(1)) }, &[4, 2]),
        (SessionTurns { before: next, limit: 2, ..query(Some(1)) }, &[9, 4]),
    ] {
        let found = reading!(&store, |r| { r.session_turns(&query)? });
        assert_eq!(map_rows(&found, |turn| turn.turn_id), map_rows(wanted, |n| turn_id(*n)));
    }
    let rows = [(Some(conversation_id(1)), 4, at(20)), (Some(conversation_id(2)), 1, at(3)), (None, 1, at(1))];
    // Of conversation 1, turns 9 and 11 ended at second 9 or later.
    let late = [(Some(conversation_id(1)), 2, at(20))];
    for (from, since, limit, wanted) in
        [(0, 0, 9, &rows[..]), (9, 0, 9, &late), (0, 0, 2, &rows[..2]), (0, 3, 9, &rows[..1])]
    {
        let found = reading!(&store, |r| { r.session_list(&id_of("a"), at(from), at(since), limit)? });
        assert_eq!(map_rows(&found, |row| (row.conversation_id, row.turns, row.last_at)), wanted);
    }
}

pub(super) async fn the_start_of_a_session_round_trips(store: Bench) {
    put!(&store, { session_start_put: start("a", None, 1), start("a", Some(1), 2), start("a", Some(1), 3); });
    shows!(&store, |r| {
        r.session_start(&id_of("a"), Some(conversation_id(1)))? => Some(start("a", Some(1), 3));
        r.session_start(&id_of("a"), None)? => Some(start("a", None, 1));
        r.session_start(&id_of("b"), None)? => None;
    });
}

// covers: LOOP-01
pub(super) async fn turns_that_an_open_turn_quotes_are_kept(store: Bench) {
    let done = |n| ended(n, None, TurnStatus::Finished);
    put!(&store, {
        turn_put: done(1), done(2), done(3), done(4), Turn { agent_id: id_of("b"), ..done(5) },
            Turn { log_from: Some(at(3)), ended_at: None, ..ended(6, None, TurnStatus::Open) };
        session_start_put: start("a", None, 2), start("a", Some(1), 50);
    });
    // Turns 1, 2 and 5 go, and the start at turn 2.
    let left = |turns: Vec<Turn>| map_rows(&turns, |turn| turn.turn_id);
    prunes!(&store, Family::Turns, |r| { left(r.session_turns(&query(None))?) }, {
        (40, 100) => 4, [4, 3].map(turn_id);
    });
    shows!(&store, |r| {
        r.session_start(&id_of("a"), None)? => None;
        r.session_start(&id_of("a"), Some(conversation_id(1)))? => Some(start("a", Some(1), 50));
    });
    put!(&store, { turn_put: done(6); });
    prunes!(&store, Family::Turns, |r| { left(r.session_turns(&query(None))?) }, { (40, 100) => 3, []; });
}
