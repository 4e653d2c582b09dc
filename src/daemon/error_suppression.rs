//! Suppresses problems that only follow from other problems: if the configuration of a thing has an error, checks that
//! depend on that thing are skipped.
//!
//! Must never: let a warning suppress anything. The configuration that it is about is valid.

use std::collections::BTreeSet;
use std::path::Path;

use ghost_config::plan::Plan;
use ghost_config::{Problem, Severity};

/// Keys in the configuration of models that do not decide which model is used.
const NOT_DECISIVE: [&str; 11] = [
    ".api_version",
    ".extra_body",
    ".fallback_models",
    ".headers",
    ".max_tokens",
    ".models_file",
    ".organization",
    ".prices",
    ".query",
    ".temperature",
    ".thinking",
];

/// What is unknown because of errors.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorSuppression {
    /// Which agents may use which tools.
    pub(crate) access: bool,
    /// Prices and limits of models, because the world's own list of models has errors.
    pub(crate) facts: bool,
    /// Which models exist, and which agent uses which.
    models: bool,
    /// The archetypes whose models are unknown.
    archetypes: BTreeSet<String>,
}

impl ErrorSuppression {
    /// What the errors in `found` make unknown. `shown` is the world's directory as the problems show it.
    pub(crate) fn of(found: &[Problem], plan: &Plan, shown: &Path) -> Self {
        let mut suppression = Self::default();
        for problem in found.iter().filter(|problem| problem.severity == Severity::Error) {
            let first = problem.field.split(['.', '[']).next().unwrap_or_default();
            suppression.access |= ["tool_privileges", "access", "toolboxes", "skills", "agents"].contains(&first)
                || ["Tool Access", "Toolbox", "Tools", "Skills"].contains(&first);
            suppression.facts |= problem.field == "llm.models_file"
                || plan.origins.models_file.as_ref().is_some_and(|file| *file == problem.file);
            let decides = !NOT_DECISIVE.iter().any(|key| problem.field.contains(key));
            if problem.file == plan.origins.world_file {
                let overrides = first == "agents" && problem.field.contains(".overrides");
                suppression.models |= decides && (overrides || first == "llm");
            }
            if let Some(name) = archetype(problem, shown) {
                suppression.access |= first.is_empty();
                if first.is_empty() || first == "LLM" && decides {
                    suppression.archetypes.insert(name);
                }
            }
        }
        suppression
    }

    /// Whether the models of an archetype's agents are known.
    pub(crate) fn knows_models_of(&self, archetype: &str) -> bool {
        !self.models && !self.archetypes.contains(archetype)
    }
}

/// The archetype that a problem is in; `None` if the file is only prose.
fn archetype(problem: &Problem, shown: &Path) -> Option<String> {
    let within = problem.file.strip_prefix(shown.join("archetype")).ok()?;
    let (mut parts, prose) = (within.iter(), ["soul.md", "goal.md", "user.md", "heartbeat.md"]);
    let (name, file) = (parts.next()?.to_str()?, parts.next()?.to_str()?);
    (!prose.contains(&file.to_ascii_lowercase().as_str())).then(|| name.to_owned())
}
