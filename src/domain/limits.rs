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
    /// Pending mail in one inbox.
    inbox_max: u32 = 1_000, 1, 1_000_000;
    /// Hops: turns between a root and a message.
    hops_max: u32 = 32, 1, 10_000;
    /// Envelopes in one turn.
    turn_mail_max: u32 = 32, 1, 1_000;
    /// Model calls in one turn (LOOP-03).
    turn_rounds_max: u32 = 15, 1, 1_000;
    /// Seconds of a turn's own work. The time during which it waits for a slot or for a reply is
    /// excluded (LOOP-03).
    turn_seconds: u32 = 300, 1, 86_400;
    /// Seconds of one tool call.
    call_seconds: u32 = 30, 1, 3_600;
    /// Seconds of one model call, from its slot to its last byte.
    model_seconds: u32 = 300, 1, 3_600;
    /// Parallel calls in one turn (TOOL-20).
    calls_parallel: u32 = 4, 1, 64;
    /// Tool calls in one answer of a model.
    calls_per_answer: u32 = 32, 1, 256;
    /// Output tokens of one model answer, unless the archetype sets another number.
    answer_tokens: u32 = 4_096, 16, 1_000_000;
    /// Droids at work in the world (DROID-16).
    droids_max: u32 = 8, 1, 1_000;
    /// Droids of one agent at work (DROID-16).
    droids_per_agent: u32 = 5, 1, 1_000;
    /// Droids above one another: at 1, droids start no droids (DROID-16).
    droid_depth_max: u32 = 1, 1, 5;
    /// Seconds after which an idle droid of mode `session` ends (DROID-13).
    droid_idle_seconds: u32 = 900, 10, 86_400;
    /// Seconds after its end for which a droid's agent is kept (DROID-16). Its record and its files stay longer.
    droid_archive_seconds: u32 = 3_600, 0, 2_592_000;
    /// Bytes of one message body.
    message_bytes: u32 = 65_536, 1, 1_048_576;
    /// Bytes of one tool call's arguments.
    arguments_bytes: u32 = 262_144, 1_024, 4_194_304;
    /// Bytes of a page that `workspace.read` returns, and of a file that a tool writes (LIM-01).
    file_bytes: u32 = 65_536, 1, 16_777_216;
    /// Bytes of a tool result as a model sees it (LIM-03).
    result_view_bytes: u32 = 8_192, 256, 1_048_576;
    /// Characters of a refusal as a model sees it (LIM-04).
    error_view_chars: u32 = 400, 40, 10_000;
    /// Bytes of a result kept in the ledger.
    ledger_result_bytes: u32 = 2_000, 0, 1_048_576;
    /// Bytes of the transcript that is sent to the model. Above it, older tool results are
    /// truncated first, then the results of the last round. A turn takes mail up to half of it.
    context_bytes: u32 = 600_000, 4_096, 16_777_216;
    /// Bytes of a tool's result above which a model sees it once: when it has made its next calls, a note takes the
    /// result's place. So the input of a turn that reads much grows with what it reads, not with that times its model
    /// calls.
    result_once_bytes: u32 = 16_777_216, 256, 16_777_216;
    /// Bytes of tools in a request: schemas, and lines of tools whose schemas are left out. A budget counts three
    /// bytes as a token. If an agent's tools need more, those that are seldom used are deferred.
    tools_bytes: u32 = 9_000, 4_096, 16_777_216;
    /// Tokens of its session's log in a prompt, estimated at four bytes each; never more than a quarter of
    /// `context_bytes`. A full log is cut to half, so that the next prompts have the same beginning (LOOP-01).
    session_tokens: u32 = 16_000, 0, 1_000_000;
    /// Seconds that an ask waits, unless the caller sets another time.
    ask_seconds: u32 = 120, 1, 86_400;
    /// Open asks in the world.
    asks_open_max: u32 = 10_000, 1, 1_000_000;
    /// Calls in the world that wait for an operator.
    approvals_pending_max: u32 = 1_000, 1, 1_000_000;
    /// Calls of one agent that wait for an operator.
    approvals_per_agent: u32 = 20, 1, 1_000;
    /// Background commands of one agent that run at once.
    processes_per_agent: u32 = 8, 0, 1_000;
    /// Crashes on one message before it is a dead letter.
    crashes_max: u32 = 3, 1, 100;
    /// Starts of the daemon in a row that find a turn without progress before it is a dead letter
    /// or split.
    stalled_boots_max: u32 = 50, 2, 1_000;
    /// Dynamic agents in the world.
    dynamic_agents_max: u32 = 100, 0, 1_000_000;
    /// Open tasks in the world.
    tasks_open_max: u32 = 10_000, 1, 1_000_000;
    /// Seconds without work before an agent is put to sleep.
    sleep_after_seconds: u32 = 30, 1, 86_400;
    /// Agents that are awake at once. Other agents that were woken wait for a place; their mail is in the store. An
    /// agent that waits for another's answer holds no place.
    awake_max: u32 = 2_000, 1, 1_000_000;
    /// Seconds between sweeps, which search for mail without a wake-up.
    sweep_seconds: u32 = 60, 1, 86_400;
    /// Seconds that the turn of a stopping agent may still run (WORLD-15).
    stop_grace_seconds: u32 = 30, 0, 3_600;
    /// Events that a subscriber may be behind (CP-08).
    subscriber_buffer: u32 = 1_024, 16, 1_048_576;
    /// Subscribers at the same time.
    subscribers_max: u32 = 256, 1, 100_000;
    /// Open connections over the network, gRPC and HTTP together; the same number again over Unix
    /// sockets. Further connections wait.
    connections_max: u32 = 1_024, 1, 100_000;
    /// Seconds without progress of a reader before its connection or stream is closed.
    reader_stall_seconds: u32 = 30, 1, 3_600;
    /// Days that events are kept (LIM-40).
    events_days: u32 = 7, 1, 3_650;
    /// Days that the journals and consumed mail of ended turns are kept.
    journal_days: u32 = 30, 1, 3_650;
    /// Hours that ended turns of cron jobs with a turn of their own are kept (SCHED-06), with their
    /// journals and mail. Never longer than `journal_days`.
    cron_turn_hours: u32 = 24, 1, 87_600;
    /// Days that ledger rows are kept.
    ledger_days: u32 = 90, 1, 3_650;
    /// Days that usage rows are kept.
    usage_days: u32 = 400, 1, 3_650;
    /// Days that stored answers to requests are kept.
    requests_days: u32 = 7, 1, 3_650;
    /// Days that chat messages are kept.
    chat_days: u32 = 90, 1, 3_650;
    /// Days that conversations without new messages are kept, and entries of the others.
    conversation_days: u32 = 90, 1, 3_650;
    /// Days that the runs of schedules are kept.
    schedule_run_days: u32 = 30, 1, 3_650;
    /// Bytes of the database above which old rows are pruned early, oldest first; 0 is no limit.
    store_bytes_max: u64 = 0, 0, 1_125_899_906_842_624;
    /// Bytes of the database above which `status` and an event warn; 0 is never.
    store_bytes_warn: u64 = 4_294_967_296, 0, 1_125_899_906_842_624;
    /// Free bytes of the file systems of the data and the workspace below which no turn goes on; 0 is never.
    free_bytes_min: u64 = 67_108_864, 0, 1_125_899_906_842_624;
    /// Free bytes of these file systems below which `status` and an event warn; 0 is never.
    free_bytes_warn: u64 = 1_073_741_824, 0, 1_125_899_906_842_624;
    /// Free inodes of these file systems below which no turn goes on; below ten times as many, `status` warns; 0 is
    /// never.
    free_inodes_min: u32 = 1_000, 0, 1_000_000_000;
    /// Free file descriptors of the daemon below which no turn goes on; below three times as many, `status` warns; 0
    /// is never.
    free_descriptors_min: u32 = 16, 0, 100_000;
    /// Repetitions of a call with the same result before the loop guard warns (TOOL-21).
    loop_warn: u32 = 10, 2, 1_000;
    /// Repetitions before the loop guard refuses the call.
    loop_block: u32 = 20, 2, 1_000;
    /// Repetitions before the loop guard ends the turn.
    loop_stop: u32 = 30, 2, 1_000;
    /// Chat channels in the world.
    chat_channels_max: u32 = 1_000, 1, 1_000;
    /// Members of one channel.
    chat_members_max: u32 = 10_000, 2, 100_000;
    /// Bytes of one chat message (CHAT-12).
    chat_post_bytes: u32 = 16_384, 1, 1_048_576;
    /// Chat messages of one channel in a turn's digest. The digest gives the number of older unread
    /// messages.
    chat_digest_posts: u32 = 50, 1, 1_000;
    /// Bytes of one channel's chat messages in a turn's digest.
    chat_digest_bytes: u32 = 32_768, 1_024, 1_048_576;
    /// Entries of knowledge in the world.
    knowledge_entries_max: u32 = 10_000, 1, 1_000_000;
    /// Bytes of one entry's text.
    knowledge_bytes: u32 = 65_536, 1, 1_048_576;
    /// Earlier versions of an entry that are kept (KNOW-04).
    knowledge_versions: u32 = 10, 0, 1_000;
    /// Keys of the shared state.
    state_keys_max: u32 = 10_000, 1, 1_000_000;
    /// Bytes of one value as JSON (STATE-02).
    state_bytes: u32 = 65_536, 1, 1_048_576;
    /// Timers of one agent.
    timers_max: u32 = 64, 1, 10_000;
    /// Cron jobs of one agent.
    crons_max: u32 = 64, 1, 10_000;
    /// Watches of one agent (SCHED-03).
    watches_max: u32 = 32, 1, 10_000;
    /// Watches in the world. Each uses resources of the operating system.
    world_watches_max: u32 = 1_000, 1, 1_000;
    /// Files below one watch; the same number of directories and links.
    watch_files_max: u32 = 10_000, 1, 1_000_000;
    /// Runs of one schedule that are kept (SCHED-06).
    schedule_run_lines: u32 = 2_000, 64, 1_000_000;
    /// Bytes of one schedule's runs that are kept.
    schedule_run_bytes: u32 = 2_000_000, 65_536, 1_073_741_824;
    /// Recent messages that a reminder recalls (SCHED-07).
    reminder_messages: u32 = 10, 0, 100;
    /// Characters of one such message.
    reminder_message_chars: u32 = 220, 20, 10_000;
    /// Characters of all such messages.
    reminder_chars: u32 = 700, 20, 100_000;
    /// Age in seconds at which a reminder mentions that it was set long ago.
    reminder_old_seconds: u32 = 86_400, 60, 315_360_000;
    /// Times in a row that one agent may ask the same agent within one root (HB-07).
    reply_rounds_max: u32 = 5, 1, 1_000;
    /// Minimum seconds between two slots of a cron job.
    cron_gap_seconds: u32 = 10, 1, 86_400;
    /// Characters next to `HEARTBEAT_OK` that are dropped together with it (HB-03).
    heartbeat_ack_chars: u32 = 300, 0, 100_000;
    /// Stored conversations with persons or programs outside.
    conversations_max: u32 = 10_000, 1, 1_000_000;
    /// Entries of one conversation. Above it, the oldest are deleted.
    conversation_entries_max: u32 = 10_000, 1_000, 1_000_000;
    /// Held dead letters of one agent. An agent that has this many is stopped.
    dead_letters_max: u32 = 100, 1, 1_000_000;
    /// Changes of one task that are kept. Above it, the oldest are deleted.
    task_history_max: u32 = 1_000, 10, 1_000_000;
    /// Messages from outside between two reactions in a conversation, if reactions are minimal
    /// (MSG-14).
    reaction_gap: u32 = 5, 1, 1_000;
    /// Attempts to deliver one message to the outside.
    delivery_attempts_max: u32 = 8, 1, 100;
    /// Files attached to one message.
    attachments_max: u32 = 16, 1, 1_000;
    /// Bytes of one attached file.
    attachment_bytes: u32 = 10_485_760, 1, 1_073_741_824;
    /// Messages of one root: all its turns together.
    root_messages_max: u32 = 10_000, 1, 100_000_000;
    /// Agents that one root may create.
    root_spawns_max: u32 = 32, 0, 1_000_000;
    /// Turns that one root may open.
    root_turns_max: u32 = 5_000, 1, 100_000_000;
    /// Tokens of one root: all its turns together. `ghostctl budget set root:ID` changes it for one
    /// root; 0 is no limit.
    root_tokens_max: u64 = 2_000_000, 0, 1_000_000_000_000_000;
    /// Turns that one agent may open within a minute. Further mail waits, and one later turn takes
    /// it together.
    agent_turns_per_minute: u32 = 600, 1, 1_000_000;
    /// Messages in the inboxes of the whole world that no turn has taken.
    world_mail_max: u32 = 100_000, 1, 100_000_000;
    /// Times that two agents may send each other the same short text within one root. A higher
    /// number is treated as a loop.
    echoes_max: u32 = 3, 1, 1_000;
    /// Write grants of one agent that hold at the same time.
    grants_max: u32 = 64, 1, 1_000;
    /// Files that one patch changes.
    patch_files_max: u32 = 64, 1, 1_000;
    /// Files under `output/` that are looked at before and after a command, to index what it changed.
    output_files_max: u32 = 10_000, 0, 1_000_000;
    /// Input files of one job.
    job_files_max: u32 = 200, 1, 10_000;
    /// Bytes of all input files of one job.
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
