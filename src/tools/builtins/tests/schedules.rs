//! Timers, cron jobs and watches as an agent sets them (BI-85..87).

use ghost_domain::{Code, ConversationId, EventKind};
use serde_json::json;
use uuid::Uuid;

use super::tool_world::{ToolWorld, code, read};
use crate::context::CallContext;

// covers: BI-86
#[tokio::test]
async fn a_timer_is_set_replaced_and_cancelled() {
    let world = ToolWorld::new().await;
    let set = world.content("util.timer", json!({ "name": "tea", "duration": "5m", "message": "drink it" })).await;
    assert_eq!(set["fires_at"], "2026-11-21T22:13:00.000Z");
    let again = world.content("util.timer", json!({ "name": "tea", "at": "2026-11-22T08:00" })).await;
    assert_eq!(again["message"], "tea", "one that was given none reminds of its name");
    assert_eq!((&again["timer_id"], again["fires_at"].as_str()), (&set["timer_id"], Some("2026-11-22T08:00:00.000Z")));
    let gone = world.content("util.timer", json!({ "name": "tea", "cancel": true })).await;
    assert_eq!(gone["cancelled"], true);
    for (arguments, expected) in [
        (json!({ "name": "tea", "cancel": true }), Code::NotFound),
        (json!({ "name": "tea" }), Code::InvalidArguments),
        (json!({ "name": "tea", "duration": "5m", "at": "2026-11-22" }), Code::InvalidArguments),
        (json!({ "name": "tea", "duration": "soon" }), Code::InvalidArguments),
        (json!({ "name": "tea", "duration": "5m", "message": " " }), Code::InvalidArguments),
        (json!({ "name": "tea", "at": "2020-01-01" }), Code::InvalidArguments),
        (json!({ "name": "t\u{1b}a", "duration": "5m" }), Code::InvalidArguments),
    ] {
        assert_eq!(code(world.call("util.timer", arguments.clone()).await), expected, "{arguments}");
    }
}

// covers: BI-87, SCHED-06
#[tokio::test]
async fn a_cron_job_is_added_changed_run_and_removed() {
    let world = ToolWorld::new().await;
    let schedule = json!({ "cron": "0 9 * * 1-5", "zone": "Europe/Berlin" });
    let added = world
        .content("util.cron", json!({ "action": "add", "name": "mail", "schedule": schedule, "message": "read mail" }))
        .await;
    assert_eq!((added["next_at"].as_str(), added["missed"].as_str()), (Some("2026-11-23T08:00:00.000Z"), Some("skip")));
    let again = json!({ "action": "add", "name": "mail", "schedule": { "every": "1h" }, "message": "x" });
    assert_eq!(code(world.call("util.cron", again).await), Code::Conflict);
    let job = json!({ "name": "once", "schedule": { "at": "2026-12-01" }, "message": "x", "missed": "run_once" });
    world.content("util.cron", json!({ "action": "add", "job": job })).await;
    let patch = json!({ "schedule": { "every": "90m" }, "enabled": true });
    let changed = world.content("util.cron", json!({ "action": "update", "job_id": "mail", "patch": patch })).await;
    assert_eq!((&changed["job_id"], changed["schedule"]["every"].as_str()), (&added["job_id"], Some("1h30m")));
    let off = json!({ "action": "update", "job_id": added["job_id"], "patch": { "enabled": false } });
    assert_eq!(world.content("util.cron", off).await["enabled"], false);
    let run = world.content("util.cron", json!({ "action": "run", "job_id": "mail" })).await;
    assert_eq!(run["status"], "queued");
    assert_eq!(code(world.call("util.cron", json!({ "action": "run", "job_id": "mail" })).await), Code::Conflict);
    let runs = world.content("util.cron", json!({ "action": "runs", "name": "mail" })).await;
    assert_eq!(runs["runs"][0]["run"], 1);
    let all = world.content("util.cron", json!({ "action": "list" })).await;
    assert_eq!((all["jobs"].as_array().unwrap().len(), all["next_at"].as_str()), (2, Some("2026-12-01T00:00:00.000Z")));
    world.content("util.cron", json!({ "action": "remove", "job_id": added["job_id"] })).await;
    let woken =
        world.content("util.cron", json!({ "action": "wake", "message": "go on", "mode": "next-heartbeat" })).await;
    assert_eq!(woken["wakes"], false);
    for (arguments, expected) in [
        (json!({ "action": "remove", "job_id": "mail" }), Code::NotFound),
        (json!({ "action": "remove" }), Code::InvalidArguments),
        (json!({ "action": "update", "job_id": "once" }), Code::InvalidArguments),
        (json!({ "action": "add", "name": "x", "schedule": {}, "message": "x" }), Code::InvalidArguments),
        (
            json!({ "action": "add", "name": "x", "schedule": { "cron": "0 0 30 2 *" }, "message": "x" }),
            Code::InvalidArguments,
        ),
        (
            json!({ "action": "add", "name": "x", "schedule": { "cron": "* * * * * *" }, "message": "x" }),
            Code::RateLimited,
        ),
        (
            json!({ "action": "add", "name": "x", "schedule": { "every": "1h", "zone": "UTC" }, "message": "x" }),
            Code::InvalidArguments,
        ),
        (
            json!({ "action": "add", "name": "x", "schedule": { "every": "1h" }, "message": " " }),
            Code::InvalidArguments,
        ),
        (json!({ "action": "wake" }), Code::InvalidArguments),
    ] {
        assert_eq!(code(world.call("util.cron", arguments.clone()).await), expected, "{arguments}");
    }
}

