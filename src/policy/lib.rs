//! Judges a shell command line against a world's command policy, before it runs.
//!
//! Ghost runs the line exactly as `bash --norc --noprofile -c LINE` in a sandbox. [`judge`] finds every simple
//! command of the line, also behind wrappers, in substitutions and in code for `sh -c`, and asks the policy's tiers.
//! What cannot be known before the line runs is refused, unless an unrestricted tier holds for the agent.
//!
//! The crate is pure: it must never read a file, the environment or the clock, run anything, or panic on any line.
//! It is no sandbox: which files a command reads and what a listed program does are not its business.

mod builtins;
mod command;
mod git_settings;
mod judgement;
mod parse;
mod policy;
mod programs;
mod standing;
mod tables;
mod variables;
mod walk;
mod word;

pub use git_settings::{Setting, foreign_setting};
pub use judgement::{Action, Cause, GitUse, JudgedCommand, Judgement, Refusal, Script, TierName, Unbound};
pub use policy::{Hint, Mode, Policy, Settings, Tier, shipped};

use policy::View;
use walk::Walk;

/// The longest line that is judged, in bytes.
pub const LINE_MAX: usize = 64 * 1024;

/// Judges a line for an agent with these privilege groups.
#[must_use]
pub fn judge(policy: &Policy, agent_groups: &[&str], line: &str) -> Judgement {
    let unusable = if line.len() > LINE_MAX { Some(Cause::TooLong) } else { line.contains('\0').then_some(Cause::Nul) };
    if let Some(cause) = unusable {
        let reason = Some(Refusal::Unusable { cause });
        return Judgement {
            action: Action::Deny,
            commands: Vec::new(),
            files: Vec::new(),
            max_timeout_ms: None,
            unbound: Some(Unbound::Unjudged { word: String::new() }),
            scripts: Vec::new(),
            git: Vec::new(),
            reason,
        };
    }
    let mut walk = Walk::new(View { policy, groups: agent_groups });
    match policy.settings().mode {
        Mode::Segments => walk.line(line),
        Mode::FirstToken => walk.first_token(line),
    }
    walk.finish()
}

#[cfg(test)]
mod tests;
