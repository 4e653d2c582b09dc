//! What an approval of a line for good has to bind beside its words, or why it cannot.
//!
//! It is data alone: who decides is in `standing.rs`.

use thiserror::Error;

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
