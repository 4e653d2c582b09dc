//! `ghostctl ledger --totals`: what calls cost, and which did not succeed.

use ghost_proto::json;
use ghost_proto::v1::ledger_client::LedgerClient;
use ghost_proto::v1::{CallTotals, LedgerRow, LedgerTotalsRequest, ListLedgerRequest};
use serde_json::json;

use super::rows::rows_table;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;
use crate::text::dollars;

/// The statuses of calls that did not succeed, beside those that still run.
const FAILED: [&str; 2] = ["failed", "unknown"];

/// Sums the calls that `filter` lets through, and lists those that did not succeed.
pub async fn totals(client: &Client, filter: LedgerTotalsRequest, bound: &Bound) -> Result<Answer, Failure> {
    let totals = rpc!(client, LedgerClient::totals, filter.clone()).await?.totals;
    let (mut failed, mut note) = (Vec::new(), None);
    for status in FAILED {
        if !totals.iter().any(|sum| sum.status == status) {
            continue;
        }
        let found = collect(bound, async |limit, cursor| {
            let request = ListLedgerRequest {
                agent_id: filter.agent_id.clone(),
                tool: filter.tool.clone(),
                status: Some(status.to_owned()),
                turn_id: filter.turn_id.clone(),
                since_at_ms: filter.since_at_ms,
                limit,
                cursor,
            };
            let page = rpc!(client, LedgerClient::list, request).await?;
            Ok((page.rows, page.next_cursor))
        })
        .await?;
        failed.extend(found.rows);
        note = note.or(found.note);
    }
    failed.sort_by_key(|row: &LedgerRow| std::cmp::Reverse(row.started_at_ms));
    let json = json!({
        "totals": totals.iter().map(json::value).collect::<Vec<_>>(),
        "failed": failed.iter().map(json::value).collect::<Vec<_>>(),
    });
    let mut text = sums_table(&totals).render(client.view.screen);
    if !failed.is_empty() {
        text.push('\n');
        text.push_str(&rows_table(client, &failed).render(client.view.screen));
    }
    Ok(Answer { body: Body::Object { json, text }, note, failure: None })
}

fn sums_table(totals: &[CallTotals]) -> Table {
    let mut table = Table::new(&["TOOL", "STATUS", "CALLS", "MS", "BYTES IN", "BYTES OUT", "TOKENS", "COST"]);
    let mut row = |sum: &CallTotals| {
        table.row([
            sum.tool.clone(),
            sum.status.clone(),
            sum.calls.to_string(),
            sum.duration_ms.to_string(),
            sum.bytes_in.to_string(),
            sum.bytes_out.to_string(),
            sum.tokens.to_string(),
            dollars(sum.cost_micros),
        ]);
    };
    let mut all = CallTotals { tool: "total".into(), ..CallTotals::default() };
    for sum in totals {
        row(sum);
        for (all, one) in [
            (&mut all.calls, sum.calls),
            (&mut all.duration_ms, sum.duration_ms),
            (&mut all.bytes_in, sum.bytes_in),
            (&mut all.bytes_out, sum.bytes_out),
            (&mut all.tokens, sum.tokens),
            (&mut all.cost_micros, sum.cost_micros),
        ] {
            *all = all.saturating_add(one);
        }
    }
    row(&all);
    table
}
