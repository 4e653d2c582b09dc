//! The `Ledger` service: the record of tool calls.

use ghost_domain::{CallId, LedgerRow};
use ghost_proto::v1;
use ghost_store::Tx;
use ghost_store::tables::LedgerFilter;

use crate::control::Control;
use crate::convert;
use crate::convert::input::{self, Position};
use crate::dispatch::{Query, Result};
use crate::queries;

/// Largest length of a tool's name, in characters.
const NAME_MAX: usize = 128;

async fn filter(cx: &Control, request: &v1::LedgerTotalsRequest) -> Result<LedgerFilter> {
    let tool = match input::line_if("tool", request.tool.as_deref(), NAME_MAX)? {
        Some(name) => Some(queries::tool_in_filter(&cx.world, &name).await?),
        None => None,
    };
    Ok(LedgerFilter {
        agent_id: queries::agent_in_filter(&cx.world, "agent_id", request.agent_id.as_deref()).await?,
        turn_id: input::parsed_if("turn_id", request.turn_id.as_deref())?,
        tool,
        status: input::parsed_if("status", request.status.as_deref())?,
        since: input::instant("since_at_ms", request.since_at_ms)?,
        ..LedgerFilter::default()
    })
}

pub(crate) async fn totals(cx: Query, request: v1::LedgerTotalsRequest) -> Result<v1::LedgerTotalsResponse> {
    let filter = filter(&cx, &request).await?;
    let totals = cx.world.store().read(move |r| r.call_totals(&filter)).await?;
    Ok(v1::LedgerTotalsResponse { totals: totals.iter().map(convert::call_totals).collect() })
}

pub(crate) async fn list(cx: Query, request: v1::ListLedgerRequest) -> Result<v1::ListLedgerResponse> {
    let filter = filter(
        &cx,
        &v1::LedgerTotalsRequest {
            agent_id: request.agent_id,
            tool: request.tool,
            status: request.status,
            turn_id: request.turn_id,
            since_at_ms: request.since_at_ms,
        },
    )
    .await?;
    let after = input::position_of("ledger", &request.cursor)?.map(|after| (after.at, CallId(after.id)));
    let turn_id = filter.turn_id;
    let read = move |r: &mut Tx, most| r.call_list(&LedgerFilter { after, limit: most, ..filter });
    let position = |row: &LedgerRow| Position { at: row.started_at, id: row.call_id.0 }.cursor();
    let page = queries::page(&cx.world, request.limit, read, position).await?;
    if let (Some(turn_id), true) = (turn_id, after.is_none() && page.rows.is_empty()) {
        queries::turn_in_filter(&cx.world, turn_id).await?;
    }
    let (rows, next_cursor) = page.sealed("ledger", convert::ledger_row);
    Ok(v1::ListLedgerResponse { rows, next_cursor })
}

#[cfg(test)]
mod tests {
    use ghost_domain::{CallStatus, Timestamp, TurnId};
    use uuid::Uuid;

    use super::*;
    use crate::testing::TestControl;

    #[tokio::test]
    async fn calls_of_a_deleted_turn_are_listed() {
        let test = TestControl::new().await;
        let gone = TurnId(Uuid::from_u128(7));
        let call_id = CallId(Uuid::from_u128(8));
        let started = LedgerRow::new(call_id, "ada".parse().unwrap(), gone, "workspace.read", Timestamp(1));
        let call = LedgerRow { status: CallStatus::Ok, ..started };
        let write = test.world.store().write(move |w| w.call_put(&call));
        write.await.unwrap();
        let list = async |turn_id: TurnId, status: Option<&str>| {
            let request = v1::ListLedgerRequest {
                turn_id: Some(turn_id.to_string()),
                status: status.map(str::to_owned),
                ..v1::ListLedgerRequest::default()
            };
            super::list(test.query(), request).await.map(|page| page.rows.len())
        };
        assert_eq!(list(gone, None).await, Ok(1));
        // The turn is accepted even if none of its calls match.
        assert_eq!(list(gone, Some("failed")).await, Ok(0));
        let never = list(TurnId(Uuid::from_u128(9)), Some("failed")).await.unwrap_err();
        assert_eq!(never.code, ghost_domain::Code::NotFound);
    }
}
