//! Says why a command line is not simply allowed: what was wrong, where, and what to use instead.
//!
//! Each refusal repeats only a short piece of the line.

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

/// A table of [`Cause`]: what each says, and what to do instead.
macro_rules! causes {
    ($($(#[$doc:meta])+ $name:ident: $what:literal, $instead:literal;)+) => {
        /// What makes a word, or a line, impossible to judge.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
        pub enum Cause {
            $($(#[$doc])+ #[error($what)] $name,)+
        }

        impl Cause {
            /// What to do instead, as the end of a sentence.
            #[must_use]
            pub fn instead(self) -> &'static str {
                match self {
                    $(Self::$name => $instead,)+
                }
            }
        }
    };
}

causes! {
    /// More than [`crate::LINE_MAX`] bytes.
    TooLong: "it is longer than 64 KiB", "write the text to a file with workspace.write";
    /// Substitutions or compound commands inside one another, beyond the bound.
    TooDeep: "it is nested too deeply", "split it into several calls";
    /// A NUL, which no argument can hold.
    Nul: "it contains a NUL byte", "write plain text";
    /// A control character, or one that is invisible or changes the direction of text.
    Character: "it contains a control character or an invisible character", "write plain text";
    /// The line is no shell, or it is shell that this parser does not know.
    Syntax: "the shell syntax is wrong or not supported",
        "write it with plain pipelines, lists, if, for, while and case";
    /// A construct that shells, or versions of bash, read in different ways.
    Ambiguous: "shells do not agree how to read this", "quote the word, or write it in a simpler way";
    /// The name of the command is known only when it runs.
    DynamicName: "the command's name is not a plain word", "write the command's name as plain text";
    /// An argument that may turn out to be an option, of a program whose options can do harm.
    DynamicOption: "this argument may become an option of the program",
        "put `--` or `./` before the argument, and quote variables";
    /// Code or a file of commands that is known only when it runs.
    DynamicCode: "the commands that it runs are not on the line as plain text", "write the command itself on the line";
    /// The target of a redirection is known only when it runs.
    DynamicTarget: "the target of the redirection is not a plain word", "write the file's name as plain text";
    /// The target of a redirection is outside the workspace.
    Outside: "the redirection leaves the workspace", "use a file inside the workspace";
    /// `/dev/tcp` and `/dev/udp`.
    Network: "the redirection opens a network connection", "use tool.fetch";
    /// A variable that decides what other commands do.
    Variable: "this variable changes what commands run", "use another name, or leave the variable alone";
    /// An expansion that assigns, follows a name or runs code.
    Expansion: "this expansion may change variables or run code", "use a plain `$name` or `${name:-default}`";
    /// Arithmetic evaluates text a second time.
    Arithmetic: "arithmetic may run code that is in this value",
        "use whole numbers and variables that only hold whole numbers";
    /// An option that runs another program.
    RunOption: "this option runs another program or loads code",
        "leave the option out, or run the other program by itself";
    /// An option that writes files.
    WriteOption: "this option writes a file", "use `>` and a file inside the workspace";
    /// An option that a wrapper is not known to have.
    UnknownOption: "this option of the wrapper is not known", "run the command without the wrapper";
    /// A program whose purpose is to run others, or that has a prompt that can.
    Runner: "this program runs other programs", "call the program that it would run";
    /// A builtin that changes how the rest of the line is read.
    Builtin: "this builtin changes what the shell runs or how it reads", "leave it out";
    /// A function with the name of a command.
    Shadow: "a function must not have the name of a command", "give the function another name";
    /// A script of sed or awk beyond the simple subset.
    Script: "this script may run commands or write files", "use grep, cut, head or jq, or ask an operator";
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
