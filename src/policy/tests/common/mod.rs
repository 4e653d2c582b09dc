//! What the tests share.
#![allow(dead_code, reason = "not every test uses all of it")]

use ghost_policy::{Action, Policy, Settings, shipped};

/// The shipped policy with one tier and another default.
pub fn only(tier: &str, default: Action) -> Policy {
    let mut settings = Settings { default, ..shipped() };
    settings.tiers.retain(|name, _| name == tier);
    Policy::new(settings)
}

/// The lines of a corpus, with control pictures replaced.
pub fn lines(corpus: &str) -> Vec<String> {
    let picture = |c: char| match u32::from(c).checked_sub(0x2400).filter(|code| *code < 32) {
        Some(code) => char::from_u32(code).unwrap_or(c),
        None => c,
    };
    let kept = corpus.split('\n').filter(|line| !line.is_empty() && !line.starts_with("# "));
    kept.map(|line| line.chars().map(picture).collect()).collect()
}
