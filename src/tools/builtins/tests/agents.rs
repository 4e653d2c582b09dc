use ghost_domain::testing::START_MS;
use ghost_domain::{Agent, AgentKind, AgentStatus, Code, Refusal, Timestamp};
use serde_json::json;

use super::tool_world::{SECRET, ToolWorld, code, id, read, write};

// covers: BI-20, BI-21, BI-27
#[tokio::test]
async fn agents_and_the_state_of_the_world_are_shown() {
    let world = ToolWorld::new().await;
    let all = world.content("syscall.agent.list", json!({})).await;
    assert_eq!(
        all[0],
        json!({
            "agent_id": "ada", "name": "ada", "archetype": "editor", "status": "running", "activity": "acting",
            "uptime_seconds": 0,
        })
    );
    let writers = world.content("syscall.agent.list", json!({ "archetype": "writer", "status": "running" })).await;
    assert_eq!(writers.as_array().unwrap().len(), 1);
    let reflected = world.content("syscall.reflect", json!({})).await;
    assert_eq!((&reflected["world"], &reflected["uptime_seconds"]), (&json!("Test"), &json!(60)));
    assert_eq!((&reflected["you"], reflected["agents"].as_array().unwrap().len()), (&json!("ada"), 2));
    let status = world.content("syscall.session.status", json!({})).await;
    assert_eq!((&status["agent_id"], &status["model"]), (&json!("ada"), &json!("m")));
    assert_eq!((&status["timezone"], &status["queue"]), (&json!("Europe/Berlin"), &json!(0)));
    assert_eq!(status["time"], "2026-11-21T22:08:00.000Z");
    assert_eq!(code(world.call("syscall.session.status", json!({ "agent_id": "bop" })).await), Code::NotFound);
    let own = &status["model_card"];
    assert_eq!((&own["model"], own["provider"].is_string()), (&json!("m"), true));
    let other = world.content("syscall.session.status", json!({ "model": "gpt-5-mini" })).await;
    assert_eq!((&other["model"], &other["model_card"]["model"]), (&json!("m"), &json!("gpt-5-mini")));
    assert_eq!(code(world.call("syscall.session.status", json!({ "model": "" })).await), Code::InvalidArguments);
    let usage = world.content("syscall.resource.usage", json!({})).await;
    assert!(usage["disk"]["total_bytes"].as_u64().unwrap() > 0 && usage["runtime"]["actors"] == 1);
}

#[tokio::test]
async fn the_name_of_an_agent_shows_no_secret() {
    let world = ToolWorld::new().await;
    let named = json!({ "archetype": "writer", "agent_id": "named", "name": format!("W {SECRET}") });
    assert_eq!(world.content("syscall.agent.create", named).await["name"], "W [redacted]");
}

// covers: BI-22
#[tokio::test]
async fn only_what_the_world_allows_is_created() {
    let world = ToolWorld::new().await;
    let first = world.content("syscall.agent.create", json!({ "archetype": "writer", "goal": "Write." })).await;
    assert_eq!((&first["agent_id"], &first["status"]), (&json!("writer-1"), &json!("running")));
    assert_eq!(world.inbox("writer-1").await[0].body, "Write.");
    let second = world.content("syscall.agent.create", json!({ "archetype": "writer", "name": "W" })).await;
    assert_eq!((&second["agent_id"], &second["name"]), (&json!("writer-2"), &json!("W")));
    assert_eq!((&second["changed"], &first["changed"]), (&json!(true), &json!(true)));
    let again = world.content("syscall.agent.create", json!({ "archetype": "writer", "agent_id": "writer-2" })).await;
    assert_eq!((&again["status"], &again["changed"]), (&json!("running"), &json!(false)));
    let record = read!(world, |r| r.agent_get(&id("writer-1"))?).unwrap();
    assert_eq!((record.kind, record.owner.as_deref()), (AgentKind::Dynamic, Some("agent:ada")));
    for (arguments, expected) in [
        (json!({ "archetype": "editor" }), Code::AccessDenied),
        (json!({ "archetype": "writr" }), Code::NotFound),
        (json!({ "archetype": "writer", "agent_id": "bob" }), Code::Conflict),
        (json!({ "archetype": "writer", "agent_id": "../x" }), Code::InvalidArguments),
        (json!({ "archetype": "writer", "name": "Bob\u{202e}moc" }), Code::InvalidArguments),
        (json!({ "archetype": "writer", "agent_id": "system" }), Code::InvalidArguments),
        (json!({ "archetype": "writer", "agent_id": "all" }), Code::InvalidArguments),
        (json!({ "archetype": "writer", "overrides": { "max_tokens": 1_000_000 } }), Code::InvalidArguments),
        (json!({ "archetype": "writer", "overrides": { "write_acl": ["/"] } }), Code::InvalidArguments),
    ] {
        assert_eq!(code(world.call("syscall.agent.create", arguments).await), expected);
    }
}

