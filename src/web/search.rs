//! Searches: `tool.web_search` by Brave or SearXNG, and what they share with `tool.google_search`.
//!
//! The services are the operator's choice, so their addresses are not judged; no redirect is followed, so a key goes to
//! the named service alone. A key must never be in a message.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ghost_config::plan::web::{SearchKind, SearchPlan};
use ghost_domain::json_text::readable_bytes;
use ghost_domain::redact::Redactor;
use ghost_domain::text::{clip, one_line, shown};
use ghost_domain::{Clock, Code, Refusal};
use hyper::Method;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;

use crate::body::decode;
use crate::client::{Bounds, Client, Outgoing, Reply};
use crate::dial::within;
use crate::html;

/// The longest time of a search.
const LIMIT: Duration = Duration::from_secs(15);
/// Characters of a title and of a description.
pub(crate) const TITLE_MAX: usize = 300;
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
        let text = |html: Option<&str>, max| clip(&html::line(html.unwrap_or_default()), max);
        Some(Self { title: text(title, TITLE_MAX), url: url.into(), description: text(description, DESCRIPTION_MAX) })
    }
}

/// Refuses a query that no service takes.
pub(crate) fn check_query(query: &str) -> Result<(), Refusal> {
    ghost_domain::refusal::not_blank("query", query)?;
    if query.len() > QUERY_MAX {
        let what = format!("the query has {} bytes; at most {QUERY_MAX} are sent", query.len());
        return Err(Refusal::new(Code::TooLarge, what).hint("use fewer words"));
    }
    Ok(())
}

/// The refusal of an option's value.
pub(crate) fn wrong(field: &str, value: &str, hint: &str) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("`{}` is not a value for {field}", shown(value, 60)))
        .hint(hint)
        .details(json!({ "field": field }))
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
        let key = plan.api_key_env.as_deref().map(|name| key(name, env)).transpose()?;
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
            SearchKind::Brave => self.brave(query).await?,
            SearchKind::Searxng => self.searxng(query).await?,
        };
        found.truncate(query.count);
        Ok(found)
    }

    /// Brave's Web Search API: `GET /res/v1/web/search`.
    async fn brave(&self, query: &Query) -> Result<Vec<Found>, Refusal> {
        let mut url = self.api.url("res/v1/web/search")?;
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
        let answer = self.api.call(&url, None, "x-subscription-token", LIMIT).await?;
        // Without results there is no `web`.
        let results = answer.pointer("/web/results").and_then(Value::as_array);
        Ok(pages(results.into_iter().flatten(), "description"))
    }

    /// An instance of SearXNG: `GET /search?q=&format=json`. Its settings must list `json` under `search.formats`.
    async fn searxng(&self, query: &Query) -> Result<Vec<Found>, Refusal> {
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
        let mut url = self.api.url("search")?;
        {
            let mut pairs = url.query_pairs_mut();
            pairs.append_pair("q", &query.query).append_pair("format", "json");
            if let Some(range) = range {
                pairs.append_pair("time_range", range);
            }
        }
        let answer = self.api.call(&url, None, "authorization", LIMIT).await.map_err(without_json)?;
        let Some(results) = answer.get("results").and_then(Value::as_array) else {
            return Err(Refusal::new(Code::ExecFailed, "searxng answered without `results`")
                .hint("the service is at fault; tell the operator, and do it without a search"));
        };
        Ok(pages(results, "content"))
    }
}

/// The results that are pages. `content` is the field with a piece of a page.
fn pages<'r>(results: impl IntoIterator<Item = &'r Value>, content: &str) -> Vec<Found> {
    let found = results.into_iter().filter_map(|result| {
        let text = |field: &str| result.get(field).and_then(Value::as_str);
        Found::of(text("title"), text("url"), text(content))
    });
    found.collect()
}

/// An instance answers 403 if it does not give JSON; that is how most are set up.
fn without_json(refusal: Refusal) -> Refusal {
    if refusal.details.as_ref().is_some_and(|details| details["status"] == 403) {
        return refusal
            .hint("the operator must add `json` to `search.formats` of the instance; do it without a search");
    }
    refusal
}

/// Bytes of an answer.
const ANSWER_MAX: usize = 4 << 20;
/// Characters of a service's own message.
const MESSAGE_MAX: usize = 300;

/// A service.
pub(crate) struct Api {
    name: &'static str,
    base: Url,
    key: Option<SecretString>,
    redactor: Redactor,
    client: Client,
    clock: Arc<dyn Clock>,
}

/// The key of a service.
///
/// # Errors
/// If the variable is not set, or cannot be sent.
pub(crate) fn key(variable: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<SecretString, String> {
    let key = env(variable).map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| format!("the variable `{variable}` is not set"))?;
    match HeaderValue::from_str(&key) {
        Ok(_) => Ok(key.into()),
        Err(_) => Err(format!("the variable `{variable}` holds characters that no key has")),
    }
}

impl Api {
    pub(crate) fn new(
        name: &'static str,
        base_url: &str,
        key: Option<SecretString>,
        client: Client,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let base =
            Url::parse(&format!("{base_url}/")).map_err(|error| format!("`{base_url}` is no address: {error}"))?;
        let redactor = Redactor::new(key.as_ref().map(|key| key.expose_secret().to_owned()));
        Ok(Self { name, base, key, redactor, client, clock })
    }

