//! The wait that a provider asks for: in a header, or in the body of its error.
//!
//! This module must never wait or decide whether a wait is too long.

use std::time::Duration;

use ghost_domain::Timestamp;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// The wait that an error body asks for. Google puts it there instead of a header: a number of
/// seconds followed by `s`.
pub(crate) fn retry_info(body: &Value) -> Option<Duration> {
    let details = body.get("error").unwrap_or(body).get("details")?.as_array()?;
    details.iter().find_map(|detail| {
        let kind = detail.get("@type")?.as_str()?;
        let wait = detail.get("retryDelay").filter(|_| kind.ends_with("google.rpc.RetryInfo"))?.as_str()?;
        Duration::try_from_secs_f64(wait.strip_suffix('s')?.parse().ok()?).ok()
    })
}

/// The wait that the headers ask for: `retry-after-ms`, otherwise `retry-after` in seconds or as a
/// date. A date is compared with the response's `date` header if there is one, otherwise with
/// `now`.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let ms = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok());
    if let Some(wait) = ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1_000.0).ok()) {
        return Some(wait);
    }
    let wait = text("retry-after")?;
    if let Ok(seconds) = wait.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = httpdate::parse_http_date(wait).ok()?;
    let there = text("date").and_then(|date| httpdate::parse_http_date(date).ok()).or_else(|| {
        let ms = u64::try_from(now.0).ok()?;
        std::time::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
    })?;
    Some(until.duration_since(there).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn every_form_of_retry_after_is_read() {
        let now = Timestamp(784_111_717_000); // 06 Nov 1994 08:48:37
        for (list, wait) in [
            (vec![("retry-after", "7")], Some(7_000)),
            (vec![("retry-after", "1.5")], Some(1_500)),
            (vec![("retry-after", "9"), ("retry-after-ms", "250")], Some(250)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(60_000)),
            (
                vec![("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), ("date", "Sun, 06 Nov 1994 08:49:27 GMT")],
                Some(10_000),
            ),
            (vec![("retry-after", "Sat, 06 Nov 1993 08:49:37 GMT")], Some(0)),
            (vec![("retry-after", "-3")], None),
            (vec![("retry-after", "NaN")], None),
            (vec![("retry-after", "1e300")], None),
            (vec![("retry-after", "1000000000")], Some(1_000_000_000_000)),
            (vec![("retry-after", "7"), ("retry-after-ms", "-1")], Some(7_000)),
            (vec![("retry-after", "soon")], None),
            (vec![], None),
        ] {
            assert_eq!(retry_after(&headers(&list), now), wait.map(Duration::from_millis), "{list:?}");
        }
    }
}