// covers: BI-22
#[tokio::test]
async fn the_owner_of_a_new_agent_is_its_creator_or_one_below() {
    let world = ToolWorld::new().await;
    let first = world.content("syscall.agent.create", json!({ "archetype": "writer" })).await["agent_id"].clone();
    let created = json!({ "archetype": "writer", "agent_id": "helper", "owner": first });
    world.content("syscall.agent.create", created).await;
    let record = read!(world, |r| r.agent_get(&id("helper"))?).unwrap();
    assert_eq!(record.owner.as_deref(), Some("agent:writer-1"));
    // No agent gets others that it does not pay for: not by a cycle, and not by a long chain.
    world.content("syscall.agent.delete", json!({ "agent_id": first })).await;
    let cycle = json!({ "archetype": "writer", "agent_id": first, "owner": "helper" });
    assert_eq!(code(world.call("syscall.agent.create", cycle).await), Code::AccessDenied);
    // The owner may delete it, its creator may not.
    assert_eq!(code(world.call("syscall.agent.delete", json!({ "agent_id": "helper" })).await), Code::AccessDenied);
    for (owner, expected) in [("bob", Code::AccessDenied), ("nobody", Code::NotFound)] {
        let other = json!({ "archetype": "writer", "owner": owner });
        assert_eq!(code(world.call("syscall.agent.create", other).await), expected, "{owner}");
    }
}

// covers: BI-24
#[tokio::test]
async fn an_order_to_stop_may_have_its_own_grace_period() {
    let world = ToolWorld::new().await;
    let made = world.content("syscall.agent.create", json!({ "archetype": "writer" })).await["agent_id"].clone();
    world.content("syscall.agent.stop", json!({ "agent_id": made, "grace_seconds": 3 })).await;
    let record = read!(world, |r| r.agent_get(&id("writer-1"))?).unwrap();
    assert_eq!((record.status, record.stop_grace_seconds), (AgentStatus::Stopping, Some(3)));
    world.content("syscall.agent.start", json!({ "agent_id": made })).await;
    let record = read!(world, |r| r.agent_get(&id("writer-1"))?).unwrap();
    assert_eq!(record.stop_grace_seconds, None);
    let refused = json!({ "agent_id": made, "grace_seconds": 3_601 });
    assert_eq!(code(world.call("syscall.agent.stop", refused).await), Code::InvalidArguments);
}

// covers: BI-23, BI-24
#[tokio::test]
async fn agents_stop_and_start() {
    let world = ToolWorld::new().await;
    let stop = json!({ "agent_id": "bob", "reason": "rest" });
    let stopped = world.content("syscall.agent.stop", stop.clone()).await;
    assert_eq!(stopped, json!({ "agent_id": "bob", "status": "stopping", "changed": true }));
    assert_eq!(world.content("syscall.agent.stop", stop).await["changed"], false);
    // Only a running agent has an activity.
    let list = world.content("syscall.agent.list", json!({})).await;
    let reflected = world.content("syscall.reflect", json!({})).await;
    let status = world.content("syscall.session.status", json!({ "agent_id": "bob" })).await;
    for shown in [&list[1], &reflected["agents"][1], &status] {
        assert_eq!((&shown["agent_id"], shown.get("activity")), (&json!("bob"), None), "{shown}");
    }
    let start = json!({ "agent_id": "bob" });
    assert_eq!(world.content("syscall.agent.start", start.clone()).await["changed"], true);
    assert_eq!(world.content("syscall.agent.start", start).await["changed"], false);
    assert_eq!(code(world.call("syscall.agent.start", json!({ "agent_id": "bop" })).await), Code::NotFound);
}

