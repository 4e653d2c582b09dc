//! Random sequences of commands that can run on any store. They depend only on the seed.

use crate::Tx;
use ghost_domain::event::NewEvent;
use ghost_domain::turn::WaitMode;
use ghost_domain::{
    Agent, AgentKind, AskStatus, CallStatus, Daily, DeadLetter, DeadLetterStatus, EventKind, MailState, Party, Scope,
    ScopeSort, Task, TaskEvent, TaskStatus, Timestamp, Turn, TurnStatus,
};
use serde_json::json;

use super::random::{AGENTS, OpNumbers, Random, moment, one_of};
use super::rows::{
    agent, answer, ask, briefed, budget, call, event_id, held, id_of, job, letter, mail, message_id, note, root_id,
    task, task_id, turn, turn_id, usage, waits_for_root,
};
use super::rows_shared::conversation_id;
use super::script_shared::SharedOp;
use crate::tables::{BudgetFilter, Family, LedgerFilter, Result, TaskFilter, TurnFilter, UsageFilter};

/// The kind of an operation. Reads are included: a backend that buffers writes must still show
/// them.
#[derive(Clone, Copy, Debug)]
enum OpKind {
    PutAgent,
    PutMeta,
    PutSkill,
    RemoveSkill,
    PutJob,
    PutRequest,
    PutAsk,
    PutLetter,
    PutBudget,
    AppendUsage,
    PutCall,
    PutTask,
    AppendTaskEvent,
    PutTurn,
    AppendJournal,
    PutPrompt,
    AppendMail,
    MarkMail,
    ForgiveMail,
    StateEvent,
    Prune,
    GetByKey,
    ScanAgents,
    ScanAsks,
    ScanBudgets,
    ScanMail,
    ScanTasks,
    ScanTurns,
    ScanRest,
    SharedOp(SharedOp),
}

impl OpKind {
    const ALL: [Self; 29] = [
        Self::PutAgent,
        Self::PutMeta,
        Self::PutSkill,
        Self::RemoveSkill,
        Self::PutJob,
        Self::PutRequest,
        Self::PutAsk,
        Self::PutLetter,
        Self::PutBudget,
        Self::AppendUsage,
        Self::PutCall,
        Self::PutTask,
        Self::AppendTaskEvent,
        Self::PutTurn,
        Self::AppendJournal,
        Self::PutPrompt,
        Self::AppendMail,
        Self::MarkMail,
        Self::ForgiveMail,
        Self::StateEvent,
        Self::Prune,
        Self::GetByKey,
        Self::ScanAgents,
        Self::ScanAsks,
        Self::ScanBudgets,
        Self::ScanMail,
        Self::ScanTasks,
        Self::ScanTurns,
        Self::ScanRest,
    ];
    /// The most frequent operations of real commands.
    const COMMON: [Self; 7] = [
        Self::AppendMail,
        Self::MarkMail,
        Self::StateEvent,
        Self::PutTurn,
        Self::AppendJournal,
        Self::PutBudget,
        Self::GetByKey,
    ];
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    what: OpKind,
    numbers: OpNumbers,
}

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Keep,
    Refuse,
    Panic,
}

/// One command.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) ops: Vec<Op>,
    pub(super) end: End,
}

/// Creates `count` commands from a seed.
pub(super) fn script(seed: u64, count: u64) -> Vec<Command> {
    let mut random = Random::new(seed);
    let mut n = 0;
    (0..count)
        .map(|_| {
            let ops = (0..=random.below(6))
                .map(|_| {
                    n += 1;
                    let what = match random.below(3) {
                        0 => one_of(&OpKind::COMMON, random.below(1_000)),
                        1 => one_of(&OpKind::ALL, random.below(1_000)),
                        _ => OpKind::SharedOp(one_of(&SharedOp::ALL, random.below(1_000))),
                    };
                    Op { what, numbers: OpNumbers::of(n, &mut random) }
                })
                .collect();
            let end = match random.below(10) {
                0..=1 => End::Refuse,
                2 => End::Panic,
                _ => End::Keep,
            };
            Command { ops, end }
        })
        .collect()
}

fn scope(random: u64) -> Scope {
    match random % 5 {
        0 => Scope::World,
        1 => Scope::Team("news".to_owned()),
        2 => Scope::Root(root_id(1)),
        3 => Scope::Agent(id_of(one_of(&AGENTS, random / 5))),
        _ => Scope::Day(Daily::Agent(id_of(one_of(&AGENTS, random / 5)))),
    }
}

/// Each of the turns 0 to 2 is opened by mail of a different agent, so no agent has two of them.
/// The other turns are an operator's.
fn turn_of(numbers: OpNumbers) -> Turn {
    let number = numbers.a % 6;
    let status = one_of(TurnStatus::ALL, numbers.c);
    let wait_mode = [WaitMode::Blocking, WaitMode::Background, WaitMode::Ready]
        .get(usize::try_from(numbers.b % 5).unwrap())
        .copied();
    let parked = wait_mode.filter(|_| number < 3 && status == TurnStatus::Open);
    Turn {
        parked: parked.map(waits_for_root),
        conversation_id: (number % 2 == 1).then(|| conversation_id(number)),
        log_from: (numbers.b % 2 == 1).then(|| moment(numbers.b)),
        other_roots: (2..2 + numbers.c % 3).map(root_id).collect(),
        source: if number < 3 { "mail" } else { "operator" }.to_owned(),
        rounds: u32::try_from(numbers.n).unwrap(),
        ended_at: (status != TurnStatus::Open).then(|| moment(numbers.n)),
        ..turn(number, one_of(&AGENTS, number), status)
    }
}

