//! Tool calls: the ledger of all of them, and what they wait for: asks and approvals.

use std::borrow::Cow;

use ghost_domain::{
    AgentId, Approval, ApprovalId, ApprovalStatus, Ask, AskId, AskStatus, CallId, CallStatus, CallTotals, Code,
    LedgerRow, Timestamp, TurnId,
};
use serde::{Deserialize, Serialize};

use super::prelude::*;

/// Which rows a list contains. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct LedgerFilter {
    /// Agent that made the call.
    pub agent_id: Option<AgentId>,
    /// Turn that made the call.
    pub turn_id: Option<TurnId>,
    /// Canonical name of the tool.
    pub tool: Option<String>,
    /// Status of the call.
    pub status: Option<CallStatus>,
    /// Started at or after this.
    pub since: Option<Timestamp>,
    /// Started before this.
    pub before: Option<Timestamp>,
    /// Only calls after this start time and id: older ones, or equally old ones with a lower id.
    pub after: Option<(Timestamp, CallId)>,
    /// At most this many rows.
    pub limit: u32,
}

/// The JSON record of a ledger row: all fields that have no column. Older records contain the
/// fields with columns too; these are ignored.
#[derive(Serialize, Deserialize)]
struct RecordFields<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    alias: Option<Cow<'a, str>>,
    arguments: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error_code: Option<Code>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

impl<'a> RecordFields<'a> {
    fn from_row(row: &'a LedgerRow) -> Self {
        Self {
            alias: row.alias.as_deref().map(Cow::Borrowed),
            arguments: Cow::Borrowed(&row.arguments),
            result: row.result.as_deref().map(Cow::Borrowed),
            error_code: row.error_code,
            truncated: row.truncated,
        }
    }
}

/// The columns of every query but that of sums, in this order.
macro_rules! select {
    () => {
        "SELECT record, call_id, agent_id, turn_id, tool, status, started_at, cost_micros, duration_ms, bytes_in, \
         bytes_out, tokens FROM ledger"
    };
}

insert! {
    call: LedgerRow, "ledger",
    "ON CONFLICT (call_id) DO UPDATE SET status = excluded.status, ended_at = excluded.ended_at, \
    cost_micros = excluded.cost_micros, duration_ms = excluded.duration_ms, bytes_in = excluded.bytes_in, \
    bytes_out = excluded.bytes_out, tokens = excluded.tokens, record = excluded.record";
    call_id, agent_id, turn_id, tool, status, started_at, ended_at = ended_at(call), cost_micros = call.cost, duration_ms,
    bytes_in, bytes_out, tokens, record = to_json(Self::TABLE, call.call_id, &RecordFields::from_row(call))?
}

/// When a call ended; `None` while it runs.
fn ended_at(call: &LedgerRow) -> Option<i64> {
    let took = i64::try_from(call.duration_ms.unwrap_or(0)).unwrap_or(i64::MAX);
    (call.status != CallStatus::Started).then(|| call.started_at.0.saturating_add(took))
}

impl Keyed for LedgerRow {
    type Key = CallId;
    const SELECT: Sql = sql!(select!(), " WHERE call_id = $1");

    fn bind_key(key: &CallId, args: &mut Args) {
        args.push(key);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        const TABLE: &str = LedgerRow::TABLE;
        let rest: RecordFields<'static> = from_record(TABLE, row)?;
        Ok(fields!(TABLE, row, 1, Self {
            call_id, agent_id, turn_id, tool, status, started_at, cost, duration_ms, bytes_in, bytes_out, tokens;
            alias: rest.alias.map(Cow::into_owned),
            arguments: rest.arguments.into_owned(),
            result: rest.result.map(Cow::into_owned),
            error_code: rest.error_code,
            truncated: rest.truncated
        }))
    }
}

/// The SQL condition for a status, in the words of the partial indexes of calls that did not
/// succeed: SQLite uses a partial index only if the query repeats its condition.
fn with_status(status: CallStatus) -> &'static str {
    match status {
        CallStatus::Ok => "status = 'ok'",
        CallStatus::Started => "status = 'started' AND status <> 'ok'",
        CallStatus::Failed => "status = 'failed' AND status <> 'ok'",
        CallStatus::Unknown => "status = 'unknown' AND status <> 'ok'",
    }
}

/// The index for a list. It is named, because SQLite does not know that a turn has few calls, that a tool is
/// rare, or that few calls have failed.
fn index_of(filter: &LedgerFilter) -> &'static str {
    let failed = filter.status.is_some_and(|status| status != CallStatus::Ok);
    match (filter.turn_id, &filter.agent_id, &filter.tool) {
        (Some(_), ..) => "{index ledger_turn}",
        (None, Some(_), _) if failed => "{index ledger_agent_status}",
        (None, None, _) if failed => "{index ledger_status}",
        (None, Some(_), Some(_)) => "{index ledger_agent_tool}",
        (None, Some(_), None) => "{index ledger_agent}",
        (None, None, Some(_)) => "{index ledger_tool}",
        (None, None, None) => "{index ledger_started}",
    }
}

/// The query for the rows that `filter` lets through, before order and limit.
fn matching(select: &str, filter: &LedgerFilter) -> Conditions {
    Conditions::new(&format!("{select}{}", index_of(filter)))
        .when(filter.agent_id.as_ref(), "agent_id = $1")
        .when(filter.turn_id, "turn_id = $1")
        .when(filter.tool.as_deref(), "tool = $1")
        .and(filter.status.map(with_status))
        .when(filter.since, "started_at >= $1")
        .when(filter.before, "started_at < $1")
}

