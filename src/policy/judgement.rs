//! What is decided about a line and about each of its commands, why, and what an approval of it for good has to bind.
//!
//! Each refusal repeats only a short piece of the line.

use std::sync::Arc;

use thiserror::Error;

/// What happens to a command. A later one is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It runs.
    Allow,
    /// It runs after an operator's approval.
    Ask,
    /// It does not run.
    Deny,
}

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
