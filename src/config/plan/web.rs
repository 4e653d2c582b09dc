//! The `web` of a world: what agents may reach over the network, and how searches are made.
//!
//! A target that could be read in two ways must never be accepted: it opens a way into private networks.

use std::net::IpAddr;
use std::time::Duration;

use ghost_domain::Money;
use ghost_domain::text::clip;
use ipnet::IpNet;
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serializer};

use crate::kinds::{
    AtMost, Count, Name, Time, Url, Usd, Variable, at_most, by, duration, each, maybe, number, schema, text, text_kind,
};
use crate::typed::told;

/// A host or a network that the world file allows or denies, with a port if only that one is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebTarget {
    /// The name or the network.
    pub host: TargetHost,
    /// The only port; `None` means any.
    pub port: Option<u16>,
}

/// The host part of a [`WebTarget`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetHost {
    /// Exactly this name, in lower case.
    Name(String),
    /// Every name that ends in a dot and this one, in lower case: `*.example.com`.
    Below(String),
    /// Every address of this network; one address is a network of its own.
    Net(IpNet),
}

impl WebTarget {
    /// Parses `name`, `*.name`, an address or a network in CIDR form, each with an optional `:port`. An IPv6 address or
    /// network stands in brackets if a port follows.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[') {
            let (net, rest) = inner.split_once(']')?;
            let net = network(net).filter(|net| net.addr().is_ipv6())?;
            let port = if rest.is_empty() { None } else { Some(port(rest.strip_prefix(':')?)?) };
            return Some(Self { host: TargetHost::Net(net), port });
        }
        if let Some(net) = network(text) {
            return Some(Self { host: TargetHost::Net(net), port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, digits)) => (host, Some(port(digits)?)),
            None => (text, None),
        };
        if let Some(net) = network(host) {
            return net.addr().is_ipv4().then_some(Self { host: TargetHost::Net(net), port });
        }
        let host = match host.strip_prefix("*.") {
            Some(name) => TargetHost::Below(name_of(name)?),
            None => TargetHost::Name(name_of(host)?),
        };
        Some(Self { host, port })
    }

    /// Whether this is the name `name` (in lower case, without a dot at the end) at `port`.
    #[must_use]
    pub fn names(&self, name: &str, port: u16) -> bool {
        let same = match &self.host {
            TargetHost::Name(own) => own == name,
            TargetHost::Below(own) => name.strip_suffix(own.as_str()).is_some_and(|rest| rest.ends_with('.')),
            TargetHost::Net(_) => false,
        };
        same && self.port.is_none_or(|own| own == port)
    }

    /// Whether this is the name or contains the address, at any port.
    #[must_use]
    pub fn covers(&self, name: &str, address: IpAddr) -> bool {
        let port = self.port.unwrap_or(0);
        self.names(name, port) || self.contains(address, port)
    }

    /// Whether this network contains `address`, at `port`.
    #[must_use]
    pub fn contains(&self, address: IpAddr, port: u16) -> bool {
        matches!(&self.host, TargetHost::Net(net) if net.contains(&address)) && self.port.is_none_or(|own| own == port)
    }
}

schema!(WebTarget, _ => json_schema!({ "title": "target", "type": "string" }));

impl<'de> Deserialize<'de> for WebTarget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::<D, Self, 300>(deserializer, |text| {
            Self::parse(text).ok_or_else(|| {
                let hint = "write a name, *.name, an address or a network such as 10.0.0.0/8, with a port if only that one is \
                            meant: docs.example, 127.0.0.1:8080, [::1]:8080";
                (format!("`{}` is neither a host nor a network", clip(text, 80)), hint.into())
            })
        })
    }
}

impl std::fmt::Display for WebTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = match &self.host {
            TargetHost::Name(name) => name.clone(),
            TargetHost::Below(name) => format!("*.{name}"),
            TargetHost::Net(net) if net.prefix_len() == net.max_prefix_len() => net.addr().to_string(),
            TargetHost::Net(net) => net.to_string(),
        };
        match self.port {
            Some(port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Some(port) => write!(f, "{host}:{port}"),
            None => f.write_str(&host),
        }
    }
}