// covers: BI-87, SCHED-08
#[tokio::test]
async fn a_job_with_its_own_turn_has_options() {
    let world = ToolWorld::new().await;
    world.content("syscall.chat.create", json!({ "name": "news", "members": ["bob"] })).await;
    let job = |options: serde_json::Value| json!({ "action": "add", "name": "digest", "schedule": { "every": "1h" }, "message": "x", "options": options });
    let set = world
        .content("util.cron", job(json!({ "payload": "agentTurn", "to": "news", "timeout": "2m", "max_rounds": 3 })))
        .await;
    assert_eq!((set["payload"].as_str(), set["deliver"].as_str()), (Some("agentTurn"), Some("announce")));
    assert_eq!(
        (set["to"].as_str(), set["timeout"].as_str(), &set["max_rounds"]),
        (Some("news"), Some("2m"), &json!(3))
    );
    let patch = json!({ "options": { "deliver": "none" }, "enabled": false });
    let changed = world.content("util.cron", json!({ "action": "update", "job_id": "digest", "patch": patch })).await;
    assert_eq!((&changed["to"], &changed["max_rounds"]), (&json!(null), &json!(3)));
    world.content("util.cron", json!({ "action": "remove", "job_id": "digest" })).await;
    let quiet = world.content("util.cron", job(json!({ "wake": "next-heartbeat" }))).await;
    assert_eq!((quiet["wake"].as_str(), &quiet["payload"]), (Some("next-heartbeat"), &json!(null)));
    world.content("util.cron", json!({ "action": "remove", "job_id": "digest" })).await;
    for (options, expected) in [
        (json!({ "session": "main", "payload": "agentTurn" }), Code::PayloadMismatch),
        (json!({ "session": "isolated", "payload": "systemEvent" }), Code::PayloadMismatch),
        (json!({ "payload": "systemEvent", "timeout": "5s" }), Code::PayloadMismatch),
        (json!({ "payload": "agentTurn", "wake": "next-heartbeat" }), Code::PayloadMismatch),
        (json!({ "timeout": "5h" }), Code::InvalidArguments),
        (json!({ "timeout": "500ms" }), Code::InvalidArguments),
        (json!({ "max_rounds": 99 }), Code::InvalidArguments),
        (json!({ "payload": "both" }), Code::InvalidArguments),
        (json!({ "model": "gpt-unheard-of" }), Code::NotFound),
        (json!({ "deliver": "webhook", "to": "nowhere" }), Code::NotFound),
        (json!({ "deliver": "announce", "to": "newz" }), Code::NotFound),
        (json!({ "deliver": "none", "wake": "next-heartbeat" }), Code::PayloadMismatch),
        (json!({ "session": "main", "deliver": "none" }), Code::PayloadMismatch),
    ] {
        assert_eq!(code(world.call("util.cron", job(options.clone())).await), expected, "{options}");
    }
    for (options, datum) in
        [(json!({ "session": "main", "timeout": "5s" }), "agentTurn"), (json!({ "timeout": "5h" }), "1 to 300")]
    {
        let refusal = world.call("util.cron", job(options)).await.unwrap_err();
        assert!(refusal.message.starts_with("options.timeout") && refusal.message.contains(datum), "{refusal}");
        assert!(!refusal.to_string().contains("timeout_seconds"), "{refusal}");
        assert_eq!(refusal.details, Some(json!({ "field": "options.timeout" })));
    }
    assert_eq!(world.content("util.cron", json!({ "action": "list" })).await["jobs"], json!([]));
}

