//! Where a tool comes from.

use std::sync::Arc;

use ghost_config::plan::ToolboxPlan;

/// Where a tool comes from.
#[derive(Clone, Debug, Default)]
pub enum Origin {
    /// It is compiled into ghostd.
    #[default]
    Builtin,
    /// A toolbox of the world or of a skill brings it.
    Toolbox(Arc<ToolboxPlan>),
}

impl Origin {
    /// The toolbox, if there is one.
    #[must_use]
    pub fn toolbox(&self) -> Option<&Arc<ToolboxPlan>> {
        match self {
            Self::Builtin => None,
            Self::Toolbox(toolbox) => Some(toolbox),
        }
    }
}
