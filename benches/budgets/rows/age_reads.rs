//! Every reading RPC on two daemons in turn: one with the young world, one with the old world.

use ghost_domain::time::BoxFuture;
use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::budgets_client::BudgetsClient;
use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::conversations_client::ConversationsClient;
use ghost_proto::v1::events_client::EventsClient;
use ghost_proto::v1::knowledge_client::KnowledgeClient;
use ghost_proto::v1::ledger_client::LedgerClient;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::schedules_client::SchedulesClient;
use ghost_proto::v1::state_client::StateClient;
use ghost_proto::v1::tasks_client::TasksClient;
use ghost_proto::v1::tools_client::ToolsClient;
use ghost_proto::v1::turns_client::TurnsClient;
use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{
    AgentPromptRequest, CallToolRequest, GetAgentRequest, GetTurnRequest, InspectAgentRequest, ListAgentsRequest,
    ListBudgetsRequest, ListChannelsRequest, ListConversationsRequest, ListDeadRequest, ListKnowledgeRequest,
    ListLedgerRequest, ListSchedulesRequest, ListStateRequest, ListTasksRequest, ListTurnsRequest, ReflectRequest,
    ResourcesRequest, StatusRequest, SubscribeRequest, UsageRequest,
};
use tonic::transport::{Channel, Endpoint};

use super::age::{Site, line};
use super::ready::answer;
use crate::measure::{Outcome, now};
use crate::table::Line;

/// Number of requests in one round, one after the other.
const EACH: usize = 20;
const ROUNDS: usize = 9;
const AGENT: &str = "worker-7";

/// A daemon, and the ids in its world that requests use.
#[derive(Clone)]
struct Door {
    channel: Channel,
    turn_id: String,
    root_id: String,
    last_seq: i64,
    /// Start of the newest turn.
    newest_ms: i64,
}

/// One request.
type Ask = fn(Door) -> BoxFuture<'static, Outcome<()>>;

macro_rules! asks {
    ($($what:literal: $client:ident.$call:ident(|$door:ident| $request:expr)),+ $(,)?) => {
        [$(($what, |$door: Door| -> BoxFuture<'static, Outcome<()>> {
            Box::pin(async move {
                let request = $request;
                $client::new($door.channel).max_decoding_message_size(64 << 20).$call(request).await?;
                Ok(())
            })
        })),+]
    };
}

fn agent() -> Option<String> {
    Some(AGENT.into())
}

const ASKS: [(&str, Ask); 34] = asks! {
    "age: status": WorldClient.status(|_door| StatusRequest {}),
    "age: reflect": WorldClient.reflect(|_door| ReflectRequest {}),
    "age: resources": WorldClient.resources(|_door| ResourcesRequest {}),
    "age: agent list": AgentsClient.list(|_door| ListAgentsRequest { limit: 100, ..Default::default() }),
    "age: agent show": AgentsClient.get(|_door| GetAgentRequest { agent_id: AGENT.into() }),
    "age: agent inspect": AgentsClient.inspect(|_door| InspectAgentRequest { agent_id: AGENT.into(), ..Default::default() }),
    "age: agent prompt": AgentsClient.prompt(|_door| AgentPromptRequest { agent_id: AGENT.into() }),
    "age: turn list": TurnsClient.list(|_door| ListTurnsRequest { limit: 50, ..Default::default() }),
    "age: turn list of an agent": TurnsClient.list(|_door| ListTurnsRequest { agent_id: agent(), limit: 5, ..Default::default() }),
    "age: turn list, failed": TurnsClient.list(|_door| ListTurnsRequest { status: Some("failed".into()), limit: 50, ..Default::default() }),
    "age: turn list of an agent, failed": TurnsClient.list(|_door| ListTurnsRequest { agent_id: agent(), status: Some("failed".into()), limit: 50, ..Default::default() }),
    "age: turn list, open": TurnsClient.list(|_door| ListTurnsRequest { status: Some("open".into()), limit: 50, ..Default::default() }),
    "age: turn list of a root": TurnsClient.list(|door| ListTurnsRequest { root_id: Some(door.root_id.clone()), limit: 50, ..Default::default() }),
    "age: turn show": TurnsClient.get(|door| GetTurnRequest { turn_id: door.turn_id.clone(), limit: 100, ..Default::default() }),
    "age: ledger": LedgerClient.list(|_door| ListLedgerRequest { limit: 50, ..Default::default() }),
    "age: ledger of an agent": LedgerClient.list(|_door| ListLedgerRequest { agent_id: agent(), limit: 5, ..Default::default() }),
    "age: ledger of a turn": LedgerClient.list(|door| ListLedgerRequest { turn_id: Some(door.turn_id.clone()), limit: 50, ..Default::default() }),
    "age: ledger of a tool that nobody called": LedgerClient.list(|_door| ListLedgerRequest { tool: Some("syscall.task.list".into()), limit: 50, ..Default::default() }),
    "age: ledger of an agent and a tool that it never called": LedgerClient.list(|_door| ListLedgerRequest { agent_id: agent(), tool: Some("syscall.task.list".into()), limit: 50, ..Default::default() }),
    "age: ledger of an agent, failed": LedgerClient.list(|_door| ListLedgerRequest { agent_id: agent(), status: Some("failed".into()), limit: 50, ..Default::default() }),
    "age: ledger, failed": LedgerClient.list(|_door| ListLedgerRequest { status: Some("failed".into()), limit: 50, ..Default::default() }),
    "age: usage": BudgetsClient.usage(|_door| UsageRequest::default()),
    "age: usage of an agent": BudgetsClient.usage(|_door| UsageRequest { agent_id: agent(), ..Default::default() }),
    "age: usage of the last minute": BudgetsClient.usage(|door| UsageRequest { since_at_ms: Some(door.newest_ms), ..Default::default() }),
    "age: budgets": BudgetsClient.list(|_door| ListBudgetsRequest { limit: 100, ..Default::default() }),
    "age: tasks": TasksClient.list(|_door| ListTasksRequest::default()),
    "age: dead letters": MessagesClient.list_dead(|_door| ListDeadRequest { limit: 50, ..Default::default() }),
    "age: conversations": ConversationsClient.list(|_door| ListConversationsRequest::default()),
    "age: schedules": SchedulesClient.list(|_door| ListSchedulesRequest::default()),
    "age: channels": ChatClient.list(|_door| ListChannelsRequest::default()),
    "age: knowledge": KnowledgeClient.list(|_door| ListKnowledgeRequest { limit: 50, ..Default::default() }),
    "age: shared state": StateClient.list(|_door| ListStateRequest { limit: 50, ..Default::default() }),
    "age: the tool syscall.session.status": ToolsClient.call(|_door| tool("syscall.session.status")),
    "age: the tool syscall.reflect": ToolsClient.call(|_door| tool("syscall.reflect")),
};

