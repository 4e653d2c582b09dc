//! The tools of a toolbox as a table.

use ghost_proto::json;
use ghost_proto::v1::ToolboxTool;

use crate::output::Body;
use crate::table::Table;
use crate::text::one_line;

/// Digits of a hash that the table shows.
const HASH_DIGITS: usize = 12;
/// Characters of a description in the table.
const ABOUT: usize = 100;
/// The same for a definition that has changed.
const CHANGED: usize = 600;

/// The tools, with what is known of each.
pub(super) fn body(tools: &[ToolboxTool]) -> Body {
    let mut table = Table::new(&["TOOL", "STATE", "HASH", "ABOUT"]);
    for tool in tools {
        let hash: String = tool.hash.as_deref().unwrap_or_default().chars().take(HASH_DIGITS).collect();
        let about = match (tool.reason.as_deref(), tool.description.as_deref()) {
            // An operator who decides about a change must see what it is now.
            (Some(why), Some(now)) => one_line(&format!("{why}; now: {now}"), CHANGED),
            (why, about) => one_line(why.or(about).unwrap_or_default(), ABOUT),
        };
        table.row([tool.name.clone(), tool.state.clone(), hash, about]);
    }
    Body::List { json: tools.iter().map(json::value).collect(), table }
}
