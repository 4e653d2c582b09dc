//! The logs of sessions.

use ghost_domain::{LogStart, SessionStart, Turn, TurnStatus};

use super::tools::*;
use crate::tables::{Family, SessionTurns};

/// Turn `n` of agent a, which ended at second `n`, in a conversation or in its own work.
fn ended(n: u64, conversation: Option<u64>, status: TurnStatus) -> Turn {
    Turn {
        conversation_id: conversation.map(conversation_id),
        ended_at: Some(at(n)),
        rounds: 1,
        ..turn(n, "a", status)
    }
}

fn query(conversation: Option<u64>) -> SessionTurns {
    SessionTurns {
        agent_id: id_of("a"),
        conversation_id: conversation.map(conversation_id),
        source: "mail",
        from: None,
        before: None,
        limit: 9,
    }
}

fn start(conversation: Option<u64>, n: u64) -> SessionStart {
    let start = LogStart { place: log_place(n), round: 4, cut: true };
    SessionStart {
        agent_id: id_of("a"),
        conversation_id: conversation.map(conversation_id),
        start,
        reset: conversation.map(log_place),
    }
}

// covers: LOOP-01
pub(super) async fn a_session_has_its_own_ended_turns(store: Bench) {
    keep!(&store, |w| {
        for (n, conversation, status) in [
            (1, None, TurnStatus::Finished),
            (2, Some(1), TurnStatus::Failed),
            (3, Some(2), TurnStatus::Finished),
            (4, Some(1), TurnStatus::Cancelled),
            (5, Some(1), TurnStatus::Split),
            (6, Some(1), TurnStatus::Dead),
            (7, Some(1), TurnStatus::Open),
            (9, Some(1), TurnStatus::Finished),
        ] {
            w.turn_put(&ended(n, conversation, status))?;
        }
        w.turn_put(&Turn { source: "cron".to_owned(), ..ended(8, Some(1), TurnStatus::Finished) })?;
        w.turn_put(&Turn { agent_id: id_of("b"), ..ended(10, Some(1), TurnStatus::Finished) })?;
        w.turn_put(&Turn { rounds: 0, ..ended(12, Some(1), TurnStatus::Failed) })?;
        // It started first and ended last.
        let late = Turn { ended_at: Some(at(20)), started_at: at(1), ..ended(11, Some(1), TurnStatus::Finished) };
        w.turn_put(&late)?;
    });
    let found =
        async |query: SessionTurns| map_rows(&reading!(&store, |r| { r.session_turns(&query)? }), |turn| turn.turn_id);
    assert_eq!(found(query(None)).await, [turn_id(1)]);
    assert_eq!(found(query(Some(2))).await, [turn_id(3)]);
    assert_eq!(found(query(Some(1))).await, [11, 9, 4, 2].map(turn_id));
    assert_eq!(found(SessionTurns { source: "cron", ..query(Some(1)) }).await, [turn_id(8)]);
    assert_eq!(found(SessionTurns { from: Some(log_place(4)), ..query(Some(1)) }).await, [11, 9, 4].map(turn_id));
    assert_eq!(found(SessionTurns { before: Some(log_place(9)), ..query(Some(1)) }).await, [4, 2].map(turn_id));
    let next = Some(log_place(9).next());
    assert_eq!(found(SessionTurns { before: next, limit: 2, ..query(Some(1)) }).await, [9, 4].map(turn_id));
    let list_from = async |from, since, limit| {
        let rows = reading!(&store, |r| { r.session_list(&id_of("a"), at(from), at(since), limit)? });
        map_rows(&rows, |row| (row.conversation_id, row.turns, row.last_at))
    };
    let rows = [(Some(conversation_id(1)), 4, at(20)), (Some(conversation_id(2)), 1, at(3)), (None, 1, at(1))];
    let list = async |since, limit| list_from(0, since, limit).await;
    assert_eq!(list(0, 9).await, rows);
    assert_eq!(list_from(9, 0, 9).await, [(Some(conversation_id(1)), 2, at(20))], "turns 9 and 11");
    assert_eq!(list(0, 2).await, rows[..2]);
    assert_eq!(list(3, 9).await, rows[..1]);
}

pub(super) async fn the_start_of_a_session_round_trips(store: Bench) {
    keep!(&store, |w| {
        w.session_start_put(&start(None, 1))?;
        w.session_start_put(&start(Some(1), 2))?;
        w.session_start_put(&start(Some(1), 3))?;
        assert_eq!(w.session_start(&id_of("a"), None)?, Some(start(None, 1)));
    });
    shows!(&store, |r| {
        r.session_start(&id_of("a"), Some(conversation_id(1)))? => Some(start(Some(1), 3));
        r.session_start(&id_of("a"), None)? => Some(start(None, 1));
        r.session_start(&id_of("b"), None)? => None;
    });
}

// covers: LOOP-01
pub(super) async fn turns_that_an_open_turn_quotes_are_kept(store: Bench) {
    keep!(&store, |w| {
        for n in 1..=4 {
            w.turn_put(&ended(n, None, TurnStatus::Finished))?;
        }
        w.turn_put(&Turn { agent_id: id_of("b"), ..ended(5, None, TurnStatus::Finished) })?;
        w.turn_put(&Turn { log_from: Some(at(3)), ended_at: None, ..ended(6, None, TurnStatus::Open) })?;
        w.session_start_put(&start(None, 2))?;
        w.session_start_put(&start(Some(1), 50))?;
    });
    let pruned = keep!(&store, |w| { w.prune(Family::Turns, at(40), 100)? });
    assert_eq!(pruned, 4, "turns 1, 2 and 5, and the start at turn 2");
    let left = async || map_rows(&reading!(&store, |r| { r.session_turns(&query(None))? }), |turn| turn.turn_id);
    assert_eq!(left().await, [turn_id(4), turn_id(3)]);
    shows!(&store, |r| {
        r.session_start(&id_of("a"), None)? => None;
        r.session_start(&id_of("a"), Some(conversation_id(1)))? => Some(start(Some(1), 50));
    });
    keep!(&store, |w| { w.turn_put(&ended(6, None, TurnStatus::Finished))? });
    assert_eq!(keep!(&store, |w| { w.prune(Family::Turns, at(40), 100)? }), 3);
}
