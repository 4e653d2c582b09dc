//! Says why a command line is not simply allowed: what was wrong, where, and what to use instead.
//!
//! A refusal must never be without a word, a tier and an alternative (SBX-12). It must never repeat more
//! than a short piece of the line.

use std::sync::Arc;

use thiserror::Error;

/// A word of a refusal is cut after this many characters.
const WORD_MAX: usize = 80;

/// Why a line, or one word of it, is not allowed as it is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A tier, or the default, denies the command. This is final.
    #[error("`{word}` is denied by {tier}; {instead}")]
    Denied {
        /// The command, as the tier names it.
        word: String,
        /// The deciding tier.
        tier: TierName,
        /// What to use instead.
        instead: String,
    },
    /// A tier, or the default, wants an operator's approval first.
    #[error("`{word}` needs an operator's approval by {tier}; {instead}")]
    Asked {
        /// The command, as the tier names it.
        word: String,
        /// The deciding tier.
        tier: TierName,
        /// What to use instead of waiting.
        instead: String,
    },
    /// What the word does cannot be known before it runs.
    #[error("`{word}` cannot be judged before it runs: {cause}; {tier} is not unrestricted; {}", cause.instead())]
    Unjudged {
        /// The word.
        word: String,
        /// The tier of the command that the word belongs to.
        tier: TierName,
        /// What is wrong with the word.
        cause: Cause,
    },
    /// The line is no possible command line, for any tier.
    #[error("the command line cannot be run: {cause}; {}", cause.instead())]
    Unusable {
        /// What is wrong with the line.
        cause: Cause,
    },
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum TierName {
    /// A tier of the policy.
    #[error("the tier `{0}`")]
    Tier(Arc<str>),
    /// No tier names the command: `cli_policy.default`.
    #[error("`cli_policy.default`")]
    Default,
    /// The shell's own state: `cd`, `echo`, `exit` and the like, unless a tier names them.
    #[error("the shell's own commands")]
    Shell,
    /// A function that this line defines. Its body is judged where it is defined.
    #[error("a function of this line")]
    Function,
    /// A program inside the workspace, which nobody has listed.
    #[error("the rule for workspace scripts")]
    Workspace,
    /// Code on the command line of an interpreter.
    #[error("the rule for inline code")]
    Inline,
}

/// What makes a word, or a line, impossible to judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Cause {
    /// More than [`crate::LINE_MAX`] bytes.
    #[error("it is longer than 64 KiB")]
    TooLong,
    /// Substitutions or compound commands inside one another, beyond the bound.
    #[error("it is nested too deeply")]
    TooDeep,
    /// A NUL, which no argument can hold.
    #[error("it contains a NUL byte")]
    Nul,
    /// A control character, or one that is invisible or changes the direction of text.
    #[error("it contains a control character or an invisible character")]
    Character,
    /// The line is no shell, or it is shell that this parser does not know.
    #[error("the shell syntax is wrong or not supported")]
    Syntax,
    /// A construct that shells, or versions of bash, read in different ways.
    #[error("shells do not agree how to read this")]
    Ambiguous,
    /// The name of the command is known only when it runs.
    #[error("the command's name is not a plain word")]
    DynamicName,
    /// An argument that may turn out to be an option, of a program whose options can do harm.
    #[error("this argument may become an option of the program")]
    DynamicOption,
    /// Code or a file of commands that is known only when it runs.
    #[error("the commands that it runs are not on the line as plain text")]
    DynamicCode,
    /// The target of a redirection is known only when it runs.
    #[error("the target of the redirection is not a plain word")]
    DynamicTarget,
    /// The target of a redirection is outside the workspace.
    #[error("the redirection leaves the workspace")]
    Outside,
    /// `/dev/tcp` and `/dev/udp`.
    #[error("the redirection opens a network connection")]
    Network,
    /// A variable that decides what other commands do.
    #[error("this variable changes what commands run")]
    Variable,
    /// An expansion that assigns, follows a name or runs code.
    #[error("this expansion may change variables or run code")]
    Expansion,
    /// Arithmetic evaluates text a second time.
    #[error("arithmetic may run code that is in this value")]
    Arithmetic,
    /// An option that runs another program.
    #[error("this option runs another program or loads code")]
    RunOption,
    /// An option that writes files.
    #[error("this option writes a file")]
    WriteOption,
    /// An option that a wrapper is not known to have.
    #[error("this option of the wrapper is not known")]
    UnknownOption,
    /// A program whose purpose is to run others, or that has a prompt that can.
    #[error("this program runs other programs")]
    Runner,
    /// A builtin that changes how the rest of the line is read.
    #[error("this builtin changes what the shell runs or how it reads")]
    Builtin,
    /// A function with the name of a command.
    #[error("a function must not have the name of a command")]
    Shadow,
    /// A script of sed or awk beyond the simple subset.
    #[error("this script may run commands or write files")]
    Script,
}

impl Cause {
    /// What to do instead, as the end of a sentence.
    #[must_use]
    pub fn instead(self) -> &'static str {
        match self {
            Self::TooLong => "write the text to a file with workspace.write",
            Self::TooDeep => "split it into several calls",
            Self::Nul | Self::Character => "write plain text",
            Self::Syntax => "write it with plain pipelines, lists, if, for, while and case",
            Self::Ambiguous => "quote the word, or write it in a simpler way",
            Self::DynamicName => "write the command's name as plain text",
            Self::DynamicOption => "put `--` or `./` before the argument, and quote variables",
            Self::DynamicCode => "write the command itself on the line",
            Self::DynamicTarget => "write the file's name as plain text",
            Self::Outside => "use a file inside the workspace",
            Self::Network => "use tool.fetch",
            Self::Variable => "use another name, or leave the variable alone",
            Self::Expansion => "use a plain `$name` or `${name:-default}`",
            Self::Arithmetic => "use whole numbers and variables that only hold whole numbers",
            Self::RunOption => "leave the option out, or run the other program by itself",
            Self::WriteOption => "use `>` and a file inside the workspace",
            Self::UnknownOption => "run the command without the wrapper",
            Self::Runner => "call the program that it would run",
            Self::Builtin => "leave it out",
            Self::Shadow => "give the function another name",
            Self::Script => "use grep, cut, head or jq, or ask an operator",
        }
    }
}

/// A refusal's word: short, and on one line.
pub(crate) fn clip(word: &str) -> String {
    let plain = word.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let mut short: String = plain.take(WORD_MAX).collect();
    if short.len() < word.len() {
        short.push('…');
    }
    short
}
