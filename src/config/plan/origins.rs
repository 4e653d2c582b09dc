//! Records where the files define providers and models, for problems that are found after loading.
//!
//! Origins must never affect behaviour. Plans that differ only in origins are equal.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ghost_domain::AgentId;

use crate::problem::{COMMAND_LINE, Hint, Problem, Severity};

/// A position in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file, as messages name it.
    pub file: PathBuf,
    /// The line, as in [`Problem::line`].
    pub line: usize,
    /// The dotted path of the field.
    pub field: String,
}

impl Origin {
    /// A flag of the command line: `--provider`.
    #[must_use]
    pub fn flag(name: &str) -> Self {
        Self { file: COMMAND_LINE.into(), line: 0, field: name.to_owned() }
    }

    /// Whether this is a flag of the command line.
    #[must_use]
    pub fn is_flag(&self) -> bool {
        self.file.as_os_str() == COMMAND_LINE
    }

    /// The same position with another field.
    #[must_use]
    pub fn with_field(&self, field: &str) -> Self {
        Self { field: field.to_owned(), ..self.clone() }
    }

    /// Makes a problem at this position.
    #[must_use]
    pub fn problem(&self, severity: Severity, message: String, hint: impl Into<Hint>) -> Problem {
        let (file, field, hint) = (self.file.clone(), self.field.clone(), hint.into());
        Problem { severity, file, line: self.line, field, message, hint }
    }
}

/// Where a provider and its settings are defined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderOrigin {
    /// Where the provider is defined, or where its kind is first named.
    pub named: Origin,
    /// The settings that the file contains: `api`, `api_key_env`, `base_url`, `dir`.
    pub settings: BTreeMap<&'static str, Origin>,
}

/// Where providers and models are defined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// `world-config.yaml`, as messages name it.
    pub world_file: PathBuf,
    /// The world's own list of models, as messages name it.
    pub models_file: Option<PathBuf>,
    /// Providers, by name.
    pub providers: BTreeMap<String, ProviderOrigin>,
    /// Where each model is first named, by provider and model.
    pub models: BTreeMap<(String, String), Origin>,
    /// The positions of `temperature`, `max_tokens` and `thinking`, by archetype and key.
    pub archetype_settings: BTreeMap<(String, &'static str), Origin>,
    /// The positions of `temperature`, `max_tokens` and `thinking`, by agent and key.
    pub agent_settings: BTreeMap<(AgentId, &'static str), Origin>,
}

impl Origins {
    /// The position of `setting` of the provider `name`, or else of the provider.
    #[must_use]
    pub fn provider(&self, name: &str, setting: &str) -> Origin {
        let found = self.providers.get(name);
        match found.and_then(|found| found.settings.get(setting)) {
            Some(origin) => origin.clone(),
            None => found.map_or_else(|| self.models_section(), |found| found.named.clone()),
        }
    }

    /// The position at which `model` of `provider` is named, or else of the provider.
    #[must_use]
    pub fn model(&self, provider: &str, model: &str) -> Origin {
        let key = (provider.to_owned(), model.to_owned());
        self.models.get(&key).cloned().unwrap_or_else(|| self.provider(provider, ""))
    }

    /// The position for a provider that no file names: the section `llm` of the world file.
    fn models_section(&self) -> Origin {
        Origin { file: self.world_file.clone(), line: 1, field: "llm".to_owned() }
    }
}