#[tokio::test]
async fn a_job_may_use_only_its_own_thread_of_another_agents_webhook() {
    let world = ToolWorld::new().await;
    let hook = |agent: &str| {
        let mut plan = (*world.services.plan()).clone();
        let shop = ghost_config::plan::WebhookPlan {
            url: "http://127.0.0.1:9/in".into(),
            secret_env: "SECRET".into(),
            agent: agent.parse().unwrap(),
            tolerance: std::time::Duration::from_secs(300),
            actions: Vec::new(),
        };
        plan.webhooks.insert("shop".into(), shop);
        world.services.set_plan(plan.into());
    };
    let job = |to: &str| {
        let options = json!({ "deliver": "webhook", "to": to });
        json!({ "action": "add", "job": {
            "name": " digest", "schedule": { "every": "1h" }, "message": "look", "options": options,
        } })
    };
    hook("bob");
    for foreign in ["shop/customer-17", "shop/cron:bob/digest"] {
        assert_eq!(code(world.call("util.cron", job(foreign)).await), Code::AccessDenied, "{foreign}");
    }
    for own in ["shop", "shop/cron:ada/digest"] {
        assert_eq!(world.content("util.cron", job(own)).await["to"], "shop/cron:ada/digest", "{own}");
        world.content("util.cron", json!({ "action": "remove", "job_id": "digest" })).await;
    }
    world.content("util.cron", job("shop")).await;
    let patch = json!({ "options": { "to": "shop/customer-17" } });
    let update = json!({ "action": "update", "job_id": "digest", "patch": patch });
    assert_eq!(code(world.call("util.cron", update.clone()).await), Code::AccessDenied);
    hook("ada");
    assert_eq!(world.content("util.cron", update).await["to"], "shop/customer-17");
    // An unchanged target is not checked again, until the job is enabled without its webhook.
    hook("bob");
    let patch = |patch: serde_json::Value| json!({ "action": "update", "job_id": "digest", "patch": patch });
    let changed = world.content("util.cron", patch(json!({ "options": { "max_rounds": 2 } }))).await;
    assert_eq!((&changed["to"], &changed["max_rounds"]), (&json!("shop/customer-17"), &json!(2)));
    let mut plan = (*world.services.plan()).clone();
    plan.webhooks.clear();
    world.services.set_plan(plan.into());
    assert_eq!(world.content("util.cron", patch(json!({ "enabled": false }))).await["enabled"], false);
    assert_eq!(code(world.call("util.cron", patch(json!({ "enabled": true }))).await), Code::NotFound);
}