// covers: BI-21
#[tokio::test]
async fn uptime_counts_from_the_last_start() {
    let world = ToolWorld::new().await;
    let uptime = async |created: i64, started: Option<i64>| {
        let (now, ago) = (world.ctx.now(), |seconds: i64| Timestamp(START_MS - seconds * 1_000));
        let (created_at, started_at) = (ago(created), started.map(ago));
        write!(world, |w| {
            let agent = w.agent_get(&id("ada"))?.unwrap();
            Ok::<_, Refusal>(w.agent_put(&Agent { created_at, started_at, updated_at: now, ..agent })?)
        })
        .unwrap();
        world.content("syscall.session.status", json!({})).await["uptime_seconds"].as_u64().unwrap()
    };
    // The daemon has served the world for 60 seconds.
    assert_eq!(uptime(50, Some(10)).await, 10);
    assert_eq!(uptime(500, Some(400)).await, 60);
    assert_eq!(uptime(30, None).await, 30, "a record of an earlier version");
}

// covers: LIM-06
#[tokio::test]
async fn a_droid_has_two_minutes_unless_another_time_of_at_most_five_is_asked_for() {
    let world = ToolWorld::new().await;
    for (arguments, seconds) in
        [(json!({ "task": "count" }), 120), (json!({ "task": "count", "timeout_seconds": 300 }), 300)]
    {
        assert_eq!(world.content("syscall.droid.spawn", arguments).await["timeout_seconds"], seconds);
    }
    let longer = json!({ "task": "count", "timeout_seconds": 301 });
    assert_eq!(code(world.call("syscall.droid.spawn", longer).await), Code::InvalidArguments);
}

// covers: BI-25, MEM-17, STORE-02
#[tokio::test]
async fn inspect_reads_memory_files_only() {
    let world = ToolWorld::new().await;
    let files = world.content("syscall.agent.inspect", json!({ "agent_id": "bob" })).await;
    assert_eq!(files["files"][1], json!({ "path": "days/1.md", "kind": "file", "bytes": 8 }));
    let read = json!({ "agent_id": "bob", "path": "days/1.md", "limit": 1 });
    assert_eq!(world.content("syscall.agent.inspect", read).await["content"], "one\n");
    assert_eq!(world.content("syscall.agent.inspect", json!({ "agent_id": "ada" })).await["files"], json!([]));
    let data = world.files.path("data");
    std::fs::write(data.join("token"), "t").unwrap();
    std::os::unix::fs::symlink(data.join("token"), data.join("agents/bob/memory/link")).unwrap();
    for (path, expected) in [
        ("../../../token", Code::PathDenied),
        ("link", Code::PathDenied),
        ("none.md", Code::NotFound),
        ("days", Code::InvalidArguments),
    ] {
        let arguments = json!({ "agent_id": "bob", "path": path });
        let refusal = world.call("syscall.agent.inspect", arguments).await.unwrap_err();
        assert_eq!(refusal.code, expected, "{path}");
        // Memory is not in the workspace, so workspace tools cannot reach it.
        let hint = refusal.hint.unwrap();
        assert!(hint.contains("memory") && !hint.contains("workspace") && !hint.contains("output"), "{path}: {hint}");
    }
    let none = json!({ "agent_id": "ada", "path": "x" });
    assert_eq!(code(world.call("syscall.agent.inspect", none).await), Code::NotFound);
    assert_eq!(code(world.call("syscall.agent.inspect", json!({ "agent_id": "bop" })).await), Code::NotFound);
}