/// An address or a network without bits beyond its prefix.
fn network(text: &str) -> Option<IpNet> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.into());
    }
    text.parse::<IpNet>().ok().filter(|net| net.trunc() == *net)
}

fn port(digits: &str) -> Option<u16> {
    // `parse` would accept `+80`.
    let digits = Some(digits).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|port| *port != 0)
}

/// A host name in lower case. URLs read a name whose last label is a number as an address, so such a name is refused.
fn name_of(text: &str) -> Option<String> {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(valid);
    let name = text.to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    (name.len() <= 253 && name.split('.').all(label) && !is_number).then_some(name)
}

/// Whether `robots.txt` of a site is respected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Robots {
    /// It is not read: an agent fetches a page as a person would open it.
    #[default]
    Ignore,
    /// A page that it forbids to programs, or to `ghostd`, is refused. A site that cannot give the file forbids everything.
    Respect,
}

/// A search service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchKind {
    /// Brave's Web Search API.
    Brave,
    /// An instance of SearXNG.
    Searxng,
}

impl SearchKind {
    /// The word in the world file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Brave => "brave",
            Self::Searxng => "searxng",
        }
    }
}

/// `web.search`: the service of `tool.web_search`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "SearchSection")]
pub struct SearchPlan {
    /// The service.
    pub kind: SearchKind,
    /// Its address, without the path of the API.
    pub base_url: String,
    /// The variable with its key; `None` if it needs none.
    pub api_key_env: Option<String>,
}

/// `web.search`, as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchSection {
    /// The service of `tool.web_search`.
    provider: SearchKind,
    /// Its address, without the path of the API; required for `searxng`. The default is Brave's.
    base_url: Option<Url>,
    /// The variable with its key. The default is `BRAVE_API_KEY`; none for `searxng`.
    api_key_env: Option<Variable>,
}

impl TryFrom<SearchSection> for SearchPlan {
    type Error = String;

    fn try_from(SearchSection { provider, base_url, api_key_env }: SearchSection) -> Result<Self, String> {
        let (address, key) = match provider {
            SearchKind::Brave => (Some("https://api.search.brave.com"), Some("BRAVE_API_KEY")),
            SearchKind::Searxng => (None, None),
        };
        let base_url = base_url.map(|url| url.trim_end_matches('/').to_owned()).or(address.map(str::to_owned));
        Ok(Self {
            kind: provider,
            base_url: base_url
                .ok_or_else(|| told("`base_url` is missing", "for example `base_url: http://127.0.0.1:8888`"))?,
            api_key_env: api_key_env.map(|name| name.0).or(key.map(str::to_owned)),
        })
    }
}

/// `web.google_search`: Gemini with its search.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GooglePlan {
    /// The model that is asked.
    #[serde(deserialize_with = "by::<Name, _, _>")]
    #[schemars(with = "Name")]
    pub model: String,
    /// Others that an agent may name.
    #[serde(deserialize_with = "each::<Name, _, _>")]
    #[schemars(with = "Vec<Name>")]
    pub models: Vec<String>,
    /// The address of the API.
    #[serde(deserialize_with = "base_url")]
    #[schemars(with = "Url")]
    pub base_url: String,
    /// The variable with the key of Gemini's API.
    #[serde(deserialize_with = "by::<Variable, _, _>")]
    #[schemars(with = "Variable")]
    pub api_key_env: String,
    /// The price of one query of the model, in US dollars, for the ledger. Google's price depends on the model.
    #[serde(deserialize_with = "by::<Usd, _, _>", serialize_with = "usd")]
    #[schemars(with = "Usd")]
    pub usd_per_query: Money,
}

/// A default as the file writes it, for the schema.
fn time<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&duration(*time))
}

/// A default as the file writes it, for the schema.
fn usd<S: Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(f64::from(u32::try_from(money.0).unwrap_or(u32::MAX)) / 1e6)
}

fn base_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Url::deserialize(deserializer)?.trim_end_matches('/').to_owned())
}

