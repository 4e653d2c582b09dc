//! Reads counts, waits and failures in rules.
//!
//! This module must never guess the meaning of a value. It reports an unreadable value.

use std::time::Duration;

use ghost_config::reader::{Field, Map};

use super::bounds::TEXT_MAX;
use super::matching::Count;
use super::rules::Fail;
use crate::error::ErrorKind;

/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// A condition on a count.
pub(super) fn count(field: &Field<'_>) -> Option<Count> {
    let found = field.text(100).and_then(Count::parse);
    if found.is_none() {
        let hint = "write a number, or one after `>=`, `>`, `<=` or `<`";
        field.error(format!("`{}` is not a count", field.shown()), hint);
    }
    found
}

/// A wait.
pub(super) fn duration(field: &Field<'_>) -> Option<Duration> {
    let found = field.text(100).and_then(parse_duration).filter(|duration| *duration <= WAIT_MAX);
    if found.is_none() {
        let hint = "write milliseconds as `250ms` or seconds as `2s`, at most 600s";
        field.error(format!("`{}` is not a duration", field.shown()), hint);
    }
    found
}

/// A failure.
pub(super) fn fail_of(field: &Field<'_>) -> Option<Fail> {
    let map: Map<'_> = field.map()?;
    let kind = map.need("kind", "rate_limited").and_then(|field| {
        let text = field.text(100)?;
        let kind = ErrorKind::named(text);
        if kind.is_none() {
            let names: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
            let near = ghost_domain::text::nearest(text, names.iter().copied());
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            let hint = hint.unwrap_or_else(|| format!("the kinds are: {}", names.join(", ")));
            field.error(format!("`{}` is not a kind of failure", field.shown()), hint);
        }
        kind
    });
    let message = map.get("message").and_then(|field| field.text(TEXT_MAX)).map(str::to_owned);
    let times = map.get("times").and_then(|field| field.count32(0..=u32::MAX));
    let retry_after = map.get("retry_after").and_then(|field| duration(&field));
    map.finish(&[]);
    let kind = kind?;
    Some(Fail { kind, message: message.unwrap_or_else(|| format!("the script says: {kind}")), times, retry_after })
}

/// `250ms`, `2s`, or a plain number of milliseconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Some(ms) = text.strip_suffix("ms") {
        return ms.trim().parse().ok().map(Duration::from_millis);
    }
    if let Some(seconds) = text.strip_suffix('s') {
        let seconds: f64 = seconds.trim().parse().ok()?;
        return Duration::try_from_secs_f64(seconds).ok();
    }
    text.parse().ok().map(Duration::from_millis)
}
