//! Completions from the running daemon: names and ids from its lists.
//!
//! A completion must never request more than one page of a list.

use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::approvals_client::ApprovalsClient;
use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::conversations_client::ConversationsClient;
use ghost_proto::v1::droids_client::DroidsClient;
use ghost_proto::v1::grants_client::GrantsClient;
use ghost_proto::v1::knowledge_client::KnowledgeClient;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::schedules_client::SchedulesClient;
use ghost_proto::v1::state_client::StateClient;
use ghost_proto::v1::tasks_client::TasksClient;
use ghost_proto::v1::tools_client::ToolsClient;
use ghost_proto::v1::turns_client::TurnsClient;
use ghost_proto::v1::{
    ListAgentsRequest, ListApprovalsRequest, ListChannelsRequest, ListConversationsRequest, ListDeadRequest,
    ListDroidsRequest, ListGrantsRequest, ListKnowledgeRequest, ListSchedulesRequest, ListStateRequest,
    ListTasksRequest, ListToolsRequest, ListTurnsRequest,
};

use super::candidate::Candidate;
use crate::connection::{Client, rpc};
use crate::failure::Failure;

/// Rows per list.
const PAGE: u32 = 200;

/// A kind of name that the daemon can list.
#[derive(Debug, PartialEq, Eq)]
pub enum Live {
    /// An agent id.
    Agent,
    /// A turn id, newest first.
    Turn,
    /// A task id.
    Task,
    /// The id of an approval: pending, or for `revoke` one that holds for later calls.
    Approval { always: bool },
    /// The id of a held dead letter.
    DeadLetter,
    /// The id of a droid that has not ended, or for `show` of any.
    Droid { live: bool },
    /// The id of a write grant.
    Grant,
    /// A conversation id.
    Conversation,
    /// A schedule as `AGENT/NAME`; the field is its kind: timer, cron or watch.
    Schedule(String),
    /// A channel name.
    Channel,
    /// The id of a knowledge entry.
    Entry,
    /// A key of the shared state.
    Key,
    /// A tool name of this agent.
    Tool(String),
}

impl Live {
    /// The kind of value of the option or argument with this id, in the command `path`, with `first` as the first
    /// argument.
    pub fn named(id: &str, path: &[&str], first: Option<&str>) -> Option<Self> {
        Some(match id {
            "entry_id" => Self::Entry,
            "agent_id" if path != ["agent", "create"] => Self::Agent,
            "parent_id" if path == ["droid", "list"] => Self::Agent,
            "owner" | "as_agent" | "members" => Self::Agent,
            "turn_id" => Self::Turn,
            "task_id" | "depends_on" | "parent_id" => Self::Task,
            "approval_id" => Self::Approval { always: path.last() == Some(&"revoke") },
            "dead_letter_id" => Self::DeadLetter,
            "grant_id" => Self::Grant,
            "droid_id" => Self::Droid { live: path.last() != Some(&"show") },
            "conversation_id" | "session" => Self::Conversation,
            "channel" if path != ["chat", "create"] => Self::Channel,
            "key" | "prefix" => Self::Key,
            "schedule_id" => Self::Schedule((*path.first()?).to_owned()),
            "tool" => Self::Tool(first?.to_owned()),
            _ => return None,
        })
    }
}

