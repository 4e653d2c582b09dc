//! Searches: `tool.web_search` by Brave or SearXNG, `tool.google_search` by Gemini (BI-15, BI-16).
//!
//! The services are the operator's choice, so their addresses are not judged; no redirect is followed, so a key goes to
//! the named service alone. A key must never be in a message.

mod api;
mod brave;
mod google;
mod searxng;

use serde::Serialize;

pub use google::{Answer, Citation, Google};

use std::sync::Arc;

use ghost_config::plan::web::{SearchKind, SearchPlan};
use ghost_domain::{Clock, Code, Refusal};
use serde_json::json;

use crate::client::Client;
use api::Api;

/// Characters of a title and of a description.
const TITLE_MAX: usize = 300;
const DESCRIPTION_MAX: usize = 1_000;
/// Bytes of a query.
const QUERY_MAX: usize = 1_000;

/// A search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The words.
    pub query: String,
    /// The largest number of results, 1 to 20.
    pub count: usize,
    /// The country whose results are wanted, as two letters.
    pub country: Option<String>,
    /// How new the results must be.
    pub freshness: Option<Freshness>,
}

/// How new results must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// From the last day.
    Day,
    /// From the last seven days.
    Week,
    /// From the last 31 days.
    Month,
    /// From the last year.
    Year,
    /// Between two days, as `YYYY-MM-DD`.
    Between(String, String),
}

impl Freshness {
    /// Parses `day`, `week`, `month`, `year` (or Brave's `pd`, `pw`, `pm`, `py`), or `YYYY-MM-DDtoYYYY-MM-DD`.
    ///
    /// # Errors
    /// `InvalidArguments`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let is_day = |text: &str| {
            text.len() == 10
                && text.bytes().enumerate().all(|(at, byte)| match at {
                    4 | 7 => byte == b'-',
                    _ => byte.is_ascii_digit(),
                })
        };
        match text {
            "day" | "pd" => Ok(Self::Day),
            "week" | "pw" => Ok(Self::Week),
            "month" | "pm" => Ok(Self::Month),
            "year" | "py" => Ok(Self::Year),
            other => match other.split_once("to") {
                Some((from, to)) if is_day(from) && is_day(to) => Ok(Self::Between(from.to_owned(), to.to_owned())),
                _ => Err(wrong("freshness", other, "write day, week, month, year or 2026-01-01to2026-01-31")),
            },
        }
    }
}

/// One result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The title of the page.
    pub title: String,
    /// Its address.
    pub url: String,
    /// A piece of it, or what it says of itself.
    pub description: String,
}

impl Found {
    /// A result as the services send it: text with marks and entities. `None` for one that is no page.
    fn of(title: Option<&str>, url: Option<&str>, description: Option<&str>) -> Option<Self> {
        let url = url::Url::parse(url?).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        let text =
            |html: Option<&str>, max| ghost_domain::text::clip(&crate::html::line(html.unwrap_or_default()), max);
        Some(Self { title: text(title, TITLE_MAX), url: url.into(), description: text(description, DESCRIPTION_MAX) })
    }
}

/// The service of `tool.web_search`.
pub struct Search {
    kind: SearchKind,
    api: Api,
}

impl Search {
    /// The service of a plan.
    ///
    /// # Errors
    /// Why there is none, for example because its key is not set.
    pub fn new(
        plan: &SearchPlan,
        env: &dyn Fn(&str) -> Option<String>,
        client: Client,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let key = plan.api_key_env.as_deref().map(|name| api::key(name, env)).transpose()?;
        Ok(Self { kind: plan.kind, api: Api::new(plan.kind.as_str(), &plan.base_url, key, client, clock)? })
    }

    /// Searches.
    ///
    /// # Errors
    /// `InvalidArguments` for what the service cannot do; `RateLimited`, `Unavailable`, `Timeout` and `ExecFailed` if it
    /// fails.
    pub async fn search(&self, query: &Query) -> Result<Vec<Found>, Refusal> {
        check_query(&query.query)?;
        if let Some(country) = &query.country
            && !(country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_alphabetic()))
        {
            return Err(wrong("country", country, "write two letters, such as DE"));
        }
        let mut found = match self.kind {
            SearchKind::Brave => brave::search(&self.api, query).await?,
            SearchKind::Searxng => searxng::search(&self.api, query).await?,
        };
        found.truncate(query.count);
        Ok(found)
    }
}

fn check_query(query: &str) -> Result<(), Refusal> {
    ghost_domain::refusal::not_blank("query", query)?;
    if query.len() > QUERY_MAX {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("the query has {} bytes; at most {QUERY_MAX} are sent", query.len()),
        )
        .hint("use fewer words"));
    }
    Ok(())
}

fn wrong(field: &str, value: &str, hint: &str) -> Refusal {
    let shown = ghost_domain::text::shown(value, 60);
    Refusal::new(Code::InvalidArguments, format!("`{shown}` is not a value for {field}"))
        .hint(hint)
        .details(json!({ "field": field }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freshness_is_a_span_or_two_days() {
        assert_eq!(Freshness::parse("pw").unwrap(), Freshness::Week);
        let between = Freshness::Between("2026-01-01".into(), "2026-01-31".into());
        assert_eq!(Freshness::parse("2026-01-01to2026-01-31").unwrap(), between);
        for bad in ["", "hour", "2026-1-1to2026-01-31", "2026-01-01", "to", "2026-01-01to2026-01-31&x=y"] {
            assert_eq!(Freshness::parse(bad).unwrap_err().code, Code::InvalidArguments, "{bad}");
        }
    }

    #[test]
    fn results_are_plain_text_of_pages() {
        let found = Found::of(Some("<strong>A</strong> &amp; b"), Some("https://a/x"), None).unwrap();
        assert_eq!((found.title.as_str(), found.description.as_str()), ("A & b", ""));
        assert_eq!(Found::of(Some("x"), Some("javascript:x"), None), None);
        assert_eq!(Found::of(Some("x"), None, None), None);
    }
}
