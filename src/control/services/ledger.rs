//! The `Ledger` service: the record of tool calls.

use ghost_domain::{CallTotals, Refusal};
use ghost_proto::v1;
use ghost_store::tables::LedgerFilter;

use crate::control::Control;
use crate::convert::{self, input};
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
    let read = cx.world.store().read(move |r| r.call_totals(&filter));
    let totals: Vec<CallTotals> = read.await.map_err(Refusal::from)?;
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
    let after = input::position_of("ledger", &request.cursor)?;
    let turn_id = filter.turn_id;
    let page = queries::ledger(&cx.world, filter, after, input::page(request.limit)).await?;
    if let (Some(turn_id), true) = (turn_id, after.is_none() && page.rows.is_empty()) {
        queries::turn_in_filter(&cx.world, turn_id).await?;
    }
    let (rows, next_cursor) = page.sealed("ledger", convert::ledger_row);
    Ok(v1::ListLedgerResponse { rows, next_cursor })
}
