//! An instance of SearXNG: `GET /search?q=&format=json`. Its settings must list `json` under `search.formats`.

use std::time::Duration;

use ghost_domain::{Code, Refusal};
use serde_json::{Value, json};

use super::api::Api;
use super::query::{Found, Freshness, Query};

/// The longest time of a search.
const LIMIT: Duration = Duration::from_secs(15);

pub(super) async fn search(api: &Api, query: &Query) -> Result<Vec<Found>, Refusal> {
    let cannot = |field: &str, hint: &str| {
        Refusal::new(Code::InvalidArguments, format!("the search of this world (SearXNG) has no {field}"))
            .hint(hint)
            .details(json!({ "field": field }))
    };
    if query.country.is_some() {
        return Err(cannot("country", "leave it out, and put the country into the query"));
    }
    let range = match &query.freshness {
        None => None,
        Some(Freshness::Day) => Some("day"),
        Some(Freshness::Week) => return Err(cannot("freshness of a week", "use day, month or year")),
        Some(Freshness::Month) => Some("month"),
        Some(Freshness::Year) => Some("year"),
        Some(Freshness::Between(..)) => return Err(cannot("freshness between two days", "use day, month or year")),
    };
    let mut url = api.url("search")?;
    {
        let mut pairs = url.query_pairs_mut();
        pairs.append_pair("q", &query.query).append_pair("format", "json");
        if let Some(range) = range {
            pairs.append_pair("time_range", range);
        }
    }
    let answer = api.call(&url, None, "authorization", LIMIT).await.map_err(without_json)?;
    let Some(results) = answer.get("results").and_then(Value::as_array) else {
        return Err(Refusal::new(Code::ExecFailed, "searxng answered without `results`")
            .hint("the service is at fault; tell the operator, and do it without a search"));
    };
    let found = results.iter().filter_map(|result| {
        let text = |field: &str| result.get(field).and_then(Value::as_str);
        Found::of(text("title"), text("url"), text("content"))
    });
    Ok(found.collect())
}

/// An instance answers 403 if it does not give JSON; that is how most are set up.
fn without_json(refusal: Refusal) -> Refusal {
    if refusal.details.as_ref().is_some_and(|details| details["status"] == 403) {
        return refusal
            .hint("the operator must add `json` to `search.formats` of the instance; do it without a search");
    }
    refusal
}
