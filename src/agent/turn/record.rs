//! Records calls: their starts, ends and refusals. Each record is a transaction that is refused
//! unless the turn is running.
//!
//! This module must never run a call.

use ghost_domain::journal::{CallOutcome, Effect};
use ghost_domain::{CallId, Code, Refusal};
use ghost_operations::OperationContext;
use ghost_operations::turns::{self, CallStart};
use ghost_store::{StoreError, Writes};
use ghost_tools::Output;
use ghost_tools::view::refused;

use super::call::Checked;
use super::runner::Runner;
use crate::transcript::OpenCall;

/// A refusal within a store transaction. The model reads the tool's refusals; a refusal of the
/// turn's own writes ends the work.
pub(super) enum InTransaction {
    Tool(Refusal),
    Turn(Refusal),
}

impl From<StoreError> for InTransaction {
    fn from(error: StoreError) -> Self {
        Self::Turn(error.into())
    }
}

impl Runner {
    /// Records the pending result, if there is one, in a transaction of its own.
    pub(super) async fn flush(&mut self) -> Result<(), Refusal> {
        let Some(pending_result) = self.pending_result.take() else { return Ok(()) };
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        self.write_with_retry(move |w| Box::pin(async move { pending_result.record(w, &ctx, turn_id).await })).await
    }

    pub(super) fn call_start(
        &self,
        checked: &Checked,
        call_id: CallId,
        file: Option<ghost_domain::journal::FilePlan>,
    ) -> CallStart {
        CallStart {
            call_id,
            id: checked.call.id.clone(),
            tool: checked.tool.spec.name.clone(),
            alias: checked.alias.clone(),
            arguments: checked.call.arguments.clone(),
            effect: checked.run.effect(),
            file,
            ask_id: None,
            begun_at: None,
        }
    }

    pub(super) async fn record_start(&self, start: CallStart) -> Result<(), Refusal> {
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        self.engine
            .services
            .store
            .write(move |w| {
                Box::pin(async move {
                    let turn = turns::working_turn(w, &ctx, turn_id).await?;
                    turns::record_call_start(w, &ctx, &turn, &start).await
                })
            })
            .await
    }

    /// Records the end of a call that was recorded as started.
    pub(super) async fn record_result(
        &self,
        call_id: CallId,
        id: &str,
        tool: &str,
        result: Result<Output, Refusal>,
    ) -> Result<CallOutcome, Refusal> {
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let (id, name) = (id.to_owned(), tool.to_owned());
        self.write_with_retry(move |w| {
            Box::pin(async move {
                let turn = turns::working_turn(w, &ctx, turn_id).await?;
                record_either(w, &ctx, &turn, call_id, &id, &name, result).await
            })
        })
        .await
    }

    /// Records a call's start and its end in one transaction.
    pub(super) async fn record_whole(
        &self,
        start: CallStart,
        result: Result<Output, Refusal>,
    ) -> Result<CallOutcome, Refusal> {
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        self.write_with_retry(move |w| {
            Box::pin(async move {
                let turn = turns::working_turn(w, &ctx, turn_id).await?;
                turns::record_call_start(w, &ctx, &turn, &start).await?;
                record_either(w, &ctx, &turn, start.call_id, &start.id, &start.tool, result).await
            })
        })
        .await
    }

    /// Records the refusal of a call: one that never ran or, with `begun`, one that was recorded as
    /// started.
    pub(super) async fn record_refusal(
        &self,
        call: &OpenCall,
        tool: &str,
        alias: Option<String>,
        effect: Effect,
        begun: Option<CallId>,
        refusal: Refusal,
    ) -> Result<CallOutcome, Refusal> {
        // The journal gets no start of a call that is refused at once.
        let effect = if begun.is_some() { effect } else { Effect::Read };
        let start = CallStart {
            call_id: begun.unwrap_or_else(|| CallId(self.engine.services.ctx.id())),
            id: call.id.clone(),
            tool: tool.to_owned(),
            alias,
            arguments: call.arguments.clone(),
            effect,
            file: None,
            ask_id: None,
            begun_at: None,
        };
        if begun.is_none() {
            return self.record_whole(start, Err(refusal)).await;
        }
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        self.write_with_retry(move |w| {
            Box::pin(async move {
                let turn = turns::working_turn(w, &ctx, turn_id).await?;
                record_either(w, &ctx, &turn, start.call_id, &start.id, &start.tool, Err(refusal)).await
            })
        })
        .await
    }
}

/// Records a result and the events that belong to it.
pub(super) async fn record_end(
    w: &mut dyn Writes,
    ctx: &OperationContext,
    turn: &ghost_domain::Turn,
    call_id: CallId,
    id: &str,
    tool: &str,
    output: Output,
) -> Result<CallOutcome, Refusal> {
    for event in output.events {
        ctx.emit(w, event).await?;
    }
    let outcome = CallOutcome { content: output.content, refusal: None, truncated: output.truncated };
    turns::record_call_end(w, ctx, turn, call_id, id, tool, &outcome).await?;
    Ok(outcome)
}

async fn record_either(
    w: &mut dyn Writes,
    ctx: &OperationContext,
    turn: &ghost_domain::Turn,
    call_id: CallId,
    id: &str,
    tool: &str,
    result: Result<Output, Refusal>,
) -> Result<CallOutcome, Refusal> {
    match result {
        Ok(output) => record_end(w, ctx, turn, call_id, id, tool, output).await,
        Err(refusal) => {
            let outcome = refused(refusal);
            turns::record_call_end(w, ctx, turn, call_id, id, tool, &outcome).await?;
            Ok(outcome)
        }
    }
}

/// The refusal that the model gets for an outside call which a crash interrupted.
pub(super) fn outcome_unknown(tool: &str) -> Refusal {
    Refusal::new(
        Code::OutcomeUnknown,
        format!("{tool} was running when the daemon stopped: it may or may not have happened"),
    )
    .hint("check which effects it had before you do it again")
}
