//! Reads `llm`: providers, prices and defaults. Also reads the model settings of agents and
//! archetypes.
//!
//! The value of a key must never be accepted. The file names the environment variable instead.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use ghost_domain::Price;
use ghost_domain::model_facts::Thinking;

use super::parts::{Named, section, variable};
use super::sent::{Sent, sent};
use crate::files::is_plain_relative;
use crate::models::check_base_url;
use crate::plan::{ModelChoice, ProviderKind};
use crate::price::price;
use crate::reader::{Field, Map, is_name};

/// The content of `llm`. The comment of each field is its key in the file.
#[derive(Default)]
pub struct LlmEntry<'n> {
    /// `default_provider`.
    pub default_provider: Option<Named<'n>>,
    /// `default_model`.
    pub default_model: Option<Named<'n>>,
    /// `providers`.
    pub providers: BTreeMap<String, ProviderEntry<'n>>,
    /// Providers whose entries are invalid. That was reported.
    pub unread: BTreeSet<String>,
    /// `prices`.
    pub prices: BTreeMap<String, Price>,
    /// `models_file`, relative to the world's directory.
    pub models_file: Option<Named<'n>>,
}

/// One provider. Absent settings take the defaults of its kind. The comment of each field is its
/// key in the file.
pub struct ProviderEntry<'n> {
    /// The position of the entry.
    pub field: Field<'n>,
    /// The positions of `api`, `api_key_env`, `base_url` and `dir`, which later checks may report.
    pub settings: BTreeMap<&'static str, Field<'n>>,
    /// `kind`.
    pub kind: ProviderKind,
    /// `base_url`.
    pub base_url: Option<String>,
    /// `api_key_env`.
    pub api_key_env: Option<String>,
    /// `concurrency`.
    pub concurrency: Option<u32>,
    /// `attempts`.
    pub attempts: Option<u32>,
    /// `retry_base`.
    pub retry_base: Option<Duration>,
    /// `retry_cap`.
    pub retry_cap: Option<Duration>,
    /// `idle_timeout`.
    pub idle_timeout: Option<Duration>,
    /// `dir`, relative to the world's directory.
    pub dir: Option<PathBuf>,
    /// Additions to each request.
    pub sent: Sent,
}

/// A model choice with the fields that later checks may report.
#[derive(Clone, Default)]
pub struct ModelEntry<'n> {
    /// The choice as written.
    pub choice: ModelChoice,
    /// `provider`.
    pub provider: Option<Field<'n>>,
    /// `model`.
    pub model: Option<Field<'n>>,
    /// The entries of `fallback_models`.
    pub fallbacks: Vec<Field<'n>>,
    /// The fields of `temperature`, `max_tokens` and `thinking`, if present.
    pub settings: BTreeMap<&'static str, Field<'n>>,
}

/// Reads `llm`.
pub fn llm<'n>(map: &Map<'n>) -> LlmEntry<'n> {
    section(map, "llm", |llm| {
        let (mut providers, mut unread) = (BTreeMap::new(), BTreeSet::new());
        for (key, field) in llm.get("providers").map(|field| field.entries()).unwrap_or_default() {
            if !is_name(&key.text) {
                field.error("the provider's name is not a name", "use letters, digits, `.`, `_` and `-`");
                unread.insert(key.text.clone());
            } else if let Some(entry) = provider(&key.text, &field) {
                providers.insert(key.text.clone(), entry);
            } else {
                unread.insert(key.text.clone());
            }
        }
        Some(LlmEntry {
            default_provider: llm.get("default_provider").and_then(|f| f.text(200).map(|text| (f.clone(), text))),
            default_model: llm.get("default_model").and_then(|f| f.text(200).map(|text| (f.clone(), text))),
            providers,
            unread,
            prices: prices(llm),
            models_file: llm.get("models_file").and_then(|field| file_within(&field)),
        })
    })
    .unwrap_or_default()
}

