//! Where the files say what a plan holds of providers and models, for what turns out to be wrong with them later.
//!
//! Must never: decide anything. Two plans that differ in this alone are the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ghost_domain::AgentId;

use crate::problem::{COMMAND_LINE, Hint, Problem, Severity};

/// Where something is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file, as messages name it.
    pub file: PathBuf,
    /// The line, as in [`Problem::line`].
    pub line: usize,
    /// The field, dotted.
    pub field: String,
}

impl Origin {
    /// A flag of the command line: `--provider`.
    #[must_use]
    pub fn flag(name: &str) -> Self {
        Self { file: COMMAND_LINE.into(), line: 0, field: name.to_owned() }
    }

    /// Whether it is a flag of the command line.
    #[must_use]
    pub fn is_flag(&self) -> bool {
        self.file.as_os_str() == COMMAND_LINE
    }

    /// The same place with another field.
    #[must_use]
    pub fn with_field(&self, field: &str) -> Self {
        Self { field: field.to_owned(), ..self.clone() }
    }

    /// What is wrong there.
    #[must_use]
    pub fn problem(&self, severity: Severity, message: String, hint: impl Into<Hint>) -> Problem {
        let (file, field, hint) = (self.file.clone(), self.field.clone(), hint.into());
        Problem { severity, file, line: self.line, field, message, hint }
    }
}

/// Where a provider is said, and its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderOrigin {
    /// Where it is defined, or where its kind is first named.
    pub named: Origin,
    /// The settings that are written: `api`, `api_key_env`, `base_url`, `dir`.
    pub settings: BTreeMap<&'static str, Origin>,
}

/// Where providers and models are said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// The world file, as messages name it.
    pub world_file: PathBuf,
    /// The world's own list of what is known of models, as messages name it.
    pub models_file: Option<PathBuf>,
    /// Providers, by name.
    pub providers: BTreeMap<String, ProviderOrigin>,
    /// Where each model is first named, by provider and model.
    pub models: BTreeMap<(String, String), Origin>,
    /// `temperature`, `max_tokens` and `thinking` of archetypes, by the archetype and the key.
    pub archetype_settings: BTreeMap<(String, &'static str), Origin>,
    /// The same of agents.
    pub agent_settings: BTreeMap<(AgentId, &'static str), Origin>,
}

impl Origins {
    /// Where `setting` of the provider `name` is written, or else the provider.
    #[must_use]
    pub fn provider(&self, name: &str, setting: &str) -> Origin {
        let found = self.providers.get(name);
        match found.and_then(|found| found.settings.get(setting)) {
            Some(origin) => origin.clone(),
            None => found.map_or_else(|| self.models_section(), |found| found.named.clone()),
        }
    }

    /// Where `model` of `provider` is named, or else the provider.
    #[must_use]
    pub fn model(&self, provider: &str, model: &str) -> Origin {
        let key = (provider.to_owned(), model.to_owned());
        self.models.get(&key).cloned().unwrap_or_else(|| self.provider(provider, ""))
    }

    /// What nothing in the files says is wanting in the world file.
    fn models_section(&self) -> Origin {
        Origin { file: self.world_file.clone(), line: 1, field: "llm".to_owned() }
    }
}
