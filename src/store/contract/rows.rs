//! Plain rows for the checks, by number. A check changes only the fields that matter to it.

use ghost_domain::ask::Asker;
use ghost_domain::journal::Step;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::turn::{ParkCause, Parked, WaitMode};
use ghost_domain::{
    Agent, AgentId, AgentKind, AgentStatus, ApprovalId, Ask, AskId, AskStatus, Budget, BudgetLimits, CallId,
    CallStatus, ConversationId, DeadLetter, DeadLetterId, DeadLetterStatus, Desired, Envelope, EventId, GrantId,
    HeldSkill, Job, Kind, LedgerRow, LogPlace, LogRange, LogStart, MailState, MessageId, Money, Party, RequestKey,
    Reservation, ReservationId, RootId, ScheduleId, Scope, StoredAnswer, Task, TaskId, TaskStatus, Timestamp, Turn,
    TurnId, TurnStatus, UsageRow,
};
use serde_json::json;
use uuid::Uuid;

/// Text that a careless backend would break: quotes, line ends, accents, an emoji, a placeholder.
pub(super) const AWKWARD: &str = "it's \"so\"\r\n\té 🦀 $1 ? -- %s";

/// A number that a 64-bit float cannot represent.
pub(super) const LARGE: u64 = (1 << 53) + 1;

