//! Records calls: their starts, ends and refusals. Each record is a transaction that is refused
//! unless the turn is running.
//!
//! This module must never run a call.

use ghost_domain::journal::{CallOutcome, Effect, FilePlan};
use ghost_domain::{CallId, Code, Refusal, Turn};
use ghost_operations::OperationContext;
use ghost_operations::turns::{self, CallStart};
use ghost_store::{StoreError, Tx};
use ghost_tools::Output;
use ghost_tools::view::refused;

use super::call::Checked;
use super::ended::{Ended, record_beside};
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
    pub(super) fn ended(&self, checked: &Checked, call_id: CallId) -> Ended {
        let own = self.spec.limits.result_view_bytes;
        Ended {
            call_id,
            id: checked.call.id.clone(),
            tool: checked.tool.spec.name.clone(),
            view_bytes: Some(checked.tool.view_bytes.unwrap_or(own)),
        }
    }

    /// Records the pending result, if there is one, in a transaction of its own.
    pub(super) async fn flush(&mut self) -> Result<(), Refusal> {
        let Some(pending_result) = self.pending_result.take() else { return Ok(()) };
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        self.write_with_retry(move |w| pending_result.record(w, &ctx, turn_id)).await
    }

    pub(super) fn call_start(&self, checked: &Checked, call_id: CallId, files: Vec<FilePlan>) -> CallStart {
        CallStart {
            call_id,
            id: checked.call.id.clone(),
            tool: checked.tool.spec.name.clone(),
            alias: checked.alias.clone(),
            arguments: checked.call.arguments.clone(),
            effect: checked.run.effect(),
            files,
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
                let turn = turns::working_turn(w, &ctx, turn_id)?;
                turns::record_call_start(w, &ctx, &turn, &start)
            })
            .await
    }

    /// Records the end of a call that was recorded as started.
    pub(super) async fn record_result(
        &self,
        ended: Ended,
        result: Result<Output, Refusal>,
    ) -> Result<CallOutcome, Refusal> {
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        self.write_with_retry(move |w| {
            let turn = turns::working_turn(w, &ctx, turn_id)?;
            record_either(w, &ctx, &turn, &ended, result)
        })
        .await
    }

    /// Records a call's start and its end in one transaction.
    pub(super) async fn record_whole(
        &self,
        start: CallStart,
        view_bytes: Option<u32>,
        result: Result<Output, Refusal>,
    ) -> Result<CallOutcome, Refusal> {
        let ended = Ended { call_id: start.call_id, id: start.id.clone(), tool: start.tool.clone(), view_bytes };
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        self.write_with_retry(move |w| {
            let turn = turns::working_turn(w, &ctx, turn_id)?;
            turns::record_call_start(w, &ctx, &turn, &start)?;
            record_either(w, &ctx, &turn, &ended, result)
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
            files: Vec::new(),
            ask_id: None,
            begun_at: None,
        };
        if begun.is_none() {
            return self.record_whole(start, None, Err(refusal)).await;
        }
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        self.write_with_retry(move |w| {
            let turn = turns::working_turn(w, &ctx, turn_id)?;
            let ended = Ended { call_id: start.call_id, id: start.id, tool: start.tool, view_bytes: None };
            record_either(w, &ctx, &turn, &ended, Err(refusal))
        })
        .await
    }
}

/// Records a result, and the events and artifacts that belong to it.
pub(super) fn record_end(
    w: &mut Tx,
    ctx: &OperationContext,
    turn: &Turn,
    ended: &Ended,
    mut output: Output,
) -> Result<CallOutcome, Refusal> {
    record_beside(w, ctx, turn, &mut output)?;
    let outcome = ended.outcome(output);
    turns::record_call_end(w, ctx, turn, ended.call_id, &ended.id, &ended.tool, &outcome)?;
    Ok(outcome)
}

fn record_either(
    w: &mut Tx,
    ctx: &OperationContext,
    turn: &Turn,
    ended: &Ended,
    result: Result<Output, Refusal>,
) -> Result<CallOutcome, Refusal> {
    match result {
        Ok(output) => record_end(w, ctx, turn, ended, output),
        Err(refusal) => {
            let outcome = refused(refusal);
            turns::record_call_end(w, ctx, turn, ended.call_id, &ended.id, &ended.tool, &outcome)?;
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