impl Default for GooglePlan {
    fn default() -> Self {
        Self {
            model: "gemini-2.5-flash".to_owned(),
            models: Vec::new(),
            base_url: "https://generativelanguage.googleapis.com".to_owned(),
            api_key_env: "GEMINI_API_KEY".to_owned(),
            // What Google asked for one grounded prompt of that model. A model with a lower price makes the sums in the
            // ledger too high, never too low.
            usd_per_query: Money(35_000),
        }
    }
}

/// The `web` of a world file. Without it, no agent reaches the network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebPlan {
    /// What may be reached although its address is not public. A name that is allowed may have any address.
    #[serde(deserialize_with = "at_most::<500, _, _>")]
    #[schemars(with = "AtMost<500, WebTarget>")]
    pub allow: Vec<WebTarget>,
    /// What may not be reached; wins over `allow`.
    #[serde(deserialize_with = "at_most::<500, _, _>")]
    #[schemars(with = "AtMost<500, WebTarget>")]
    pub deny: Vec<WebTarget>,
    /// Whether the `robots.txt` of a site is respected.
    #[schemars(extend("default" = "ignore"))]
    pub robots: Robots,
    /// The header of that name. The default is `ghostd/VERSION`.
    #[serde(deserialize_with = "maybe::<UserAgent, _, _>")]
    #[schemars(with = "Option<UserAgent>")]
    pub user_agent: Option<String>,
    /// The longest time of a fetch, with all redirects.
    #[serde(deserialize_with = "by::<Time<1_000, 300_000>, _, _>", serialize_with = "time")]
    #[schemars(with = "Time<1_000, 300_000>")]
    pub timeout: Duration,
    /// The longest silence of a server.
    #[serde(deserialize_with = "by::<Time<1_000, 300_000>, _, _>", serialize_with = "time")]
    #[schemars(with = "Time<1_000, 300_000>")]
    pub idle_timeout: Duration,
    /// Bytes of an answer, both as it is sent and decompressed; also of a file that it is saved to.
    #[serde(deserialize_with = "number::<1_024, 67_108_864, _, _>")]
    #[schemars(with = "Count<1_024, 67_108_864>")]
    pub max_bytes: usize,
    /// Redirects of one fetch.
    #[serde(deserialize_with = "number::<0, 20, _, _>")]
    #[schemars(with = "Count<0, 20>")]
    pub redirects_max: u32,
    /// The service of `tool.web_search`. Without it agents have no such tool.
    pub search: Option<SearchPlan>,
    /// The settings of `tool.google_search`. Without it agents have no such tool.
    pub google_search: Option<GooglePlan>,
}

text_kind! {
    /// The value of a header.
    pub UserAgent(String), 200, "ASCII text, 200 bytes", |text| match text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        true => Ok(text.to_owned()),
        false => {
            let hint = "write plain ASCII on one line, such as Example/1.0";
            Err(("it has characters that no header may have".into(), hint.into()))
        }
    }
}

impl Default for WebPlan {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            robots: Robots::Ignore,
            user_agent: None,
            timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(10),
            max_bytes: 5 << 20,
            redirects_max: 5,
            search: None,
            google_search: None,
        }
    }
}

