//! Plain rows for the checks, by number. A check changes only the fields that matter to it.

use super::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Text that a careless backend would break: quotes, line ends, accents, an emoji, a placeholder.
pub(super) const AWKWARD: &str = "it's \"so\"\r\n\té 🦀 $1 ? -- %s";

/// A number that a 64-bit float cannot represent.
pub(super) const LARGE: u64 = (1 << 53) + 1;

pub(crate) fn id_of(name: &str) -> AgentId {
    name.parse().unwrap()
}

/// The time `n` seconds after the start of 1970.
pub(super) fn at(n: u64) -> Timestamp {
    Timestamp(i64::try_from(n).unwrap() * 1_000)
}

pub(super) fn uuid(n: u64) -> Uuid {
    Uuid::from_u128(u128::from(n))
}

macro_rules! numbered {
    ($($name:ident: $id:ident),+ $(,)?) => { $(pub(super) fn $name(n: u64) -> $id { $id(uuid(n)) })+ };
}

numbered! {
    approval_id: ApprovalId, ask_id: AskId, call_id: CallId, conversation_id: ConversationId, event_id: EventId,
    grant_id: GrantId, letter_id: DeadLetterId, message_id: MessageId, reservation_id: ReservationId, root_id: RootId,
    schedule_id: ScheduleId, task_id: TaskId, turn_id: TurnId,
}

/// The row with these fields. The others have their defaults, as in a stored record.
pub(super) fn row<T: DeserializeOwned>(fields: Value) -> T {
    serde_json::from_value(fields).unwrap()
}

/// A row that differs from `base` in these fields.
pub(super) fn with<T: Serialize + DeserializeOwned>(base: T, fields: Value) -> T {
    let mut all = json!(base);
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let changed: T = row(all.clone());
    assert_eq!(json!(changed), all, "the row has each of the fields");
    changed
}

pub(super) fn agent(name: &str) -> Agent {
    row(json!({
        "agent_id": name, "incarnation": 1, "archetype": "scribe", "name": name, "kind": "persistent",
        "desired": "running", "status": "running", "restarts": 0, "overrides": {}, "node": "local", "epoch": 1,
        "created_at": at(1), "updated_at": at(1),
    }))
}

pub(crate) fn mail(n: u64, to: &str) -> Envelope {
    row(json!({
        "message_id": message_id(n), "seq": 0, "to": to, "from": Party::System, "kind": "message",
        "body": format!("mail {n}"), "root_id": root_id(1), "hop": 0, "wake": true, "created_at": at(n),
        "state": "pending", "crashes": 0,
    }))
}

/// Why a turn of root 1 is parked when the budget of that root is spent.
pub(super) fn waits_for_root(wait_mode: WaitMode) -> Parked {
    let cause = ParkCause::Budget { scope: Scope::Root(root_id(1)) };
    Parked { cause, reason: "spent".to_owned(), since: at(1), wait_mode, alone: 0 }
}

/// Turn `n`, started at second `n`.
pub(super) fn turn(n: u64, agent: &str, status: TurnStatus) -> Turn {
    row(json!({
        "turn_id": turn_id(n), "agent_id": agent, "incarnation": 1, "root_id": root_id(1), "source": "mail",
        "status": status, "rounds": 0, "calls": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0,
        "started_at": at(n), "ended_at": (status != TurnStatus::Open).then(|| at(n + 1)),
    }))
}

/// The place of turn `n`, which ended at second `n`.
pub(super) fn log_place(n: u64) -> LogPlace {
    LogPlace { ended_at: at(n), turn_id: turn_id(n) }
}

pub(super) fn note(text: &str) -> Step {
    Step::Note { text: text.to_owned() }
}

pub(super) fn briefed(system: &str, briefing: &str) -> Step {
    let log = LogRange { start: Some(LogStart { place: log_place(3), round: 2, cut: true }), end: log_place(9) };
    let (system, briefing) = (system.to_owned(), briefing.to_owned());
    Step::Briefed { system, briefing, log: Some(log), mail: "mail".to_owned(), tools: None }
}

