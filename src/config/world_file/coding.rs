//! Reads `coding`: what runs of coding agents may cost.

use super::budgets::money;
use super::parts::section;
use crate::plan::CodingPlan;
use crate::reader::Map;

/// Reads `coding`.
pub fn coding(map: &Map<'_>) -> CodingPlan {
    let read = |map: &Map<'_>| {
        let budget = map.get("run_budget");
        Some(CodingPlan { run_budget: budget.and_then(|field| money(&field, "leave the key out for no limit")) })
    };
    section(map, "coding", read).unwrap_or_default()
}
