//! The services `Turns` and `Approvals`: turns with their journals, and the calls in them that wait for an operator.

use ghost_domain::text::clip;
use ghost_domain::{Approval, ApprovalId, ApprovalStatus, CallId, Code, Party, Refusal, Turn, TurnId, TurnStatus};
use ghost_operations::approvals::Decision;
use ghost_operations::turns::Settled;
use ghost_operations::{Tx, approvals, turns};
use ghost_proto::v1;
use ghost_store::tables::{ApprovalFilter, TurnFilter};
use serde_json::Value;

use crate::convert::input;
use crate::convert::input::Position;
use crate::dispatch::{Mutation, Query, Result};
use crate::{convert, queries};

/// Number of journal steps in one response: default and maximum.
const STEPS: usize = 200;
const STEPS_MAX: usize = 1_000;

pub(crate) async fn list(cx: Query, request: v1::ListTurnsRequest) -> Result<v1::ListTurnsResponse> {
    // A parked turn is stored as open, but is listed as parked.
    let (status, parked) = match request.status.as_deref() {
        Some(convert::PARKED) => (Some(TurnStatus::Open), Some(true)),
        wanted => {
            let status = input::parsed_if("status", wanted).map_err(|refusal| {
                let all: Vec<&str> = TurnStatus::ALL.iter().map(|status| status.as_str()).collect();
                refusal.hint(format!("one of: {}, {}", convert::PARKED, all.join(", ")))
            })?;
            (status, (status == Some(TurnStatus::Open)).then_some(false))
        }
    };
    let filter = TurnFilter {
        agent_id: queries::agent_in_filter(&cx.world, "agent_id", request.agent_id.as_deref()).await?,
        status,
        parked,
        root_id: input::parsed_if("root_id", request.root_id.as_deref())?,
        ..TurnFilter::default()
    };
    let after = input::position_of("turns", &request.cursor)?.map(|after| (after.at, TurnId(after.id)));
    let root_id = filter.root_id;
    let position = |turn: &Turn| Position { at: turn.started_at, id: turn.turn_id.0 }.cursor();
    let page = queries::page(
        &cx.world,
        request.limit,
        move |r, most| r.turn_list(&TurnFilter { after, limit: most, ..filter }),
        position,
    )
    .await?;
    // Checked last, because a turn may be the only record of its root.
    if let Some(root_id) = root_id.filter(|_| after.is_none() && page.rows.is_empty()) {
        queries::root_named(&cx.world, root_id).await?;
    }
    let (turns, next_cursor) = page.sealed("turns", |turn| convert::turn(turn, cx.redactor()));
    Ok(v1::ListTurnsResponse { turns, next_cursor })
}

pub(crate) async fn get(cx: Query, request: v1::GetTurnRequest) -> Result<v1::GetTurnResponse> {
    let limit = match usize::try_from(request.limit).unwrap_or(STEPS_MAX) {
        0 => STEPS,
        limit => limit.min(STEPS_MAX),
    };
    let turn_id = input::parsed("turn_id", &request.turn_id)?;
    let read = cx.world.store().read(move |r| match r.turn_get(turn_id)? {
        Some(turn) => Ok((turn, r.journal_of(turn_id)?)),
        None => Err(queries::no_turn(turn_id)),
    });
    let (turn, rows) = read.await?;
    let redactor = cx.redactor();
    let mut steps = Vec::new();
    let (mut bytes, mut more) = (0, false);
    for row in rows.iter().filter(|row| row.seq > request.after_seq) {
        let step = serde_json::to_value(&row.step)
            .map_err(|error| Refusal::new(Code::Internal, format!("a step cannot be written: {error}")))?;
        let step = convert::journal_row(row, &redactor.redact_json(&step));
        bytes += step.step_json.len();
        if steps.len() == limit || (bytes > queries::PAGE_BYTES && !steps.is_empty()) {
            more = true;
            break;
        }
        steps.push(step);
    }
    Ok(v1::GetTurnResponse { turn: Some(convert::turn(&turn, redactor)), steps, more })
}

pub(crate) async fn retry(cx: Mutation, request: v1::RetryTurnRequest) -> Result<v1::RetryTurnResponse> {
    let turn_id: TurnId = input::parsed("turn_id", &request.turn_id)?;
    let turn = cx.once(move |w, by| turns::retry(w, by, turn_id)).await?;
    let turn = Some(convert::turn(&turn, cx.redactor()));
    Ok(v1::RetryTurnResponse { turn })
}

