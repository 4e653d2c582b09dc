//! Ranges of ids.

use super::approvals::approval;
use super::tools::*;

fn ids(numbers: &[u128]) -> Vec<Uuid> {
    numbers.iter().copied().map(Uuid::from_u128).collect()
}

pub(super) async fn ids_are_read_by_range(store: Bench) {
    let inside = keep!(&store, |w| {
        for n in [7, 3, 5, 4] {
            let name = format!("a{n}");
            w.approval_put(&approval(n, "a", ApprovalStatus::Pending))?;
            w.ask_put(&ask(n, "a", "b", AskStatus::Open))?;
            w.conversation_put(&conversation(n, "a"))?;
            w.dead_letter_put(&letter(n, "a", DeadLetterStatus::Held))?;
            w.grant_put(&grant(n, "a"))?;
            w.message_append(&mail(n, "a"))?;
            w.schedule_put(&schedule(n, "a", ScheduleKind::Timer, &name))?;
            w.task_put(&task(n, "a", TaskStatus::Done))?;
            w.turn_put(&turn(n, "a", TurnStatus::Finished))?;
        }
        w.ids_between(IdKind::Turn, Uuid::from_u128(4), Uuid::from_u128(6), 9)?
    });
    assert_eq!(inside, ids(&[4, 5]), "a command sees what it wrote");
    for kind in IdKind::ALL {
        let between = move |r: &mut Tx, first, last, most| {
            r.ids_between(kind, Uuid::from_u128(first), Uuid::from_u128(last), most)
        };
        shows!(&store, |r| {
            between(r, 4, 7, 9)? => ids(&[4, 5, 7]), "{kind:?}";
            between(r, 0, u128::MAX, 2)? => ids(&[3, 4]), "{kind:?}";
            between(r, 8, 100, 9)? => ids(&[]), "{kind:?}";
            between(r, 7, 4, 9)? => ids(&[]), "{kind:?}";
            between(r, 0, u128::MAX, u32::MAX)? => ids(&[3, 4, 5, 7]), "{kind:?}";
        });
    }
}