fn tool(name: &str) -> CallToolRequest {
    CallToolRequest {
        request_id: uuid::Uuid::now_v7().to_string(),
        agent_id: AGENT.into(),
        tool: name.into(),
        arguments_json: "{}".into(),
        timeout_ms: None,
    }
}

/// Measures all rows of this module.
pub(super) async fn measure(young: &Site, old: &Site) -> Outcome<Vec<Line>> {
    let (young, old) = (open(young).await?, open(old).await?);
    let mut lines = Vec::new();
    for (what, ask) in ASKS {
        match alternate(what, ask, &young, &old).await {
            Ok(line) => lines.push(line),
            // One failed row does not stop the others.
            Err(error) => println!("{what} could not be measured: {error}"),
        }
    }
    lines.push(alternate("age: the newest 100 events", events, &young, &old).await?);
    Ok(lines)
}

/// Reads the end of the event feed.
fn events(door: Door) -> BoxFuture<'static, Outcome<()>> {
    Box::pin(async move {
        let request = SubscribeRequest { after_seq: Some(door.last_seq - 100), ..Default::default() };
        let mut stream = EventsClient::new(door.channel).subscribe(request).await?.into_inner();
        let mut seen = 0;
        while let Some(message) = stream.message().await? {
            seen += usize::from(message.event.is_some());
            if seen == 100 {
                break;
            }
        }
        Ok(())
    })
}

async fn open(site: &Site) -> Outcome<Door> {
    let socket = site.socket();
    answer(&socket).await?;
    let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?.connect().await?;
    let list = ListTurnsRequest { limit: 1, ..Default::default() };
    let newest = TurnsClient::new(channel.clone()).list(list).await?.into_inner().turns;
    let newest = newest.into_iter().next().ok_or("there is no turn")?;
    let last_seq = WorldClient::new(channel.clone()).status(StatusRequest {}).await?.into_inner().last_seq;
    Ok(Door { channel, turn_id: newest.turn_id, root_id: newest.root_id, last_seq, newest_ms: newest.started_at_ms })
}

async fn alternate(what: &'static str, ask: Ask, young: &Door, old: &Door) -> Outcome<Line> {
    let (mut of_young, mut of_old) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (young, old) = (timed(ask, young).await?, timed(ask, old).await?);
        // The first round warms up both daemons.
        if round > 0 {
            of_young.push(young);
            of_old.push(old);
        }
    }
    Ok(line(what, of_young, of_old))
}

/// Duration of one request in seconds.
async fn timed(ask: Ask, door: &Door) -> Outcome<f64> {
    let began = now();
    for _ in 0..EACH {
        ask(door.clone()).await?;
    }
    Ok(began.elapsed().as_secs_f64() / EACH as f64)
}
