//! The judge of command lines: no line makes it panic or take long, and a line is allowed only without a reason against it.
#![no_main]

use std::sync::OnceLock;

use ghost_policy::{Action, Mode, Policy, Settings, judge, shipped};
use libfuzzer_sys::fuzz_target;

static POLICIES: OnceLock<[Policy; 2]> = OnceLock::new();

fuzz_target!(|line: &str| {
    let policies = POLICIES
        .get_or_init(|| [Policy::new(shipped()), Policy::new(Settings { mode: Mode::FirstToken, ..shipped() })]);
    for policy in policies {
        let judged = judge(policy, &["any"], line);
        assert_eq!(judged.reason.is_none(), judged.action == Action::Allow);
    }
});
