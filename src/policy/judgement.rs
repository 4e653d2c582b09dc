//! What is decided about a line and about each of its commands, and what an approval of it for good has to bind.

use thiserror::Error;

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

/// Why an approval of a line can hold for one call only.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unbound {
    /// `mode: first_token`: nothing is known of the rest.
    #[error("the command policy reads only the first word of a line (`mode: first_token`)")]
    FirstToken,
    /// Something of the line cannot be judged.
    #[error("`{word}` cannot be judged before it runs")]
    Unjudged {
        /// The word.
        word: String,
    },
    /// A word is known only when the line runs.
    #[error("what `{program}` gets is known only when it runs")]
    Words {
        /// The program.
        program: String,
    },
    /// The program is not known to run nothing but itself.
    #[error("`{program}` may run or load what is not on the line")]
    Program {
        /// The program, for git with its subcommand.
        program: String,
    },
    /// The program is known, but not with this option.
    #[error("`{program}` may run something else with `{option}`")]
    Option {
        /// The program.
        program: String,
        /// The option.
        option: String,
    },
}

/// A command of git, and where it looks for its repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitUse {
    /// The directories of its `-C`, one below the other. `None`: they are known only when it runs.
    pub dirs: Option<Vec<String>>,
    /// Whether the policy lets it run without asking.
    pub allowed: bool,
}

/// A file of commands that the line runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Its path, as it is written.
    pub path: String,
    /// The shell that reads it; empty if its first line decides.
    pub shell: &'static str,
}
