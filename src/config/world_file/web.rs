//! Reads `web`: what agents may reach over the network, and how searches are made (BI-13..16).
//!
//! The value of a key must never be accepted. The file names the environment variable instead.

use std::time::Duration;

use ghost_domain::Money;

use super::budgets::money;
use super::parts::{section, variable};
use crate::models::check_base_url;
use crate::plan::web::{GooglePlan, Robots, SearchKind, SearchPlan, WebPlan, WebTarget};
use crate::reader::{Field, Map};

/// The largest number of entries in one list.
const ENTRIES_MAX: usize = 500;
/// The address of Brave's API.
const BRAVE: &str = "https://api.search.brave.com";
/// The address of Gemini's API.
const GEMINI: &str = "https://generativelanguage.googleapis.com";
/// The model that is asked without `model`.
const MODEL: &str = "gemini-2.5-flash";
/// What Google asked for one grounded prompt of that model, in millionths of a dollar. A model with a lower price makes the
/// sums in the ledger too high, never too low.
const USD_PER_QUERY: Money = Money(35_000);

/// Reads the section. `None` if the file has none: then no agent reaches the network.
pub fn web(map: &Map<'_>) -> Option<WebPlan> {
    section(map, "web", |map| Some(read(map)))
}

fn read(map: &Map<'_>) -> WebPlan {
    let default = WebPlan::default();
    let bound = Duration::from_secs(1)..=Duration::from_secs(300);
    let time = |key: &'static str| map.get(key).and_then(|field| field.duration(bound.clone()));
    let robots = map.get("robots").and_then(|field| field.choice(&["ignore", "respect"]));
    WebPlan {
        allow: map.get("allow").map(|field| targets(&field)).unwrap_or_default(),
        deny: map.get("deny").map(|field| targets(&field)).unwrap_or_default(),
        robots: if robots == Some("respect") { Robots::Respect } else { Robots::Ignore },
        user_agent: map.get("user_agent").and_then(|field| user_agent(&field)),
        timeout: time("timeout").unwrap_or(default.timeout),
        idle_timeout: time("idle_timeout").unwrap_or(default.idle_timeout),
        max_bytes: map
            .get("max_bytes")
            .and_then(|field| field.count(1_024..=67_108_864))
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(default.max_bytes),
        redirects_max: map
            .get("redirects_max")
            .and_then(|field| field.count32(0..=20))
            .unwrap_or(default.redirects_max),
        search: section(map, "search", search),
        google_search: section(map, "google_search", google),
    }
}

pub(super) fn targets(field: &Field<'_>) -> Vec<WebTarget> {
    let mut found = Vec::new();
    for (item, text) in field.texts(300) {
        match WebTarget::parse(text) {
            Some(_) if found.len() == ENTRIES_MAX => item.error("there are too many", "name at most 500"),
            Some(target) => found.push(target),
            None => item.error(
                format!("`{}` is neither a host nor a network", item.shown()),
                "write a name, *.name, an address or a network such as 10.0.0.0/8, with a port if only that one is meant: \
                 docs.example, 127.0.0.1:8080, [::1]:8080",
            ),
        }
    }
    found
}

fn user_agent(field: &Field<'_>) -> Option<String> {
    let text = field.text(200)?;
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Some(text.to_owned());
    }
    field.error("it has characters that no header may have", "write plain ASCII on one line, such as Example/1.0");
    None
}

fn base_url(map: &Map<'_>, such_as: Option<&'static str>, default: &str) -> Option<String> {
    let field = match such_as {
        Some(such_as) => map.need("base_url", such_as)?,
        None => match map.get("base_url") {
            Some(field) => field,
            None => return Some(default.to_owned()),
        },
    };
    let text = field.text(2_000)?;
    match check_base_url(text) {
        Ok(()) => Some(text.trim_end_matches('/').to_owned()),
        Err(_) => {
            field.error("it is not the address of a server", "write it as https://HOST or http://HOST:PORT");
            None
        }
    }
}

fn search(map: &Map<'_>) -> Option<SearchPlan> {
    let kind = map.need("provider", "brave").and_then(|field| field.choice(&["brave", "searxng"]));
    let key = map.get("api_key_env").map(|field| variable(&field));
    let kind = match kind? {
        "brave" => SearchKind::Brave,
        _ => SearchKind::Searxng,
    };
    let (base_url, api_key_env) = match kind {
        SearchKind::Brave => {
            (base_url(map, None, BRAVE), Some(key.unwrap_or_else(|| Some("BRAVE_API_KEY".to_owned()))))
        }
        SearchKind::Searxng => (base_url(map, Some("http://127.0.0.1:8888"), ""), key),
    };
    // A key that was named wrongly was reported; then there is no plan.
    let api_key_env = match api_key_env {
        Some(key) => Some(key?),
        None => None,
    };
    Some(SearchPlan { kind, base_url: base_url?, api_key_env })
}

