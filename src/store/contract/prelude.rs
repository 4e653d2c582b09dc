//! What every file of this folder names: the records and ids of the domain, the filters of the tables, and the store.
//!
//! This module must never define anything.

pub(super) use std::collections::BTreeMap;
pub(super) use std::sync::Arc;

pub(super) use futures_util::FutureExt;
pub(super) use futures_util::future::join_all;
pub(super) use ghost_domain::event::EventFilter;
pub(super) use ghost_domain::ports::{Signal, Wake};
pub(super) use ghost_domain::schedule::{Change, FileStamp, JobMode, Missed, OwnTurn, RunStatus, Target, When};
pub(super) use ghost_domain::turn::{ParkCause, Parked, WaitMode};
pub(super) use ghost_domain::*;
pub(super) use serde_json::{Value, json};
pub(super) use uuid::Uuid;

pub(super) use crate::error::StoreError;
pub(super) use crate::tables::*;
pub(super) use crate::{Store, Tx};
