//! Droids: helpers that an agent starts for one piece of work. A droid is an agent of a kind of its own: it
//! has a turn, a journal and a budget like every agent, fewer tools, a directory under `droids/`, and an end.
//!
//! A droid must never have a tool, a directory or a time that its record does not give it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ConversationId, RootId};
use crate::macros::text_enum;
use crate::money::Money;
use crate::refusal::Refusal;
use crate::time::Timestamp;

/// The name of a droid's archetype, which no file describes.
pub const ARCHETYPE: &str = "droid";
/// The file with the task in a droid's directory.
pub const TASK_FILE: &str = "task.md";
/// The time of a run for which its parent names none, in seconds.
pub const TIMEOUT_DEFAULT: u32 = 120;
/// The longest time of a run, in seconds.
pub const TIMEOUT_MAX: u32 = 300;
/// Model calls of one turn of a droid.
pub const ROUNDS_MAX: u32 = 8;
/// How long after its time a droid that still runs is ended. Waiting for a model does not count against its time, so
/// this bounds an outage, too.
pub const OVERDUE: Duration = Duration::from_secs(300);
/// Bytes of a task.
pub const TASK_BYTES: usize = 32 * 1_024;
/// Bytes of the result text that is kept and sent to the parent.
pub const RESULT_BYTES: usize = 8 * 1_024;
/// Longest name of an output file, in characters.
const OUTPUT_CHARS: usize = 128;
/// The output file if the parent names none, or a name of which nothing is left.
pub const OUTPUT_DEFAULT: &str = "output.md";

/// The five tools of every droid, if the world file does not list others.
pub const TOOLS: [&str; 5] = ["tool.cli", "tool.fetch", "tool.web_search", "workspace.read", "workspace.write"];

text_enum! {
    /// How long a droid lives.
    DroidMode, "droid mode" {
        /// Until it has done its task.
        Run = "run",
        /// Until it was idle for some time; its parent sends it more work with `steer`.
        Session = "session",
    }
}

text_enum! {
    /// State of a droid.
    DroidState, "droid state" {
        /// It has not begun.
        Pending = "pending",
        /// It works, or waits for more work in mode `session`.
        Running = "running",
        /// It did its task.
        Succeeded = "succeeded",
        /// Its turn failed.
        Failed = "failed",
        /// It used up its time or its model calls.
        TimedOut = "timed_out",
        /// Its parent, an operator or the end of its parent ended it.
        Killed = "killed",
    }
}

impl DroidState {
    /// Whether a droid in this state does nothing more.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// What a droid may use, as its parent and the world decided when it was started. Part of its agent's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DroidTerms {
    /// Canonical names of its tools.
    pub tools: BTreeSet<String>,
    /// The privilege groups of its parent. They give it no tools. Rules for commands judge it as they judge its parent.
    pub groups: BTreeSet<String>,
    /// `provider/model`; `None` means the model of the world's droids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The model of its parent, `provider/model`, for worlds that name no model for droids.
    pub parent_model: String,
    /// How long one of its turns may work, in seconds.
    pub turn_seconds: u32,
    /// How many droids are above it, itself included.
    pub depth: u32,
}

/// What a droid has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroidUse {
    /// Turns that ended.
    pub turns: u32,
    /// Model calls.
    pub rounds: u32,
    /// Tool calls.
    pub calls: u32,
    /// Tokens sent to models.
    pub input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// Money.
    pub cost: Money,
}

/// The record of a droid. It stays after the droid's agent is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Droid {
    /// Id of the droid, which is also that of its agent.
    pub droid_id: AgentId,
    /// The agent that started it, pays for it and gets its result.
    pub parent_id: AgentId,
    /// A short name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The task, as its parent wrote it.
    pub task: String,
    /// How long it lives.
    pub mode: DroidMode,
    /// State of it.
    pub state: DroidState,
    /// Path of its expected output, relative to the workspace.
    pub output_path: String,
    /// What it may use.
    pub terms: DroidTerms,
    /// The root that it works for.
    pub root_id: RootId,
    /// The conversation that its parent worked for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The hop of the message with its task.
    pub hop: u32,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it has used up its time; in mode `session`, its idle time.
    pub deadline_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Refusal>,
    /// Its answer, clipped to [`RESULT_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// What it has used.
    #[serde(default)]
    pub used: DroidUse,
}

impl Droid {
    /// Its own directory, relative to the workspace.
    pub fn home(&self) -> String {
        self.droid_id.home()
    }
}

/// The name of an output file, made from the path that a parent wrote: no directories, no `..`, no characters that a
/// shell or a file system treats specially.
pub fn output_name(wanted: &str) -> String {
    let plain = wanted.replace("..", "");
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let name: String = plain.chars().map(safe).collect();
    let name: String = name.trim_start_matches(['.', '_', '-']).chars().take(OUTPUT_CHARS).collect();
    // The task must stay readable.
    if name.is_empty() || name == TASK_FILE { OUTPUT_DEFAULT.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::droid_text;
    use crate::write_acl::{WorkspacePath, WriteAcl};

    // covers: DROID-06, LIM-07, TEST-03
    #[test]
    fn an_output_name_never_leaves_its_directory() {
        for (wanted, name) in [
            ("../../../etc/passwd", "etc_passwd"),
            ("report.md", "report.md"),
            ("a/b c.md", "a_b_c.md"),
            ("..", OUTPUT_DEFAULT),
            ("", OUTPUT_DEFAULT),
            ("___---...", OUTPUT_DEFAULT),
            ("task.md", OUTPUT_DEFAULT),
            (".bashrc", "bashrc"),
            ("--upload-pack=x", "upload-pack_x"),
            ("é.md", "md"),
        ] {
            assert_eq!(output_name(wanted), name, "{wanted}");
        }
        for (chars, kept) in [(127, 127), (128, 128), (500, 128)] {
            assert_eq!(output_name(&"x".repeat(chars)).len(), kept, "{chars}");
        }
    }

    proptest! {
        #[test]
        fn every_output_is_in_the_droid_s_own_directory(wanted in "(?s).{0,200}", random in any::<u32>()) {
            let droid: AgentId = droid_text(random).parse().unwrap();
            let path = format!("{}/{}", droid.home(), output_name(&wanted));
            let path = WorkspacePath::parse(&path, false).unwrap();
            prop_assert!(WriteAcl::own_directory(&droid).check(&droid, &path).is_ok());
            prop_assert_eq!(path.as_str().matches('/').count(), 2);
            prop_assert!(!path.as_str().contains(".."));
        }
    }
}
