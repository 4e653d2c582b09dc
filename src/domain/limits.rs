//! All limits of a world, with name, default and range (promise 7 in `docs/design.md`, LIM-50).
//! `limits:` in `world-config.yaml` sets them. The columns are: default, smallest value, largest
//! value.

use std::time::Duration;

use serde::{Deserialize, Serialize};

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $ty:ty = $default:expr, $min:expr, $max:expr;)+) => {
        /// The limits of a world.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits { $($(#[doc = $doc])+ pub $name: $ty,)+ }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Limits {
            /// All limits: name, value, smallest and largest allowed value.
            pub fn table(&self) -> Vec<(&'static str, u64, u64, u64)> {
                vec![$((stringify!($name), u64::from(self.$name), $min, $max),)+]
            }

            /// What each limit bounds, in the order of [`table`](Self::table).
            pub fn meanings() -> Vec<&'static str> {
                vec![$(concat!($($doc),+).trim_ascii(),)+]
            }
        }
    };
}

limits! {
    /// Pending messages in one inbox.
    inbox_max: u32 = 1_000, 1, 1_000_000;
    /// Hops: turns between a root and a message that follows from it.
    hops_max: u32 = 32, 1, 10_000;
    /// Messages that one turn takes from the inbox.
    turn_mail_max: u32 = 32, 1, 1_000;
    /// Model calls in one turn.
    turn_rounds_max: u32 = 15, 1, 1_000;
    /// Seconds of work in one turn. Time spent waiting for a model slot, for a budget or for a reply does not count.
    turn_seconds: u32 = 300, 1, 86_400;
    /// Seconds of one tool call.
    call_seconds: u32 = 30, 1, 3_600;
    /// Seconds of one model call, from the moment it gets its slot to its last byte.
    model_seconds: u32 = 300, 1, 3_600;
    /// Tool calls of one turn that run at the same time. Calls that change the world or a file always run one by one.
    calls_parallel: u32 = 4, 1, 64;
    /// Tool calls in one model answer.
    calls_per_answer: u32 = 32, 1, 256;
    /// Tokens of one model answer, unless the archetype sets `max_tokens`.
    answer_tokens: u32 = 4_096, 16, 1_000_000;
    /// Droids at work in the world.
    droids_max: u32 = 8, 1, 1_000;
    /// Droids of one agent at work.
    droids_per_agent: u32 = 5, 1, 1_000;
    /// Droids above one another: at 1, droids start no droids. Above 1, `droids.tools` must list
    /// `syscall.droid.spawn`.
    droid_depth_max: u32 = 1, 1, 5;
    /// Seconds after which an idle droid of mode `session` ends.
    droid_idle_seconds: u32 = 900, 10, 86_400;
    /// Seconds after its end for which a droid's agent is kept. Its record and files stay longer.
    droid_archive_seconds: u32 = 3_600, 0, 2_592_000;
    /// Bytes of one message body.
    message_bytes: u32 = 65_536, 1, 1_048_576;
    /// Bytes of the arguments of one tool call. All calls of one answer together may have `calls_per_answer` times as
    /// many, but at least 1 MiB and at most 32 MiB. A longer answer is rejected.
    arguments_bytes: u32 = 262_144, 1_024, 4_194_304;
    /// Bytes of a file that a tool writes or one `workspace.read` returns.
    file_bytes: u32 = 65_536, 1, 16_777_216;
    /// Bytes of a tool result that the model sees. Some tools have a larger bound of their own.
    result_view_bytes: u32 = 8_192, 256, 1_048_576;
    /// Characters of a refusal that the model sees.
    error_view_chars: u32 = 400, 40, 10_000;
    /// Bytes of each result kept in the ledger.
    ledger_result_bytes: u32 = 2_000, 0, 1_048_576;
    /// Bytes of conversation sent to the model. If it is longer, old tool results are shortened first, then those of
    /// the last round. One turn takes at most half of it as mail.
    context_bytes: u32 = 600_000, 4_096, 16_777_216;
    /// Bytes of a tool result above which the model sees it once: after its next calls a note takes the result's
    /// place. The model must write down what it needs in the answer after the read.
    result_once_bytes: u32 = 16_777_216, 256, 16_777_216;
    /// Bytes of tools in a request: schemas, and lines of deferred tools. Budgets count three bytes as a token.
    tools_bytes: u32 = 9_000, 4_096, 16_777_216;
    /// Tokens of the session's log in a prompt, at four bytes each; never more than a quarter of `context_bytes`. A
    /// full log is cut to half. With 0, an agent remembers nothing of earlier turns.
    session_tokens: u32 = 16_000, 0, 1_000_000;
    /// Seconds that a question waits for its answer by default.
    ask_seconds: u32 = 120, 1, 86_400;
    /// Open questions in the world.
    asks_open_max: u32 = 10_000, 1, 1_000_000;
    /// Calls in the world that wait for an operator.
    approvals_pending_max: u32 = 1_000, 1, 1_000_000;
    /// Calls of one agent that wait for an operator.
    approvals_per_agent: u32 = 20, 1, 1_000;
    /// Background commands of one agent that run at once.
    processes_per_agent: u32 = 8, 0, 1_000;
    /// Crashes on one message before it becomes a dead letter.
    crashes_max: u32 = 3, 1, 100;
    /// Daemon starts in a row that find a turn without progress before its mail becomes a dead letter.
    stalled_boots_max: u32 = 50, 2, 1_000;
    /// Agents in the world that agents or operators created.
    dynamic_agents_max: u32 = 100, 0, 1_000_000;
    /// Tasks in the world that have not ended.
    tasks_open_max: u32 = 10_000, 1, 1_000_000;
    /// Idle seconds before an agent is unloaded from memory. Mail loads it again.
    sleep_after_seconds: u32 = 30, 1, 86_400;
    /// Agents that are awake at once. Others wait, with their mail in the store; those with mail of people go first.
    /// Agents that wait for an answer, a model that is down or a budget do not count.
    awake_max: u32 = 2_000, 1, 1_000_000;
    /// Seconds between two sweeps for mail whose wake-up was lost.
    sweep_seconds: u32 = 60, 1, 86_400;
    /// Seconds that open turns may take when an agent or the daemon stops. A turn that waits for a model or a budget
    /// takes none.
    stop_grace_seconds: u32 = 30, 0, 3_600;
    /// Events that a subscriber may fall behind before it is disconnected.
    subscriber_buffer: u32 = 1_024, 16, 1_048_576;
    /// Event streams open at the same time.
    subscribers_max: u32 = 256, 1, 100_000;
    /// Connections over TCP and HTTP together, and as many again over Unix sockets; fewer if `ghostd` may have only
    /// few files open. Further ones wait.
    connections_max: u32 = 1_024, 1, 100_000;
    /// Seconds without reading after which a stream or connection is closed.
    reader_stall_seconds: u32 = 30, 1, 3_600;
    /// Days of the event feed.
    events_days: u32 = 7, 1, 3_650;
    /// Days of ended turns with their journals and mail, closed questions, settled dead letters, ended tasks, and
    /// accounts of ended roots.
    journal_days: u32 = 30, 1, 3_650;
    /// Hours of the ended turns of isolated cron jobs, with journals and mail; never longer than `journal_days`. The
    /// record of runs stays for `schedule_run_days`.
    cron_turn_hours: u32 = 24, 1, 87_600;
    /// Days of the ledger of tool calls.
    ledger_days: u32 = 90, 1, 3_650;
    /// Days of usage rows. A deleted agent is remembered for the longest of `events_days`, `journal_days`,
    /// `ledger_days` and `usage_days`.
    usage_days: u32 = 400, 1, 3_650;
    /// Days of stored answers to repeated requests (`Idempotency-Key`, `request_id`).
    requests_days: u32 = 7, 1, 3_650;
    /// Days of chat posts.
    chat_days: u32 = 90, 1, 3_650;
    /// Days of conversation entries, and of conversations without new entries.
    conversation_days: u32 = 90, 1, 3_650;
    /// Days of schedule runs.
    schedule_run_days: u32 = 30, 1, 3_650;
    /// Bytes used in the database above which old records are deleted before their days are over; 0 is no limit.
    store_bytes_max: u64 = 0, 0, 1_125_899_906_842_624;
    /// Bytes used in the database from which `ghostctl status` and the event `world.warning` warn; 0 is never.
    store_bytes_warn: u64 = 4_294_967_296, 0, 1_125_899_906_842_624;
    /// Free bytes of the file systems of the data and of the workspace below which no turn goes on; 0 is never.
    free_bytes_min: u64 = 67_108_864, 0, 1_125_899_906_842_624;
    /// Free bytes of these file systems below which `ghostctl status` and the event `world.warning` warn; 0 is never.
    free_bytes_warn: u64 = 1_073_741_824, 0, 1_125_899_906_842_624;
    /// Free inodes of these file systems below which no turn goes on; `status` warns below ten times as many; 0 is
    /// never.
    free_inodes_min: u32 = 1_000, 0, 1_000_000_000;
    /// Free file descriptors of `ghostd` below which no turn goes on; `status` warns below three times as many; 0 is
    /// never.
    free_descriptors_min: u32 = 16, 0, 100_000;
    /// Repetitions before the loop guard warns.
    loop_warn: u32 = 10, 2, 1_000;
    /// Repetitions before it blocks the call.
    loop_block: u32 = 20, 2, 1_000;
    /// Repetitions before it ends the turn.
    loop_stop: u32 = 30, 2, 1_000;
    /// Chat channels in the world.
    chat_channels_max: u32 = 1_000, 1, 1_000;
    /// Members of one channel.
    chat_members_max: u32 = 10_000, 2, 100_000;
    /// Bytes of one post.
    chat_post_bytes: u32 = 16_384, 1, 1_048_576;
    /// Posts of one channel that a turn is shown. Of older unread posts it gets the number.
    chat_digest_posts: u32 = 50, 1, 1_000;
    /// Bytes of one channel's posts that a turn is shown.
    chat_digest_bytes: u32 = 32_768, 1_024, 1_048_576;
    /// Knowledge entries in the world.
    knowledge_entries_max: u32 = 10_000, 1, 1_000_000;
    /// Bytes of one entry's text.
    knowledge_bytes: u32 = 65_536, 1, 1_048_576;
    /// Earlier versions kept for one entry.
    knowledge_versions: u32 = 10, 0, 1_000;
    /// Keys of the shared state.
    state_keys_max: u32 = 10_000, 1, 1_000_000;
    /// Bytes of one value as JSON.
    state_bytes: u32 = 65_536, 1, 1_048_576;
    /// Timers of one agent.
    timers_max: u32 = 64, 1, 10_000;
    /// Cron jobs of one agent.
    crons_max: u32 = 64, 1, 10_000;
    /// Watches of one agent.
    watches_max: u32 = 32, 1, 10_000;
    /// Watches in the world. Each one uses file notifications of the operating system.
    world_watches_max: u32 = 1_000, 1, 1_000;
    /// Files below one watch, and as many directories and links.
    watch_files_max: u32 = 10_000, 1, 1_000_000;
    /// Runs kept for one schedule.
    schedule_run_lines: u32 = 2_000, 64, 1_000_000;
    /// Bytes of runs kept for one schedule.
    schedule_run_bytes: u32 = 2_000_000, 65_536, 1_073_741_824;
    /// Recent messages that a reminder quotes.
    reminder_messages: u32 = 10, 0, 100;
    /// Characters of each quoted message.
    reminder_message_chars: u32 = 220, 20, 10_000;
    /// Characters of all quoted messages.
    reminder_chars: u32 = 700, 20, 100_000;
    /// Age in seconds from which a reminder says that it was set long ago.
    reminder_old_seconds: u32 = 86_400, 60, 315_360_000;
    /// Times in a row that one agent may ask the same other agent within one root.
    reply_rounds_max: u32 = 5, 1, 1_000;
    /// Least seconds between two runs of a cron job.
    cron_gap_seconds: u32 = 10, 1, 86_400;
    /// Characters that an answer may have beside `HEARTBEAT_OK` and still count as quiet.
    heartbeat_ack_chars: u32 = 300, 0, 100_000;
    /// Conversations that are kept.
    conversations_max: u32 = 10_000, 1, 1_000_000;
    /// Entries of one conversation; the oldest go first. At twice this number it takes no more.
    conversation_entries_max: u32 = 10_000, 1_000, 1_000_000;
    /// Held dead letters of one agent. An agent that reaches it is stopped.
    dead_letters_max: u32 = 100, 1, 1_000_000;
    /// Changes kept for one task; the oldest go first.
    task_history_max: u32 = 1_000, 10, 1_000_000;
    /// Messages from outside between two reactions where `reactions` is `minimal`.
    reaction_gap: u32 = 5, 1, 1_000;
    /// Attempts to deliver one message.
    delivery_attempts_max: u32 = 8, 1, 100;
    /// Files attached to one message to the outside.
    attachments_max: u32 = 16, 1, 1_000;
    /// Bytes of one attached file.
    attachment_bytes: u32 = 10_485_760, 1, 1_073_741_824;
    /// Messages that follow from one root, over all its turns.
    root_messages_max: u32 = 10_000, 1, 100_000_000;
    /// Agents created within one root.
    root_spawns_max: u32 = 32, 0, 1_000_000;
    /// Turns that follow from one root.
    root_turns_max: u32 = 5_000, 1, 100_000_000;
    /// Tokens spent within one root; 0 is no limit.
    root_tokens_max: u64 = 2_000_000, 0, 1_000_000_000_000_000;
    /// Turns that one agent may begin in a minute. Later mail waits and is taken together.
    agent_turns_per_minute: u32 = 600, 1, 1_000_000;
    /// Pending messages in the whole world.
    world_mail_max: u32 = 100_000, 1, 100_000_000;
    /// Times that two agents may send each other the same short text within one root.
    echoes_max: u32 = 3, 1, 1_000;
    /// Write grants of one agent that hold at the same time.
    grants_max: u32 = 64, 1, 1_000;
    /// Files that one `workspace.patch` changes.
    patch_files_max: u32 = 64, 1, 1_000;
    /// Files under `output/` that are looked at before and after a command, to index what it changed; 0 looks at
    /// none.
    output_files_max: u32 = 10_000, 0, 1_000_000;
    /// Files of one job's input.
    job_files_max: u32 = 200, 1, 10_000;
    /// Bytes of one job's input.
    job_bytes: u32 = 8_388_608, 1, 1_073_741_824;
}

impl Limits {
    /// Maximum bytes of the arguments of all tool calls in one answer.
    pub fn calls_bytes(&self) -> usize {
        let bytes = u64::from(self.arguments_bytes) * u64::from(self.calls_per_answer);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// `seconds` as a duration.
    pub fn seconds(seconds: u32) -> Duration {
        Duration::from_secs(u64::from(seconds))
    }

    /// `days` as a duration.
    pub fn days(days: u32) -> Duration {
        Duration::from_secs(u64::from(days) * 86_400)
    }

    /// An error message for the first limit that is out of its range.
    pub fn problem(&self) -> Option<String> {
        self.table()
            .into_iter()
            .find(|(_, value, min, max)| value < min || value > max)
            .map(|(name, value, min, max)| format!("limits.{name} is {value}; it must be between {min} and {max}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: LIM-50
    #[test]
    fn defaults_are_within_their_ranges() {
        assert_eq!(Limits::default().problem(), None);
        let wrong = Limits { hops_max: 0, ..Limits::default() };
        assert!(wrong.problem().unwrap().contains("hops_max"));
    }
}
