//! What the problems that were found leave open, so that what only follows from them is not told.
//!
//! Must never: take a warning for a doubt; what is warned of holds as it stands.

use std::collections::BTreeSet;
use std::path::Path;

use ghost_config::plan::Plan;
use ghost_config::{Problem, Severity};

/// Keys of a choice of models that say nothing of which is the first, those of prices, and those of what requests carry.
const BESIDE: [&str; 11] = [
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

/// What is not known for sure.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorSuppression {
    /// Who may use which tools.
    pub(crate) access: bool,
    /// What models cost and what they take, because the world's own list of that has errors.
    pub(crate) facts: bool,
    /// Which models there are, and who thinks with what.
    models: bool,
    /// The archetypes whose models are not known.
    archetypes: BTreeSet<String>,
}

impl ErrorSuppression {
    /// What `found` leaves open in the world that messages call `shown`.
    pub(crate) fn of(found: &[Problem], plan: &Plan, shown: &Path) -> Self {
        let mut suppression = Self::default();
        for problem in found.iter().filter(|problem| problem.severity == Severity::Error) {
            let first = problem.field.split(['.', '[']).next().unwrap_or_default();
            suppression.access |= ["tool_privileges", "access", "toolboxes", "skills", "agents"].contains(&first)
                || ["Tool Access", "Toolbox", "Tools", "Skills"].contains(&first);
            suppression.facts |= problem.field == "llm.models_file"
                || plan.origins.models_file.as_ref().is_some_and(|file| *file == problem.file);
            let decides = !BESIDE.iter().any(|key| problem.field.contains(key));
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

    /// Whether it is known which models the agents of an archetype think with.
    pub(crate) fn knows_models_of(&self, archetype: &str) -> bool {
        !self.models && !self.archetypes.contains(archetype)
    }
}

/// The archetype that a problem is in, if it is in the archetype's configuration and not in its prose.
fn archetype(problem: &Problem, shown: &Path) -> Option<String> {
    let within = problem.file.strip_prefix(shown.join("archetype")).ok()?;
    let (mut parts, prose) = (within.iter(), ["soul.md", "goal.md", "user.md", "heartbeat.md"]);
    let (name, file) = (parts.next()?.to_str()?, parts.next()?.to_str()?);
    (!prose.contains(&file.to_ascii_lowercase().as_str())).then(|| name.to_owned())
}
