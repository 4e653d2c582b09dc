//! The operators: they send, ask, start, stop, pause, set budgets and kill the daemon, at random
//! times. They remember the results that the world acknowledged, because these must never be lost.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ghost_domain::{
    AgentId, AgentKind, AskId, AskStatus, Clock, ConversationId, DeadLetterStatus, Desired, Kind, MessageId, Party,
    Refusal, Scope, TaskId, TurnId,
};
use ghost_operations::agents::{self, NewAgent};
use ghost_operations::budgets::{self, NewLimits};
use ghost_operations::mail::{self, Chain, NewMessage};
use ghost_operations::tasks::{self, NewTask};
use ghost_operations::{Tx, asks, dead_letters, turns};
use ghost_store::StoreError;
use ghost_store::memory::MemoryDisk;
use ghost_store::tables::PAGE_MAX;
use ghost_world::{OperatorCall, World};
use serde_json::json;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::chance::Dice;
use super::clock::SimClock;
use super::plan::WORKER;
use super::random_actions::POISON_WORD;
use super::tools::{MARK, OUTSIDE, OutsideLog};

/// The results that the world acknowledged.
#[derive(Clone, Default)]
pub(crate) struct Acknowledged {
    pub(crate) messages: BTreeSet<MessageId>,
    pub(crate) asks: BTreeSet<AskId>,
    pub(crate) tasks: BTreeSet<TaskId>,
}

/// All operators of a world.
pub(crate) struct Operator {
    pub(crate) dice: Dice,
    clock: SimClock,
    disk: MemoryDisk,
    outside_log: OutsideLog,
    /// Agents of `world-config.yaml`.
    named: Vec<AgentId>,
    /// Agents that operators create and delete during the run.
    temporary: Vec<AgentId>,
    /// Whether the store may fail.
    faults: bool,
    poison_left: u32,
    count: u64,
    acknowledged: Arc<Mutex<Acknowledged>>,
    requests: Vec<JoinHandle<()>>,
}

fn by() -> Party {
    Party::Operator("sim".to_owned())
}

/// One transaction.
async fn write<T, F>(world: &World, work: F) -> Result<T, Refusal>
where
    T: Send + 'static,
    F: FnOnce(&mut Tx) -> Result<T, Refusal> + Send + 'static,
{
    world.write(work).await
}

impl Operator {
    pub(crate) fn new(
        seed: u64,
        resources: (SimClock, MemoryDisk, OutsideLog),
        named: Vec<AgentId>,
        temporary: Vec<AgentId>,
        faults: (bool, u32),
    ) -> Self {
        let (clock, disk, outside_log) = resources;
        Self {
            dice: Dice::new(seed, "operator"),
            clock,
            disk,
            outside_log,
            named,
            temporary,
            faults: faults.0,
            poison_left: faults.1,
            count: 0,
            acknowledged: Arc::default(),
            requests: Vec::new(),
        }
    }

    pub(crate) fn acknowledged(&self) -> MutexGuard<'_, Acknowledged> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the requests that waited for a daemon which has died.
    pub(crate) fn forget_requests(&mut self) {
        self.requests.clear();
    }

    /// Whether no request waits for an answer of the daemon.
    pub(crate) fn all_answered(&self) -> bool {
        self.requests.iter().all(JoinHandle::is_finished)
    }

    fn someone(&mut self) -> AgentId {
        let all: Vec<AgentId> = self.named.iter().chain(&self.temporary).cloned().collect();
        self.dice.pick(&all).unwrap_or(&self.named[0]).clone()
    }

