//! Signals that a commit sends to the running world.

use super::tools::*;

pub(super) async fn signals_follow_commits_in_order(store: Bench) {
    let heard = SignalLog::on(&store);
    let all = [
        Signal::Wake(id_of("b")),
        Signal::AskClosed { ask_id: ask_id(1), asker: Some(id_of("a")) },
        Signal::Reconcile(id_of("a")),
        Signal::Wake(id_of("a")),
    ];
    let (mine, inside) = (all.clone(), heard.clone());
    keep!(&store, |w| {
        w.agent_put(&agent("a"))?;
        for signal in &mine[..3] {
            w.signal(signal.clone());
        }
        assert_eq!(inside.signals(), [], "no signal is sent before its command has ended");
    });
    assert_eq!(heard.signals(), all[..3], "the signals of an acknowledged command were sent");
    // A command that writes nothing may still send signals.
    keep!(&store, |w| { w.signal(Signal::Wake(id_of("a"))) });
    assert_eq!(heard.signals(), all);
}

pub(super) async fn signals_of_undone_commands_are_dropped(store: Bench) {
    let heard = SignalLog::on(&store);
    refuse!(&store, |w| { w.signal(Signal::Wake(id_of("a"))) });
    let command = write::<(), _>(&store, |w| {
        w.agent_put(&agent("a"))?;
        w.signal(Signal::Wake(id_of("b")));
        raise_panic()
    });
    drop(catch_panic(command).await);
    keep!(&store, |w| { w.signal(Signal::Wake(id_of("c"))) });
    assert_eq!(heard.signals(), [Signal::Wake(id_of("c"))]);
}
