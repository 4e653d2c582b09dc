//! Who left a directory that no program should walk: one that is too deep, or holds more entries than are looked at. An agent
//! does not pay for what another one left. Where several could write, nobody is held to it: such a directory is measured
//! like any other, and stops no command.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ghost_domain::{AgentId, Code, Refusal};

/// The commands that run, and what agents left.
#[derive(Debug, Default)]
pub(crate) struct Left(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: BTreeMap<u64, Running>,
    next: u64,
    left: BTreeMap<AgentId, String>,
}

#[derive(Debug)]
struct Running {
    agent_id: AgentId,
    writable: Vec<String>,
    /// What other agents may write whose commands ran meanwhile.
    others: BTreeSet<String>,
}

/// A command under way.
pub(crate) struct Begun<'l> {
    left: &'l Left,
    id: u64,
}

fn is_within(dir: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    prefix.is_empty() || dir.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Left {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves at most one command that seems to run.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a command of an agent that may write `writable`, directories relative to the workspace `root`.
    ///
    /// # Errors
    /// `TooLarge` while a directory that the agent left is there.
    pub(crate) fn begin(&self, root: &Path, agent_id: &AgentId, writable: &[String]) -> Result<Begun<'_>, Refusal> {
        let mut state = self.state();
        if let Some(dir) = state.left.get(agent_id) {
            if root.join(dir).symlink_metadata().is_ok() {
                let what = format!(
                    "an earlier command of this agent left `{dir}`, which is deeper or has more files than programs can handle"
                );
                return Err(Refusal::new(Code::TooLarge, what)
                    .hint(format!(
                        "an operator removes it with `ghostctl artifact remove {dir}`; on a toolbox server, from its copy of the workspace"
                    )));
            }
            state.left.remove(agent_id);
        }
        let mut others = BTreeSet::new();
        for running in state.running.values_mut().filter(|running| running.agent_id != *agent_id) {
            running.others.extend(writable.iter().cloned());
            others.extend(running.writable.iter().cloned());
        }
        let id = state.next;
        state.next += 1;
        state.running.insert(id, Running { agent_id: agent_id.clone(), writable: writable.to_vec(), others });
        Ok(Begun { left: self, id })
    }
}

impl Begun<'_> {
    /// The command has ended and left `dir`, relative to the workspace.
    pub(crate) fn left(self, dir: &str) {
        let mut state = self.left.state();
        let Some(running) = state.running.get(&self.id) else { return };
        let agent_id = running.agent_id.clone();
        if running.others.iter().any(|prefix| is_within(dir, prefix)) {
            tracing::warn!(%agent_id, dir, "a directory is deeper or has more files than programs can handle; several agents could have made it");
            return;
        }
        tracing::warn!(%agent_id, dir, "an agent left a directory that is deeper or has more files than programs can handle");
        state.left.insert(agent_id, dir.to_owned());
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.left.state().running.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_held_to_what_it_alone_can_have_left() {
        let (root, left) = (tempfile::tempdir().unwrap(), Left::default());
        for dir in ["output/deep", "agents/ada/deep"] {
            std::fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let [ada, bob]: [AgentId; 2] = ["ada", "bob"].map(|name| name.parse().unwrap());
        let begin =
            |agent: &AgentId| left.begin(root.path(), agent, &[format!("{}/", agent.home()), "output/".to_owned()]);
        let of_ada = begin(&ada).unwrap();
        drop(begin(&bob).unwrap());
        of_ada.left("output/deep");
        begin(&ada).unwrap().left("output/deep");
        let refused = begin(&ada).err().unwrap();
        assert_eq!(refused.code, Code::TooLarge);
        assert!(refused.message.contains("`output/deep`"), "{refused}");
        begin(&bob).unwrap();
        std::fs::remove_dir(root.path().join("output/deep")).unwrap();
        let of_ada = begin(&ada).unwrap();
        let _of_bob = begin(&bob).unwrap();
        of_ada.left("agents/ada/deep");
        assert!(begin(&ada).is_err() && begin(&bob).is_ok());
    }
}
