//! Tests of the `Grants` and `Artifacts` services, and of the sums of the ledger.

use ghost_proto::v1;
use ghost_proto::v1::artifacts_client::ArtifactsClient;
use ghost_proto::v1::grants_client::GrantsClient;
use ghost_proto::v1::ledger_client::LedgerClient;
use ghost_proto::v1::tools_client::ToolsClient;
use ghost_proto::v1::world_client::WorldClient;
use tonic::Code;

use crate::test_daemon::{TestDaemon, new_world, refused};

fn add(request_id: &str, agent_id: &str, prefix: &str) -> v1::AddGrantRequest {
    v1::AddGrantRequest {
        request_id: request_id.into(),
        agent_id: agent_id.into(),
        prefix: prefix.into(),
        ..Default::default()
    }
}

// covers: ACL-04, ACL-06, ACL-10, CP-05
#[tokio::test]
async fn grants_are_added_listed_and_revoked_once() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut grants = GrantsClient::new(daemon.channel.clone());
    let request = v1::AddGrantRequest { reason: Some("hush-hush-secret".into()), ..add("1", "ada", "output/a/") };
    let one = grants.add(request.clone()).await.unwrap().into_inner();
    assert_eq!(grants.add(request).await.unwrap().into_inner(), one, "the same request, the same grant");
    assert_eq!((one.source.as_str(), one.expires_at_ms - one.created_at_ms), ("manual", 4 * 3_600_000));
    assert!(one.created_by.starts_with("operator:uid-") && !one.reason.as_ref().unwrap().contains("hush-hush"));
    let short = v1::AddGrantRequest { lasts_ms: Some(1_000), ..add("2", "ada", "output/b/") };
    grants.add(short).await.unwrap();
    let other = v1::AddGrantRequest { source: Some("session".into()), ..add("3", "ben", "output/c/") };
    let other = grants.add(other).await.unwrap().into_inner();
    // One that is over is not listed.
    test_world.clock.advance(std::time::Duration::from_secs(1));
    let all = v1::ListGrantsRequest { limit: 1, ..Default::default() };
    let page = grants.list(all.clone()).await.unwrap().into_inner();
    assert_eq!(page.grants, std::slice::from_ref(&one));
    let next = v1::ListGrantsRequest { cursor: page.next_cursor, ..all };
    let page = grants.list(next).await.unwrap().into_inner();
    assert_eq!((page.grants, page.next_cursor.as_str()), (vec![other], ""));
    let of_ada = v1::ListGrantsRequest { agent_id: Some("ada".into()), ..Default::default() };
    assert_eq!(grants.list(of_ada.clone()).await.unwrap().into_inner().grants, std::slice::from_ref(&one));
    let typed = v1::ResolveIdRequest { kind: "grant".into(), prefix: one.grant_id.clone() };
    let found = WorldClient::new(daemon.channel.clone()).resolve_id(typed).await.unwrap().into_inner();
    assert_eq!(found.full_id, one.grant_id);
    let revoke =
        |request_id: &str| v1::RevokeGrantRequest { request_id: request_id.into(), grant_id: one.grant_id.clone() };
    assert_eq!(grants.revoke(revoke("4")).await.unwrap().into_inner(), one);
    assert_eq!(grants.revoke(revoke("4")).await.unwrap().into_inner(), one, "the same request, the same answer");
    refused(grants.revoke(revoke("5")).await, Code::NotFound, None);
    assert!(grants.list(of_ada).await.unwrap().into_inner().grants.is_empty());
}

// covers: ACL-03, ACL-04
#[tokio::test]
async fn invalid_grants_are_refused() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut grants = GrantsClient::new(daemon.channel.clone());
    for (request, code, field) in [
        (add("", "ada", "output/"), Code::InvalidArgument, None),
        (add("1", "adda", "output/"), Code::NotFound, None),
        (add("1", "A B", "output/"), Code::InvalidArgument, Some("agent_id")),
        (add("1", "ada", "output"), Code::InvalidArgument, None),
        (add("1", "ada", "agents/ben/"), Code::InvalidArgument, None),
        (add("1", "ada", "../"), Code::PermissionDenied, None),
        (add("1", "ada", ""), Code::InvalidArgument, Some("prefix")),
        (v1::AddGrantRequest { lasts_ms: Some(0), ..add("1", "ada", "output/") }, Code::InvalidArgument, None),
        (v1::AddGrantRequest { lasts_ms: Some(u64::MAX), ..add("1", "ada", "output/") }, Code::InvalidArgument, None),
        (
            v1::AddGrantRequest { source: Some("other".into()), ..add("1", "ada", "output/") },
            Code::InvalidArgument,
            Some("source"),
        ),
        (
            v1::AddGrantRequest { reason: Some("x".repeat(501)), ..add("1", "ada", "output/") },
            Code::ResourceExhausted,
            Some("reason"),
        ),
    ] {
        refused(grants.add(request).await, code, field);
    }
    let revoke = v1::RevokeGrantRequest { request_id: "1".into(), grant_id: "x".into() };
    refused(grants.revoke(revoke).await, Code::InvalidArgument, Some("grant_id"));
    let bad = v1::ListGrantsRequest { cursor: "x".into(), ..Default::default() };
    refused(grants.list(bad).await, Code::InvalidArgument, Some("cursor"));
}

