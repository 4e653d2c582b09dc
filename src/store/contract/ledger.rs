//! The ledger.

use super::tools::*;

pub(super) async fn calls_round_trip(store: Bench) {
    let full: LedgerRow = with(
        call(1, "a", CallStatus::Unknown),
        json!({
            "alias": "read_file", "arguments": AWKWARD, "result": AWKWARD, "error_code": Code::OutcomeUnknown,
            "duration_ms": 1_u64 << 40, "bytes_in": 1_u64 << 41, "bytes_out": 1_u64 << 42, "tokens": 1_u64 << 43,
            "cost": 1_u64 << 44, "truncated": true,
        }),
    );
    let wanted = full.clone();
    put!(&store, { call_put: call(1, "a", CallStatus::Started), call(2, "a", CallStatus::Started), full; });
    shows!(&store, |r| {
        r.call_get(call_id(1))? => Some(wanted);
        r.call_get(call_id(2))? => Some(call(2, "a", CallStatus::Started));
        r.call_get(call_id(3))? => None;
    });
}

async fn found(store: &Store, filter: LedgerFilter) -> Vec<CallId> {
    map_rows(&reading!(store, |r| { r.call_list(&filter)? }), |row| row.call_id)
}

// covers: LIM-29, TOOL-17
pub(super) async fn calls_are_filtered(store: Bench) {
    put!(&store, {
        call_put: call(2, "a", CallStatus::Failed), call(4, "b", CallStatus::Ok),
            LedgerRow { tool: "syscall.ask".to_owned(), ..call(1, "a", CallStatus::Ok) },
            LedgerRow { turn_id: turn_id(2), ..call(3, "a", CallStatus::Ok) };
    });
    let any = LedgerFilter::default;
    let (agent_id, ok) = (Some(id_of("a")), Some(CallStatus::Ok));
    for (filter, wanted) in [
        (any(), &[4, 3, 2, 1][..]),
        (LedgerFilter { agent_id: agent_id.clone(), ..any() }, &[3, 2, 1]),
        (LedgerFilter { turn_id: Some(turn_id(2)), ..any() }, &[3]),
        (LedgerFilter { tool: Some("syscall.ask".to_owned()), ..any() }, &[1]),
        (LedgerFilter { status: ok, ..any() }, &[4, 3, 1]),
        (LedgerFilter { since: Some(at(2)), before: Some(at(4)), ..any() }, &[3, 2]),
        (LedgerFilter { limit: 2, ..any() }, &[4, 3]),
        (LedgerFilter { after: Some((at(3), call_id(3))), ..any() }, &[2, 1]),
        (LedgerFilter { after: Some((at(3), call_id(9))), ..any() }, &[3, 2, 1]),
        (LedgerFilter { agent_id, status: ok, limit: 1, ..any() }, &[3]),
    ] {
        assert_eq!(found(&store, filter.clone()).await, map_rows(wanted, |n| call_id(*n)), "{filter:?}");
    }
}

// covers: TOOL-16
pub(super) async fn calls_are_summed(store: Bench) {
    let cli = |n, status| LedgerRow {
        tool: "tool.cli".to_owned(),
        bytes_in: Some(n),
        bytes_out: Some(10 * n),
        tokens: Some(100 * n),
        cost: (n > 1).then_some(Money(n)),
        ..call(n, "a", status)
    };
    // The end of call 6 replaces what its start recorded.
    put!(&store, {
        call_put: cli(1, CallStatus::Ok), cli(2, CallStatus::Ok), cli(3, CallStatus::Ok), cli(4, CallStatus::Failed),
            call(5, "b", CallStatus::Ok), cli(6, CallStatus::Started), cli(6, CallStatus::Failed);
    });
    let sums = async |filter: LedgerFilter| reading!(&store, |r| { r.call_totals(&filter)? });
    let total = |tool: &str, status, calls, n| CallTotals {
        tool: tool.to_owned(),
        status,
        calls,
        duration_ms: 5 * calls,
        bytes_in: n,
        bytes_out: 10 * n,
        tokens: 100 * n,
        cost: Money(n),
    };
    let ok = CallTotals { cost: Money(5), ..total("tool.cli", CallStatus::Ok, 3, 6) };
    let failed = total("tool.cli", CallStatus::Failed, 2, 10);
    let read = total("workspace.read", CallStatus::Ok, 1, 0);
    let any = LedgerFilter::default;
    assert_eq!(sums(any()).await, [failed.clone(), ok, read.clone()]);
    let only = LedgerFilter { tool: Some("tool.cli".to_owned()), status: Some(CallStatus::Failed), ..any() };
    assert_eq!(sums(only).await, [failed]);
    assert_eq!(sums(LedgerFilter { agent_id: Some(id_of("b")), limit: 1, ..any() }).await, [read]);
    let late = LedgerFilter { since: Some(at(3)), before: Some(at(4)), after: Some((at(0), call_id(0))), ..any() };
    assert_eq!(sums(late).await, [total("tool.cli", CallStatus::Ok, 1, 3)]);
    assert_eq!(sums(LedgerFilter { turn_id: Some(turn_id(9)), ..any() }).await, []);
}

pub(super) async fn call_lists_are_bounded(store: Bench) {
    keep!(&store, |w| {
        for n in 1..=1_005 {
            w.call_put(&call(n, "a", CallStatus::Ok))?;
        }
    });
    let any = LedgerFilter::default;
    let standard = found(&store, any()).await;
    assert_eq!((standard.len(), standard[0], standard[99]), (100, call_id(1_005), call_id(906)));
    assert_eq!(found(&store, LedgerFilter { limit: 5_000, ..any() }).await.len(), 1_000);
    assert_eq!(found(&store, LedgerFilter { limit: 101, ..any() }).await.len(), 101);
}
