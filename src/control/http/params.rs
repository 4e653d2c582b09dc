//! Query parameters of HTTP requests.
//!
//! An unknown parameter must never be ignored: a misspelled filter would return everything.

use axum::extract::Query;
use axum::http::Uri;
use ghost_domain::Refusal;
use ghost_domain::text::{clip, nearest};

use crate::convert::input::{bad, no_rows};

/// The parsed query parameters of one request.
#[derive(Debug)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    /// Reads the parameters. Names in `many` may occur several times, names in `once` at most once.
    ///
    /// # Errors
    /// If a parameter is unknown, occurs twice, or is not valid text.
    pub(super) fn read(uri: &Uri, once: &[&str], many: &[&str]) -> Result<Self, Refusal> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|rejection| {
            bad("query", clip(&rejection.body_text(), 200)).hint("write ?name=value&name=value")
        })?;
        for (at, (name, _)) in pairs.iter().enumerate() {
            let known = || once.iter().chain(many).copied();
            if !known().any(|known| known == name) {
                let hint = match nearest(name, known()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if known().next().is_none() => "this route takes no parameters".to_owned(),
                    None => format!("the parameters are: {}", known().collect::<Vec<_>>().join(", ")),
                };
                return Err(bad(&clip(name, 80), "is not a parameter of this route").hint(hint));
            }
            if !many.contains(&name.as_str()) && pairs.iter().take(at).any(|(before, _)| before == name) {
                return Err(bad(name, "is given twice").hint("give it once"));
            }
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter, if present.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Like `get`, as an owned string.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// All values of a parameter, with lists split at commas.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let key = self.0.iter().filter(|(key, _)| key == name);
        key.flat_map(|(_, value)| value.split(',').map(str::to_owned)).collect()
    }

    /// A whole number, if present.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Refusal> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            bad(name, format!("is `{}`, which is not a whole number in its range", clip(text, 40)))
                .hint(format!("for example {name}=20"))
        })
    }

    /// The page limit. 0 means that none was given; an explicit 0 is refused.
    pub(super) fn limit(&self) -> Result<u32, Refusal> {
        match self.number("limit")? {
            Some(0) => Err(no_rows()),
            limit => Ok(limit.unwrap_or(0)),
        }
    }

    /// `true` or `false`. Without a value it is true; absent, it is false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(other) => {
                Err(bad(name, format!("is `{}`", clip(other, 40))).hint(format!("write {name}=true or {name}=false")))
            }
        }
    }

    /// An instant: milliseconds since 1970, or a time span before `now_ms` such as `24h`.
    pub(super) fn since(&self, name: &str, now_ms: i64) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor = match unit {
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => 1,
        };
        let number: Option<i64> = number.parse().ok();
        let at = match unit {
            "" => number,
            "s" | "m" | "h" | "d" => {
                number.and_then(|n| n.checked_mul(factor)).and_then(|span| now_ms.checked_sub(span))
            }
            _ => None,
        };
        at.filter(|at| *at >= 0).map(Some).ok_or_else(|| {
            bad(name, format!("is `{}`", clip(text, 40)))
                .hint("write how long ago, such as 24h, or milliseconds since 1970-01-01")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(query: &str) -> Result<Params, Refusal> {
        Params::read(&format!("/x?{query}").parse().unwrap(), &["limit", "since", "deleted"], &["kind"])
    }

    #[test]
    fn unknown_and_repeated_names_are_refused() {
        let params = read("kind=a&kind=b,c&limit=5&deleted").unwrap();
        assert_eq!(params.all("kind"), ["a", "b", "c"]);
        assert_eq!((params.number::<u32>("limit").unwrap(), params.flag("deleted").unwrap()), (Some(5), true));
        assert!(read("limt=5").unwrap_err().hint.as_deref().unwrap().contains("`limit`"));
        assert!(read("zzz=1").unwrap_err().hint.unwrap().contains("since"));
        assert!(read("limit=1&limit=2").unwrap_err().message.contains("twice"));
        for wrong in ["limit=-1", "limit=", "limit=x", "limit=99999999999"] {
            assert!(read(wrong).unwrap().number::<u32>("limit").is_err(), "{wrong}");
        }
        assert_eq!((read("limit=7").unwrap().limit().unwrap(), read("").unwrap().limit().unwrap()), (7, 0));
        assert!(read("limit=0").unwrap().limit().unwrap_err().message.contains("1 to 500"));
        assert!(read("deleted=yes").unwrap().flag("deleted").is_err());
        assert!(!read("").unwrap().flag("deleted").unwrap());
    }

    #[test]
    fn an_instant_is_milliseconds_or_a_span() {
        for (text, at) in [("5", 5), ("1s", 99_000), ("1m", 40_000), ("0h", 100_000)] {
            assert_eq!(read(&format!("since={text}")).unwrap().since("since", 100_000).unwrap(), Some(at), "{text}");
        }
        for wrong in ["", "h", "1d", "1w", "-5", "1.5h", "99999999999999999999", "9999999999999999d"] {
            assert!(read(&format!("since={wrong}")).unwrap().since("since", 100_000).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_query_is_read_without_a_panic(query in "[a-z%&=0-9,+]{0,60}") {
            if let Ok(params) = read(&query) {
                let _ = (params.number::<u32>("limit"), params.flag("deleted"), params.since("since", 5), params.all("kind"));
            }
        }
    }
}