pub(super) fn id_of(name: &str) -> AgentId {
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

pub(super) fn agent(name: &str) -> Agent {
    Agent {
        agent_id: id_of(name),
        incarnation: 1,
        archetype: "scribe".to_owned(),
        name: name.to_owned(),
        team: None,
        owner: None,
        kind: AgentKind::Persistent,
        desired: Desired::Running,
        status: AgentStatus::Running,
        status_reason: None,
        restarts: 0,
        overrides: json!({}),
        node: "local".to_owned(),
        epoch: 1,
        created_at: at(1),
        updated_at: at(1),
        started_at: None,
        last_active_at: None,
        deleted_at: None,
        paid_since: None,
        team_since: None,
        dropped: false,
        cannot_run: false,
        helps: None,
        let_go: false,
        stop_grace_seconds: None,
    }
}

pub(super) fn mail(n: u64, to: &str) -> Envelope {
    Envelope {
        message_id: message_id(n),
        seq: 0,
        to: id_of(to),
        from: Party::System,
        kind: Kind::Message,
        subject: None,
        body: format!("mail {n}"),
        attachments: Vec::new(),
        ask_id: None,
        conversation_id: None,
        root_id: root_id(1),
        hop: 0,
        wake: true,
        created_at: at(n),
        read_at: None,
        state: MailState::Pending,
        turn_id: None,
        crashes: 0,
    }
}

/// Why a turn of root 1 is parked when the budget of that root is spent.
pub(super) fn waits_for_root(wait_mode: WaitMode) -> Parked {
    Parked {
        cause: ParkCause::Budget { scope: Scope::Root(root_id(1)) },
        reason: "spent".to_owned(),
        since: at(1),
        wait_mode,
        alone: 0,
    }
}

/// Turn `n`, started at second `n`.
pub(super) fn turn(n: u64, agent: &str, status: TurnStatus) -> Turn {
    Turn {
        turn_id: turn_id(n),
        agent_id: id_of(agent),
        incarnation: 1,
        root_id: root_id(1),
        other_roots: Vec::new(),
        hop: 0,
        conversation_id: None,
        log_from: None,
        about: String::new(),
        source: "mail".to_owned(),
        status,
        reason: None,
        model: None,
        rounds: 0,
        calls: 0,
        input_tokens: 0,
        output_tokens: 0,
        cost: Money(0),
        unpriced_tokens: 0,
        held: None,
        held_calls: Vec::new(),
        questions: Vec::new(),
        text: None,
        truncated: false,
        started_at: at(n),
        ended_at: (status != TurnStatus::Open).then(|| at(n + 1)),
        crashes: 0,
        boot_mark: 0,
        stalled_boots: 0,
        parked: None,
    }
}

/// The place of turn `n`, which ended at second `n`.
pub(super) fn log_place(n: u64) -> LogPlace {
    LogPlace { ended_at: at(n), turn_id: turn_id(n) }
}

pub(super) fn note(text: &str) -> Step {
    Step::Note { text: text.to_owned() }
}

pub(super) fn briefed(system: &str, briefing: &str) -> Step {
    Step::Briefed {
        system: system.to_owned(),
        briefing: briefing.to_owned(),
        log: Some(LogRange { start: Some(LogStart { place: log_place(3), round: 2, cut: true }), end: log_place(9) }),
        mail: "mail".to_owned(),
        tools: None,
    }
}

/// Ask `n` of agent `asker` in turn `n`, created at second `n`.
pub(super) fn ask(n: u64, asker: &str, target: &str, status: AskStatus) -> Ask {
    Ask {
        ask_id: ask_id(n),
        asker: Asker {
            party: Party::Agent(id_of(asker)),
            turn_id: Some(turn_id(n)),
            call_id: Some(call_id(n)),
            provider_call_id: Some(format!("call-{n}")),
        },
        target: id_of(target),
        message_id: message_id(n),
        deadline_at: at(n + 100),
        status,
        reply: None,
        truncated: false,
        error: None,
        code: None,
        hint: None,
        created_at: at(n),
        closed_at: (status != AskStatus::Open).then(|| at(n + 1)),
    }
}

pub(super) fn budget(scope: Scope, tokens: Option<u64>, money: Option<u64>) -> Budget {
    Budget { limits: BudgetLimits { tokens, money: money.map(Money) }, ..Budget::open(scope, at(1)) }
}

pub(super) fn reservation(n: u64) -> Reservation {
    Reservation {
        reservation_id: reservation_id(n),
        provider: "p".to_owned(),
        model: "m".to_owned(),
        scopes: vec![Scope::World, Scope::Team("news".to_owned()), Scope::Agent(id_of("a")), Scope::Root(root_id(1))],
        tokens: 100,
        output: 40,
        money: Some(Money(5)),
    }
}

pub(super) fn usage(at_second: u64, agent: &str, model: &str, tokens: u64) -> UsageRow {
    UsageRow {
        agent_id: id_of(agent),
        turn_id: turn_id(1),
        root_id: root_id(1),
        provider: "p".to_owned(),
        model: model.to_owned(),
        tokens: TokenUsage { input: tokens, output: 1, cache_read: 2, cache_write: 3 },
        cost: Some(Money(7)),
        estimated: false,
        free: false,
        duration_ms: 12,
        at: at(at_second),
    }
}

pub(super) fn letter(n: u64, agent: &str, status: DeadLetterStatus) -> DeadLetter {
    DeadLetter {
        dead_letter_id: letter_id(n),
        agent_id: id_of(agent),
        turn_id: turn_id(n),
        messages: vec![message_id(n)],
        reason: AWKWARD.to_owned(),
        crashes: 3,
        status,
        created_at: at(n),
        resolved_at: (status != DeadLetterStatus::Held).then(|| at(n + 1)),
    }
}

/// Call `n` of turn 1, started at second `n`.
pub(super) fn call(n: u64, agent: &str, status: CallStatus) -> LedgerRow {
    LedgerRow {
        call_id: call_id(n),
        agent_id: id_of(agent),
        turn_id: turn_id(1),
        tool: "workspace.read".to_owned(),
        alias: None,
        arguments: "{}".to_owned(),
        result: None,
        status,
        error_code: None,
        started_at: at(n),
        duration_ms: (status != CallStatus::Started).then_some(5),
        bytes_in: None,
        bytes_out: None,
        tokens: None,
        cost: None,
        truncated: false,
    }
}

/// Task `n`, created at second `n` and changed a second later.
pub(super) fn task(n: u64, owner: &str, status: TaskStatus) -> Task {
    Task {
        task_id: task_id(n),
        title: format!("task {n}"),
        description: String::new(),
        owner: id_of(owner),
        creator: Party::System,
        status,
        priority: 0,
        depends_on: Vec::new(),
        parent_id: None,
        due_at: None,
        result: None,
        root_id: root_id(1),
        conversation_id: None,
        created_at: at(n),
        updated_at: at(n + 1),
    }
}

pub(super) fn held(agent: &str, skill: &str) -> HeldSkill {
    HeldSkill { agent_id: id_of(agent), skill: skill.to_owned(), active: false, acquired_at: at(1) }
}

pub(super) fn job(job_id: &str, started: u64) -> Job {
    Job {
        job_id: job_id.to_owned(),
        task_id: None,
        root_id: root_id(1),
        files: 3,
        started_at: at(started),
        finished_at: None,
        result_dir: "output".to_owned(),
        result_path: None,
    }
}

pub(super) fn answer(principal: Party, request: &str, at_second: u64) -> StoredAnswer {
    StoredAnswer {
        key: RequestKey {
            principal,
            request_id: request.parse().unwrap(),
            method: "Messages/Send".to_owned(),
            digest: "abc".to_owned(),
        },
        answer: format!("{{\"to\":\"{request}\"}}"),
        at: at(at_second),
    }
}
