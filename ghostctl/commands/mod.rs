//! The commands, one file for a noun or for a few that belong together. A file has the options, the columns of the lists,
//! the requests and the words of the answers. Decisions are the daemon's.

pub mod agent; // agent, droid
pub mod approval;
pub mod chat;
pub mod conversation; // conversation, session
pub mod cost; // budget, usage, ledger
pub mod events;
pub mod knowledge; // knowledge, state
pub mod message; // send, ask, dead
pub mod schedule; // timer, cron, watch
pub mod talk;
pub mod task;
pub mod tool; // tool, toolbox, skill
pub mod turn;
pub mod workspace; // artifact, grant
pub mod world; // status, pause, resume, reload, confirm-clock, shutdown, config

/// What most commands need.
mod prelude {
    pub(crate) use ghost_proto::v1;

    pub(crate) use crate::connection::{
        Client, IdKind, full_id, full_id_if_given, full_ids, full_session, new_request_id, required,
    };
    pub(crate) use crate::failure::Failure;
    pub(crate) use crate::lists::{Bound, Column, Rows, columns, fields, list, pages, table};
    pub(crate) use crate::output::{Answer, Note, Output, View};
}