    /// Does one random action. A refusal is a valid result.
    pub(crate) async fn act(&mut self, world: &Arc<World>) {
        self.count += 1;
        let who = self.someone();
        let kind = self.dice.below(100);
        let done: Result<(), Refusal> = match kind {
            0..30 => self.send(world, who).await,
            30..42 => self.ask(world, who).await,
            42..54 => self.give_task(world, who).await,
            54..60 => {
                self.stop(world, who);
                Ok(())
            }
            60..68 => write(world, move |w| agents::start(w, &by(), &who).map(drop)).await,
            68..72 => self.create(world).await,
            72..75 => self.delete(world).await,
            75..78 => world.set_paused(&by(), true).await,
            78..83 => world.set_paused(&by(), false).await,
            83..86 => self.cancel_a_turn(world).await,
            86..91 => {
                self.call_tool(world, who);
                Ok(())
            }
            91..93 => self.set_budget(world).await,
            93..96 => self.handle_dead_letter(world).await,
            _ if self.faults => {
                let commits = usize::try_from(self.dice.between(1, 4)).unwrap_or(1);
                self.disk.fail_next_commits(commits, || StoreError::Full);
                Ok(())
            }
            _ => Ok(()),
        };
        drop(done);
    }

    /// Runs before the end of the run: resumes every agent and turn that can continue.
    pub(crate) async fn resume_all(&mut self, world: &Arc<World>) -> Result<(), Refusal> {
        world.set_paused(&by(), false).await?;
        // Turns that wait for a budget continue when it is raised.
        for scope in self.named.iter().take(2).map(|agent_id| Scope::Agent(agent_id.clone())) {
            let lifted = NewLimits { tokens: Some(None), money: Some(None) };
            write(world, move |w| budgets::set(w, &by(), &scope, lifted).map(drop)).await?;
        }
        let all: Vec<AgentId> = self.named.iter().chain(&self.temporary).cloned().collect();
        for who in all {
            // Some agents stay stopped: a world must come to rest with stopped agents, too.
            if self.dice.chance(80) {
                let started = write(world, move |w| agents::start(w, &by(), &who)).await;
                drop(started);
            }
        }
        Ok(())
    }

    async fn send(&mut self, world: &World, to: AgentId) -> Result<(), Refusal> {
        let poisoned = self.poison_left > 0 && self.dice.chance(12);
        let word = if poisoned { POISON_WORD } else { "hello" };
        let body = format!("{word} from outside, {}", self.count);
        let conversation_id =
            (!poisoned && self.dice.chance(15)).then(|| ConversationId(Uuid::from_u128(self.dice.below(3).into())));
        let kind = if conversation_id.is_some() { Kind::Conversation } else { Kind::Message };
        let envelope = write(world, move |w| {
            let chain = Chain { conversation_id, ..Chain::root(w.ctx) };
            let new_message = NewMessage::new(&to, by(), kind, body, chain);
            mail::deliver(w, new_message)
        })
        .await?;
        if poisoned {
            self.poison_left -= 1;
        }
        self.acknowledged().messages.insert(envelope.message_id);
        Ok(())
    }

    async fn ask(&mut self, world: &Arc<World>, target: AgentId) -> Result<(), Refusal> {
        let (text, wait) = (format!("how is it, {}?", self.count), Duration::from_secs(self.dice.between(2, 40)));
        let ask = write(world, move |w| {
            let ctx = w.ctx;
            asks::open(w, by(), None, &target, text, wait, Chain::root(ctx))
        })
        .await?;
        {
            let mut acknowledged = self.acknowledged();
            acknowledged.asks.insert(ask.ask_id);
            acknowledged.messages.insert(ask.message_id);
        }
        // The wall clock may jump meanwhile.
        let due = self.clock.steady().plus(wait);
        let (world, clock, outside_log) = (Arc::clone(world), self.clock.clone(), self.outside_log.clone());
        self.requests.push(tokio::spawn(async move {
            let Ok(closed) = world.wait_for_ask(ask.ask_id).await else { return };
            let late = clock.steady().since(due);
            if closed.status == AskStatus::Open || late > Duration::from_secs(1) {
                outside_log
                    .wrong(format!("the asker of {} got the result {} late by {late:?}", ask.ask_id, closed.status));
            }
        }));
        Ok(())
    }

