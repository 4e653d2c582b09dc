//! What is amiss with the ground that a world stands on: a store that cannot write, a workspace that is gone. Told by `status`
//! as long as it lasts, and once by the feed.
//!
//! Must never: repair anything, or keep the world from going on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Timestamp;
use ghost_domain::event::{EventKind, NewEvent};
use serde_json::json;

use crate::world::World;

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// Where the trouble is: what tells one from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthProblem {
    /// The store cannot write.
    Store,
    /// The workspace is not where it was.
    Workspace,
}

impl World {
    /// What is amiss now, in words.
    pub async fn troubles(&self) -> BTreeMap<HealthProblem, String> {
        let mut troubles = BTreeMap::new();
        if let Some(why) = self.store().failing() {
            troubles.insert(HealthProblem::Store, format!("the store refuses writes at the moment: {why}"));
        }
        let workspace = &self.engine().services.workspace;
        if let Some(place) = workspace.place()
            && workspace.is_lost().await.unwrap_or(false)
        {
            let what = format!("the workspace {} was removed or replaced while the world runs", place.display());
            let words = format!("{what}: what agents write is lost; stop the daemon and bring the directory back");
            troubles.insert(HealthProblem::Workspace, words);
        }
        troubles
    }

    /// Tells each trouble in the log when it begins and in the feed as soon as that can be written, with when it began.
    pub async fn watch_ground(self: Arc<Self>) {
        let clock = Arc::clone(&self.ctx().ports.clock);
        let mut told: BTreeMap<HealthProblem, String> = BTreeMap::new();
        let mut unwritten: Vec<(Timestamp, String)> = Vec::new();
        loop {
            let now = self.troubles().await;
            for (ground, words) in now.iter().filter(|(ground, _)| !told.contains_key(ground)) {
                tracing::warn!(?ground, "{words}");
                unwritten.push((self.ctx().now(), words.clone()));
            }
            told = now;
            // Trouble of the store is written down when it is over.
            if !unwritten.is_empty() && self.tell(&unwritten).await {
                unwritten.clear();
            }
            clock.sleep(EVERY).await;
        }
    }

    /// Whether it was written.
    async fn tell(&self, troubles: &[(Timestamp, String)]) -> bool {
        let (ctx, troubles) = (self.ctx().clone(), troubles.to_vec());
        let written = self.store().write(move |w| {
            Box::pin(async move {
                for (since, warning) in troubles {
                    let payload = json!({ "warning": warning, "since": since });
                    ctx.emit(w, NewEvent::new(EventKind::WorldWarning, payload)).await?;
                }
                Ok::<_, ghost_domain::Refusal>(())
            })
        });
        written.await.is_ok()
    }
}
