//! What the turn of a droid does besides: it puts the task into the droid's directory, and takes guidance between two model
//! calls (DROID-07, 15).

use std::sync::Arc;

use ghost_domain::transcript::{Message, Role};
use ghost_domain::{Droid, Refusal};
use ghost_operations::droids;

use super::runner::Runner;
use crate::engine::Engine;
use crate::prompt;

/// Creates the directory of a droid with its task, unless it exists. `is_first` says that no turn of the droid has begun
/// before.
pub(super) async fn prepare(engine: &Arc<Engine>, droid: &Droid, is_first: bool) -> Result<(), Refusal> {
    let task = format!(
        "id: {}\ntime: {}\nexpected output: {}\n\n{}\n",
        droid.droid_id,
        droid.created_at.rfc3339(),
        droid.output_path,
        droid.task.trim_end(),
    );
    engine.services.workspace.ensure_droid(&droid.droid_id, task, is_first).await
}

impl Runner {
    /// Takes guidance that has come for a droid since its last model call. Returns whether any joined the turn.
    pub(super) async fn take_guidance(&mut self) -> Result<bool, Refusal> {
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let taken = self.write_with_retry(move |w| droids::take_guidance(w, &ctx, turn_id, &prompt::inbox)).await?;
        let Some(text) = taken else { return Ok(false) };
        self.messages_mut().push(Message::text(Role::User, text));
        Ok(true)
    }
}