/// Lists the names of this kind.
pub async fn candidates(client: &Client, kind: &Live) -> Result<Vec<Candidate>, Failure> {
    let (limit, cursor) = (PAGE, String::new());
    Ok(match kind {
        Live::Agent => {
            let request = ListAgentsRequest { limit, ..ListAgentsRequest::default() };
            let agents = rpc!(client, AgentsClient::list, request).await?.agents;
            agents
                .iter()
                .map(|row| Candidate::new(&row.agent_id, &format!("{} {}", row.archetype, row.status)))
                .collect()
        }
        Live::Turn => {
            let request = ListTurnsRequest { limit, ..ListTurnsRequest::default() };
            let turns = rpc!(client, TurnsClient::list, request).await?.turns;
            let about = |row: &ghost_proto::v1::Turn| format!("{} {}: {}", row.agent_id, row.status, row.about);
            turns.iter().map(|row| Candidate::new(&row.turn_id, &about(row))).collect()
        }
        Live::Task => {
            let request = ListTasksRequest { limit, cursor, ..ListTasksRequest::default() };
            let tasks = rpc!(client, TasksClient::list, request).await?.tasks;
            let about = |row: &ghost_proto::v1::Task| format!("{} {}: {}", row.owner, row.status, row.title);
            tasks.iter().map(|row| Candidate::new(&row.task_id, &about(row))).collect()
        }
        Live::Approval { always } => {
            let request = ListApprovalsRequest { always: *always, limit, ..ListApprovalsRequest::default() };
            let approvals = rpc!(client, ApprovalsClient::list, request).await?.approvals;
            let about = |row: &ghost_proto::v1::Approval| format!("{}: {}", row.agent_id, row.summary);
            approvals.iter().map(|row| Candidate::new(&row.approval_id, &about(row))).collect()
        }
        Live::DeadLetter => {
            let request = ListDeadRequest { limit, ..ListDeadRequest::default() };
            let letters = rpc!(client, MessagesClient::list_dead, request).await?.dead_letters;
            let about = |row: &ghost_proto::v1::DeadLetter| format!("{}: {}", row.agent_id, row.reason);
            letters.iter().map(|row| Candidate::new(&row.dead_letter_id, &about(row))).collect()
        }
        Live::Droid { live } => {
            let request = ListDroidsRequest { live: *live, limit, ..ListDroidsRequest::default() };
            let droids = rpc!(client, DroidsClient::list, request).await?.droids;
            let about = |row: &ghost_proto::v1::Droid| format!("{} {}: {}", row.parent_id, row.state, row.task);
            droids.iter().map(|row| Candidate::new(&row.droid_id, &about(row))).collect()
        }
        Live::Grant => {
            let request = ListGrantsRequest { limit, ..ListGrantsRequest::default() };
            let grants = rpc!(client, GrantsClient::list, request).await?.grants;
            let about = |row: &ghost_proto::v1::Grant| format!("{}: {}", row.agent_id, row.prefix);
            grants.iter().map(|row| Candidate::new(&row.grant_id, &about(row))).collect()
        }
        Live::Conversation => {
            let request = ListConversationsRequest { limit, ..ListConversationsRequest::default() };
            let found = rpc!(client, ConversationsClient::list, request).await?.conversations;
            let about = |row: &ghost_proto::v1::Conversation| format!("{} with {}", row.owner, row.party);
            found.iter().take(PAGE as usize).map(|row| Candidate::new(&row.conversation_id, &about(row))).collect()
        }
        Live::Schedule(kind) => {
            let request = ListSchedulesRequest { kind: Some(kind.clone()), limit, ..ListSchedulesRequest::default() };
            let found = rpc!(client, SchedulesClient::list, request).await?.schedules;
            let shown = found.iter().take(PAGE as usize);
            shown.map(|row| Candidate::new(format!("{}/{}", row.agent_id, row.name), &row.message)).collect()
        }
        Live::Channel => {
            let request = ListChannelsRequest { limit, ..ListChannelsRequest::default() };
            let channels = rpc!(client, ChatClient::list, request).await?.channels;
            let shown = channels.iter().take(PAGE as usize);
            shown.map(|row| Candidate::new(&row.channel, row.topic.as_deref().unwrap_or_default())).collect()
        }
        Live::Entry => {
            let request = ListKnowledgeRequest { limit, ..ListKnowledgeRequest::default() };
            let entries = rpc!(client, KnowledgeClient::list, request).await?.entries;
            entries.iter().map(|row| Candidate::new(&row.entry_id, &row.title)).collect()
        }
        Live::Key => {
            let request = ListStateRequest { limit, ..ListStateRequest::default() };
            let entries = rpc!(client, StateClient::list, request).await?.entries;
            entries.iter().map(|row| Candidate::new(&row.key, &row.value_json)).collect()
        }
        Live::Tool(agent_id) => {
            let request = ListToolsRequest { agent_id: agent_id.clone(), limit, ..ListToolsRequest::default() };
            let tools = rpc!(client, ToolsClient::list, request).await?.tools;
            tools.iter().map(|row| Candidate::new(&row.name, &row.description)).collect()
        }
    })
}
