//! Problems of the resources that a world needs: a store that cannot write, a workspace that was
//! removed, a disk that is nearly full. Before there is no room left to write, all turns are held back. `status`
//! shows them as long as they last. The event feed has one event for each.
//!
//! The health check must never repair anything or stop the world. It must never let a turn run into a full disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Timestamp;
use ghost_domain::event::{EventKind, NewEvent};
use serde_json::json;

use crate::room;
use crate::world::World;

/// Time between two checks.
const EVERY: Duration = Duration::from_secs(1);

/// The resource that has a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthProblem {
    /// The store cannot write.
    Store,
    /// The workspace's directory was removed or replaced.
    Workspace,
    /// There is no room to write, so no turn goes on.
    NoRoom,
    /// There is little room to write.
    LittleRoom,
}

impl World {
    /// The problems at this moment, each with a text for people.
    pub async fn problems(&self) -> BTreeMap<HealthProblem, String> {
        let mut problems = BTreeMap::new();
        if let Some(why) = self.store().failing() {
            problems.insert(HealthProblem::Store, format!("the store refuses writes at the moment: {why}"));
        }
        let workspace = &self.engine().services.workspace;
        if let Some(root) = workspace.place()
            && workspace.is_lost().await.unwrap_or(false)
        {
            let text = format!(
                "the workspace {} was removed or replaced while the world runs: what agents write is lost; stop the \
                 daemon and restore the directory",
                root.display()
            );
            problems.insert(HealthProblem::Workspace, text);
        }
        let services = Arc::clone(&self.engine().services);
        let limits = self.ctx().limits();
        // A file system that does not respond must not block this thread.
        let measured = tokio::task::spawn_blocking(move || {
            room::measure(services.data_dir().into_iter().chain(services.workspace.place()), &limits)
        });
        let room = measured.await.unwrap_or_default();
        problems.extend(room.held.map(|why| (HealthProblem::NoRoom, why)));
        problems.extend(room.low.map(|why| (HealthProblem::LittleRoom, why)));
        problems
    }

    /// Holds all turns back while there is no room to write. Logs each problem when it begins, and writes an event
    /// with the time of its beginning as soon as the store can write.
    pub async fn watch_health(self: Arc<Self>) {
        let clock = Arc::clone(&self.ctx().ports.clock);
        let mut reported: BTreeMap<HealthProblem, String> = BTreeMap::new();
        let mut unwritten: Vec<(Timestamp, String)> = Vec::new();
        loop {
            let current = self.problems().await;
            self.ctx().hold(current.get(&HealthProblem::NoRoom).map(String::as_str));
            for (problem, text) in current.iter().filter(|(problem, _)| !reported.contains_key(problem)) {
                tracing::warn!(?problem, "{text}");
                unwritten.push((self.ctx().now(), text.clone()));
            }
            reported = current;
            // A problem of the store can only be written when it is over.
            if !unwritten.is_empty() && self.write_warnings(&unwritten).await {
                unwritten.clear();
            }
            clock.sleep(EVERY).await;
        }
    }

    /// Writes one `world.warning` event for each problem. Returns whether the store committed them.
    async fn write_warnings(&self, problems: &[(Timestamp, String)]) -> bool {
        let problems = problems.to_vec();
        let written = self.write(move |w| {
            for (since, warning) in problems {
                let payload = json!({ "warning": warning, "since": since });
                w.emit(NewEvent::new(EventKind::WorldWarning, payload))?;
            }
            Ok::<_, ghost_domain::Refusal>(())
        });
        written.await.is_ok()
    }
}
