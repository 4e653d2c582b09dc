//! `llm`: providers, prices and defaults. The file names variables that hold keys, never the keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ghost_domain::model_facts::Api;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::WorldConfig;
use super::sent::{Sent, sent};
use crate::files::is_plain_relative;
use crate::kinds::{Count, Name, Text, Time, Url, Variable, text_kind};
use crate::plan::{Origin, ProviderKind};
use crate::price::PriceSection;
use crate::reader::Field;
use crate::typed::{Read, Spanned};

/// `llm`: providers, models and prices.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LlmSection {
    /// The provider of agents that name none.
    pub default_provider: Option<Spanned<Text<200>>>,
    /// The model of agents that name none.
    pub default_model: Option<Spanned<Text<200>>>,
    /// Providers by name.
    pub providers: BTreeMap<Name, Spanned<ProviderSection>>,
    /// Prices by `provider/model` or `model`.
    pub prices: BTreeMap<String, PriceSection>,
    /// The world's own list of models, relative to its directory.
    pub models_file: Option<Spanned<FileWithin>>,
}

/// One entry of `llm.providers`. Absent settings take the defaults of its kind.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderSection {
    /// The protocol. The default is the name of the entry.
    kind: Option<ProviderKind>,
    /// The address. The default is that of the kind.
    pub base_url: Option<Spanned<Url>>,
    /// The variable with the key.
    pub api_key_env: Option<Spanned<Variable>>,
    /// Calls at one time.
    pub concurrency: Option<Count<1, 1_024>>,
    /// Attempts of a call before a fallback model or failure.
    pub attempts: Option<Count<1, 10>>,
    /// The wait after a failed attempt. It doubles with each attempt.
    pub retry_base: Option<Time<1, 3_600_000>>,
    /// The longest wait.
    pub retry_cap: Option<Time<1, 3_600_000>>,
    /// How long an answer that has begun may pause.
    pub idle_timeout: Option<Time<1, 3_600_000>>,
    /// For `scripted`: the directory of the rule files, relative to the world. For `recorded`: the data directory of the run.
    pub dir: Option<Spanned<Text<1_024>>>,
    /// Additional headers of each request.
    pub headers: Option<Spanned<IgnoredAny>>,
    /// Additional query parameters of each request.
    pub query: Option<Spanned<IgnoredAny>>,
    /// Additional fields of each request's body.
    pub extra_body: Option<Spanned<IgnoredAny>>,
    /// The OpenAI API to use: `responses` or `chat`.
    pub api: Option<Spanned<Api>>,
    /// The version of the API, of Azure's openai and of anthropic.
    pub api_version: Option<Spanned<Token>>,
    /// The organization, of openai.
    pub organization: Option<Spanned<Token>>,
}

text_kind! {
    /// A version or an id: visible ASCII characters.
    pub Token(String), 200, |text| match text.bytes().all(|b| b.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err(("it holds spaces, or characters beyond ASCII".into(), "write it as the provider shows it".into())),
    }
}

text_kind! {
    /// The path of a file in the world's directory.
    pub FileWithin(String), 1_024, |text| match is_plain_relative(text) {
        true => Ok(text.to_owned()),
        false => {
            let message = format!("`{text}` does not stay in the world's directory");
            Err((message, "write a relative path such as models.yaml".into()))
        }
    }
}

/// A provider that the file defines.
pub struct ProviderEntry {
    /// Where it is defined.
    pub origin: Origin,
    /// Where `api`, `api_key_env`, `base_url` and `dir` are, if the file contains them.
    pub settings: BTreeMap<&'static str, Origin>,
    /// The protocol.
    pub kind: ProviderKind,
    /// The directory, relative to the world's or absolute.
    pub dir: Option<PathBuf>,
    /// Additions to each request.
    pub sent: Sent,
}

/// The usable entries of `llm.providers`, and the names of those with a problem.
pub(super) fn providers(
    read: &Read<'_, WorldConfig>,
    root: &Field<'_>,
) -> (BTreeMap<String, ProviderEntry>, BTreeSet<String>) {
    let written = root.node().get("llm").and_then(|llm| llm.get("providers"));
    let mut unread: BTreeSet<String> = written.map(|node| node.keys().map(str::to_owned).collect()).unwrap_or_default();
    let mut found = BTreeMap::new();
    for (name, section) in &read.llm.providers {
        if let Some(entry) = provider(name, section, read) {
            unread.remove(&name.0);
            found.insert(name.0.clone(), entry);
        }
    }
    (found, unread)
}

fn provider(name: &str, section: &Spanned<ProviderSection>, read: &Read<'_, WorldConfig>) -> Option<ProviderEntry> {
    let field = read.at(section);
    let written = |key: &str| field.node().get(key).is_some();
    let named = ProviderKind::named(name).filter(|_| !written("kind"));
    let kind = section.kind.or(named);
    if kind.is_none() && !written("kind") {
        let names: Vec<&str> = ProviderKind::ALL.iter().map(|(name, _)| *name).collect();
        field.error("`kind` is missing", format!("it may be: {}", names.join(", ")));
    }
    let dir = section.dir.as_ref().and_then(|dir| directory(dir, kind, read));
    let sent = sent(section, kind, read);
    if kind == Some(ProviderKind::Recorded) && dir.is_none() {
        field.error("a recorded provider needs `dir`", "name the data directory of the earlier run");
    }
    if let (Some(base), Some(cap)) = (section.retry_base, section.retry_cap)
        && cap.0 < base.0
    {
        let hint = "`retry_base` is the first wait, `retry_cap` the longest";
        field.error("`retry_cap` is shorter than `retry_base`", hint);
    }
    let settings = ["api", "api_key_env", "base_url", "dir"];
    let settings = settings.into_iter().filter_map(|key| Some((key, field.get(key)?.origin()))).collect();
    Some(ProviderEntry { origin: field.origin(), settings, kind: kind?, dir, sent })
}

fn directory(dir: &Spanned<Text<1_024>>, kind: Option<ProviderKind>, read: &Read<'_, WorldConfig>) -> Option<PathBuf> {
    let field = read.at(dir);
    match kind? {
        ProviderKind::Scripted if !is_plain_relative(dir) => {
            let message = format!("`{}` does not stay in the world's directory", field.shown());
            field.error(message, "write a relative path such as scripts");
            None
        }
        ProviderKind::Scripted | ProviderKind::Recorded => Some(PathBuf::from(&dir.0)),
        _ => {
            field.error("only a scripted or recorded provider has a directory", "omit it");
            None
        }
    }
}
