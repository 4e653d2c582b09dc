//! Reads `droids`: what the helpers may use that agents start for one piece of work (DROID-03).

use super::parts::Named;
use crate::reader::Map;

/// The `droids` of a world file. The comment of each field is its key in the file.
#[derive(Default)]
pub struct Droids<'n> {
    /// `tools`; `None` if absent.
    pub tools: Option<Vec<Named<'n>>>,
    /// `model`.
    pub model: Option<Named<'n>>,
}

/// Keys that people write here, with the hint for each.
const ELSEWHERE: [(&str, &str); 5] = [
    ("max", "write `limits: { droids_max: … }`"),
    ("max_depth", "write `limits: { droid_depth_max: … }`"),
    ("depth", "write `limits: { droid_depth_max: … }`"),
    ("timeout_seconds", "the agent that starts a droid sets its time, at most 300 s"),
    ("archive_after", "write `limits: { droid_archive_seconds: … }`"),
];

/// Reads `droids`.
pub fn droids<'n>(map: &Map<'n>) -> Droids<'n> {
    let Some(inner) = map.get("droids").and_then(|field| field.map()) else { return Droids::default() };
    let tools = inner.get("tools").map(|field| field.texts(200));
    let model = inner.get("model").and_then(|field| field.text(200).map(|text| (field.clone(), text)));
    inner.finish(&ELSEWHERE);
    Droids { tools, model }
}
