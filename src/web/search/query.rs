//! What is searched for, and what is found. Pure.

use ghost_domain::{Code, Refusal};
use serde::Serialize;
use serde_json::json;

/// Characters of a title and of a description.
pub(super) const TITLE_MAX: usize = 300;
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
    pub(super) fn of(title: Option<&str>, url: Option<&str>, description: Option<&str>) -> Option<Self> {
        let url = url::Url::parse(url?).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        let text =
            |html: Option<&str>, max| ghost_domain::text::clip(&crate::html::line(html.unwrap_or_default()), max);
        Some(Self { title: text(title, TITLE_MAX), url: url.into(), description: text(description, DESCRIPTION_MAX) })
    }
}

/// Refuses a query that no service takes.
pub(super) fn check_query(query: &str) -> Result<(), Refusal> {
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

/// The refusal of an option's value.
pub(super) fn wrong(field: &str, value: &str, hint: &str) -> Refusal {
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
