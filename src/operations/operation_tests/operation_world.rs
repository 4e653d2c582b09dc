//! The world of these tests: three agents, and helpers for turns, calls and budgets.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Price;
use ghost_domain::journal::{Effect, JournalRow, Step};
use ghost_domain::ports::Signal;
use ghost_domain::redact::Redactor;
use ghost_domain::transcript::{Block, TokenUsage};
use ghost_domain::{
    Agent, Ask, CallId, Code, Envelope, LedgerRow, Limits, MessageId, Money, Party, Refusal, ReservationId, Scope,
    Turn, TurnId,
};
use ghost_store::Store;
use ghost_store::memory::MemoryStore;
use serde_json::{Value, json};

use super::postgres;
use crate::agents::{self, NewAgent};
use crate::asks::{self, WaitingCall};
use crate::budgets::{Demand, Reserved};
use crate::mail::{self, Chain};
pub(crate) use crate::testing::{OperationWorld, SECRET, id, new_agent, operator, read, write};
use crate::turns::{self, CallStart, Ending, ModelResult};
use crate::{OperationContext, Result};

pub(crate) fn party(name: &str) -> Party {
    Party::Agent(id(name))
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code
}

pub(crate) fn scope(text: &str) -> Scope {
    text.parse().unwrap()
}

/// Creates an agent in the name of ada.
pub(crate) async fn create(world: &OperationWorld, new: NewAgent) -> Result<Agent> {
    write!(world, |w, ctx| agents::create(w, &ctx, &party("ada"), new))
}

pub(crate) async fn delete(world: &OperationWorld, name: &str) {
    let agent_id = id(name);
    write!(world, |w, ctx| agents::delete(w, &ctx, &operator(), &agent_id)).unwrap();
}

impl OperationWorld {
    /// Runs a turn with one model call that uses `tokens` tokens and as many millionths of a
    /// dollar.
    pub(crate) async fn spend(&self, name: &str, tokens: u64) {
        let turn = self.busy(name).await.turn_id;
        let (held, _) = self.model_start(turn, demand(tokens, 16)).await.unwrap();
        self.model_answer(turn, held, used(tokens, 0)).await.unwrap();
        self.finish(turn, "done").await.unwrap();
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

    /// The same world after a restart, with its store opened again.
    pub(crate) fn reopened(self, store: Store) -> Self {
        Self { store, ..self }
    }

    /// The same store as seen by a daemon that has lost its agents to a later epoch.
    pub(crate) fn stale(&self) -> Self {
        let ctx = OperationContext::new(self.ctx.ports.clone(), Redactor::default(), "node", 0, Limits::default());
        Self {
            store: self.store.clone(),
            ctx,
            clock: self.clock.clone(),
            signals: self.signals.clone(),
            held: self.held.clone(),
        }
    }

    /// The signals since the last call.
    pub(crate) fn signals(&self) -> Vec<Signal> {
        self.signals.take()
    }

    /// The refusal that the caller gets after the command, with a suggestion.
    pub(crate) async fn with_suggestion(&self, refusal: Refusal) -> Refusal {
        mail::with_nearest(&self.store, refusal).await
    }

    /// Opens a turn with a new message.
    pub(crate) async fn busy(&self, name: &str) -> Turn {
        self.send(name, "work").await;
        self.take(name).await.turn
    }

    pub(crate) async fn finish(&self, turn_id: TurnId, text: &str) -> Result<Turn> {
        let ending = Ending::Finished(text.to_owned());
        write!(self, |w, ctx| turns::finish(w, &ctx, turn_id, ending))
    }

    pub(crate) async fn crash(&self, name: &str, reason: &str) {
        let (agent_id, reason) = (id(name), reason.to_owned());
        write!(self, |w, ctx| agents::crashed(w, &ctx, &agent_id, &reason)).unwrap();
        let agent_id = id(name);
        write!(self, |w, ctx| agents::restarted(w, &ctx, &agent_id)).unwrap();
    }

    pub(crate) async fn outside_ask(&self, target: &str) -> Result<Ask> {
        self.ask_within(target, Duration::from_secs(60)).await
    }

    /// Opens an ask from a turn with the tool `tool`, and records the call.
    pub(crate) async fn ask_by(&self, turn: &Turn, target: &str, tool: &str) -> Result<(Ask, CallId)> {
        let (turn, target, tool) = (turn.clone(), id(target), tool.to_owned());
        write!(self, |w, ctx| {
            let call_id = CallId(ctx.id());
            let waiting = WaitingCall {
                agent_id: turn.agent_id.clone(),
                turn_id: turn.turn_id,
                call_id,
                provider_call_id: "c1".into(),
            };
            let chain = Chain::after(&turn);
            let (by, wait) = (Party::Agent(turn.agent_id.clone()), Duration::from_secs(60));
            let ask = asks::open(w, &ctx, by, Some(waiting), &target, "how many?".into(), wait, chain)?;
            let start = CallStart { ask_id: Some(ask.ask_id), ..call_start(call_id, &tool, Effect::Wait) };
            turns::record_call_start(w, &ctx, &turn, &start)?;
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
        match write!(self, |w, ctx| turns::model_started(w, &ctx, turn_id, &demand))? {
            Reserved::Granted(reservation_id, allowance) => Ok((reservation_id, allowance.max_tokens)),
            Reserved::Spent(scope) => {
                let parked = self.turn(turn_id).await.parked.map(|parked| parked.reason).unwrap_or_default();
                let details = serde_json::json!({ "scope": scope });
                Err(Refusal::new(Code::BudgetExhausted, parked.clone()).hint(parked).details(details))
            }
            Reserved::Waits(scope) => Err(Refusal::new(Code::Unavailable, format!("it waits for budget {scope}"))),
        }
    }

    pub(crate) async fn model_answer(
        &self,
        turn_id: TurnId,
        reservation_id: ReservationId,
        usage: Option<TokenUsage>,
    ) -> Result<Turn> {
        self.model_answer_at(turn_id, reservation_id, usage, Some(PRICE)).await
    }

    pub(crate) async fn model_answer_at(
        &self,
        turn_id: TurnId,
        reservation_id: ReservationId,
        usage: Option<TokenUsage>,
        price: Option<Price>,
    ) -> Result<Turn> {
        let result = ModelResult {
            reservation_id,
            provider: "p".into(),
            model: "m".into(),
            blocks: vec![Block::Text { text: "well".into() }],
            stop: None,
            usage,
            estimated: false,
            price,
            duration_ms: 7,
        };
        write!(self, |w, ctx| turns::model_answered(w, &ctx, turn_id, result))
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
