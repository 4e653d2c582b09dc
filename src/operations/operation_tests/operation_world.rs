//! The world of these tests: three agents, and helpers for turns, calls and budgets.

use std::sync::Arc;

use ghost_domain::journal::JournalRow;
use ghost_domain::redact::Redactor;
use ghost_domain::transcript::Block;
use ghost_domain::usage::UsageSum;
use ghost_store::memory::MemoryStore;
pub(crate) use uuid::Uuid;

use super::postgres;
pub(crate) use super::postgres::cases;
pub(crate) use crate::agents::{self, NewAgent};
pub(crate) use crate::approvals::{self, Decision, NewApproval};
pub(crate) use crate::asks::{self, WaitingCall};
pub(crate) use crate::budgets::accounts::scans;
pub(crate) use crate::budgets::{self, Demand, NewLimits, OWNERS_MAX, Reserved, Settlement};
pub(crate) use crate::chat::{self, HistoryQuery, NewChannel, NewPost, Speaker};
pub(crate) use crate::conversations::{self, Handover, IncomingMessage, Outcome, Post, Received, Start};
pub(crate) use crate::droids::{self, NewDroid};
pub(crate) use crate::feed::Subscription;
pub(crate) use crate::jobs::{self, NewJob};
pub(crate) use crate::mail::{self, NewMessage};
pub(crate) use crate::prelude::*;
pub(crate) use crate::schedules::{self, Beat, NewSchedule};
pub(crate) use crate::tasks::{self, NewTask, TaskChange};
pub(crate) use crate::testing::{OperationWorld as World, SECRET, id, new_agent, operator, read, write as run};
pub(crate) use crate::turns::{self, CallStart, Ending, ModelResult};
pub(crate) use crate::{
    artifacts, clock, dead_letters, declared, grants, knowledge, requests, retention, root_limits, sessions,
    shared_state, skills, status,
};

/// A test in a new world with the agents ada, bob and cyd.
macro_rules! world_test {
    ($name:ident, async |$world:ident| $body:block) => {
        #[tokio::test]
        async fn $name() {
            let $world = World::new().await;
            $body
        }
    };
}
pub(crate) use world_test;

/// Runs one write transaction that must succeed.
macro_rules! done {
    ($world:expr, |$w:ident| $body:expr) => {
        run!($world, |$w| Ok::<_, Refusal>($body)).unwrap()
    };
}
pub(crate) use done;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

pub(crate) fn party(name: &str) -> Party {
    Party::Agent(id(name))
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code
}

/// A refusal with this code that contains these words.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T>, code: Code, words: &str) -> Refusal {
    let refusal = result.unwrap_err();
    assert_eq!(refusal.code, code, "{refusal}");
    assert!(refusal.to_string().contains(words), "{refusal}");
    refusal
}

/// A field of the details of a refusal with this code.
pub(crate) fn detail<T: std::fmt::Debug>(result: Result<T>, code: Code, field: &str) -> Value {
    refused(result, code, "").details.unwrap()[field].clone()
}

/// The hint of a refusal with this code.
pub(crate) fn hint_of<T: std::fmt::Debug>(result: Result<T>, code: Code) -> String {
    refused(result, code, "").hint.unwrap()
}

pub(crate) fn ids(mail: &[Envelope]) -> Vec<MessageId> {
    mail.iter().map(|envelope| envelope.message_id).collect()
}

pub(crate) fn kinds(mail: &[Envelope]) -> Vec<Kind> {
    mail.iter().map(|envelope| envelope.kind).collect()
}

pub(crate) fn scope(text: &str) -> Scope {
    text.parse().unwrap()
}

/// Creates an agent in the name of ada.
pub(crate) async fn create(world: &World, new: NewAgent) -> Result<Agent> {
    create_by(world, party("ada"), new).await
}

/// Creates an agent without a team in the name of another.
pub(crate) async fn child(world: &World, by: &str, name: &str) -> Result<Agent> {
    create_by(world, party(by), NewAgent { team: None, ..new_agent(&world.ctx, name) }).await
}

pub(crate) async fn create_by(world: &World, by: Party, new: NewAgent) -> Result<Agent> {
    run!(world, |w| agents::create(w, &by, new))
}

pub(crate) async fn delete(world: &World, name: &str) -> agents::Deleted {
    let agent_id = id(name);
    run!(world, |w| agents::delete(w, &operator(), &agent_id)).unwrap()
}

