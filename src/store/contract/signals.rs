//! Signals: what a commit tells the running world.

use std::sync::Arc;

use ghost_domain::ports::Signal;

use super::Medium;
use super::rows::{agent, ask_id, who};
use super::tools::{Heard, blow_up, caught, keep, open, refuse, write};

pub(super) async fn signals_follow_commits_in_order(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    let heard = Heard::on(&store);
    let all = [
        Signal::Wake(who("b")),
        Signal::AskClosed { ask_id: ask_id(1), asker: Some(who("a")) },
        Signal::Reconcile(who("a")),
        Signal::Wake(who("a")),
    ];
    let (mine, inside) = (all.clone(), heard.clone());
    keep!(&store, |w| {
        w.agent_put(&agent("a")).await?;
        for signal in &mine[..3] {
            w.signal(signal.clone());
        }
        assert_eq!(inside.signals(), [], "nothing is heard before its command has ended");
    });
    assert_eq!(heard.signals(), all[..3], "what is acknowledged is heard");
    // A command that writes nothing may still have something to say.
    keep!(&store, |w| { w.signal(Signal::Wake(who("a"))) });
    assert_eq!(heard.signals(), all);
}

pub(super) async fn signals_of_undone_commands_are_dropped(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    let heard = Heard::on(&store);
    refuse!(&store, |w| { w.signal(Signal::Wake(who("a"))) });
    let command = write::<(), _>(&store, |w| {
        Box::pin(async move {
            w.agent_put(&agent("a")).await?;
            w.signal(Signal::Wake(who("b")));
            blow_up()
        })
    });
    drop(caught(command).await);
    keep!(&store, |w| { w.signal(Signal::Wake(who("c"))) });
    assert_eq!(heard.signals(), [Signal::Wake(who("c"))]);
}
