//! A world's directory for tests.

use std::path::{Path, PathBuf};

/// A world's directory. Tests write its files.
#[derive(Clone, Debug)]
pub struct WorldDir(PathBuf);

impl WorldDir {
    pub(super) fn new(path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).expect("a world's directory");
        Self(path)
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file of the world.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file of the world");
        self
    }

    /// Writes `world-config.yaml`.
    pub fn config(&self, yaml: &str) -> &Self {
        self.write("world-config.yaml", yaml)
    }

    /// Writes an archetype with this `config.md`.
    pub fn archetype(&self, name: &str, config: &str) -> &Self {
        self.write(&format!("archetype/{name}/soul.md"), "You do exactly what your mail says.\n")
            .write(&format!("archetype/{name}/goal.md"), "Deal with your mail.\n")
            .write(&format!("archetype/{name}/config.md"), config)
    }
}
