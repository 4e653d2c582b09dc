//! The ledger.

use std::sync::Arc;

use ghost_domain::{CallId, CallStatus, Code, LedgerRow};

use super::Medium;
use super::rows::{AWKWARD, at, call, call_id, id_of, turn_id};
use super::tools::{keep, map_rows, open, reading};
use crate::Store;
use crate::tables::LedgerFilter;

pub(super) async fn calls_round_trip(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    let full = LedgerRow {
        alias: Some("read_file".to_owned()),
        arguments: AWKWARD.to_owned(),
        result: Some(AWKWARD.to_owned()),
        error_code: Some(Code::OutcomeUnknown),
        duration_ms: Some(1 << 40),
        bytes_in: Some(1 << 41),
        bytes_out: Some(1 << 42),
        tokens: Some(1 << 43),
        truncated: true,
        ..call(1, "a", CallStatus::Unknown)
    };
    let wanted = (Some(full.clone()), Some(call(2, "a", CallStatus::Started)), None);
    keep!(&store, |w| {
        w.call_put(&call(1, "a", CallStatus::Started)).await?;
        w.call_put(&call(2, "a", CallStatus::Started)).await?;
        w.call_put(&full).await?;
    });
    let got = reading!(&store, |r| {
        (r.call_get(call_id(1)).await?, r.call_get(call_id(2)).await?, r.call_get(call_id(3)).await?)
    });
    assert_eq!(got, wanted);
}

async fn found(store: &Store, filter: LedgerFilter) -> Vec<CallId> {
    map_rows(&reading!(store, |r| { r.call_list(&filter).await? }), |row| row.call_id)
}

// covers: LIM-29, TOOL-17
pub(super) async fn calls_are_filtered(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    keep!(&store, |w| {
        w.call_put(&call(2, "a", CallStatus::Failed)).await?;
        w.call_put(&call(4, "b", CallStatus::Ok)).await?;
        w.call_put(&LedgerRow { tool: "syscall.ask".to_owned(), ..call(1, "a", CallStatus::Ok) }).await?;
        w.call_put(&LedgerRow { turn_id: turn_id(2), ..call(3, "a", CallStatus::Ok) }).await?;
    });
    let any = LedgerFilter::default;
    let ids = |numbers: &[u64]| map_rows(numbers, |n| call_id(*n));
    assert_eq!(found(&store, any()).await, ids(&[4, 3, 2, 1]));
    assert_eq!(found(&store, LedgerFilter { agent_id: Some(id_of("a")), ..any() }).await, ids(&[3, 2, 1]));
    assert_eq!(found(&store, LedgerFilter { turn_id: Some(turn_id(2)), ..any() }).await, ids(&[3]));
    assert_eq!(found(&store, LedgerFilter { tool: Some("syscall.ask".to_owned()), ..any() }).await, ids(&[1]));
    assert_eq!(found(&store, LedgerFilter { status: Some(CallStatus::Ok), ..any() }).await, ids(&[4, 3, 1]));
    assert_eq!(found(&store, LedgerFilter { since: Some(at(2)), before: Some(at(4)), ..any() }).await, ids(&[3, 2]));
    assert_eq!(found(&store, LedgerFilter { limit: 2, ..any() }).await, ids(&[4, 3]));
    let behind = |n: u64| LedgerFilter { after: Some((at(n), call_id(n))), ..any() };
    assert_eq!(found(&store, behind(3)).await, ids(&[2, 1]));
    assert_eq!(found(&store, LedgerFilter { after: Some((at(3), call_id(9))), ..any() }).await, ids(&[3, 2, 1]));
    let narrow = LedgerFilter { agent_id: Some(id_of("a")), status: Some(CallStatus::Ok), limit: 1, ..any() };
    assert_eq!(found(&store, narrow).await, ids(&[3]));
}

pub(super) async fn call_lists_are_bounded(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    keep!(&store, |w| {
        for n in 1..=1_005 {
            w.call_put(&call(n, "a", CallStatus::Ok)).await?;
        }
    });
    let any = LedgerFilter::default;
    let standard = found(&store, any()).await;
    assert_eq!((standard.len(), standard[0], standard[99]), (100, call_id(1_005), call_id(906)));
    assert_eq!(found(&store, LedgerFilter { limit: 5_000, ..any() }).await.len(), 1_000);
    assert_eq!(found(&store, LedgerFilter { limit: 101, ..any() }).await.len(), 101);
}