/// Sums by tool and status.
const TOTALS: &str = "SELECT tool, status, count(*), CAST(coalesce(sum(duration_ms), 0) AS BIGINT), \
    CAST(coalesce(sum(bytes_in), 0) AS BIGINT), CAST(coalesce(sum(bytes_out), 0) AS BIGINT), \
    CAST(coalesce(sum(tokens), 0) AS BIGINT), CAST(coalesce(sum(cost_micros), 0) AS BIGINT) FROM ledger";

fn total(row: &ReadRow<'_>) -> Result<CallTotals> {
    Ok(fields!(
        LedgerRow::TABLE,
        row,
        0,
        CallTotals { tool, status, calls, duration_ms, bytes_in, bytes_out, tokens, cost }
    ))
}

functions! {
    /// Matching rows, newest first.
    page call_list(filter: &LedgerFilter) -> Vec<LedgerRow>:
        matching(select!(), filter)
            .when(filter.after, "(started_at, call_id) < ($1, $2)")
            .order("started_at DESC, call_id DESC", list_limit(filter.limit));
    /// The row of this call.
    get call_get(call_id: CallId) -> Option<LedgerRow>: &call_id;
    /// Inserts a row, or replaces the changeable part of it. Agent, turn, tool and start time never
    /// change.
    put call_put(row: &LedgerRow) -> (): row;
}

impl Tx {
    /// Sums over the matching rows by tool and status, in the order of both. `after` and `limit` of the filter do
    /// not apply: there are at most [`PAGE_MAX`](super::PAGE_MAX) sums.
    pub fn call_totals(&mut self, filter: &LedgerFilter) -> Result<Vec<CallTotals>> {
        let (sql, args) = matching(TOTALS, filter).grouped("tool, status", "tool, status", i64::from(PAGE_MAX));
        self.rows(sql, args, total)
    }
}

/// The count of open asks.
const OPEN: &str = "asks_open";

record! {
    ask: Ask, "asks"; key ask_id: AskId;
    status, target, asker_turn = ask.asker.turn_id, created_at,
    closed_at = (ask.status != AskStatus::Open).then(|| ask.closed_at.unwrap_or(ask.created_at))
}

functions! {
    /// The ask with this id.
    get ask_get(ask_id: AskId) -> Option<Ask>: &ask_id;
    /// All open asks, in order of creation.
    list asks_open() -> Vec<Ask>: "SELECT record FROM asks WHERE status = 'open' ORDER BY created_at, ask_id";
    /// Open asks that this agent must answer.
    list asks_open_to(target: &AgentId) -> Vec<Ask>:
        "SELECT record FROM asks WHERE status = 'open' AND target = $1 ORDER BY created_at, ask_id";
    /// Open asks that this turn waits for.
    list asks_open_of_turn(turn_id: TurnId) -> Vec<Ask>:
        "SELECT record FROM asks WHERE status = 'open' AND asker_turn = $1 ORDER BY created_at, ask_id";
    /// Number of open asks.
    counted ask_count_open() -> u32: OPEN;
    /// Inserts or replaces an ask.
    put_counted ask_put(ask: &Ask) -> (): &ask.ask_id,
        "SELECT 'asks_open' FROM asks WHERE ask_id = $1 AND status = 'open'",
        (ask.status == AskStatus::Open).then_some(OPEN);
}

/// The filter of a list. An absent field does not filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only approvals of this agent's calls.
    pub agent_id: Option<AgentId>,
    /// Only approvals in this state.
    pub status: Option<ApprovalStatus>,
    /// Only approvals that hold for later calls, too.
    pub always: bool,
}

/// The count of pending approvals.
const PENDING: &str = "approvals_pending";

record! {
    approval: Approval, "approvals"; key approval_id: ApprovalId;
    agent_id, turn_id, digest, status, always, requested_at,
    closed_at = (approval.status != ApprovalStatus::Pending).then(|| approval.closed_at.unwrap_or(approval.requested_at))
}

/// One page of the list of approvals, newest first.
fn approvals(filter: &ApprovalFilter, after: Option<(Timestamp, ApprovalId)>, limit: u32) -> (Statement, Args) {
    Conditions::new("SELECT record FROM approvals")
        .when(filter.agent_id.as_ref(), "agent_id = $1")
        .when(filter.status, "status = $1")
        .and(filter.always.then_some("always = 1"))
        .when(after, "(requested_at, approval_id) < ($1, $2)")
        .order("requested_at DESC, approval_id DESC", list_limit(limit))
}

functions! {
    /// Approvals, newest first (then by id, highest first).
    page approval_list(filter: &ApprovalFilter, after: Option<(Timestamp, ApprovalId)>, limit: u32) -> Vec<Approval>:
        approvals(filter, after, limit);
    /// The approval with this id.
    get approval_get(approval_id: ApprovalId) -> Option<Approval>: &approval_id;
    /// Number of pending approvals.
    counted approval_count_pending() -> u32: PENDING;
    /// Pending approvals of the calls of a turn, oldest first.
    list approvals_pending_of_turn(turn_id: TurnId) -> Vec<Approval>:
        "SELECT record FROM approvals WHERE status = 'pending' AND turn_id = $1 ORDER BY requested_at, approval_id";
    /// The approval under which an agent may run the plan with this digest without asking again.
    first approval_standing(agent_id: &AgentId, digest: &str) -> Option<Approval>:
        "SELECT record FROM approvals WHERE always = 1 AND agent_id = $1 AND digest = $2 \
        ORDER BY requested_at, approval_id LIMIT 1";
    /// Inserts or replaces an approval.
    put_counted approval_put(approval: &Approval) -> (): &approval.approval_id,
        "SELECT 'approvals_pending' FROM approvals WHERE approval_id = $1 AND status = 'pending'",
        (approval.status == ApprovalStatus::Pending).then_some(PENDING);
}
