//! Calls that a `kill -9` cut off, of tools that declare an idempotency key or a way to ask: none of them is lost or made
//! twice, and no outcome is unknown.
//!
//! `GHOST_SETTLE_KILLS=300 cargo test --test settled` kills that often.

// A failure in a test is a panic with a message. The daemon is killed at instants of the real clock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_testkit::blackbox::{Deadline, TestEnvironment, ghostd_testing};
use serde_json::Value;

const WORLD: &str = "\
world: { name: Shop }
agents: [{ id: ada, archetype: worker }]
toolboxes: [{ source: toolbox/shop/toolbox.yaml }, { source: toolbox/bank/toolbox.yaml }]
sandbox: { kind: local }
limits: { stalled_boots_max: 100 }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

const SHOP: &str = "\
name: shop
bin_dir: bin
tools:
  - { name: pay, description: Pay once, command: [pay], idempotency: key }
  - { name: order, description: Order once, command: [order], idempotency: { ask: order-status } }
  - name: order-status
    description: Say whether an order was made
    command: [order-status]
    result: json
    parameters: { type: object, properties: { call_id: { type: string } }, required: [call_id] }
    args: [\"{call_id}\"]
";

const BANK: &str = "\
name: bank
kind: mcp
server: { command: [python3, \"{toolbox}/server.py\"] }
idempotency: { book: key }
";

/// Books once for each id, as the server finds it in `_meta`.
const SERVER: &str = r#"
import json, os, sys, time
def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params", {})
    if "id" not in request:
        continue
    def answer(result): send({"id": request["id"], "result": result})
    if method == "initialize":
        answer({"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "bank", "version": "1"}})
    elif method == "tools/list":
        answer({"tools": [{"name": "book", "description": "Books", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        key = params["_meta"]["ghost/call_id"]
        books = open("books").read().split() if os.path.exists("books") else []
        if key not in books:
            open("books", "a").write(key + "\n")
        time.sleep(0.05)
        answer({"content": [{"type": "text", "text": "booked"}]})
    else:
        send({"id": request["id"], "error": {"code": -32601, "message": "no"}})
"#;

const SCRIPT: &str = "\
rules:
  - when: { round: 0 }
    do: [{ call: shop.pay, with: {} }]
  - when: { round: 1 }
    do: [{ call: shop.order, with: {} }]
  - when: { round: 2 }
    do: [{ call: bank.book, with: {} }]
otherwise: [{ say: Done. }]
";

fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{text}")).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

fn kills() -> usize {
    std::env::var("GHOST_SETTLE_KILLS").map_or(12, |text| text.parse().expect("GHOST_SETTLE_KILLS is a number"))
}

// covers: TBX-06
#[test]
fn no_outcome_is_unknown_over_kills() {
    let test_env = TestEnvironment::new(ghostd_testing());
    std::fs::set_permissions(test_env.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let world = test_env.world("shop");
    let section = "## Toolbox\nsource: toolbox/shop/toolbox.yaml\n- pay\n- order\n## Toolbox\nsource: toolbox/bank/toolbox.yaml\n- book\n";
    world.config(WORLD).write("scripts/m.yaml", SCRIPT).archetype("worker", section);
    world.write("toolbox/shop/toolbox.yaml", SHOP);
    world.write("toolbox/bank/toolbox.yaml", BANK).write("toolbox/bank/server.py", SERVER);
    let bin = world.path().join("toolbox/shop/bin");
    program(
        &bin.join("pay"),
        "mkdir -p paid; echo x >> began; sleep 0.05; touch paid/$GHOST_CALL_ID; sleep 0.05; echo paid\n",
    );
    program(
        &bin.join("order"),
        "echo x >> began; sleep 0.05; echo $GHOST_CALL_ID >> orders; sleep 0.05; echo ordered\n",
    );
    program(
        &bin.join("order-status"),
        "if grep -q \"$1\" orders 2>/dev/null; then echo '{\"happened\": true, \"result\": \"ordered\"}'; else echo '{\"happened\": false}'; fi\n",
    );
    let path: PathBuf = world.path().to_owned();
    let daemon = test_env.up(&path, &[]);
    if !test_env.has_sandbox() {
        return;
    }
    test_env.ctl(&["toolbox", "trust", "bank"]).ok();
    daemon.stop();
    let home = test_env.data("shop").join("workspace/agents/ada");
    let began = || std::fs::read_to_string(home.join("began")).map_or(0, |text| text.lines().count());
    for kill in 0..kills() {
        let daemon = test_env.up(&path, &[]);
        test_env.ctl(&["send", "ada", "buy it"]).ok();
        let before = began();
        Deadline::seconds(20).until("a call", || if began() > before { Ok(()) } else { Err(String::new()) });
        // Spread over the calls of a turn.
        std::thread::sleep(Duration::from_millis(u64::try_from(kill * 37 % 360).unwrap()));
        daemon.kill();
    }
    let daemon = test_env.up(&path, &[]);
    test_env.wait_until_quiet(Deadline::seconds(120));
    let rows = test_env.json(&["ledger", "--limit", "5000"]);
    let of =
        |tool: &str| -> Vec<&Value> { rows.as_array().unwrap().iter().filter(|row| row["tool"] == tool).collect() };
    for tool in ["shop.pay", "shop.order", "bank.book"] {
        let calls = of(tool);
        assert!(calls.iter().all(|row| row["status"] == "ok"), "{tool}: {calls:?}");
    }
    // Mail that waits together is one turn, and each turn makes the three calls.
    let turns = of("shop.pay").len();
    assert!(turns > 0);
    assert_eq!((of("shop.order").len(), of("bank.book").len()), (turns, turns));
    let ids = |tool: &str| -> BTreeSet<String> {
        of(tool).iter().map(|row| row["call_id"].as_str().unwrap().to_owned()).collect()
    };
    let lines = |file: &str| std::fs::read_to_string(home.join(file)).unwrap().lines().map(str::to_owned).collect();
    let (orders, books): (Vec<String>, Vec<String>) = (lines("orders"), lines("books"));
    assert_eq!(orders.len(), turns, "nothing was ordered twice");
    assert_eq!(orders.into_iter().collect::<BTreeSet<_>>(), ids("shop.order"));
    assert_eq!(books.len(), turns, "nothing was booked twice");
    assert_eq!(books.into_iter().collect::<BTreeSet<_>>(), ids("bank.book"));
    let paid =
        std::fs::read_dir(home.join("paid")).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(paid.collect::<BTreeSet<_>>(), ids("shop.pay"));
    daemon.stop();
}

const WIRE: &str = "\
name: shop
bin_dir: bin
tools: [{ name: wire, description: Send money, command: [wire], idempotency: person }]
";

// covers: TBX-06
#[test]
fn a_turn_waits_over_kills_until_a_person_says_what_became_of_its_call() {
    let test_env = TestEnvironment::new(ghostd_testing());
    std::fs::set_permissions(test_env.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let world = test_env.world("shop");
    world.config(&WORLD.replace(", { source: toolbox/bank/toolbox.yaml }", ""));
    world.write(
        "scripts/m.yaml",
        "rules: [{ when: { round: 0 }, do: [{ call: shop.wire, with: {} }] }]\notherwise: [{ say: Done. }]\n",
    );
    world.archetype("worker", "## Toolbox\nsource: toolbox/shop/toolbox.yaml\n- wire\n");
    world.write("toolbox/shop/toolbox.yaml", WIRE);
    let path: PathBuf = world.path().to_owned();
    program(&path.join("toolbox/shop/bin/wire"), "echo $GHOST_CALL_ID >> wired; sleep 600\n");
    let daemon = test_env.up(&path, &[]);
    if !test_env.has_sandbox() {
        return;
    }
    test_env.ctl(&["send", "ada", "pay it"]).ok();
    let wired = test_env.data("shop").join("workspace/agents/ada/wired");
    let ids = || std::fs::read_to_string(&wired).unwrap_or_default();
    let is_written = || if ids().ends_with('\n') { Ok(()) } else { Err(String::new()) };
    Deadline::seconds(20).until("the call", is_written);
    let call_id = ids().trim().to_owned();
    daemon.kill();
    for _ in 0..3 {
        let daemon = test_env.up(&path, &[]);
        let waits = || match test_env.json(&["agent", "get", "ada"])["waits"].as_str() {
            Some(why) if why.contains(&call_id) => Ok(()),
            other => Err(format!("{other:?}")),
        };
        Deadline::seconds(20).until("the wait", waits);
        daemon.kill();
    }
    let daemon = test_env.up(&path, &[]);
    let rows = test_env.json(&["ledger", "--status", "unknown"]);
    assert_eq!((rows[0]["call_id"].as_str(), rows.as_array().unwrap().len()), (Some(call_id.as_str()), 1), "{rows}");
    test_env.ctl(&["turn", "settle", &call_id, "happened", "--note", "the bank has it"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(20));
    let row = &test_env.json(&["ledger"])[0];
    assert_eq!((row["status"].as_str(), row["tool"].as_str()), (Some("ok"), Some("shop.wire")), "{row}");
    assert!(row["result"].as_str().unwrap().contains("the bank has it"), "{row}");
    let turns = test_env.json(&["turn", "list"]);
    assert_eq!((turns[0]["status"].as_str(), turns.as_array().unwrap().len()), (Some("finished"), 1), "{turns}");
    assert_eq!(ids().lines().count(), 1, "nothing was called again");
    assert_eq!(test_env.ctl(&["turn", "settle", &call_id, "did-not"]).code, Some(7), "its outcome is known");
    daemon.stop();
}
