//! What the droids of a world may use.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_domain::droid::ARCHETYPE;

use super::archetype::{Archetype, ArchetypeConfig};

/// The `droids` of a world file.
#[derive(Clone, Debug)]
pub struct DroidsPlan {
    /// The tools that a droid may have at most, whatever its parent has; `None` means those of its parent among
    /// [`TOOLS`](ghost_domain::droid::TOOLS).
    pub tools: Option<BTreeSet<String>>,
    /// The model of droids, `provider/model` or a model of the default provider; `None` means that of the parent.
    pub model: Option<String>,
    /// The archetype of droids, which has no files.
    pub archetype: Arc<Archetype>,
}

impl Default for DroidsPlan {
    fn default() -> Self {
        let archetype = Archetype {
            name: ARCHETYPE.to_owned(),
            soul: String::new(),
            goal: String::new(),
            agent: String::new(),
            user: String::new(),
            config: ArchetypeConfig::default(),
        };
        Self { tools: None, model: None, archetype: Arc::new(archetype) }
    }
}

impl DroidsPlan {
    /// Whether both say the same.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.tools, &self.model) == (&other.tools, &other.model)
    }
}
