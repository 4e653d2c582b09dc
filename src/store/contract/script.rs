//! Random sequences of commands that can run on any store. They depend only on the seed. The operations include reads: a
//! command must see its own writes.

use super::approvals::approval;
use super::random::{AGENTS, OpNumbers, Random, Run, moment, one_of, operations, show};
use super::roots::tally;
use super::script_shared;
use super::sessions::start;
use super::tools::*;

fn small(random: u64) -> u32 {
    u32::try_from(random).unwrap()
}

/// The most frequent operations of real commands.
const COMMON: [&str; 7] =
    ["append mail", "mark mail", "append event", "put turn", "append journal", "put budget", "get by key"];

operations! {
    w, n, a, b, c;
    "put agent": {
        let (kind, deleted_at) = (one_of(AgentKind::ALL, b), c.is_multiple_of(4).then(|| moment(n)));
        w.agent_put(&Agent { kind, deleted_at, updated_at: moment(n), ..agent(one_of(&AGENTS, a)) })?
    };
    "put meta": w.meta_put(one_of(&["k1", "k2"], a), &format!("{n}"))?;
    "put skill": w.skill_put(&held(one_of(&AGENTS, a), one_of(&["s1", "s2"], b)))?;
    "remove skill": w.skill_remove(&id_of(one_of(&AGENTS, a)), one_of(&["s1", "s2"], b))?;
    "put job": w.job_put(&job(one_of(&["j1", "j2", "j3"], a), a % 3))?;
    "put request": {
        let stored = answer(Party::Agent(id_of(one_of(&AGENTS, a))), one_of(&["r1", "r2"], b), 1);
        w.request_put(&StoredAnswer { at: moment(n), ..stored })?
    };
    "put ask": {
        let status = one_of(AskStatus::ALL, c);
        let closed_at = (status != AskStatus::Open).then(|| moment(n));
        w.ask_put(&Ask { closed_at, ..ask(a % 5, "a", one_of(&AGENTS, b), status) })?
    };
    "put approval": {
        let row = approval(1 + a % 5, one_of(&AGENTS, a % 5), one_of(ApprovalStatus::ALL, c));
        w.approval_put(&Approval { always: b.is_multiple_of(5), ..row })?
    };
    "put session start": w.session_start_put(&start(one_of(&AGENTS, a), b.is_multiple_of(2).then_some(1), n))?;
    "put tally": w.root_put(&tally(1 + a % 4, n))?;
    "put letter": {
        let status = one_of(DeadLetterStatus::ALL, c);
        let resolved_at = (status != DeadLetterStatus::Held).then(|| moment(n));
        let messages = vec![message_id(1 + b % n), message_id(1 + c % n)];
        // The agent of a dead letter never changes.
        let row = letter(a % 4, one_of(&AGENTS, a % 4), status);
        w.dead_letter_put(&DeadLetter { messages, resolved_at, ..row })?
    };
    "put budget": w.budget_put(&budget(scope(a), c.is_multiple_of(2).then_some(n), None))?;
    "append usage":
        w.usage_append(&UsageRow { at: moment(n), ..usage(1, one_of(&AGENTS, a), one_of(&["m1", "m2"], b), c) })?;
    "put call": {
        // The agent and the turn of a call never change.
        let row = call(a % 8, one_of(&AGENTS, a % 8), one_of(CallStatus::ALL, c));
        w.call_put(&LedgerRow { started_at: moment(a % 8), turn_id: turn_id(a % 8 % 6), ..row })?
    };
    "put task": {
        let depends_on = if b % 6 == a % 6 { Vec::new() } else { vec![task_id(b % 6)] };
        let priority = i32::try_from(b % 3).unwrap();
        let row = task(a % 6, one_of(&AGENTS, a), one_of(TaskStatus::ALL, c));
        w.task_put(&Task { depends_on, priority, updated_at: moment(n), ..row })?
    };
    "append task event": {
        let (owner, status) = (id_of(one_of(&AGENTS, a)), one_of(TaskStatus::ALL, c));
        let (task_id, by, at, note) = (task_id(a % 6), Party::System, moment(n), Some(format!("{n}")));
        w.task_event_append(&TaskEvent { task_id, by, at, status, owner, note })?
    };
    "put turn": w.turn_put(&turn_of(n, a, b, c))?;
    "append journal": {
        let step = if c.is_multiple_of(3) { briefed(one_of(&["h1", "h2"], b), "h3") } else { note(&format!("{n}")) };
        w.journal_append(turn_id(a % 6), &step, moment(n))?
    };
    "put prompt": w.prompt_put(one_of(&["h1", "h2", "h3", "h4"], a), &format!("{n}"), moment(n))?;
    "append mail": w.message_append(&Envelope {
        created_at: moment(n), wake: b.is_multiple_of(2), ..mail(n, one_of(&AGENTS, a))
    })?;
    "mark mail": {
        let ids = [message_id(1 + a % n), message_id(1 + b % n), message_id(n.saturating_sub(1 + a % 4))];
        let state = one_of(MailState::ALL, c);
        let of_turn = (state != MailState::Pending).then(|| turn_id(b % 6));
        w.message_read(&ids[..1], moment(n))?;
        w.message_mark(&ids, state, of_turn, small(c % 2))?
    };
    "forgive mail": {
        w.message_rouse(&[message_id(1 + b % n)])?;
        w.message_forgive(&[message_id(1 + a % n), message_id(1 + b % n)])?
    };
    "append event": {
        let event = NewEvent::new(one_of(&[EventKind::TurnStarted, EventKind::TaskCreated], b), json!({"n": n}));
        w.event_append(event_id(n), moment(n), event.agent(&id_of(one_of(&AGENTS, a))))?
    };
    "prune": {
        let family = one_of(&Family::ALL, a);
        let pruned = w.prune(family, moment(n.saturating_sub(b % 200)), small(c % 4))?;
        // A backend may or may not count prompt parts as turns.
        (family, Some(pruned).filter(|_| family != Family::Turns))
    };
    "get by key": {
        let name = id_of(one_of(&AGENTS, a));
        (
            w.agent_get(&name)?,
            w.ask_get(ask_id(b % 5))?,
            w.budget_get(&scope(c))?,
            w.inbox_depth(&name)?,
            w.message_get(message_id(1 + b % n))?.map(|mail| (mail.state, mail.turn_id, mail.crashes)),
            w.turn_open_of(&name)?,
            w.turn_get(turn_id(c % 6))?,
            w.task_get(task_id(c % 6))?,
            w.request_get(&Party::Agent(name), &one_of(&["r1", "r2"], b).parse().unwrap())?,
        )
    };
    "scan agents": (w.agent_list(b % 2 == 0)?, w.agent_count_dynamic()?);
    "scan asks": (w.asks_open()?, w.ask_count_open()?);
    "scan budgets": {
        let after = (a % 3 == 0).then(|| scope(b));
        let sort = (a % 5 == 0).then(|| one_of(ScopeSort::ALL, b));
        let filter = BudgetFilter { limited: c % 2 == 1, sort, no_roots: b % 4 == 0, after, limit: small(c % 6) };
        (w.budget_list(&filter)?, w.usage_sum(&UsageFilter::default())?)
    };
    "scan mail": {
        let (name, limit) = (id_of(one_of(&AGENTS, a)), small(1 + b % 9));
        let lists = [
            w.inbox_pending(&name, limit)?,
            w.inbox_ready(&name, limit)?,
            w.messages_recent(&name, limit)?,
            w.messages_of_turn(turn_id(c % 6))?,
        ];
        let ids = lists.map(|list| list.into_iter().map(|mail| mail.message_id).collect::<Vec<_>>());
        (ids, w.inbox_waiting()?, w.inbox_total()?)
    };
    "scan tasks": {
        let after = (a % 2 == 0).then(|| (i32::try_from(c % 3).unwrap() - 1, at(b % 6), task_id(a % 6)));
        let owner = (b % 2 == 0).then(|| id_of(one_of(&AGENTS, a)));
        let filter = TaskFilter { owner, after, limit: small(c % 6), ..TaskFilter::default() };
        let lists = (w.task_list(&filter)?, w.task_dependants(task_id(c % 6))?);
        (lists, w.task_count_open()?, w.task_events(task_id(a % 6), 100)?)
    };
    "scan turns": {
        let filter = TurnFilter { status: Some(one_of(TurnStatus::ALL, b)), ..TurnFilter::default() };
        let steps = w.journal_of(turn_id(c % 6))?.into_iter().map(|row| row.step).collect::<Vec<_>>();
        (w.turns_open()?, w.turn_list(&filter)?, steps)
    };
    "scan the rest": {
        let any = LedgerFilter::default();
        let after = (a % 2 == 0).then(|| (at(b % 5), letter_id(c % 6)));
        let letters = w.dead_letter_list(None, None, after, small(c % 6))?;
        let skills = w.skills_held(&id_of(one_of(&AGENTS, a)))?;
        (w.call_list(&any)?, w.call_totals(&any)?, letters, skills, w.job_list(None, 1_000)?)
    };
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    what: (&'static str, Run),
    numbers: OpNumbers,
}

impl Op {
    pub(super) fn run(self, w: &mut Tx) -> Result<String> {
        self.what.1(w, self.numbers)
    }
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

/// Each operation. The first one has the number `first`, on which the random numbers depend, too.
pub(super) fn every_operation(first: u64) -> Vec<Op> {
    let mut random = Random::new(first);
    let all = ALL.iter().chain(script_shared::ALL).zip(first..);
    all.map(|(what, n)| Op { what: *what, numbers: OpNumbers::of(n, &mut random) }).collect()
}

/// Creates `count` commands from a seed.
pub(super) fn script(seed: u64, count: u64) -> Vec<Command> {
    let mut random = Random::new(seed);
    let mut n = 0;
    let mut op = |random: &mut Random| {
        n += 1;
        let what = match (random.below(3), random.below(1_000)) {
            (0, name) => *ALL.iter().find(|(known, _)| *known == one_of(&COMMON, name)).unwrap(),
            (1, number) => one_of(ALL, number),
            (_, number) => one_of(script_shared::ALL, number),
        };
        Op { what, numbers: OpNumbers::of(n, random) }
    };
    let mut command = |_| {
        let ops = (0..=random.below(6)).map(|_| op(&mut random)).collect();
        let end = match random.below(10) {
            0..=1 => End::Refuse,
            2 => End::Panic,
            _ => End::Keep,
        };
        Command { ops, end }
    };
    (0..count).map(&mut command).collect()
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
fn turn_of(n: u64, a: u64, b: u64, c: u64) -> Turn {
    let number = a % 6;
    let status = one_of(TurnStatus::ALL, c);
    let waits = [Some(WaitMode::Blocking), Some(WaitMode::Background), Some(WaitMode::Ready), None, None];
    let parked = one_of(&waits, b).filter(|_| number < 3 && status == TurnStatus::Open);
    Turn {
        parked: parked.map(waits_for_root),
        conversation_id: (number % 2 == 1).then(|| conversation_id(number)),
        log_from: (b % 2 == 1).then(|| moment(b)),
        other_roots: (2..2 + c % 3).map(root_id).collect(),
        source: if number < 3 { "mail" } else { "operator" }.to_owned(),
        rounds: small(n),
        ended_at: (status != TurnStatus::Open).then(|| moment(n)),
        ..turn(number, one_of(&AGENTS, number), status)
    }
}
