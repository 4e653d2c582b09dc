//! What the turn of a droid does besides: it puts the task into the droid's directory, and takes guidance between two model
//! calls (DROID-07, 15).

use std::sync::Arc;

use ghost_domain::transcript::{Message, Role};
use ghost_domain::{AgentId, Refusal};
use ghost_operations::droids;

use super::runner::Runner;
use crate::engine::Engine;
use crate::prompt;

/// Creates the directory of a droid with its task, unless it exists.
pub(super) async fn prepare(engine: &Arc<Engine>, droid_id: &AgentId) -> Result<(), Refusal> {
    let id = droid_id.clone();
    let droid = engine.services.store.read_latest(move |r| Box::pin(async move { r.droid_get(&id).await })).await;
    let Some(droid) = droid.map_err(Refusal::from)? else { return Ok(()) };
    let task = format!(
        "id: {}\ntime: {}\nexpected output: {}\n\n{}\n",
        droid.droid_id,
        droid.created_at.rfc3339(),
        droid.output_path,
        droid.task.trim_end(),
    );
    engine.services.workspace.ensure_droid(droid_id, task).await
}

impl Runner {
    /// Takes guidance that has come for a droid since its last model call.
    pub(super) async fn take_guidance(&mut self) -> Result<(), Refusal> {
        if !self.agent_id.is_droid() || !self.briefed {
            return Ok(());
        }
        let id = self.agent_id.clone();
        let store = &self.engine.services.store;
        let depth = store.read_latest(move |r| Box::pin(async move { r.inbox_depth(&id).await })).await;
        if depth.map_err(Refusal::from)? == 0 {
            return Ok(());
        }
        self.flush().await?;
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let taken = self
            .write_with_retry(move |w| {
                Box::pin(async move { droids::take_guidance(w, &ctx, turn_id, &prompt::inbox).await })
            })
            .await?;
        if let Some(text) = taken {
            self.messages.push(Message::text(Role::User, text));
            // Only the store knows now which mail the turn has.
            self.held = None;
        }
        Ok(())
    }
}
