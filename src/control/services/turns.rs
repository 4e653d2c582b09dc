//! The `Turns` service: turns and their journals.

use ghost_domain::text::clip;
use ghost_domain::{CallId, Code, Refusal, TurnId, TurnStatus};
use ghost_operations::turns;
use ghost_operations::turns::Settled;
use ghost_proto::v1;
use ghost_store::tables::TurnFilter;

use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

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
    let after = input::position_of("turns", &request.cursor)?;
    let (world, limit) = (&cx.world, input::page(request.limit));
    let page = queries::turns(world, filter, after, limit).await?;
    let (turns, next_cursor) = page.sealed("turns", |turn| convert::turn(turn, &cx.world.ctx().redactor));
    Ok(v1::ListTurnsResponse { turns, next_cursor })
}

pub(crate) async fn get(cx: Query, request: v1::GetTurnRequest) -> Result<v1::GetTurnResponse> {
    let limit = match usize::try_from(request.limit).unwrap_or(STEPS_MAX) {
        0 => STEPS,
        limit => limit.min(STEPS_MAX),
    };
    let (turn, rows) = queries::turn(&cx.world, input::parsed("turn_id", &request.turn_id)?).await?;
    let redactor = &cx.world.ctx().redactor;
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
    let turn = Some(convert::turn(&turn, &cx.world.ctx().redactor));
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
    let (turn, changed) = cx.once(move |w, by| queries::cancel_turn(w, by, turn_id, reason.as_deref())).await?;
    Ok(v1::CancelTurnResponse { turn: Some(convert::turn(&turn, &cx.world.ctx().redactor)), changed })
}
