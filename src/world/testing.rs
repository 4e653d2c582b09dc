//! Worlds for tests of this crate and of those above it: their files, disk and clock, from which a test boots
//! them.

// Only the feature `testing` builds this. A failed set-up must end the test.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;

use ghost_config::plan::Plan;
use ghost_config::testing::WorldFiles;
use ghost_domain::ports::Ports;
use ghost_domain::testing::ManualClock;
use ghost_domain::{Code, Refusal};
use ghost_provider::Providers;
use ghost_store::memory::MemoryDisk;
use ghost_tools::workspace::Workspace;

use crate::boot::Boot;

/// The files, the disk and the clock of a world. They survive its daemon.
pub struct TestWorld {
    /// The world's files, in a directory that also holds its workspace.
    pub files: WorldFiles,
    /// The disk of its store.
    pub disk: MemoryDisk,
    /// The clock, which shows 1,000 seconds at first.
    pub clock: Arc<ManualClock>,
    ports: Ports,
}

impl TestWorld {
    /// A world with this world file and one archetype, `worker`, which uses the model of the tests.
    pub fn new(config: &str) -> Self {
        Self::with_worker(config, "## LLM\nprovider: test\nmodel: test\n")
    }

    /// The same with this `config.md` of the archetype.
    pub fn with_worker(config: &str, worker: &str) -> Self {
        let clock = ManualClock::at(1_000_000);
        let ports = clock.ports();
        Self { files: WorldFiles::new(config, worker), disk: MemoryDisk::new(), clock, ports }
    }

    /// A path in the workspace.
    pub fn workspace(&self, path: &str) -> PathBuf {
        self.files.path("workspace").join(path)
    }

    /// The plan of another world file with the same archetypes.
    pub fn plan(&self, config: &str) -> Plan {
        self.files.write("world-config.yaml", config);
        self.files.plan()
    }

    /// What a daemon boots: the files as they are, the built-in tools, and no reload.
    pub fn to_boot(&self, providers: Providers) -> Boot {
        Boot {
            plan: self.files.plan(),
            store: self.disk.open(),
            ports: self.ports.clone(),
            providers,
            workspace: Workspace::inline(&self.workspace("")).unwrap(),
            data_dir: None,
            secrets: vec![],
            node: "test".into(),
            tools: ghost_tools::builtins::all(),
            sandbox: Err("none in tests".to_owned()),
            web: Err("none in tests".to_owned()),
            reloader: Box::new(|| Err(Refusal::new(Code::Unavailable, "no reload here"))),
        }
    }
}