fn provider<'n>(name: &str, field: &Field<'n>) -> Option<ProviderEntry<'n>> {
    let map = field.map_of("{ kind: openai, base_url: 'http://HOST:PORT/v1' }")?;
    let names: Vec<&'static str> = ProviderKind::ALL.iter().map(|(name, _)| *name).collect();
    let kind = match map.get("kind") {
        Some(kind) => kind.choice(&names).and_then(ProviderKind::named),
        None => {
            let kind = ProviderKind::named(name);
            if kind.is_none() {
                field.error("`kind` is missing", format!("it may be: {}", names.join(", ")));
            }
            kind
        }
    };
    let wait = |key| map.get(key).and_then(|f| f.duration(Duration::from_millis(1)..=Duration::from_secs(3_600)));
    let base_url = map.get("base_url").and_then(|field| address(&field));
    let api_key_env = map.get("api_key_env").and_then(|field| variable(&field));
    let concurrency = map.get("concurrency").and_then(|field| field.count32(1..=1_024));
    let attempts = map.get("attempts").and_then(|field| field.count32(1..=10));
    let (retry_base, retry_cap) = (wait("retry_base"), wait("retry_cap"));
    let idle_timeout = wait("idle_timeout");
    let dir = map.get("dir").and_then(|field| directory(&field, kind));
    let sent = sent(&map, kind);
    let settings = ["api", "api_key_env", "base_url", "dir"].into_iter();
    let settings = settings.filter_map(|key| map.get(key).map(|field| (key, field))).collect();
    map.finish(&[("api_key", "keys are never written here: name the variable that holds it with `api_key_env`")]);
    if kind == Some(ProviderKind::Recorded) && dir.is_none() {
        field.error("a recorded provider needs `dir`", "name the data directory of the earlier run");
    }
    if let (Some(base), Some(cap)) = (retry_base, retry_cap)
        && cap < base
    {
        field.error(
            "`retry_cap` is shorter than `retry_base`",
            "`retry_base` is the first wait, `retry_cap` the longest",
        );
    }
    let kind = kind?;
    let field = field.clone();
    Some(ProviderEntry {
        field,
        settings,
        kind,
        base_url,
        api_key_env,
        concurrency,
        attempts,
        retry_base,
        retry_cap,
        idle_timeout,
        dir,
        sent,
    })
}

fn file_within<'n>(field: &Field<'n>) -> Option<Named<'n>> {
    let text = field.text(1_024)?;
    if is_plain_relative(text) {
        return Some((field.clone(), text)).filter(|_| !field.is_unset());
    }
    let message = format!("`{}` does not stay in the world's directory", field.shown());
    field.error(message, "write a relative path such as models.yaml");
    None
}

fn address(field: &Field<'_>) -> Option<String> {
    const WRITE: &str = "write it as https://HOST/PATH";
    let url = field.text(2_000)?;
    // A value from a variable is always text.
    if field.shown() == url && !field.json().is_string() {
        field.wanted("text", WRITE);
        return None;
    }
    match check_base_url(url) {
        // Without its variable the address is incomplete, even if it looks valid.
        Ok(()) => (!field.is_unset()).then(|| url.to_owned()),
        Err(refusal) => {
            field.refused(refusal, WRITE);
            None
        }
    }
}

fn directory(field: &Field<'_>, kind: Option<ProviderKind>) -> Option<PathBuf> {
    let text = field.text(1_024)?;
    match kind {
        Some(ProviderKind::Scripted) if !is_plain_relative(text) => {
            field.error(
                format!("`{}` does not stay in the world's directory", field.shown()),
                "write a relative path such as scripts",
            );
            None
        }
        Some(ProviderKind::Scripted | ProviderKind::Recorded) => Some(PathBuf::from(text)),
        Some(_) => {
            field.error("only a scripted or recorded provider has a directory", "omit it");
            None
        }
        None => None,
    }
}

fn prices(llm: &Map<'_>) -> BTreeMap<String, Price> {
    let entries = llm.get("prices").map(|field| field.entries()).unwrap_or_default();
    entries.into_iter().filter_map(|(key, field)| Some((key.text.clone(), price(&field)?))).collect()
}

/// Reads `provider`, `model`, `fallback_models`, `temperature`, `max_tokens` and `thinking`.
pub fn read_model<'n>(map: &Map<'n>) -> ModelEntry<'n> {
    let provider = map.get("provider").and_then(|field| field.text(200).map(|text| (field.clone(), text)));
    let model = map.get("model").and_then(|field| field.text(200).map(|text| (field.clone(), text)));
    let fallbacks = map.get("fallback_models").map(|field| field.texts(200)).unwrap_or_default();
    let choice = ModelChoice {
        provider: provider.as_ref().map(|(_, name)| (*name).to_owned()),
        model: model.as_ref().map(|(_, name)| (*name).to_owned()),
        fallback_models: fallbacks.iter().map(|(_, text)| (*text).to_owned()).collect(),
        temperature: map.get("temperature").and_then(|field| field.number(0.0..=2.0)),
        max_tokens: map.get("max_tokens").and_then(|field| field.count32(1..=1_000_000)),
        thinking: map.get("thinking").and_then(|field| thinking(&field)),
    };
    let field = |(field, _): Named<'n>| field;
    let (provider, model) = (provider.map(field), model.map(field));
    let settings = ["temperature", "max_tokens", "thinking"].into_iter();
    let settings = settings.filter_map(|key| map.get(key).map(|field| (key, field))).collect();
    ModelEntry { choice, provider, model, fallbacks: fallbacks.into_iter().map(field).collect(), settings }
}

fn thinking(field: &Field<'_>) -> Option<Thinking> {
    let words: Vec<&str> = Thinking::ALL.iter().map(|thinking| thinking.as_str()).collect();
    field.choice(&words).and_then(|word| word.parse().ok())
}
