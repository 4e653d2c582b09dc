//! A world in a temporary directory, for the tests of this room.

use std::path::{Path, PathBuf};

use crate::plan::Plan;
use crate::problem::Problems;

/// A directory `demo` with a world in it; gone when dropped.
pub struct World {
    keep: tempfile::TempDir,
}

/// A small world file that is right.
pub const GOOD: &str = "\
world: { id: demo, name: Demo World }
agents:
  - { id: chora, archetype: analyst, name: Chora, privilege_groups: [manager] }
  - id: mux
    archetype: doer
    team: desk
    restart: { type: transient, max: 3, window: 2m, backoff: 250ms }
    overrides: { model: big, max_tokens: 900 }
    budget: { tokens: 5000, usd: 1.5 }
teams:
  - { name: desk, strategy: rest_for_one, intensity: { max: 2, window: 30s }, agents: [chora] }
tool_privileges:
  admin: [syscall.agent.create, syscall.agent.stop, syscall.agent.start, syscall.agent.inspect, syscall.resource.usage]
  manager: [syscall.task.create, syscall.task.update, syscall.knowledge.write, syscall.knowledge.delete, syscall.broadcast]
  communicator:
    - channel
    - syscall.ask
    - syscall.channel.send
    - syscall.channel.handoff
  google-searcher: [tool.google_search]
  shell: [bash, tool.python, syscall.state.write]
agents_may_create: [doer]
limits: { hops_max: 8, turn_rounds_max: 20 }
budgets: { world: { tokens: 1_000_000 }, team: { desk: { usd: 3 } } }
write_acls: { chora: [agents/chora/, output/reports/] }
tasks: { owner_may_update: false }
secrets_env: [DEPLOY_KEY]
metrics: { open: true }
http: { allowed_hosts: [Ghost.Example, 'ghost:8080'], allowed_origins: ['https://dash.example'] }
x-notes: anything
";

impl World {
    /// The good world.
    pub fn new() -> Self {
        let world = Self { keep: tempfile::tempdir().unwrap() };
        world.write("world-config.yaml", GOOD);
        world.write("laws.md", "Be exact.");
        for name in ["analyst", "doer"] {
            world.write(&format!("archetype/{name}/soul.md"), "I am.");
            world.write(&format!("archetype/{name}/goal.md"), "To do.");
        }
        world.write(
            "archetype/analyst/config.md",
            "# analyst\n## Tool Access\nprivilege_groups: communicator\n- workspace.write\n- tool.google_search\n",
        );
        world.write(
            "archetype/doer/config.md",
            "## LLM\nprovider: scripted\nmodel: small\nfallback_models: big, scripted/huge\nmax_tokens: 2000\n\n## \
             Limits\nmax_tool_rounds: 9\n## Skills\n",
        );
        world
    }

    /// The world's directory.
    pub fn dir(&self) -> PathBuf {
        self.keep.path().join("demo")
    }

    /// The directory two levels above, where toolboxes may lie.
    pub fn above(&self) -> &Path {
        self.keep.path()
    }

    /// Writes a file of the world.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.dir().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// Writes the world file.
    pub fn config(&self, text: &str) -> &Self {
        self.write("world-config.yaml", text)
    }

    /// Replaces `from`, which must be there, in the good world file.
    pub fn with(&self, from: &str, to: &str) -> &Self {
        assert!(GOOD.contains(from), "{from}");
        self.config(&GOOD.replace(from, to))
    }

    /// Loads it with an environment of one secret.
    pub fn load(&self) -> Result<Plan, Problems> {
        crate::load(&self.dir(), &|name| (name == "SECRET").then(|| "hunter2-hunter2".to_owned()))
    }

    /// The plan of a world that is right.
    pub fn plan(&self) -> Plan {
        self.load().unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// Every problem of a world that is not, with paths relative to it.
    pub fn problems(&self) -> String {
        let problems = self.load().map(|_| ()).unwrap_err();
        problems.to_string().replace(&format!("{}/", self.dir().display()), "")
    }

    /// The warnings of a world that is right.
    pub fn warnings(&self) -> String {
        Problems(self.plan().warnings).to_string().replace(&format!("{}/", self.dir().display()), "")
    }
}
