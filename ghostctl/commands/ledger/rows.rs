//! The table of tool calls.

use ghost_proto::v1::LedgerRow;

use crate::connection::Client;
use crate::table::Table;
use crate::text::dollars;

/// Calls as a table.
pub(super) fn rows_table(client: &Client, rows: &[LedgerRow]) -> Table {
    let mut table = Table::new(&[
        "CALL",
        "STARTED",
        "AGE",
        "AGENT",
        "TOOL",
        "STATUS",
        "ERROR",
        "MS",
        "TOKENS",
        "COST",
        "ARGUMENTS",
    ]);
    for call in rows {
        table.row([
            call.call_id.clone(),
            client.view.moment(call.started_at_ms),
            client.view.age(call.started_at_ms),
            call.agent_id.clone(),
            call.tool.clone(),
            call.status.clone(),
            call.error_code.clone().unwrap_or_default(),
            call.duration_ms.map(|ms| ms.to_string()).unwrap_or_default(),
            call.tokens.map(|tokens| tokens.to_string()).unwrap_or_default(),
            call.cost_micros.map(dollars).unwrap_or_default(),
            call.arguments_json.clone(),
        ]);
    }
    table
}
