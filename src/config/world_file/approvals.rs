//! Reads `approvals`: which calls wait for an operator, and who may answer (EXEC-10 to EXEC-12).

use std::time::Duration;

use super::parts::{Named, names, section};
use crate::plan::ApprovalsPlan;
use crate::reader::Map;

/// The `approvals` of a world file.
#[derive(Default)]
pub struct Approvals<'n> {
    /// The settings; `tools` is still empty.
    pub plan: ApprovalsPlan,
    /// The words of `tools`.
    pub tools: Vec<Named<'n>>,
}

/// Reads `approvals`.
pub fn approvals<'n>(map: &Map<'n>) -> Approvals<'n> {
    let read = |map: &Map<'n>| {
        let mut approvals = Approvals::default();
        if let Some(field) = map.get("tools") {
            approvals.tools = names(&field);
        }
        if let Some(field) = map.get("approvers") {
            approvals.plan.approvers = names(&field).into_iter().map(|(_, name)| name.to_owned()).collect();
        }
        let expires = map.get("expires");
        let within = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
        if let Some(expires) = expires.and_then(|field| field.duration(within)) {
            approvals.plan.expires = expires;
        }
        Some(approvals)
    };
    section(map, "approvals", read).unwrap_or_default()
}
