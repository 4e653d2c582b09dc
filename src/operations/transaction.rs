//! The transaction of a rule: the store's transaction and the context of the world. A rule takes both as one value, so no
//! rule can write under one world's limits, clock and redaction into another's store.
//!
//! This module must never hold a rule.

use std::ops::{Deref, DerefMut};

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::ports::Signal;
use ghost_domain::{AgentId, EventId, Step, Timestamp, Turn, TurnId};
use ghost_store::{Store, StoreError, Tx as StoreTx};
use serde_json::Value;

use crate::context::Context;
use crate::result::Result;

/// A transaction of the store with the context of its world. All functions of the store's transaction can be called on it.
pub struct Tx<'a> {
    store: &'a mut StoreTx,
    /// The context of the world.
    pub ctx: &'a Context,
}

impl Deref for Tx<'_> {
    type Target = StoreTx;

    fn deref(&self) -> &StoreTx {
        self.store
    }
}

impl DerefMut for Tx<'_> {
    fn deref_mut(&mut self) -> &mut StoreTx {
        self.store
    }
}

impl Tx<'_> {
    /// Appends an event, redacted, in the transaction that makes the change it reports.
    pub fn emit(&mut self, event: NewEvent) -> Result<()> {
        self.emit_at(self.ctx.now(), event)
    }

    /// Appends an event of a turn: about its agent, and found by the turn's id.
    pub(crate) fn emit_of(&mut self, turn: &Turn, kind: EventKind, payload: Value) -> Result<()> {
        self.emit(NewEvent::new(kind, payload).agent(&turn.agent_id).correlation(turn.turn_id))
    }

    /// Like [`Tx::emit`], with a given time, for an event whose record carries the same time.
    pub fn emit_at(&mut self, at: Timestamp, event: NewEvent) -> Result<()> {
        let event = NewEvent { payload: self.ctx.redactor.clean_json(event.payload), ..event };
        self.store.event_append(EventId(self.ctx.id()), at, event)?;
        Ok(())
    }

    /// Appends a step to the journal of a turn.
    pub(crate) fn journal(&mut self, turn_id: TurnId, step: &Step) -> Result<()> {
        Ok(self.store.journal_append(turn_id, step, self.ctx.now())?)
    }

    /// Wakes an agent after commit, so that it reads its inbox.
    pub fn wake(&mut self, agent_id: &AgentId) {
        self.store.signal(Signal::Wake(agent_id.clone()));
    }
}

impl Context {
    /// A transaction with this context.
    pub fn with<'a>(&'a self, store: &'a mut StoreTx) -> Tx<'a> {
        Tx { store, ctx: self }
    }

    /// Runs a command of the store with this context; see [`Store::write`].
    pub async fn write<T, E, F>(&self, store: &Store, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        let ctx = self.clone();
        store.write(move |w| work(&mut ctx.with(w))).await
    }

    /// Runs a query of the store with this context; see [`Store::read`].
    pub async fn read<T, E, F>(&self, store: &Store, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        let ctx = self.clone();
        store.read(move |r| work(&mut ctx.with(r))).await
    }

    /// Runs a query that needs no snapshot with this context; see [`Store::read_latest`].
    pub async fn read_latest<T, E, F>(&self, store: &Store, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        let ctx = self.clone();
        store.read_latest(move |r| work(&mut ctx.with(r))).await
    }
}