pub(crate) async fn settle(cx: Mutation, request: v1::SettleCallRequest) -> Result<v1::SettleCallResponse> {
    let call_id: CallId = input::parsed("call_id", &request.call_id)?;
    let settled = match request.outcome.as_str() {
        "happened" => Settled::Happened,
        "did-not" => Settled::DidNot,
        other => {
            let refusal = Refusal::new(Code::InvalidArguments, format!("outcome: `{}` is no outcome", clip(other, 40)));
            return Err(refusal.hint("write `happened` or `did-not`"));
        }
    };
    let note = input::line_if("note", request.note.as_deref(), 300)?;
    let row = cx.once(move |w, by| turns::settle(w, by, call_id, (settled, note.as_deref()))).await?;
    Ok(v1::SettleCallResponse { call: Some(convert::ledger_row(&row)) })
}

pub(crate) async fn cancel(cx: Mutation, request: v1::CancelTurnRequest) -> Result<v1::CancelTurnResponse> {
    let reason = input::line_if("reason", request.reason.as_deref(), 300)?;
    let turn_id: TurnId = input::parsed("turn_id", &request.turn_id)?;
    let (turn, changed) = cx.once(move |w, by| cancel_open(w, by, turn_id, reason.as_deref())).await?;
    Ok(v1::CancelTurnResponse { turn: Some(convert::turn(&turn, cx.redactor())), changed })
}

/// Cancels an open turn. A turn that has ended stays as it is; the flag is then false.
fn cancel_open(w: &mut Tx, by: &Party, turn_id: TurnId, reason: Option<&str>) -> Result<(Turn, bool)> {
    match w.turn_get(turn_id)? {
        None => Err(queries::no_turn(turn_id)),
        Some(turn) if turn.status != TurnStatus::Open => Ok((turn, false)),
        Some(_) => {
            let mut turn = turns::cancel(w, by, turn_id)?;
            if let Some(reason) = reason {
                turn.reason = Some(format!("by {by}: {}", w.ctx.redactor.redact(&clip(reason, 300))));
                w.turn_put(&turn)?;
            }
            Ok((turn, true))
        }
    }
}

pub(crate) async fn list_approvals(cx: Query, request: v1::ListApprovalsRequest) -> Result<v1::ListApprovalsResponse> {
    let status: Option<ApprovalStatus> = match request.status.as_deref() {
        None if request.always => None,
        None => Some(ApprovalStatus::Pending),
        Some("all") => None,
        Some(text) => Some(input::parsed("status", text)?),
    };
    let agent_id = queries::agent_in_filter(&cx.world, "agent_id", request.agent_id.as_deref()).await?;
    let filter = ApprovalFilter { agent_id, status, always: request.always };
    let after = input::position_of("approvals", &request.cursor)?.map(|after| (after.at, ApprovalId(after.id)));
    let position = |row: &Approval| Position { at: row.requested_at, id: row.approval_id.0 }.cursor();
    let read = move |r: &mut ghost_store::Tx, most| r.approval_list(&filter, after, most);
    let page = queries::page(&cx.world, request.limit, read, position).await?;
    let redactor = cx.redactor();
    let (rows, next_cursor) = page.sealed("approvals", |approval| convert::approval_row(approval, redactor));
    Ok(v1::ListApprovalsResponse { approvals: rows, next_cursor })
}

pub(crate) async fn get_approval(cx: Query, request: v1::GetApprovalRequest) -> Result<v1::Approval> {
    let approval_id: ApprovalId = input::parsed("approval_id", &request.approval_id)?;
    let found = cx.world.store().read(move |r| r.approval_get(approval_id)).await?;
    let approval = found.ok_or_else(|| {
        Refusal::not_found("approval", &approval_id.to_string(), None).hint("see `ghostctl approval list`")
    })?;
    Ok(convert::approval(&approval, cx.redactor()))
}

pub(crate) async fn decide(cx: Mutation, request: v1::DecideApprovalRequest) -> Result<v1::Approval> {
    let approval_id: ApprovalId = input::parsed("approval_id", &request.approval_id)?;
    let decision = decision(&request)?;
    let approvers = cx.world.plan().approvals.approvers.clone();
    let decided = cx.once(move |w, by| {
        if let (Some(seen), Some(approval)) = (&request.digest, w.approval_get(approval_id)?)
            && *seen != approval.digest
        {
            return Err(
                Refusal::new(Code::Conflict, "this is not the plan that you have seen").hint("read the approval again")
            );
        }
        approvals::decide(w, by, &approvers, approval_id, decision, request.note)
    });
    Ok(convert::approval(&decided.await?, cx.redactor()))
}

