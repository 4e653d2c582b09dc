//! The names that almost every rule uses: the records and ids of the domain, the filters of the store, and this crate's
//! context, chain and result.
//!
//! This module must never define anything, and it takes only from files that do not take from it.

pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::time::Duration;

pub(crate) use ghost_domain::conversation::CONTROL;
pub(crate) use ghost_domain::journal::{CallOutcome, Effect};
pub(crate) use ghost_domain::ports::Signal;
pub(crate) use ghost_domain::refusal::not_blank;
pub(crate) use ghost_domain::schedule::{JobMode, Missed, RunStatus, Target, When};
pub(crate) use ghost_domain::text::{clip, is_strange, nearest, one_line, prefix_bytes, shown};
pub(crate) use ghost_domain::transcript::TokenUsage;
pub(crate) use ghost_domain::*;
pub(crate) use ghost_store::tables::*;
pub(crate) use ghost_store::{Store, StoreError, Tx as StoreTx};
pub(crate) use serde::{Deserialize, Serialize};
pub(crate) use serde_json::{Value, json};

pub(crate) use crate::context::{Chain, Context, Result, Tx, at_most, fits, found, not_among, read_all};
