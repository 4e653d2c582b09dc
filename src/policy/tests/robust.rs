//! No line makes `judge` panic, overflow a stack or take long.

#![allow(clippy::disallowed_methods, reason = "the test bounds real time")]

mod common;

use std::time::{Duration, Instant};

use common::{lines, only};
use ghost_policy::{Action, Mode, Policy, Settings, judge, shipped};
use proptest::prelude::*;

fn every_policy(line: &str) {
    let first = Policy::new(Settings { mode: Mode::FirstToken, ..shipped() });
    for policy in [only("read", Action::Deny), only("danger", Action::Allow), first] {
        let judged = judge(&policy, &["any"], line);
        assert_eq!(judged.reason.is_none(), judged.action == Action::Allow, "{line:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(line in any::<String>()) {
        every_policy(&line);
    }

    #[test]
    fn text_of_shell_characters(line in "[a-z$(){}\\[\\]<>|&;'\"`\\\\!#*?~=:/0-9 \n\t@%^,.+é-]{0,120}") {
        every_policy(&line);
    }

    #[test]
    fn cut_and_joined_corpora(a in 0..600_usize, b in 0..600_usize, at in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let corpus = lines(concat!(include_str!("bypasses.txt"), include_str!("ordinary.txt")));
        let (a, b) = (&corpus[a % corpus.len()], &corpus[b % corpus.len()]);
        let head: String = a.chars().take(at.index(a.len())).collect();
        let tail: String = b.chars().skip(to.index(b.len())).collect();
        every_policy(&(head + &tail));
    }
}

/// Deep and long lines, on a small stack and against the clock.
#[test]
fn hostile_lines() {
    let openers = [
        "(",
        "((",
        "( ",
        "{ ",
        "$(",
        "${",
        "`",
        "\"$(",
        "<(",
        "[[ ( ",
        "[[ ! ",
        "if ",
        "while ",
        "case a in a) ",
        "case a in (a) ",
        "f() { ",
        "! ",
        "function f { ",
        "coproc ",
        "time ",
        "$((",
        "((1+(",
        "a[",
        "a[$((",
        "a=(",
        "${x:-",
        "{a,",
        "eval ",
        "env ",
        "bash -c '",
        "\\",
        "'",
        "<<E ",
        "for i in a; do ",
        "~",
        "1",
        "if true; then ",
        "while true; do case a in a) ",
        "; ",
        "&& ",
        "| ",
        "a\n",
        "#",
        "$'",
        "<",
        ">",
        "&",
        "x=",
        "é",
        "~1",
        "{1..",
        "99999999999999999999>",
        "~99999999999999999999999/",
        "{1..99999999999999999999}",
        "select ",
        "elif ",
        "until ",
    ];
    let closers = ["", ")", "))", " }", "; }", "; fi", "; done", ";; esac", " ]]", "}", "'", "\""];
    let test = move || {
        let policy = Policy::new(shipped());
        for opener in openers {
            for closer in closers {
                for count in [1, 3, 7, 12, 40, 400, 20_000] {
                    let count = count.min(30_000 / opener.len());
                    let line = opener.repeat(count) + "a" + &closer.repeat(count.min(30_000 / (closer.len() + 1)));
                    let started = Instant::now();
                    let _ = judge(&policy, &[], &line);
                    let took = started.elapsed();
                    assert!(took < Duration::from_secs(2), "{opener:?} {closer:?} {count}: {took:?}");
                }
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(test);
    thread.expect("a thread").join().expect("no overflow, no panic, no delay");
}