impl World {
    /// Runs a turn with one model call that uses `tokens` tokens and as many millionths of a
    /// dollar.
    pub(crate) async fn spend(&self, name: &str, tokens: u64) {
        let turn = self.call_of(name, demand(tokens, 16), used(tokens, 0)).await;
        self.finish(turn.turn_id, "done").await.unwrap();
    }

    /// A world with the agents ada, bob and cyd, all running in the team `crew`.
    pub(crate) async fn new() -> Self {
        let Some((store, lease)) = postgres::open().await else { return Self::with_store(MemoryStore::open()).await };
        Self { held: Some(Arc::new(lease)), ..Self::with_store(store).await }
    }

    /// The same world in a given empty store.
    pub(crate) async fn with_store(store: Store) -> Self {
        let world = Self::without_agents(store, Limits::default());
        world.ctx.set_webhooks([("ops".to_owned(), id("ada"))].into());
        for name in ["ada", "bob", "cyd"] {
            world.add_agent(new_agent(&world.ctx, name)).await;
        }
        world.store.on_signal(world.signals.clone());
        world
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Sets the clock back, and the rules see it at once.
    pub(crate) fn set_back(&self, time: Duration) {
        self.clock.set_back(time);
        if let Some(jump) = self.ctx.clock.jump() {
            self.ctx.clock.follow(jump.by_ms());
        }
    }

    /// The same store as seen by a daemon that has lost its agents to a later epoch.
    pub(crate) fn stale(&self) -> Self {
        let ctx = Context::new(self.ctx.ports.clone(), Redactor::default(), "node", 0, Limits::default());
        Self { ctx, ..self.clone() }
    }

    /// The signals since the last call.
    pub(crate) fn signals(&self) -> Vec<Signal> {
        self.signals.take()
    }

    /// The refusal that the caller gets after the command, with a suggestion.
    pub(crate) async fn with_suggestion(&self, refusal: Refusal) -> Refusal {
        mail::with_nearest(&self.store, refusal).await
    }

    /// The hint, with a suggestion, that the caller of a refused command gets after it.
    pub(crate) async fn suggestion<T: std::fmt::Debug>(&self, result: Result<T>, code: Code) -> String {
        hint_of::<T>(Err(self.with_suggestion(result.unwrap_err()).await), code)
    }

    /// Opens a turn with a new message.
    pub(crate) async fn busy(&self, name: &str) -> Turn {
        self.send(name, "work").await;
        self.take(name).await.turn
    }

    pub(crate) async fn finish(&self, turn_id: TurnId, text: &str) -> Result<Turn> {
        let ending = Ending::Finished(text.to_owned());
        run!(self, |w| turns::finish(w, turn_id, ending))
    }

    /// Ends a turn in another way.
    pub(crate) async fn end(&self, turn_id: TurnId, ending: Ending) -> Turn {
        run!(self, |w| turns::finish(w, turn_id, ending)).unwrap()
    }

    /// Opens the next turn of an agent and ends it with this text.
    pub(crate) async fn done(&self, name: &str, text: &str) -> Turn {
        let turn_id = self.take(name).await.turn.turn_id;
        self.finish(turn_id, text).await.unwrap()
    }

    /// The supervisor says that an agent has stopped.
    pub(crate) async fn stopped(&self, agent_id: &AgentId) {
        let agent_id = agent_id.clone();
        run!(self, |w| agents::stopped(w, &agent_id)).unwrap();
    }

    /// Stops an agent, and its supervisor says that it has stopped.
    pub(crate) async fn stop(&self, name: &str) {
        let agent_id = id(name);
        run!(self, |w| agents::stop(w, &operator(), &agent_id, None)).unwrap();
        self.stopped(&id(name)).await;
    }

    pub(crate) async fn crash(&self, name: &str, reason: &str) {
        let (agent_id, reason) = (id(name), reason.to_owned());
        run!(self, |w| agents::crashed(w, &agent_id, &reason)).unwrap();
        let agent_id = id(name);
        run!(self, |w| agents::restarted(w, &agent_id)).unwrap();
    }

    /// Records the start of a call with the provider's id `c1`.
    pub(crate) async fn start_call(&self, turn: &Turn, start: &CallStart) {
        let (turn, start) = (turn.clone(), start.clone());
        run!(self, |w| turns::record_call_start(w, &turn, &start)).unwrap();
    }

    /// Records the result of a call with the provider's id `c1` of the tool `t`.
    pub(crate) async fn end_call(&self, turn: &Turn, call_id: CallId, outcome: CallOutcome) {
        let turn = turn.clone();
        run!(self, |w| turns::record_call_end(w, &turn, call_id, "c1", "t", &outcome)).unwrap();
    }

    /// Adds mail to an open turn of an agent.
    pub(crate) async fn join(&self, name: &str, turn_id: TurnId, limit: u32) -> Result<mail::Joined> {
        let agent_id = id(name);
        run!(self, |w| mail::join(w, &agent_id, turn_id, limit))
    }

    /// The first slice of a broadcast.
    pub(crate) async fn broadcast(&self, new: &NewMessage, exclude: &[&str]) -> Result<mail::Broadcast> {
        let (new, exclude) = (new.clone(), exclude.iter().map(|name| id(name)).collect::<Vec<_>>());
        run!(self, |w| mail::broadcast(w, &new, &exclude, None, None))
    }

    pub(crate) async fn outside_ask(&self, target: &str) -> Result<Ask> {
        self.ask_within(target, MINUTE).await
    }

    /// Opens an ask from a turn with the tool `tool`, and records the call.
    pub(crate) async fn ask_by(&self, turn: &Turn, target: &str, tool: &str) -> Result<(Ask, CallId)> {
        let (turn, target, tool) = (turn.clone(), id(target), tool.to_owned());
        run!(self, |w| {
            let call_id = CallId(w.ctx.id());
            let (agent_id, turn_id, chain) = (turn.agent_id.clone(), turn.turn_id, Chain::after(&turn));
            let by = Party::Agent(agent_id.clone());
            let waiting = Some(WaitingCall { agent_id, turn_id, call_id, provider_call_id: "c1".into() });
            let ask = asks::open(w, by, waiting, &target, "how many?".into(), MINUTE, chain)?;
            let start = CallStart { ask_id: Some(ask.ask_id), ..call_start(call_id, &tool, Effect::Wait) };
            turns::record_call_start(w, &turn, &start)?;
            Ok((ask, call_id))
        })
    }

    pub(crate) async fn agent(&self, name: &str) -> Agent {
        let agent_id = id(name);
        read!(self, |r| r.agent_get(&agent_id)?.unwrap())
    }

    pub(crate) async fn turn(&self, turn_id: TurnId) -> Turn {
        read!(self, |r| r.turn_get(turn_id)?.unwrap())
    }

    pub(crate) async fn message(&self, message_id: MessageId) -> Envelope {
        read!(self, |r| r.message_get(message_id)?.unwrap())
    }

    pub(crate) async fn call(&self, call_id: CallId) -> LedgerRow {
        read!(self, |r| r.call_get(call_id)?.unwrap())
    }

    pub(crate) async fn journal(&self, turn_id: TurnId) -> Vec<JournalRow> {
        read!(self, |r| r.journal_of(turn_id)?)
    }

    pub(crate) async fn approval(&self, approval_id: ApprovalId) -> Approval {
        read!(self, |r| r.approval_get(approval_id)?.unwrap())
    }

    /// The dead letters that wait for an operator.
    pub(crate) async fn dead_letters(&self) -> Vec<DeadLetter> {
        read!(self, |r| r.dead_letter_list(None, Some(DeadLetterStatus::Held), None, 1_000)?)
    }

    /// The events of this kind.
    pub(crate) async fn events_of(&self, kind: EventKind) -> Vec<Event> {
        self.events().await.into_iter().filter(|event| event.kind == kind).collect()
    }

    /// The first event of this kind.
    pub(crate) async fn event(&self, kind: EventKind) -> Event {
        self.events_of(kind).await.remove(0)
    }

    /// The payloads of the events of this kind.
    pub(crate) async fn payloads(&self, kind: EventKind) -> Vec<Value> {
        self.events_of(kind).await.iter().map(|event| (*event.payload).clone()).collect()
    }

    /// One field of the payloads of the events of this kind.
    pub(crate) async fn told(&self, kind: EventKind, field: &str) -> Vec<Value> {
        self.payloads(kind).await.iter().map(|payload| payload[field].clone()).collect()
    }

    /// The subjects of the mail that an agent has not taken.
    pub(crate) async fn subjects(&self, name: &str) -> Vec<String> {
        self.inbox(name).await.into_iter().filter_map(|mail| mail.subject).collect()
    }

    /// The entries of a conversation.
    pub(crate) async fn entries(&self, conversation_id: ConversationId) -> Vec<ConversationEntry> {
        read!(self, |r| r.conversation_entries(conversation_id, 0, 10_000)?)
    }

    /// One sweep of retention.
    pub(crate) async fn sweep(&self) -> u64 {
        retention::sweep(&self.store, &self.ctx).await.unwrap()
    }

    /// One sweep of retention after some time.
    pub(crate) async fn sweep_after(&self, time: Duration) {
        self.pass(time);
        self.sweep().await;
    }

    /// Reserved and spent tokens of an account. One that does not exist holds nothing.
    pub(crate) async fn account(&self, scope: &Scope) -> (u64, u64) {
        self.budget(scope).await.map_or((0, 0), |budget| (budget.reserved_tokens, budget.spent_tokens))
    }

    /// Limits the tokens of an account.
    pub(crate) async fn bound(&self, text: &str, most: u64) -> Budget {
        self.set_limits(&scope(text), tokens(most)).await.unwrap()
    }

    /// What all calls have used.
    pub(crate) async fn usage(&self) -> Vec<UsageSum> {
        read!(self, |r| r.usage_sum(&UsageFilter::default())?)
    }

    /// An account, if there is one.
    pub(crate) async fn budget(&self, scope: &Scope) -> Option<Budget> {
        let scope = scope.clone();
        read!(self, |r| r.budget_get(&scope)?)
    }

    /// Sets limits by hand.
    pub(crate) async fn set_limits(&self, scope: &Scope, limits: NewLimits) -> Result<Budget> {
        let scope = scope.clone();
        run!(self, |w| budgets::set(w, &operator(), &scope, limits))
    }

    /// Sets the limits that the world file names.
    pub(crate) async fn follow_file(&self, named: Vec<(Scope, BudgetLimits)>) {
        run!(self, |w| budgets::follow_file(w, &operator(), &named)).unwrap();
    }

    /// What an operator sees of budgets: those that are nearly spent, and all that are limited.
    pub(crate) async fn budgets_shown(&self) -> (Vec<Budget>, Vec<Budget>) {
        let now = self.ctx.now();
        read!(self, |r| (status::near(r, now)?, status::bounded(r, now)?))
    }

    /// Opens a channel.
    pub(crate) async fn channel(&self, by: Party, new: NewChannel) -> Result<chat::Created> {
        run!(self, |w| chat::create(w, &by.into(), new))
    }

    /// The result of a call in a turn's journal.
    pub(crate) async fn outcome(&self, turn_id: TurnId, call_id: CallId) -> Option<(String, Value, Option<Refusal>)> {
        self.journal(turn_id).await.into_iter().find_map(|row| match row.step {
            Step::CallFinished { call_id: found, tool, outcome, .. } if found == call_id => {
                Some((tool, outcome.content, outcome.refusal))
            }
            _ => None,
        })
    }

    /// Starts a model call of at most `output` tokens after `input` tokens. A call that has to wait
    /// returns `Unavailable`.
    pub(crate) async fn model_start(&self, turn_id: TurnId, demand: Demand) -> Result<(ReservationId, u64)> {
        match run!(self, |w| turns::model_started(w, turn_id, &demand))? {
            Reserved::Granted(reservation_id, allowance) => Ok((reservation_id, allowance.max_tokens)),
            Reserved::Spent(scope) => {
                let parked = self.turn(turn_id).await.parked.map(|parked| parked.reason).unwrap_or_default();
                let details = json!({ "scope": scope });
                Err(Refusal::new(Code::BudgetExhausted, parked.clone()).hint(parked).details(details))
            }
            Reserved::Waits(scope) => Err(Refusal::new(Code::Unavailable, format!("it waits for budget {scope}"))),
        }
    }

    /// A model call that was answered.
    pub(crate) async fn model_call(&self, turn_id: TurnId, demand: Demand, usage: Option<TokenUsage>) -> Turn {
        let (held, _) = self.model_start(turn_id, demand).await.unwrap();
        self.model_answer(turn_id, held, usage).await.unwrap()
    }

    pub(crate) async fn model_answer(
        &self,
        turn_id: TurnId,
        held: ReservationId,
        usage: Option<TokenUsage>,
    ) -> Result<Turn> {
        self.model_result(turn_id, model_result(held, usage)).await
    }

    pub(crate) async fn model_result(&self, turn_id: TurnId, result: ModelResult) -> Result<Turn> {
        run!(self, |w| turns::model_answered(w, turn_id, result))
    }

    /// A model call in a turn of its own: how many tokens it may answer with, and its turn after it.
    pub(crate) async fn call_of(&self, name: &str, demand: Demand, usage: Option<TokenUsage>) -> Turn {
        let turn_id = self.busy(name).await.turn_id;
        self.model_call(turn_id, demand, usage).await
    }
}

/// An answer that used so many tokens.
pub(crate) fn model_result(reservation_id: ReservationId, usage: Option<TokenUsage>) -> ModelResult {
    ModelResult {
        reservation_id,
        provider: "p".into(),
        model: "m".into(),
        blocks: vec![Block::Text { text: "well".into() }],
        stop: None,
        usage,
        estimated: false,
        price: Some(PRICE),
        duration_ms: 7,
    }
}

/// One dollar for a million tokens of input or output, so a token costs a millionth.
pub(crate) const PRICE: Price =
    Price { input: Money(1_000_000), output: Money(1_000_000), cache_read: Money(0), cache_write: Money(0) };

pub(crate) fn demand(input: u64, max_tokens: u64) -> Demand {
    Demand {
        provider: "p".into(),
        model: "m".into(),
        input,
        max_tokens,
        price: Some(PRICE),
        free: false,
        behind: Default::default(),
        another: false,
    }
}

pub(crate) fn used(input: u64, output: u64) -> Option<TokenUsage> {
    Some(TokenUsage { input, output, ..TokenUsage::default() })
}

pub(crate) fn call_start(call_id: CallId, tool: &str, effect: Effect) -> CallStart {
    CallStart {
        call_id,
        id: "c1".into(),
        tool: tool.to_owned(),
        alias: None,
        arguments: json!({}),
        effect,
        files: Vec::new(),
        ask_id: None,
        begun_at: None,
    }
}

/// A position in a chain that no conversation started.
pub(crate) fn at_hop(root_id: RootId, hop: u32) -> Chain {
    Chain { root_id, hop, conversation_id: None }
}

/// The usual team.
pub(crate) fn crew() -> Scope {
    scope("team:crew")
}

/// A limit of tokens alone.
pub(crate) fn tokens(most: u64) -> NewLimits {
    NewLimits { tokens: Some(Some(most)), money: None }
}

/// A limit of money alone, in millionths of a dollar.
pub(crate) fn money(most: u64) -> NewLimits {
    NewLimits { tokens: None, money: Some(Some(Money(most))) }
}

/// An ungated channel without a topic.
pub(crate) fn new_channel(name: &str, members: &[&str]) -> NewChannel {
    NewChannel {
        channel: name.parse().unwrap(),
        members: members.iter().map(|member| id(member)).collect(),
        gated: false,
        skip_creator: false,
        topic: None,
    }
}

/// A task that waits for no other.
pub(crate) fn new_task(owner: &str, title: &str, chain: Chain) -> NewTask {
    NewTask {
        title: title.to_owned(),
        description: "all of them".into(),
        owner: id(owner),
        priority: 0,
        depends_on: Vec::new(),
        parent_id: None,
        due_at: None,
        chain,
    }
}

/// A message from outside in a thread of an adapter whose conversations belong to `owner`.
pub(crate) async fn arrive(
    world: &World,
    owner: &str,
    adapter: &str,
    thread: &str,
    said: IncomingMessage,
) -> Result<Received> {
    let (party, thread) = (said.from.clone(), Some(thread.into()));
    let start = Start { adapter: adapter.into(), thread, owner: id(owner), party };
    run!(world, |w| conversations::arrive(w, start, said))
}

/// A message of a party outside, without files.
pub(crate) fn said(from: Party, text: &str) -> IncomingMessage {
    IncomingMessage { from, content: text.to_owned(), attachments: Vec::new(), reply_to: None, external_id: None }
}

/// Opens a turn for an operator's tool call.
pub(crate) fn operator_turn(w: &mut Tx, agent_id: &AgentId) -> Result<Turn> {
    let turn_id = TurnId(w.ctx.id());
    turns::operator_turn(w, agent_id, turn_id)
}
