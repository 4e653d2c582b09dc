//! Sudden ends: the runner killed or stopped during a command.

use std::time::{Duration, Instant};

use ghost_domain::{Code, Refusal};
use ghost_sandbox::{Command, Finished};
use rustix::process::Signal;

use crate::machine::{gone, mark, marked, runner_of, signal, until};
use crate::place::{Kind, Place, sh};

/// Runs a command, and does something to the machine as soon as it has said something.
pub fn run_and(place: &Place, command: Command, then: impl FnOnce()) -> Result<Finished, Refusal> {
    let begun = tokio::sync::Notify::new();
    let progress = |_: &[u8]| begun.notify_one();
    place.runtime.block_on(async {
        let run = place.sandbox.run(command, &progress);
        tokio::pin!(run);
        tokio::select! {
            biased;
            done = &mut run => panic!("it ended: {done:?}"),
            () = begun.notified() => {}
        }
        then();
        run.await
    })
}

fn long(mark: &str) -> Command {
    let mut command = sh("ada", &format!("(setsid sleep {mark} &); echo ready; sleep {mark}"));
    command.timeout = Duration::from_secs(60);
    command
}

pub fn a_killed_runner_is_an_error_and_leaves_nothing(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let (mark, begun) = (mark(), Instant::now());
    let refused = run_and(&place, long(&mark), || {
        until("the command sleeps", || marked(&mark).len() >= 2);
        signal(runner_of(marked(&mark)[0]), Signal::KILL);
    });
    assert_eq!(refused.unwrap_err().code, Code::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(30), "it waited for the deadline");
    gone(&mark);
    assert_eq!(place.sh("ada", "echo next").stdout.text, "next\n", "the next command gets another runner");
}

pub fn a_stopped_runner_is_an_error_after_the_deadline(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let (mark, mut stopped) = (mark(), 0);
    let mut command = long(&mark);
    command.timeout = Duration::from_secs(1);
    let begun = Instant::now();
    let refused = run_and(&place, command, || {
        until("the command sleeps", || marked(&mark).len() >= 2);
        stopped = runner_of(marked(&mark)[0]);
        signal(stopped, Signal::STOP);
    });
    assert_eq!(refused.unwrap_err().code, Code::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(place.sh("ada", "echo next").stdout.text, "next\n");
    until("the stopped runner is gone", || !std::path::Path::new(&format!("/proc/{stopped}")).exists());
    gone(&mark);
}