pub(crate) async fn revoke(cx: Mutation, request: v1::RevokeApprovalRequest) -> Result<v1::Approval> {
    let approval_id = input::parsed("approval_id", &request.approval_id)?;
    let approvers = cx.world.plan().approvals.approvers.clone();
    let revoked = cx.once(move |w, by| approvals::revoke(w, by, &approvers, approval_id)).await?;
    Ok(convert::approval(&revoked, cx.redactor()))
}

/// What the operator decides.
fn decision(request: &v1::DecideApprovalRequest) -> Result<Decision> {
    let fields = match request.fields_json.as_str() {
        "" => None,
        text => match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Some(fields),
            _ => return Err(input::bad("fields_json", "is not a JSON object").hint("write {\"name\": \"value\"}")),
        },
    };
    match (request.approve, request.always, fields) {
        (true, always, None) => Ok(Decision::Approve { always }),
        (true, false, Some(fields)) => Ok(Decision::Fill(fields)),
        (true, true, Some(_)) => {
            Err(input::bad("always", "is set with fields").hint("an answer with fields holds for one question"))
        }
        (false, false, None) => Ok(Decision::Deny),
        (false, true, _) => Err(input::bad("always", "is set for a denial").hint("a denial holds for one call")),
        (false, false, Some(_)) => Err(input::bad("fields_json", "is set for a denial").hint("deny without fields")),
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::root_tally::RootTally;
    use ghost_domain::{RootId, Timestamp};
    use uuid::Uuid;

    use super::*;
    use crate::testing::TestControl;

    fn root(n: u128) -> RootId {
        RootId(Uuid::from_u128(n))
    }

    fn turn_row(n: u128, root_id: RootId) -> Result<Turn> {
        let started_at = Timestamp(i64::try_from(n).unwrap_or_default());
        Ok(Turn {
            source: "operator".into(),
            status: TurnStatus::Finished,
            calls: 1,
            ended_at: Some(Timestamp(0)),
            ..Turn::new(TurnId(Uuid::from_u128(n)), "ada".parse()?, root_id, started_at)
        })
    }

    /// Stores ended turns. Turn `n` started at millisecond `n`, with the root `root_of(n)`.
    async fn put(test: &TestControl, count: u128, root_of: impl Fn(u128) -> RootId + Send + 'static) {
        let write = test.world.store().write(move |w| {
            for n in 1..=count {
                let turn = turn_row(n, root_of(n))?;
                w.turn_put(&turn)?;
            }
            Ok::<_, Refusal>(())
        });
        write.await.unwrap();
    }

    async fn page(test: &TestControl, root_id: RootId, cursor: &str) -> Result<v1::ListTurnsResponse> {
        let (root_id, cursor) = (Some(root_id.to_string()), cursor.to_owned());
        list(test.query(), v1::ListTurnsRequest { root_id, cursor, limit: 2, ..Default::default() }).await
    }

    fn numbers(page: &v1::ListTurnsResponse) -> Vec<u128> {
        page.turns.iter().map(|turn| turn.turn_id.parse::<TurnId>().unwrap().0.as_u128()).collect()
    }

    #[tokio::test]
    async fn turns_of_a_root_are_found_behind_many_turns_of_other_roots() {
        let test = TestControl::new().await;
        put(&test, 3_000, |n| if n <= 3 { root(1) } else { root(0) }).await;
        let never = page(&test, root(99), "").await.unwrap_err();
        assert_eq!((never.code, never.message.contains("root")), (Code::NotFound, true));
        let first = page(&test, root(1), "").await.unwrap();
        assert_eq!(numbers(&first), [3, 2]);
        let second = page(&test, root(1), &first.next_cursor).await.unwrap();
        assert_eq!((numbers(&second), second.next_cursor.as_str()), (vec![1], ""));
        // A root whose turns were pruned, but whose tally remains.
        let tally = RootTally::new(root(7), Timestamp(1));
        let write = test.world.store().write(move |w| w.root_put(&tally));
        write.await.unwrap();
        assert_eq!(page(&test, root(7), "").await.unwrap().turns.len(), 0);
    }

    #[tokio::test]
    async fn paging_skips_no_turn_of_the_same_millisecond() {
        let test = TestControl::new().await;
        let write = test.world.store().write(|w| {
            for n in 1..=1_700 {
                w.turn_put(&Turn { started_at: Timestamp(5), ..turn_row(n, root(1))? })?;
            }
            Ok::<_, Refusal>(())
        });
        write.await.unwrap();
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let request = v1::ListTurnsRequest { cursor, ..Default::default() };
            let page = list(test.query(), request).await.unwrap();
            seen.extend(numbers(&page));
            cursor = page.next_cursor;
            if cursor.is_empty() {
                break;
            }
        }
        assert_eq!(seen, (1..=1_700).rev().collect::<Vec<u128>>());
    }
}