// covers: ART-03, CP-05, TOOL-16
#[tokio::test]
async fn artifacts_are_rebuilt_from_the_files_and_calls_are_summed() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut artifacts = ArtifactsClient::new(daemon.channel.clone());
    let list = v1::ListArtifactsRequest::default();
    assert!(artifacts.list(list.clone()).await.unwrap().into_inner().artifacts.is_empty());
    let output = daemon.world.engine().services.workspace.clone();
    for name in ["output/reports/a.md", "output/b.md"] {
        let path = ghost_domain::write_acl::WorkspacePath::parse(name, false).unwrap();
        output.write_atomic(&path, b"abc").await.unwrap();
    }
    let rebuild = |request_id: &str| v1::RebuildArtifactsRequest { request_id: request_id.into() };
    let done = artifacts.rebuild(rebuild("1")).await.unwrap().into_inner();
    assert_eq!((done.artifacts, done.corrected), (2, 2));
    assert_eq!(artifacts.rebuild(rebuild("1")).await.unwrap().into_inner(), done);
    assert_eq!(artifacts.rebuild(rebuild("2")).await.unwrap().into_inner().corrected, 0);
    let remove =
        |request_id: &str, path: &str| v1::RemoveArtifactRequest { request_id: request_id.into(), path: path.into() };
    for path in ["../x", "/etc", ""] {
        refused(artifacts.remove(remove("3", path)).await, Code::PermissionDenied, Some("path"));
    }
    refused(artifacts.remove(remove("3", ".ghost-world")).await, Code::PermissionDenied, None);
    let deep = ghost_domain::write_acl::WorkspacePath::parse("shared/deep/er/x", false).unwrap();
    output.write_atomic(&deep, b"x").await.unwrap();
    for (request_id, removed) in [("4", true), ("4", true), ("5", false)] {
        let done = artifacts.remove(remove(request_id, "shared/deep")).await.unwrap().into_inner();
        assert_eq!(done.removed, removed, "{request_id}");
    }
    let one = v1::ListArtifactsRequest { limit: 1, ..list };
    let page = artifacts.list(one.clone()).await.unwrap().into_inner();
    assert_eq!((page.artifacts[0].path.as_str(), page.artifacts[0].bytes), ("output/b.md", 3));
    let next = v1::ListArtifactsRequest { cursor: page.next_cursor, ..one };
    let page = artifacts.list(next).await.unwrap().into_inner();
    assert_eq!((page.artifacts[0].r#type.as_str(), page.next_cursor.as_str()), ("report", ""));
    let reports = v1::ListArtifactsRequest { prefix: Some("output/reports/".into()), ..Default::default() };
    assert_eq!(artifacts.list(reports).await.unwrap().into_inner().artifacts.len(), 1);
    // Two calls, one of which fails.
    let mut tools = ToolsClient::new(daemon.channel.clone());
    for (request_id, path) in [("6", "output/b.md"), ("7", "none")] {
        let call = v1::CallToolRequest {
            request_id: request_id.into(),
            agent_id: "ada".into(),
            tool: "workspace.read".into(),
            arguments_json: serde_json::json!({ "path": path, "scope": "world" }).to_string(),
            timeout_ms: None,
        };
        tools.call(call).await.unwrap();
    }
    let mut ledger = LedgerClient::new(daemon.channel.clone());
    let of_reads = v1::LedgerTotalsRequest { tool: Some("workspace.read".into()), ..Default::default() };
    let totals = ledger.totals(of_reads.clone()).await.unwrap().into_inner().totals;
    let shown: Vec<(&str, u64)> = totals.iter().map(|sum| (sum.status.as_str(), sum.calls)).collect();
    assert_eq!(shown, [("failed", 1), ("ok", 1)]);
    assert!(totals.iter().all(|sum| sum.bytes_in > 0 && sum.tokens > 0 && sum.cost_micros == 0), "{totals:?}");
    let failed = v1::LedgerTotalsRequest { status: Some("failed".into()), ..of_reads };
    assert_eq!(ledger.totals(failed).await.unwrap().into_inner().totals.len(), 1);
    let bad = v1::LedgerTotalsRequest { since_at_ms: Some(-1), ..Default::default() };
    refused(ledger.totals(bad).await, Code::InvalidArgument, Some("since_at_ms"));
}
