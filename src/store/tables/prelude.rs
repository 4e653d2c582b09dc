//! What the files of this folder use. It must never define anything.

pub(super) use super::functions::functions;
pub(super) use super::record::{fields, insert, record};
pub(super) use crate::error::{Result, StoreError};
pub(super) use crate::query::{Conditions, PAGE_MAX, list_limit};
pub(super) use crate::row::{Args, Bind, Keyed, ReadRow, Row, args, from_json, from_record, get, to_json, unreadable};
pub(super) use crate::sql::{Sql, Statement, sql};
pub(super) use crate::tx::Tx;