impl Op {
    /// Runs the operation. Returns what it read, as text.
    pub(super) fn run(self, w: &mut Tx) -> Result<String> {
        if let OpKind::SharedOp(what) = self.what {
            return what.run(w, self.numbers);
        }
        if let Some(done) = self.put(w) {
            done?;
            return Ok(String::new());
        }
        self.compare(w)
    }

    fn put(self, w: &mut Tx) -> Option<Result<()>> {
        let Self { what, numbers } = self;
        let OpNumbers { n, a, b, c } = numbers;
        let name = one_of(&AGENTS, a);
        Some(match what {
            OpKind::PutAgent => {
                let kind = one_of(AgentKind::ALL, b);
                let deleted_at = c.is_multiple_of(4).then(|| moment(n));
                w.agent_put(&Agent { kind, deleted_at, updated_at: moment(n), ..agent(name) })
            }
            OpKind::PutMeta => w.meta_put(one_of(&["k1", "k2"], a), &format!("{n}")),
            OpKind::PutSkill => w.skill_put(&held(name, one_of(&["s1", "s2"], b))),
            OpKind::PutJob => w.job_put(&job(one_of(&["j1", "j2", "j3"], a), a % 3)),
            OpKind::PutRequest => {
                let stored = answer(Party::Agent(id_of(name)), one_of(&["r1", "r2"], b), 1);
                w.request_put(&ghost_domain::StoredAnswer { at: moment(n), ..stored })
            }
            OpKind::PutAsk => {
                let status = one_of(AskStatus::ALL, c);
                let closed_at = (status != AskStatus::Open).then(|| moment(n));
                let target = one_of(&AGENTS, b);
                w.ask_put(&ghost_domain::Ask { closed_at, ..ask(a % 5, "a", target, status) })
            }
            OpKind::PutLetter => {
                let status = one_of(DeadLetterStatus::ALL, c);
                let resolved_at = (status != DeadLetterStatus::Held).then(|| moment(n));
                let messages = vec![message_id(1 + b % n), message_id(1 + c % n)];
                // The agent of a dead letter never changes.
                let name = one_of(&AGENTS, a % 4);
                w.dead_letter_put(&DeadLetter { messages, resolved_at, ..letter(a % 4, name, status) })
            }
            OpKind::PutBudget => {
                let limit = c.is_multiple_of(2).then_some(n);
                w.budget_put(&budget(scope(a), limit, None))
            }
            OpKind::AppendUsage => {
                let row = usage(1, name, one_of(&["m1", "m2"], b), c);
                w.usage_append(&ghost_domain::UsageRow { at: moment(n), ..row })
            }
            OpKind::PutCall => {
                let status = one_of(CallStatus::ALL, c);
                // The agent and the turn of a call never change.
                let (started_at, turn_id) = (Timestamp(1_000_000 + i64::try_from(a % 8).unwrap()), turn_id(a % 8 % 6));
                let row = call(a % 8, one_of(&AGENTS, a % 8), status);
                w.call_put(&ghost_domain::LedgerRow { started_at, turn_id, ..row })
            }
            OpKind::PutTask => {
                let depends_on = if b % 6 == a % 6 { Vec::new() } else { vec![task_id(b % 6)] };
                let status = one_of(TaskStatus::ALL, c);
                let priority = i32::try_from(b % 3).unwrap();
                let updated_at = moment(n);
                w.task_put(&Task { depends_on, priority, updated_at, ..task(a % 6, name, status) })
            }
            OpKind::AppendTaskEvent => {
                let event = TaskEvent {
                    task_id: task_id(a % 6),
                    by: Party::System,
                    at: moment(n),
                    status: one_of(TaskStatus::ALL, c),
                    owner: id_of(name),
                    note: Some(format!("{n}")),
                };
                w.task_event_append(&event)
            }
            OpKind::PutTurn => w.turn_put(&turn_of(numbers)),
            OpKind::AppendJournal => {
                let step =
                    if c.is_multiple_of(3) { briefed(one_of(&["h1", "h2"], b), "h3") } else { note(&format!("{n}")) };
                w.journal_append(turn_id(a % 6), &step, moment(n))
            }
            OpKind::PutPrompt => w.prompt_put(one_of(&["h1", "h2", "h3", "h4"], a), &format!("{n}"), moment(n)),
            OpKind::AppendMail => {
                let envelope = mail(n, name);
                let created_at = moment(n);
                w.message_append(&ghost_domain::Envelope { created_at, wake: b.is_multiple_of(2), ..envelope })
            }
            OpKind::MarkMail => {
                let ids = [message_id(1 + a % n), message_id(1 + b % n), message_id(n.saturating_sub(1 + a % 4))];
                let state = one_of(MailState::ALL, c);
                let of_turn = (state != MailState::Pending).then(|| turn_id(b % 6));
                w.message_read(&ids[..1], moment(n)).ok()?;
                w.message_mark(&ids, state, of_turn, u32::try_from(c % 2).unwrap())
            }
            OpKind::ForgiveMail => match w.message_rouse(&[message_id(1 + b % n)]) {
                Ok(()) => w.message_forgive(&[message_id(1 + a % n), message_id(1 + b % n)]),
                failed => failed,
            },
            OpKind::StateEvent => {
                let event =
                    NewEvent::new(one_of(&[EventKind::TurnStarted, EventKind::TaskCreated], b), json!({"n": n}));
                w.event_append(event_id(n), moment(n), event.agent(&id_of(name)))
            }
            _ => return None,
        })
    }