/// Ask `n` of agent `asker` in turn `n`, created at second `n`.
pub(super) fn ask(n: u64, asker: &str, target: &str, status: AskStatus) -> Ask {
    row(json!({
        "ask_id": ask_id(n), "target": target, "message_id": message_id(n), "deadline_at": at(n + 100), "status": status,
        "asker": {
            "party": Party::Agent(id_of(asker)), "turn_id": turn_id(n), "call_id": call_id(n),
            "provider_call_id": format!("call-{n}"),
        },
        "created_at": at(n), "closed_at": (status != AskStatus::Open).then(|| at(n + 1)),
    }))
}

pub(super) fn budget(scope: Scope, tokens: Option<u64>, money: Option<u64>) -> Budget {
    Budget { limits: BudgetLimits { tokens, money: money.map(Money) }, ..Budget::open(scope, at(1)) }
}

pub(super) fn reservation(n: u64) -> Reservation {
    let scopes = [Scope::World, Scope::Team("news".to_owned()), Scope::Agent(id_of("a")), Scope::Root(root_id(1))];
    row(json!({
        "reservation_id": reservation_id(n), "provider": "p", "model": "m", "scopes": scopes, "tokens": 100, "output": 40,
        "money": 5,
    }))
}

pub(super) fn usage(at_second: u64, agent: &str, model: &str, tokens: u64) -> UsageRow {
    row(json!({
        "agent_id": agent, "turn_id": turn_id(1), "root_id": root_id(1), "provider": "p", "model": model,
        "tokens": { "input": tokens, "output": 1, "cache_read": 2, "cache_write": 3 }, "cost": 7, "estimated": false,
        "free": false, "duration_ms": 12, "at": at(at_second),
    }))
}

pub(super) fn letter(n: u64, agent: &str, status: DeadLetterStatus) -> DeadLetter {
    row(json!({
        "dead_letter_id": letter_id(n), "agent_id": agent, "turn_id": turn_id(n), "messages": [message_id(n)],
        "reason": AWKWARD, "crashes": 3, "status": status, "created_at": at(n),
        "resolved_at": (status != DeadLetterStatus::Held).then(|| at(n + 1)),
    }))
}

/// Call `n` of turn 1, started at second `n`.
pub(super) fn call(n: u64, agent: &str, status: CallStatus) -> LedgerRow {
    row(json!({
        "call_id": call_id(n), "agent_id": agent, "turn_id": turn_id(1), "tool": "workspace.read", "arguments": "{}",
        "status": status, "started_at": at(n), "duration_ms": (status != CallStatus::Started).then_some(5),
        "truncated": false,
    }))
}

/// Task `n`, created at second `n` and changed a second later.
pub(super) fn task(n: u64, owner: &str, status: TaskStatus) -> Task {
    row(json!({
        "task_id": task_id(n), "title": format!("task {n}"), "description": "", "owner": owner, "creator": Party::System,
        "status": status, "priority": 0, "root_id": root_id(1), "created_at": at(n), "updated_at": at(n + 1),
    }))
}

pub(super) fn held(agent: &str, skill: &str) -> HeldSkill {
    HeldSkill { agent_id: id_of(agent), skill: skill.to_owned(), active: false, acquired_at: at(1) }
}

pub(super) fn job(job_id: &str, started: u64) -> Job {
    row(json!({
        "job_id": job_id, "root_id": root_id(1), "files": 3, "started_at": at(started), "result_dir": "output",
    }))
}

pub(super) fn answer(principal: Party, request: &str, at_second: u64) -> StoredAnswer {
    row(json!({
        "key": { "principal": principal, "request_id": request, "method": "Messages/Send", "digest": "abc" },
        "answer": format!("{{\"to\":\"{request}\"}}"), "at": at(at_second),
    }))
}
