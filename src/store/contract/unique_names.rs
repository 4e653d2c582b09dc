//! Unique names and sequence numbers: a command that uses one twice fails, and no other command is
//! affected.

use super::tools::*;

/// A kind of unique name.
#[derive(Clone, Copy)]
enum Take {
    Thread,
    ScheduleName,
    PostSequence,
    MailId,
}

/// Runs a command that writes a row and then uses a name that another row has. It ignores the error.
async fn take(store: &Store, what: Take) -> Outcome<()> {
    write(store, move |w| {
        w.state_put(&state("lost", true.into()))?;
        let written = match what {
            Take::Thread => {
                let other = Conversation { thread: "thread 1".to_owned(), ..conversation(2, "b") };
                w.conversation_put(&other)
            }
            Take::ScheduleName => w.schedule_put(&schedule(2, "a", ScheduleKind::Timer, "x")),
            Take::PostSequence => w.chat_post_append(&ChatPost { hop: 7, ..post("a", 1) }),
            Take::MailId => w.message_append(&mail(1, "b")),
        };
        // A command that goes on after that can do nothing more, and is refused all the same.
        assert!(written.is_err() && w.state_get("lost").is_err());
        Ok(())
    })
    .await
}

fn assert_taken(outcome: &Outcome<()>) {
    assert!(matches!(outcome, Err(Stop::Store(StoreError::Row { .. }))), "{outcome:?}");
}

pub(super) async fn a_taken_name_fails_its_command_only(mut store: Bench) {
    let all = [Take::Thread, Take::ScheduleName, Take::PostSequence, Take::MailId];
    // Round 0: in one batch with the command that uses the names first. Round 1: with cached rows.
    // Round 2: with stored rows.
    for round in 0..3 {
        let first = async {
            if round == 0 {
                put!(&store, {
                    conversation_put: conversation(1, "a");
                    schedule_put: schedule(1, "a", ScheduleKind::Timer, "x");
                    chat_post_append: post("a", 1);
                    message_append: mail(1, "a");
                });
            }
        };
        let others = async { join_all(all.map(|what| take(&store, what))).await };
        // Commands are queued in the order of their first poll.
        let (_, outcomes) = futures_util::future::join(first, others).await;
        outcomes.iter().for_each(assert_taken);
    }
    store.reopen().await;
    for what in all {
        assert_taken(&take(&store, what).await);
    }
    shows!(&store, |r| {
        r.conversation_find("control", "thread 1")? => Some(conversation(1, "a"));
        r.schedule_list(None, None, None)? => [schedule(1, "a", ScheduleKind::Timer, "x")];
        r.chat_posts(&channel_name("a"), 0, 0, 9)? => vec![post("a", 1)];
        (r.inbox_total()?, r.inbox_depth(&id_of("a"))?) => (1, 1);
        r.state_get("lost")? => None;
    });
}

pub(super) async fn released_names_are_free(store: Bench) {
    let threaded = |n, thread: &str| Conversation { thread: thread.to_owned(), ..conversation(n, "a") };
    let timed = |n, name| schedule(n, "a", ScheduleKind::Timer, name);
    // In one batch, if the backend has group commit.
    let commands = [vec![(1, "x")], vec![(1, "y"), (2, "x")]].map(|given| {
        let store = store.clone();
        async move {
            keep!(&store, |w| {
                for (n, name) in given {
                    w.conversation_put(&threaded(n, name))?;
                    w.schedule_put(&timed(n, name))?;
                }
            });
        }
    });
    join_all(commands).await;
    shows!(&store, |r| {
        r.conversation_find("control", "x")? => Some(threaded(2, "x"));
        r.conversation_find("control", "y")? => Some(threaded(1, "y"));
        r.schedule_find(&id_of("a"), ScheduleKind::Timer, "x")? => Some(timed(2, "x"));
        r.schedule_find(&id_of("a"), ScheduleKind::Timer, "y")? => Some(timed(1, "y"));
        r.schedule_list(None, None, None)? => [timed(2, "x"), timed(1, "y")];
        r.schedule_count(&id_of("a"), ScheduleKind::Timer)? => 2;
    });
}