impl WebPlan {
    /// The variables that hold keys.
    pub fn key_variables(&self) -> impl Iterator<Item = &str> {
        let search = self.search.as_ref().and_then(|search| search.api_key_env.as_deref());
        search.into_iter().chain(self.google_search.as_ref().map(|google| google.api_key_env.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clear_targets_are_parsed() {
        let net = |text: &str| TargetHost::Net(text.parse().unwrap());
        for (text, host, port) in [
            ("Docs.Example", TargetHost::Name("docs.example".into()), None),
            ("a_b:8080", TargetHost::Name("a_b".into()), Some(8_080)),
            ("*.corp.example:443", TargetHost::Below("corp.example".into()), Some(443)),
            ("127.0.0.1", net("127.0.0.1/32"), None),
            ("127.0.0.1:80", net("127.0.0.1/32"), Some(80)),
            ("10.0.0.0/8", net("10.0.0.0/8"), None),
            ("10.0.0.0/8:22", net("10.0.0.0/8"), Some(22)),
            ("::1", net("::1/128"), None),
            ("fd00::/8", net("fd00::/8"), None),
            ("[::1]:9", net("::1/128"), Some(9)),
            ("[fd00::/8]", net("fd00::/8"), None),
        ] {
            let target = WebTarget { host, port };
            assert_eq!(WebTarget::parse(&target.to_string()).as_ref(), Some(&target), "{text}: {target}");
            assert_eq!(WebTarget::parse(text), Some(target), "{text}");
        }
        for text in [
            "",
            "*",
            "*.",
            ".",
            "a.",
            ".a",
            "a..b",
            "a b",
            "a/b",
            "a@b",
            "http://a",
            "a:0",
            "a:+80",
            "a:65536",
            "a:",
            "ü",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "127.1",
            "0x7f.1",
            "2130706433",
            "a.0x7f",
            "017700000001",
            "[127.0.0.1]",
            "[::1",
            "[::1]x",
            "fe80::1%eth0",
            "[a]:1",
            "*.1",
        ] {
            assert_eq!(WebTarget::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_target_covers_its_own_names_and_addresses_only() {
        let target = |text: &str| WebTarget::parse(text).unwrap();
        let below = target("*.corp.example");
        assert!(below.names("a.corp.example", 1) && below.names("a.b.corp.example", 1));
        assert!(!below.names("corp.example", 1) && !below.names("xcorp.example", 1));
        assert!(target("a.example:80").names("a.example", 80) && !target("a.example:80").names("a.example", 81));
        let ten: IpAddr = "10.1.2.3".parse().unwrap();
        assert!(target("10.0.0.0/8:80").contains(ten, 80) && !target("10.0.0.0/8:80").contains(ten, 81));
        assert!(!target("11.0.0.0/8").contains(ten, 80) && !target("a.example").contains(ten, 80));
    }

    fn problems_of(text: &str, look: impl Fn(Option<&WebPlan>)) -> String {
        crate::world_file::tests::problems(text, |config| look(config.web.as_ref()))
    }

    // covers: BI-13, BI-15, BI-16, CONF-21
    #[test]
    fn the_section_becomes_a_plan() {
        let text = "web:\n  allow: [127.0.0.1:8080, '*.corp.example']\n  deny: [10.0.0.0/8]\n  robots: respect\n  timeout: 5s\n  \
                    max_bytes: 2048\n  redirects_max: 0\n  user_agent: Test/1\n  search: { provider: searxng, base_url: \
                    'http://127.0.0.1:9/' }\n  google_search: { models: [gemini-3], usd_per_query: 0.014, api_key_env: G_KEY }\n";
        let problems = problems_of(text, |plan| {
            let plan = plan.unwrap();
            assert_eq!((plan.allow.len(), plan.deny.len(), plan.robots), (2, 1, Robots::Respect));
            assert_eq!((plan.timeout, plan.max_bytes, plan.redirects_max), (Duration::from_secs(5), 2_048, 0));
            assert_eq!(plan.idle_timeout, WebPlan::default().idle_timeout);
            let search = plan.search.as_ref().unwrap();
            assert_eq!((search.kind, search.base_url.as_str()), (SearchKind::Searxng, "http://127.0.0.1:9"));
            assert_eq!(plan.google_search.as_ref().unwrap().usd_per_query, Money(14_000));
            assert_eq!(plan.key_variables().collect::<Vec<_>>(), ["G_KEY"]);
        });
        assert_eq!(problems, "");
        let brave = |plan: Option<&WebPlan>| {
            let search = plan.unwrap().search.as_ref().unwrap();
            assert_eq!((search.kind, search.api_key_env.as_deref()), (SearchKind::Brave, Some("BRAVE_API_KEY")));
        };
        assert_eq!(problems_of("web: { search: { provider: brave } }\n", brave), "");
        assert_eq!(problems_of("web:\n", |plan| assert_eq!(plan, Some(&WebPlan::default()))), "");
        assert_eq!(problems_of("x-other: 1\n", |plan| assert_eq!(plan, None)), "");
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
            let found = problems_of(&format!("web: {text}\n"), |_| ());
            assert!(
                found.starts_with(&format!("error: w.yaml:1: {field}: ")) && found.contains(hint),
                "{text}: {found}"
            );
        }
    }
}
