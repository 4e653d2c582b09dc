//! The files of a small world, for tests of all crates.
//!
//! This module must never be part of a release build.

// Only the feature `testing` builds this. A failed set-up must end the test.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use crate::plan::Plan;
use crate::problem::Problems;

/// A world file with the agents ada and ben, and the provider `test`, which no one serves.
pub const TWO_AGENTS: &str = "\
world: { id: test, name: Test }
agents:
  - { id: ada, archetype: worker }
  - { id: ben, archetype: worker }
llm:
  default_provider: test
  default_model: test
  providers: { test: { kind: openai, base_url: 'http://127.0.0.1:1' } }
";

/// A world in a temporary directory, which is removed on drop.
pub struct WorldFiles(tempfile::TempDir);

impl WorldFiles {
    /// Writes a world with this world file and one archetype, `worker`, with this `config.md`.
    #[must_use]
    pub fn new(config: &str, worker: &str) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.write("world-config.yaml", config);
        files.write("laws.md", "Be exact.");
        files.archetype("worker", worker);
        files
    }

    /// Writes an archetype with this `config.md`.
    pub fn archetype(&self, name: &str, config: &str) {
        for (file, text) in [("soul.md", "You work."), ("goal.md", "Work."), ("config.md", config)] {
            self.write(&format!("archetype/{name}/{file}"), text);
        }
    }

    /// The temporary directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    /// A path in the temporary directory. The world is in `world`.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Writes a file of the world, and creates its directories.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path("world").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Loads the world, without environment variables.
    pub fn load(&self) -> Result<Plan, Problems> {
        crate::load(&self.path("world"), &|_| None)
    }

    /// Loads a world that must be valid.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.load().unwrap_or_else(|problems| panic!("{problems}"))
    }
}
