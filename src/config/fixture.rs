//! A world in a temporary directory, for tests.

use std::path::{Path, PathBuf};

use crate::plan::Plan;
use crate::problem::{Problem, Problems};

/// A directory `demo` with a world in it. It is removed on drop.
pub struct World {
    temp_dir: tempfile::TempDir,
}

/// A valid small world file.
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
  admin: [syscall.agent.create, syscall.droid.spawn, syscall.agent.stop, syscall.agent.start, syscall.agent.inspect, syscall.resource.usage]
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
    /// Creates a world with [`GOOD`] and two archetypes.
    pub fn new() -> Self {
        let world = Self { temp_dir: tempfile::tempdir().unwrap() };
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
        self.temp_dir.path().join("demo")
    }

    /// The parent of the world's directory. Toolboxes may be there.
    pub fn above(&self) -> &Path {
        self.temp_dir.path()
    }

    /// Writes a file of the world.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.dir().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// Replaces the world file.
    pub fn config(&self, text: &str) -> &Self {
        self.write("world-config.yaml", text)
    }

    /// Writes [`GOOD`] with `from`, which must occur in it, replaced by `to`.
    pub fn with(&self, from: &str, to: &str) -> &Self {
        assert!(GOOD.contains(from), "{from}");
        self.config(&GOOD.replace(from, to))
    }

    /// Loads the world with one environment variable, `SECRET`.
    pub fn load(&self) -> Result<Plan, Problems> {
        crate::load(&self.dir(), &|name| (name == "SECRET").then(|| "hunter2-hunter2".to_owned()))
    }

    /// Loads a world that must be valid.
    pub fn plan(&self) -> Plan {
        self.load().unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// Loads a world that must be invalid. Returns every problem, with paths relative to the world.
    pub fn problems(&self) -> String {
        let problems = self.load().map(|_| ()).unwrap_err();
        each(&problems.0).replace(&format!("{}/", self.dir().display()), "")
    }

    /// The warnings of a world that must be valid.
    pub fn warnings(&self) -> String {
        each(&self.plan().warnings).replace(&format!("{}/", self.dir().display()), "")
    }
}

/// Each problem as a text of its own, also those that people read as one group.
fn each(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