// covers: BI-85, SCHED-03
#[tokio::test]
async fn a_watch_starts_from_a_snapshot_and_stays_inside_the_workspace() {
    let world = ToolWorld::new().await;
    let set = world.content("util.watch", json!({ "path": "notes", "events": ["created"], "recursive": true })).await;
    assert_eq!((set["path"].as_str(), set["name"].as_str()), (Some("agents/ada/notes"), Some("agents:ada:notes")));
    let schedule_id = set["watch_id"].as_str().unwrap().parse().unwrap();
    let kept = read!(world, |r| r.watch_snapshot_get(schedule_id)?);
    assert!(kept.is_some());
    world.content("util.watch", json!({ "path": "shared", "scope": "world", "name": "box" })).await;
    world.content("util.watch", json!({ "path": "notes", "cancel": true })).await;
    for (arguments, expected) in [
        (json!({ "path": "../bob" }), Code::PathDenied),
        (json!({ "path": "/etc" }), Code::PathDenied),
        (json!({ "path": "nowhere" }), Code::NotFound),
        (json!({ "path": "notes", "debounce_ms": 5 }), Code::InvalidArguments),
        (json!({ "path": "notes", "baseline": { "files": {} } }), Code::InvalidArguments),
        (json!({ "path": "notes", "cancel": true }), Code::NotFound),
        (json!({ "path": "" }), Code::InvalidArguments),
    ] {
        assert_eq!(code(world.call("util.watch", arguments.clone()).await), expected, "{arguments}");
    }
    assert_eq!(world.events().await.iter().filter(|event| event.kind == EventKind::ScheduleSet).count(), 2);
}

#[tokio::test]
async fn an_agent_cannot_change_another_agents_schedules() {
    let world = ToolWorld::new().await;
    let set = world
        .content("util.cron", json!({ "action": "add", "name": "a", "schedule": { "every": "1h" }, "message": "x" }))
        .await;
    let bob = world.call_by("bob").await;
    for action in ["remove", "run", "runs"] {
        let result = world.call_as(&bob, "util.cron", None, json!({ "action": action, "job_id": set["job_id"] })).await;
        match action {
            "runs" => assert_eq!(result.unwrap().content["runs"], json!([])),
            _ => assert_eq!(code(result), Code::NotFound),
        }
    }
}

// covers: MSG-12
#[tokio::test]
async fn the_words_of_a_schedule_are_shown_in_its_own_session_only() {
    let world = ToolWorld::new().await;
    let alice = CallContext { conversation_id: Some(ConversationId(Uuid::from_u128(1))), ..world.ada.clone() };
    let bob = CallContext { conversation_id: Some(ConversationId(Uuid::from_u128(2))), ..world.ada.clone() };
    let set = json!({ "name": "gift", "duration": "5m", "message": "buy a ring" });
    assert_eq!(world.call_as(&alice, "util.timer", None, set).await.unwrap().content["message"], "buy a ring");
    let job = json!({ "action": "add", "name": "j", "schedule": { "every": "1h" }, "message": "a ring" });
    world.call_as(&alice, "util.cron", None, job).await.unwrap();
    let list = json!({ "action": "list" });
    let own = world.call_as(&alice, "util.cron", None, list.clone()).await.unwrap().content;
    assert_eq!((&own["timers"][0]["message"], &own["jobs"][0]["message"]), (&json!("buy a ring"), &json!("a ring")));
    let other = world.call_as(&bob, "util.cron", None, list).await.unwrap().content;
    assert_eq!(other["timers"][0]["other_session"], true);
    let off = json!({ "action": "update", "job_id": "j", "patch": { "enabled": false } });
    let changed = world.call_as(&bob, "util.cron", None, off).await.unwrap().content;
    let gone =
        world.call_as(&bob, "util.timer", None, json!({ "name": "gift", "cancel": true })).await.unwrap().content;
    for shown in [&other, &changed, &gone] {
        assert!(!shown.to_string().contains("ring"), "{shown}");
    }
}

// covers: SCHED-04
#[tokio::test]
async fn an_interval_counts_from_its_anchor() {
    let world = ToolWorld::new().await;
    let add = |name: &str, schedule| json!({ "action": "add", "name": name, "schedule": schedule, "message": "x" });
    let schedule = json!({ "every": "6h", "anchor": "2026-01-01T01:30:00Z" });
    let added = world.content("util.cron", add("a", schedule)).await;
    assert_eq!(added["next_at"], "2026-11-22T01:30:00.000Z");
    assert_eq!(added["schedule"], json!({ "every": "6h", "anchor": "2026-01-01T01:30:00.000Z" }));
    for wrong in [json!({ "cron": "0 9 * * *", "anchor": "2026-01-01" }), json!({ "every": "6h", "anchor": "noon" })] {
        assert_eq!(code(world.call("util.cron", add("b", wrong)).await), Code::InvalidArguments);
    }
}