/// Reads a model's name. It becomes a part of a path, so it is only a name.
fn model(field: &Field<'_>) -> Option<String> {
    field.name().map(str::to_owned)
}

fn google(map: &Map<'_>) -> Option<GooglePlan> {
    let api_key_env = match map.get("api_key_env") {
        Some(field) => variable(&field),
        None => Some("GEMINI_API_KEY".to_owned()),
    };
    let base_url = base_url(map, None, GEMINI);
    let named = match map.get("model") {
        Some(field) => model(&field),
        None => Some(MODEL.to_owned()),
    };
    let models = map.get("models").map(|field| field.list().iter().filter_map(model).collect()).unwrap_or_default();
    let usd_per_query = match map.get("usd_per_query") {
        Some(field) => money(&field, "write 0 if it costs nothing"),
        None => Some(USD_PER_QUERY),
    };
    Some(GooglePlan {
        model: named?,
        models,
        base_url: base_url?,
        api_key_env: api_key_env?,
        usd_per_query: usd_per_query?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::problems_of;

    // covers: BI-13, BI-15, BI-16, CONF-21
    #[test]
    fn the_section_becomes_a_plan() {
        let text = "web:\n  allow: [127.0.0.1:8080, '*.corp.example']\n  deny: [10.0.0.0/8]\n  robots: respect\n  timeout: 5s\n  \
                    max_bytes: 2048\n  redirects_max: 0\n  user_agent: Test/1\n  search: { provider: searxng, base_url: \
                    'http://127.0.0.1:9/' }\n  google_search: { models: [gemini-3], usd_per_query: 0.014, api_key_env: G_KEY }\n";
        let problems = problems_of(text, |map| {
            let plan = web(map).unwrap();
            assert_eq!((plan.allow.len(), plan.deny.len(), plan.robots), (2, 1, Robots::Respect));
            assert_eq!((plan.timeout, plan.max_bytes, plan.redirects_max), (Duration::from_secs(5), 2_048, 0));
            assert_eq!(plan.idle_timeout, WebPlan::default().idle_timeout);
            let search = plan.search.as_ref().unwrap();
            assert_eq!((search.kind, search.base_url.as_str()), (SearchKind::Searxng, "http://127.0.0.1:9"));
            assert_eq!(plan.google_search.as_ref().unwrap().usd_per_query, Money(14_000));
            assert_eq!(plan.key_variables().collect::<Vec<_>>(), ["G_KEY"]);
        });
        assert_eq!(problems, "");
        let brave = |map: &Map<'_>| {
            let search = web(map).unwrap().search.unwrap();
            assert_eq!((search.kind, search.api_key_env.as_deref()), (SearchKind::Brave, Some("BRAVE_API_KEY")));
        };
        assert_eq!(problems_of("web: { search: { provider: brave } }\n", brave), "");
        assert_eq!(problems_of("web:\n", |map| assert_eq!(web(map), Some(WebPlan::default()))), "");
        assert_eq!(problems_of("x-other: 1\n", |map| assert_eq!(web(map), None)), "");
    }

    #[test]
    fn every_mistake_has_its_line_and_a_hint() {
        for (text, field, hint) in [
            ("{ allow: ['http://a'] }", "web.allow[0]", "127.0.0.1:8080"),
            ("{ deny: [127.1] }", "web.deny[0]", "10.0.0.0/8"),
            ("{ alow: [] }", "web.alow", "`allow`"),
            ("{ robots: obey }", "web.robots", "respect"),
            ("{ timeout: 1h }", "web.timeout", "300s"),
            ("{ max_bytes: 1 }", "web.max_bytes", "1024"),
            ("{ user_agent: \"a\\nb\" }", "web.user_agent", "ASCII"),
            ("{ search: { provider: bing } }", "web.search.provider", "brave, searxng"),
            ("{ search: { provider: searxng } }", "web.search", "base_url"),
            ("{ search: { provider: brave, api_key_env: 'a b' } }", "web.search.api_key_env", "variable"),
            ("{ search: { provider: brave, base_url: 'ftp://a' } }", "web.search.base_url", "https://HOST"),
            ("{ google_search: { model: 'a/b' } }", "web.google_search.model", "letters"),
            ("{ google_search: { usd_per_query: free } }", "web.google_search.usd_per_query", "2.50"),
        ] {
            let found = problems_of(&format!("web: {text}\n"), |map| drop(web(map)));
            assert!(
                found.starts_with(&format!("error: w.yaml:1: {field}: ")) && found.contains(hint),
                "{text}: {found}"
            );
        }
    }
}
