//! Domain records as wire messages, and the checks of what requests contain.
//!
//! This module must never decide anything, read other data, or leave a field of the message unset that the record has.

pub(crate) mod input;
mod words;
mod work;

pub use words::event;
pub(crate) use words::{
    attachment, channel, chat_message, conversation, conversation_entry, created_channel, dead_letter, envelope,
    knowledge_entry, knowledge_version, posted, state_entry,
};
pub(crate) use work::{
    PARKED, agent, agent_card, approval, approval_row, artifact, budget, call_totals, droid, grant, journal_row,
    ledger_row, refusal_json, schedule, schedule_run, task, task_event, token_usage, turn, usage_sum,
};
