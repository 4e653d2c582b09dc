//! Reads `http`: hosts and origins that the HTTP listener accepts besides its own address.

use super::parts::section;
use crate::plan::HttpPlan;
use crate::plan::http::{HostPort, origin};
use crate::reader::Map;

/// The largest number of entries in one list.
const ENTRIES_MAX: usize = 100;

/// Reads the section.
pub fn http(map: &Map<'_>) -> HttpPlan {
    section(map, "http", |http| {
        let mut plan = HttpPlan::default();
        for (field, text) in http.get("allowed_hosts").map(|field| field.texts(300)).unwrap_or_default() {
            match HostPort::parse(text) {
                Some(_) if plan.allowed_hosts.len() == ENTRIES_MAX => field.error("there are too many", "name at most 100"),
                Some(host) => plan.allowed_hosts.push(host),
                None => field.error(
                    format!("`{text}` is not a host"),
                    "write a name or an address, with a port if only that one is meant, such as ghost.example or ghost:8080",
                ),
            }
        }
        for (field, text) in http.get("allowed_origins").map(|field| field.texts(300)).unwrap_or_default() {
            match origin(text) {
                Some(_) if plan.allowed_origins.len() == ENTRIES_MAX => {
                    field.error("there are too many", "name at most 100");
                }
                Some(origin) => plan.allowed_origins.push(origin),
                None => field.error(
                    format!("`{text}` is not an origin as browsers write it"),
                    "write scheme and host alone, with the port if it is not the scheme's own, such as https://dash.example",
                ),
            }
        }
        Some(plan)
    })
    .unwrap_or_default()
}