    async fn give_task(&mut self, world: &World, owner: AgentId) -> Result<(), Refusal> {
        let (title, priority) = (format!("errand {}", self.count), i32::try_from(self.dice.below(5)).unwrap_or(0));
        let known: Vec<TaskId> = self.acknowledged().tasks.iter().copied().collect();
        let depends_on =
            if self.dice.chance(20) { self.dice.pick(&known).copied().into_iter().collect() } else { vec![] };
        let task = write(world, move |w| {
            let new = NewTask {
                title,
                description: "As it says.".into(),
                owner,
                priority,
                depends_on,
                parent_id: None,
                due_at: None,
                chain: Chain::root(w.ctx),
            };
            tasks::create(w, &by(), new)
        })
        .await?;
        self.acknowledged().tasks.insert(task.task_id);
        Ok(())
    }

    fn stop(&mut self, world: &Arc<World>, who: AgentId) {
        let world = Arc::clone(world);
        self.requests.push(tokio::spawn(async move {
            // An unknown agent is refused.
            drop(world.stop_agent(&by(), &who, Some("a test".into())).await);
        }));
    }

    fn call_tool(&mut self, world: &Arc<World>, who: AgentId) {
        let (world, token) = (Arc::clone(world), format!("op{}", self.count));
        let (tool, arguments) = if self.dice.chance(50) {
            (MARK, json!({ "token": token }))
        } else {
            (OUTSIDE, json!({ "token": token, "manner": "plain" }))
        };
        let turn_id = TurnId(world.ctx().id());
        let call = OperatorCall { turn_id, again: false, agent_id: who, tool: tool.to_owned(), arguments };
        self.requests.push(tokio::spawn(async move { drop(world.call_tool(call).await) }));
    }

    async fn create(&mut self, world: &World) -> Result<(), Refusal> {
        let Some(agent_id) = self.dice.pick(&self.temporary).cloned() else { return Ok(()) };
        let goal = self.dice.chance(70).then(|| format!("find something to do, {}", self.count));
        write(world, move |w| {
            let new = NewAgent {
                name: agent_id.to_string(),
                agent_id,
                archetype: WORKER.to_owned(),
                team: None,
                kind: AgentKind::Dynamic,
                desired: Desired::Running,
                overrides: serde_json::Value::Null,
                daily_money: None,
                heartbeat: None,
                owner: None,
                goal,
                chain: Chain::root(w.ctx),
            };
            agents::create(w, &by(), new).map(drop)
        })
        .await
    }

    async fn delete(&mut self, world: &World) -> Result<(), Refusal> {
        let Some(agent_id) = self.dice.pick(&self.temporary).cloned() else { return Ok(()) };
        write(world, move |w| agents::delete(w, &by(), &agent_id).map(drop)).await
    }

    async fn cancel_a_turn(&mut self, world: &World) -> Result<(), Refusal> {
        let place = self.dice.below(8);
        write(world, move |w| {
            let open = w.turns_open()?;
            match open.get(usize::try_from(place).unwrap_or(0)) {
                Some(turn) => turns::cancel(w, &by(), turn.turn_id).map(drop),
                None => Ok(()),
            }
        })
        .await
    }

    async fn set_budget(&mut self, world: &World) -> Result<(), Refusal> {
        let tokens = self.dice.between(10_000_000, 20_000_000);
        write(world, move |w| {
            let limits = NewLimits { tokens: Some(Some(tokens)), money: None };
            budgets::set(w, &by(), &Scope::Team("alpha".into()), limits).map(drop)
        })
        .await
    }

    async fn handle_dead_letter(&mut self, world: &World) -> Result<(), Refusal> {
        let (drops, fresh) = (self.dice.chance(50), self.dice.chance(50));
        write(world, move |w| {
            let held = w.dead_letter_list(None, Some(DeadLetterStatus::Held), None, PAGE_MAX)?;
            let Some(dead_letter) = held.first() else { return Ok(()) };
            let id = dead_letter.dead_letter_id;
            if drops {
                dead_letters::discard(w, &by(), id).map(drop)
            } else {
                dead_letters::retry(w, &by(), id, fresh).map(drop)
            }
        })
        .await
    }
}
