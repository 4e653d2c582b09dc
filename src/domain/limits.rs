//! Every bound of a world, by name, with its default (promise 7, LIM-50). `limits:` in `world-config.yaml` sets them.
//! Sizes are bytes, one KB being 1,024; durations are seconds unless the name says otherwise.

use std::time::Duration;

use serde::{Deserialize, Serialize};

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $default:expr, $min:expr, $max:expr;)+) => {
        /// The bounds of a world.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits { $($(#[$doc])* pub $name: $ty,)+ }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Limits {
            /// Every name, with its value, its least and its greatest.
            #[must_use]
            pub fn table(&self) -> Vec<(&'static str, u64, u64, u64)> {
                vec![$((stringify!($name), u64::from(self.$name), $min, $max),)+]
            }
        }
    };
}

limits! {
    /// Mail pending in one inbox.
    inbox_max: u32 = 1_000, 1, 1_000_000;
    /// Turns between a root and a message.
    hops_max: u32 = 32, 1, 10_000;
    /// Envelopes in one turn.
    turn_mail_max: u32 = 32, 1, 1_000;
    /// Model calls in one turn (LOOP-03).
    turn_rounds_max: u32 = 15, 1, 1_000;
    /// Seconds of a turn's own work; waiting in a pool or for a reply does not count (LOOP-03).
    turn_seconds: u32 = 300, 1, 86_400;
    /// Seconds of one tool call.
    call_seconds: u32 = 30, 1, 3_600;
    /// Seconds of one model call, from its slot to its last byte.
    model_seconds: u32 = 300, 1, 3_600;
    /// Outside calls of one turn that run at once (TOOL-20).
    calls_parallel: u32 = 4, 1, 64;
    /// Tool calls in one answer of a model.
    calls_per_answer: u32 = 32, 1, 256;
    /// Tokens that a model may write in one answer, unless the archetype says otherwise.
    answer_tokens: u32 = 4_096, 16, 1_000_000;
    /// Bytes of one message body.
    message_bytes: u32 = 65_536, 1, 1_048_576;
    /// Bytes of one tool call's arguments.
    arguments_bytes: u32 = 262_144, 1_024, 4_194_304;
    /// Bytes of a file that `workspace.read` returns or `workspace.write` takes (LIM-01).
    file_bytes: u32 = 65_536, 1, 16_777_216;
    /// Bytes of a tool result as a model sees it (LIM-03).
    result_view_bytes: u32 = 8_192, 256, 1_048_576;
    /// Characters of a refusal as a model sees it (LIM-04).
    error_view_chars: u32 = 400, 40, 10_000;
    /// Bytes of a result kept in the ledger.
    ledger_result_bytes: u32 = 2_000, 0, 1_048_576;
    /// Bytes of the transcript that goes to the model before old results are cut, then those of the last round; half of them is
    /// what one turn takes of mail.
    context_bytes: u32 = 600_000, 4_096, 16_777_216;
    /// Finished turns of an agent that its next prompt recalls.
    history_turns: u32 = 6, 0, 100;
    /// Bytes of that recollection.
    history_bytes: u32 = 12_000, 0, 1_048_576;
    /// Seconds that an ask waits unless it says otherwise.
    ask_seconds: u32 = 120, 1, 86_400;
    /// Asks open in the world.
    asks_open_max: u32 = 10_000, 1, 1_000_000;
    /// Crashes on one message before it is a dead letter.
    crashes_max: u32 = 3, 1, 100;
    /// Boots in a row that find a turn without progress before it is a dead letter.
    stalled_boots_max: u32 = 50, 2, 1_000;
    /// Dynamic agents in the world.
    dynamic_agents_max: u32 = 100, 0, 1_000_000;
    /// Tasks in the world that have not ended.
    tasks_open_max: u32 = 10_000, 1, 1_000_000;
    /// Seconds of idleness before an agent is put to sleep.
    sleep_after_seconds: u32 = 30, 1, 86_400;
    /// Seconds between the sweeps that look for mail without a wake-up.
    sweep_seconds: u32 = 60, 1, 86_400;
    /// Seconds that a stopping agent's turn may still take (WORLD-15).
    stop_grace_seconds: u32 = 30, 0, 3_600;
    /// Events that a subscriber may be behind (CP-08).
    subscriber_buffer: u32 = 1_024, 16, 1_048_576;
    /// Subscribers at once.
    subscribers_max: u32 = 256, 1, 100_000;
    /// Connections at once from the network, over gRPC and HTTP together, and as many again over Unix sockets; the next waits
    /// for a place.
    connections_max: u32 = 1_024, 1, 100_000;
    /// Seconds that a reader may take nothing of what it is sent before its connection or stream is closed.
    reader_stall_seconds: u32 = 30, 1, 3_600;
    /// Days of the event feed (LIM-40).
    events_days: u32 = 7, 1, 3_650;
    /// Days of ended turns' journals and their consumed mail.
    journal_days: u32 = 30, 1, 3_650;
    /// Hours of the ended turns that cron jobs had to themselves (SCHED-06), with their journals and their mail; never longer
    /// than `journal_days`.
    cron_turn_hours: u32 = 24, 1, 87_600;
    /// Days of ledger rows.
    ledger_days: u32 = 90, 1, 3_650;
    /// Days of usage rows.
    usage_days: u32 = 400, 1, 3_650;
    /// Days of stored answers to repeated requests.
    requests_days: u32 = 7, 1, 3_650;
    /// Days of chat posts.
    chat_days: u32 = 90, 1, 3_650;
    /// Days of conversations in which nothing more was said, and of the entries of those that go on.
    conversation_days: u32 = 90, 1, 3_650;
    /// Days of the record of schedules' runs.
    schedule_run_days: u32 = 30, 1, 3_650;
    /// Bytes that the database may use before what is past is pruned sooner than its days say, the oldest first; 0 is no bound.
    store_bytes_max: u64 = 0, 0, 1_125_899_906_842_624;
    /// Bytes that the database uses when `status` and an event warn of it; 0 is never.
    store_bytes_warn: u64 = 4_294_967_296, 0, 1_125_899_906_842_624;
    /// Times that the same call may give the same outcome before a warning, a block and the end (TOOL-21).
    loop_warn: u32 = 10, 2, 1_000;
    /// See `loop_warn`.
    loop_block: u32 = 20, 2, 1_000;
    /// See `loop_warn`.
    loop_stop: u32 = 30, 2, 1_000;
    /// Chat channels in the world.
    chat_channels_max: u32 = 1_000, 1, 1_000;
    /// Members of one channel.
    chat_members_max: u32 = 10_000, 2, 100_000;
    /// Bytes of one post (CHAT-12).
    chat_post_bytes: u32 = 16_384, 1, 1_048_576;
    /// Posts of one channel that a turn is shown; of older unread ones it is told how many there are.
    chat_digest_posts: u32 = 50, 1, 1_000;
    /// Bytes of one channel's posts that a turn is shown.
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
    /// Watches in the world: each costs the system that is asked to notify of changes.
    world_watches_max: u32 = 1_000, 1, 1_000;
    /// Files below one watch; as many directories and links.
    watch_files_max: u32 = 10_000, 1, 1_000_000;
    /// Runs of one schedule that are kept (SCHED-06).
    schedule_run_lines: u32 = 2_000, 64, 1_000_000;
    /// Bytes of one schedule's runs that are kept.
    schedule_run_bytes: u32 = 2_000_000, 65_536, 1_073_741_824;
    /// Things last heard and said that a reminder recalls (SCHED-07).
    reminder_messages: u32 = 10, 0, 100;
    /// Characters of one of them.
    reminder_message_chars: u32 = 220, 20, 10_000;
    /// Characters of all of them.
    reminder_chars: u32 = 700, 20, 100_000;
    /// Seconds after which a reminder says that it was set long ago.
    reminder_old_seconds: u32 = 86_400, 60, 315_360_000;
    /// Times in a row that one agent may ask the same other within one root (HB-07).
    reply_rounds_max: u32 = 5, 1, 1_000;
    /// The least seconds between two slots of a cron job.
    cron_gap_seconds: u32 = 10, 1, 86_400;
    /// Characters beside `HEARTBEAT_OK` that are dropped with it (HB-03).
    heartbeat_ack_chars: u32 = 300, 0, 100_000;
    /// Conversations that are kept with someone outside.
    conversations_max: u32 = 10_000, 1, 1_000_000;
    /// Entries of one conversation; of more the oldest go.
    conversation_entries_max: u32 = 10_000, 1_000, 1_000_000;
    /// Held dead letters of one agent; with as many it is stopped.
    dead_letters_max: u32 = 100, 1, 1_000_000;
    /// Changes of one task that are kept; of more the oldest go.
    task_history_max: u32 = 1_000, 10, 1_000_000;
    /// Messages from outside between two reactions in a conversation, where reactions are minimal (MSG-14).
    reaction_gap: u32 = 5, 1, 1_000;
    /// Attempts to hand one message to the outside.
    delivery_attempts_max: u32 = 8, 1, 100;
    /// Files attached to one message.
    attachments_max: u32 = 16, 1, 1_000;
    /// Bytes of one attached file.
    attachment_bytes: u32 = 10_485_760, 1, 1_073_741_824;
    /// Pieces of mail that one root may cause, all turns that follow from it together.
    root_messages_max: u32 = 10_000, 1, 100_000_000;
    /// Agents that one root may create.
    root_spawns_max: u32 = 32, 0, 1_000_000;
    /// Turns that one root may open.
    root_turns_max: u32 = 5_000, 1, 100_000_000;
    /// Tokens that one root may take, all turns that follow from it together, unless `ghostctl budget set root:ID` says
    /// otherwise; 0 is no bound.
    root_tokens_max: u64 = 2_000_000, 0, 1_000_000_000_000_000;
    /// Turns that one agent may open within a minute; what wakes it beyond that waits and is taken together.
    agent_turns_per_minute: u32 = 600, 1, 1_000_000;
    /// Mail in the whole world that no turn has taken.
    world_mail_max: u32 = 100_000, 1, 100_000_000;
    /// Times that two agents may send each other the same short words within one root; beyond that it is a politeness loop.
    echoes_max: u32 = 3, 1, 1_000;
    /// Files that a job takes in.
    job_files_max: u32 = 200, 1, 10_000;
    /// Bytes of one job's input.
    job_bytes: u32 = 8_388_608, 1, 1_073_741_824;
}

impl Limits {
    /// Bytes that the arguments of all tool calls in one answer may have together.
    #[must_use]
    pub fn calls_bytes(&self) -> usize {
        let bytes = u64::from(self.arguments_bytes) * u64::from(self.calls_per_answer);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// `seconds` as a duration.
    #[must_use]
    pub fn seconds(seconds: u32) -> Duration {
        Duration::from_secs(u64::from(seconds))
    }

    /// `days` as a duration.
    #[must_use]
    pub fn days(days: u32) -> Duration {
        Duration::from_secs(u64::from(days) * 86_400)
    }

    /// The first bound whose value is out of its range, in words.
    #[must_use]
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
    fn defaults_are_within_their_own_ranges() {
        assert_eq!(Limits::default().problem(), None);
        let wrong = Limits { hops_max: 0, ..Limits::default() };
        assert!(wrong.problem().unwrap().contains("hops_max"));
    }
}