    fn compare(self, w: &mut Tx) -> Result<String> {
        let Self { what, numbers } = self;
        let OpNumbers { n, a, b, c } = numbers;
        let name = id_of(one_of(&AGENTS, a));
        let page_limit = u32::try_from(c % 6).unwrap();
        Ok(match what {
            OpKind::RemoveSkill => format!("{}", w.skill_remove(&name, one_of(&["s1", "s2"], b))?),
            OpKind::Prune => {
                let family = one_of(&Family::ALL, a);
                let pruned = w.prune(family, moment(n.saturating_sub(b % 200)), u32::try_from(c % 4).unwrap())?;
                // A backend may or may not count prompt parts as turns.
                if family == Family::Turns { String::new() } else { format!("{family:?} {pruned}") }
            }
            OpKind::GetByKey => {
                let found = (
                    w.agent_get(&name)?,
                    w.ask_get(super::rows::ask_id(b % 5))?,
                    w.budget_get(&scope(c))?,
                    w.inbox_depth(&name)?,
                    w.message_get(message_id(1 + b % n))?.map(|mail| (mail.state, mail.turn_id, mail.crashes)),
                    w.turn_open_of(&name)?,
                    w.turn_get(turn_id(c % 6))?,
                    w.task_get(task_id(c % 6))?,
                    w.request_get(&Party::Agent(name), &one_of(&["r1", "r2"], b).parse().unwrap())?,
                );
                format!("{found:?}")
            }
            OpKind::ScanAgents => format!("{:?}", (w.agent_list(b % 2 == 0)?, w.agent_count_dynamic()?)),
            OpKind::ScanAsks => format!("{:?}", (w.asks_open()?, w.ask_count_open()?)),
            OpKind::ScanBudgets => {
                let sums = w.usage_sum(&UsageFilter::default())?;
                let after = (a % 3 == 0).then(|| scope(b));
                let sort = (a % 5 == 0).then(|| one_of(ScopeSort::ALL, b));
                let filter = BudgetFilter { limited: c % 2 == 1, sort, no_roots: b % 4 == 0, after, limit: page_limit };
                format!("{:?}", (w.budget_list(&filter)?, sums))
            }
            OpKind::ScanMail => {
                let limit = u32::try_from(1 + b % 9).unwrap();
                let lists = [
                    w.inbox_pending(&name, limit)?,
                    w.inbox_ready(&name, limit)?,
                    w.messages_recent(&name, limit)?,
                    w.messages_of_turn(turn_id(c % 6))?,
                ];
                let ids = lists.map(|list| list.into_iter().map(|mail| mail.message_id).collect::<Vec<_>>());
                format!("{ids:?} {:?} {}", w.inbox_waiting()?, w.inbox_total()?)
            }
            OpKind::ScanTasks => {
                let after =
                    (a % 2 == 0).then(|| (i32::try_from(c % 3).unwrap() - 1, super::rows::at(b % 6), task_id(a % 6)));
                let owner = (b % 2 == 0).then(|| name.clone());
                let filter = TaskFilter { owner, after, limit: page_limit, ..TaskFilter::default() };
                let lists = (w.task_list(&filter)?, w.task_dependants(task_id(c % 6))?);
                format!("{lists:?} {} {:?}", w.task_count_open()?, w.task_events(task_id(a % 6), 100)?)
            }
            OpKind::ScanTurns => {
                let filter = TurnFilter { status: Some(one_of(TurnStatus::ALL, b)), ..TurnFilter::default() };
                let steps = w.journal_of(turn_id(c % 6))?.into_iter().map(|row| row.step).collect::<Vec<_>>();
                format!("{:?} {:?} {steps:?}", w.turns_open()?, w.turn_list(&filter)?)
            }
            _ => {
                let calls = w.call_list(&LedgerFilter::default())?;
                let sums = w.call_totals(&LedgerFilter::default())?;
                let after = (a % 2 == 0).then(|| (super::rows::at(b % 5), super::rows::letter_id(c % 6)));
                let letters = w.dead_letter_list(None, None, after, page_limit)?;
                format!("{calls:?} {sums:?} {letters:?} {:?} {:?}", w.skills_held(&name)?, w.job_list(None, 1_000)?)
            }
        })
    }
}