    /// The address of a path below the service's.
    pub(crate) fn url(&self, path: &str) -> Result<Url, Refusal> {
        self.base.join(path).map_err(|error| {
            Refusal::new(Code::Internal, format!("the address of {} cannot be built: {error}", self.name))
                .hint("this is an error of Ghost; report it")
        })
    }

    /// Gets or posts JSON. The key goes into the header `key_header`.
    pub(crate) async fn call(
        &self,
        url: &Url,
        body: Option<&Value>,
        key_header: &'static str,
        limit: Duration,
    ) -> Result<Value, Refusal> {
        let mut headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json")),
            (ACCEPT_ENCODING, HeaderValue::from_static("gzip")),
            (USER_AGENT, HeaderValue::from_static(concat!("ghostd/", env!("CARGO_PKG_VERSION")))),
        ]);
        // `key` checked that it is a header.
        if let Some(Ok(mut value)) = self.key.as_ref().map(|key| HeaderValue::from_str(key.expose_secret())) {
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(key_header), value);
        }
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let outgoing = Outgoing {
            url,
            method: if body.is_some() { Method::POST } else { Method::GET },
            headers,
            body: body.map(|body| Bytes::from(body.to_string())).unwrap_or_default(),
        };
        let exchange = self.client.exchange(outgoing, Bounds { max_bytes: ANSWER_MAX, idle: limit });
        let reply = match within(&*self.clock, limit, exchange).await {
            Some(Ok(reply)) => reply,
            Some(Err(refusal)) => return Err(self.redacted(refusal)),
            None => {
                let what = format!("{} did not answer within {} s", self.name, limit.as_secs());
                return Err(Refusal::new(Code::Timeout, what).hint("try again later, or do it without a search"));
            }
        };
        self.json(reply).map_err(|refusal| self.redacted(refusal))
    }

    fn json(&self, reply: Reply) -> Result<Value, Refusal> {
        let coding = reply.header("content-encoding").unwrap_or_default().to_owned();
        let (status, wait) = (reply.status, reply.header("retry-after").map(str::to_owned));
        let date = reply.header("date").map(str::to_owned);
        let body = decode(reply.body, &coding, ANSWER_MAX)?;
        let parsed: Result<Value, _> = serde_json::from_str(&readable_bytes(&body));
        if (200..300).contains(&status) {
            return parsed.ok().filter(Value::is_object).ok_or_else(|| {
                let start = one_line(&clip(&String::from_utf8_lossy(&body), 80));
                Refusal::new(Code::ExecFailed, format!("{} answered with something else than JSON: {start}", self.name))
                    .hint("the service is at fault; try again later, or do it without a search")
            });
        }
        let message = parsed.ok().as_ref().and_then(message_of);
        let message = message.unwrap_or_else(|| one_line(&clip(&String::from_utf8_lossy(&body), MESSAGE_MAX)));
        Err(self.failed(
            status,
            &message,
            wait.as_deref().and_then(|wait| seconds(wait, date.as_deref(), &*self.clock)),
        ))
    }

    fn failed(&self, status: u16, message: &str, wait: Option<u64>) -> Refusal {
        let what = format!("{} answered {status}: {}", self.name, clip(message, MESSAGE_MAX));
        let later = match wait {
            Some(wait) => format!("try again in {wait} s, or do it without a search"),
            None => "try again later, or do it without a search".to_owned(),
        };
        let refusal = match status {
            300..=399 => Refusal::new(Code::ExecFailed, format!("{} redirects, which is not followed", self.name))
                .hint("ask the operator to set the service's own address in `web`"),
            // Gemini answers a wrong key so.
            400 if message.to_ascii_lowercase().contains("api key") => self.failed(401, message, wait),
            400 | 404 | 422 => Refusal::new(Code::InvalidArguments, what).hint("change the query or its options"),
            401..=403 => Refusal::new(Code::Unavailable, what)
                .hint("the service refuses the key or the request; tell the operator, and do it without a search"),
            429 => Refusal::new(Code::RateLimited, what).hint(later),
            _ => Refusal::new(Code::Unavailable, what).hint(later),
        };
        refusal.details(match wait {
            Some(wait) => json!({ "status": status, "retry_after_s": wait }),
            None => json!({ "status": status }),
        })
    }

    fn redacted(&self, refusal: Refusal) -> Refusal {
        Refusal { message: self.redactor.redact(&refusal.message), ..refusal }
    }
}

/// The message in the forms that the services document.
fn message_of(body: &Value) -> Option<String> {
    let error = body.get("error").unwrap_or(body);
    let text = error.as_str().or_else(|| {
        ["message", "detail", "code"].into_iter().find_map(|field| error.get(field).and_then(Value::as_str))
    });
    text.map(|text| one_line(&clip(text, MESSAGE_MAX)))
}

/// The seconds of a `Retry-After`: a number, or a date. A date is compared with the answer's own if there is one.
fn seconds(wait: &str, date: Option<&str>, clock: &dyn Clock) -> Option<u64> {
    if let Ok(seconds) = wait.parse::<u64>() {
        return Some(seconds);
    }
    let until = httpdate::parse_http_date(wait).ok()?;
    let now = date.and_then(|date| httpdate::parse_http_date(date).ok()).or_else(|| {
        let ms = u64::try_from(clock.now().0).ok()?;
        std::time::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
    })?;
    Some(until.duration_since(now).unwrap_or_default().as_secs())
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
