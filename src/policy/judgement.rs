//! What is decided about a line, and about each of its commands.

use crate::bound::{GitUse, Script, Unbound};
use crate::policy::Action;
use crate::refusal::{Refusal, TierName};

/// One command of a line, as it would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedCommand {
    /// The program without its directory, or the path of a workspace script.
    pub name: String,
    /// The words of the command, its name included. `None`: known only when it runs, or more than one word.
    pub argv: Vec<Option<String>>,
    /// Who decided.
    pub tier: TierName,
    /// What was decided.
    pub action: Action,
    /// The programs that start it, outermost first: `timeout`, `xargs`, `sh`.
    pub wrappers: Vec<String>,
}

/// What happens to a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The strictest of what its commands get.
    pub action: Action,
    /// Every command that was found. Not all of them if the line could not be read.
    pub commands: Vec<JudgedCommand>,
    /// The files of its redirections, as they are written: those that are read and those that are written.
    pub files: Vec<String>,
    /// The shortest limit of the tiers that decided, in milliseconds.
    pub max_timeout_ms: Option<u64>,
    /// Why an approval can hold for one call only. Beside the line, [`scripts`](Self::scripts) and the configuration of
    /// the repositories of [`git`](Self::git) decide what runs; whoever approves for good must bind them, too.
    pub unbound: Option<Unbound>,
    /// The files of commands that it runs.
    pub scripts: Vec<Script>,
    /// Its commands of git.
    pub git: Vec<GitUse>,
    /// Why it is not simply allowed.
    pub reason: Option<Refusal>,
}
