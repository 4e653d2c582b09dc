//! Brave's Web Search API: `GET /res/v1/web/search`.

use std::time::Duration;

use ghost_domain::Refusal;
use serde_json::Value;

use super::api::Api;
use super::query::{Found, Freshness, Query};

/// The longest time of a search.
const LIMIT: Duration = Duration::from_secs(15);

pub(super) async fn search(api: &Api, query: &Query) -> Result<Vec<Found>, Refusal> {
    let mut url = api.url("res/v1/web/search")?;
    {
        let mut pairs = url.query_pairs_mut();
        pairs.append_pair("q", &query.query).append_pair("count", &query.count.to_string());
        if let Some(country) = &query.country {
            pairs.append_pair("country", &country.to_ascii_uppercase());
        }
        let freshness = query.freshness.as_ref().map(|freshness| match freshness {
            Freshness::Day => "pd".to_owned(),
            Freshness::Week => "pw".to_owned(),
            Freshness::Month => "pm".to_owned(),
            Freshness::Year => "py".to_owned(),
            Freshness::Between(from, to) => format!("{from}to{to}"),
        });
        if let Some(freshness) = freshness {
            pairs.append_pair("freshness", &freshness);
        }
        // Without marks around the words of the query.
        pairs.append_pair("text_decorations", "false");
    }
    let answer = api.call(&url, None, "x-subscription-token", LIMIT).await?;
    // Without results there is no `web`.
    let results = answer.pointer("/web/results").and_then(Value::as_array);
    let text = |result: &Value, field: &str| result.get(field).and_then(Value::as_str).map(str::to_owned);
    let found = results.into_iter().flatten().filter_map(|result| {
        let (title, url, description) = (text(result, "title"), text(result, "url"), text(result, "description"));
        Found::of(title.as_deref(), url.as_deref(), description.as_deref())
    });
    Ok(found.collect())
}
