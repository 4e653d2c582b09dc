//! What holds for containers alone: what they are made of, who shares them, how many there are, and what is left.

use std::process::Command;

use ghost_config::plan::{SandboxNetwork, SandboxPlan, SandboxScope};
use ghost_domain::Code;
use ghost_sandbox::{Alone, Command as SandboxCommand, Docker, End, Owner, Protection, Sandbox as _};

use crate::deaths::run_and;
use crate::machine::{containers, gone, mark, marked, until};
use crate::place::{Kind, Place, SystemClock, engine_host, open_dir, outlet, plan, runtime, sh};

fn docker(arguments: &[&str]) -> String {
    let done = Command::new("docker").args(arguments).output().unwrap();
    assert!(done.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

// covers: SBX-02, SBX-04, SBX-07
#[test]
fn a_container_is_made_of_the_workspace_and_the_runner_and_has_no_rights() {
    let Some(place) = Place::new(Kind::Docker) else { return };
    let report = place.sandbox.report();
    for always in Protection::ALWAYS.into_iter().chain([Protection::Tree, Protection::Metadata, Protection::Namespaces])
    {
        assert!(report.in_force & always.bit() != 0, "{always:?} of {report:?}");
    }
    assert!(report.image.starts_with(&place.plan.image) && report.image.contains("sha256:"), "{report:?}");
    place.sh("ada", "true");
    let found = containers(engine_host().as_deref(), &place.data());
    assert_eq!(found.len(), 1, "one for the agent, and none for the probe: {found:?}");
    let facts: serde_json::Value = serde_json::from_str(&docker(&["inspect", &found[0]])).unwrap();
    let (host, data) = (&facts[0]["HostConfig"], place.data().canonicalize().unwrap());
    assert_eq!((&host["CapDrop"], &host["CapAdd"]), (&serde_json::json!(["ALL"]), &serde_json::Value::Null));
    assert_eq!((&host["ReadonlyRootfs"], &host["Privileged"]), (&true.into(), &false.into()));
    assert_eq!((&host["NetworkMode"], &host["LogConfig"]["Type"]), (&"none".into(), &"none".into()));
    let mounts = facts[0]["Mounts"].as_array().unwrap();
    let mut seen: Vec<(&str, bool)> =
        mounts.iter().map(|at| (at["Source"].as_str().unwrap(), at["RW"].as_bool().unwrap())).collect();
    seen.sort_unstable();
    let at = |path: &str| data.join(path).display().to_string();
    let wanted = [at("sandbox-runner"), at("workspace"), at("workspace/agents/ada"), at("workspace/output")];
    assert_eq!(seen, wanted.iter().map(String::as_str).zip([false, false, true, true]).collect::<Vec<_>>());
    // The image has what it should have, and nothing that gives rights.
    for tool in ["bash", "curl", "jq", "git", "node", "python3", "gh", "rg", "fd", "make", "ssh", "html2text"] {
        assert_eq!(place.sh("ada", &format!("command -v {tool}")).end, End::Exited(0), "{tool}");
    }
    let modules = place.sh("ada", "python3 -c 'import requests, feedparser, bs4'");
    assert_eq!(modules.end, End::Exited(0), "{}", modules.stderr.text);
    assert_eq!(place.sh("ada", "find / -xdev -perm /6000 -type f 2>/dev/null").stdout.text, "");
    drop(place);
    until("no container is left", || containers(engine_host().as_deref(), &data).is_empty());
}

// covers: SBX-07
#[test]
fn sessions_of_an_agent_share_no_container_if_the_world_says_so() {
    let Some(place) = Place::with(Kind::Docker, |plan| plan.scope = SandboxScope::Session) else { return };
    let of = |conversation: Option<u128>, script: &str| {
        let conversation_id = conversation.map(|id| ghost_domain::ids::ConversationId(uuid::Uuid::from_u128(id)));
        let done = place.run(SandboxCommand { conversation_id, ..sh("ada", script) }).unwrap();
        done.stdout.text
    };
    assert_eq!(of(Some(1), "echo private > /tmp/note; echo shared > note; cat /tmp/note"), "private\n");
    let look = "cat /tmp/note 2>/dev/null; cat note";
    assert_eq!(of(Some(1), look), "private\nshared\n");
    assert_eq!((of(Some(2), look), of(None, look)), ("shared\n".to_owned(), "shared\n".to_owned()));
    assert_eq!(containers(engine_host().as_deref(), &place.data()).len(), 3);
}

// covers: BI-14
#[test]
fn a_container_of_one_command_mounts_nothing_and_is_thrown_away() {
    let Some(place) = Place::new(Kind::Docker) else { return };
    let script = "ls /workspace | wc -l; python3 -c '
import socket
print(socket.create_connection((\"127.0.0.1\", 3128)).recv(100).decode().strip())
socket.socket(socket.AF_UNIX)
try: socket.create_connection((\"1.1.1.1\", 80), 2)
except OSError as error: print(error.errno)
'; echo left > /tmp/left; ls /tmp";
    let alone = || Alone {
        agent_id: "ada".parse().unwrap(),
        argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        stdin: Vec::new(),
        timeout: std::time::Duration::from_secs(20),
        stdout_limit: 10_000,
    };
    for _ in 0..2 {
        let done = place.runtime.block_on(place.sandbox.run_alone(alone())).unwrap();
        let network_is_unreachable = "101";
        let expected = format!("0\nbrowser of ada\n{network_is_unreachable}\nleft\n");
        assert_eq!((done.end, done.stdout.text), (End::Exited(0), expected), "{}", done.stderr.text);
    }
    until("the containers are gone", || containers(engine_host().as_deref(), &place.data()).is_empty());
    // A caller that goes away ends it.
    let mark = mark();
    let begun = Alone { argv: ["sleep", &mark].map(str::to_owned).into(), ..alone() };
    let sandbox = std::sync::Arc::clone(&place.sandbox);
    let running = place.runtime.spawn(async move { sandbox.run_alone(begun).await });
    until("the command runs", || !marked(&mark).is_empty());
    running.abort();
    gone(&mark);
    until("the container is gone", || containers(engine_host().as_deref(), &place.data()).is_empty());
}

#[test]
fn what_cannot_be_had_is_an_error_with_a_reason() {
    let Some(place) = Place::new(Kind::Docker) else { return };
    let clock = || std::sync::Arc::new(SystemClock);
    let data = place.data();
    let owner = Owner { world_id: "contract", data_dir: &data };
    let open = |plan: SandboxPlan, host: Option<&str>| {
        let opened = place.runtime.block_on(Docker::open(&plan, host, owner, &place.workspace(), outlet(), clock()));
        opened.map(|_| ()).unwrap_err()
    };
    let own = engine_host();
    let why = open(SandboxPlan { image: "ghost-no-such-image".into(), ..plan(Kind::Docker) }, own.as_deref());
    assert!(why.contains("ghost-no-such-image") && why.contains("deploy/toolbox/build"), "{why}");
    // An image with a place that commands could fill.
    let name = format!("ghost-with-volume-{}", std::process::id());
    let tar = place.dir.path().join("empty.tar");
    std::fs::write(&tar, [0; 10_240]).unwrap();
    docker(&["import", "--change", "VOLUME /fill", tar.to_str().unwrap(), &name]);
    let why = open(SandboxPlan { image: name.clone(), ..plan(Kind::Docker) }, own.as_deref());
    docker(&["rmi", &name]);
    assert!(why.contains("volumes"), "{why}");
    let why = open(plan(Kind::Docker), Some("unix:///no/such/socket"));
    assert!(why.contains("/no/such/socket"), "{why}");
    let why = open(plan(Kind::Docker), Some("tcp://127.0.0.1:1"));
    assert!(why.contains("DOCKER_HOST"), "{why}");
    let mut wanting = plan(Kind::Docker);
    (wanting.network, wanting.require) = (SandboxNetwork::Open, vec!["network".into()]);
    let why = open(wanting, own.as_deref());
    assert!(why.contains("network"), "{why}");
}

// covers: SBX-07
#[test]
fn agents_that_share_a_container_are_kept_apart_by_the_runner() {
    let Some(place) = Place::with(Kind::Docker, |plan| plan.scope = SandboxScope::World) else { return };
    place.sh("bob", "echo of-bob > note");
    let mark = mark();
    let done = run_and(&place, sh("bob", &format!("echo ready; sleep {mark}")), || {
        until("the command sleeps", || !marked(&mark).is_empty());
        let spawned = std::thread::scope(|scope| {
            let attempt = scope.spawn(|| {
                let runtime = runtime();
                let script = format!(
                    "cat ../bob/note; echo x > ../bob/note; echo x > mine && cat mine; \
                     pkill -9 -f 'sleep {mark}'; for p in /proc/[0-9]*; do cat $p/environ; done | grep -c PATH"
                );
                runtime.block_on(place.sandbox.run(sh("ada", &script), &|_| {})).unwrap()
            });
            attempt.join().unwrap()
        });
        assert!(spawned.stdout.text.starts_with("of-bob\nx\n"), "{spawned:?}");
        let outside = containers(engine_host().as_deref(), &place.data());
        assert_eq!(outside.len(), 1, "they share one");
        assert_eq!(marked(&mark).len(), 2, "ada ended bob's command");
        // Its end comes by its bound.
        crate::machine::signal(*marked(&mark).last().unwrap(), rustix::process::Signal::TERM);
    });
    assert_ne!(done.unwrap().end, End::Exited(0));
    assert_eq!(std::fs::read_to_string(place.workspace().join("agents/bob/note")).unwrap(), "of-bob\n");
    gone(&mark);
}

#[test]
fn there_are_no_more_containers_than_allowed() {
    let Some(place) = Place::with(Kind::Docker, |plan| plan.containers_max = 1) else { return };
    let mark = mark();
    let mut long = sh("ada", &format!("echo ready; sleep {mark}"));
    long.timeout = std::time::Duration::from_secs(3);
    let done = run_and(&place, long, || {
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| runtime().block_on(place.sandbox.run(sh("bob", "true"), &|_| {}))).join().unwrap()
        });
        assert_eq!(refused.unwrap_err().code, Code::RateLimited);
    });
    assert_eq!(done.unwrap().end, End::Deadline);
    // An idle one makes room.
    assert_eq!(place.sh("bob", "echo bob").stdout.text, "bob\n");
    let data = place.data();
    until("one is left", || containers(engine_host().as_deref(), &data).len() == 1);
}

#[test]
fn containers_of_an_earlier_start_are_removed_and_others_are_not() {
    let Some(place) = Place::new(Kind::Docker) else { return };
    let other = open_dir();
    let image = place.plan.image.clone();
    let made = |data: &std::path::Path| {
        let label = format!("ghost.data={}", data.canonicalize().unwrap().display());
        let id = docker(&[
            "run",
            "--detach",
            "--network=none",
            "--label",
            "ghost.world=contract",
            "--label",
            &label,
            "--label",
            "ghost.boot=earlier",
            &image,
            "sleep",
            "600",
        ]);
        id.trim().to_owned()
    };
    let (orphan, foreign) = (made(&place.data()), made(&other.path().join("data")));
    let data = place.data();
    let owner = Owner { world_id: "contract", data_dir: &data };
    let clock = std::sync::Arc::new(SystemClock);
    let opened = place.runtime.block_on(Docker::open(
        &place.plan,
        engine_host().as_deref(),
        owner,
        &place.workspace(),
        outlet(),
        clock,
    ));
    let left = docker(&["ps", "--all", "--quiet", "--no-trunc"]);
    docker(&["rm", "--force", &foreign]);
    place.runtime.block_on(opened.unwrap().close());
    assert!(!left.contains(&orphan) && left.contains(&foreign), "{left}");
}

// covers: SBX-07
#[test]
fn a_network_is_there_if_the_world_asks_for_it() {
    let Some(place) = Place::with(Kind::Docker, |plan| plan.network = SandboxNetwork::Open) else { return };
    let report = place.sandbox.report();
    assert_eq!(report.in_force & Protection::Network.bit(), 0);
    assert!(report.missing.iter().any(|line| line.starts_with("network:")), "{report:?}");
    // The engine's bridge is the only thing here that a container reaches for certain.
    let listening = std::net::TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let code = format!(
        "rows = [line.split() for line in open('/proc/net/route')][1:]\n\
         gateway = next(row[2] for row in rows if row[1] == '00000000')\n\
         bridge = socket.inet_ntoa(bytes.fromhex(gateway)[::-1])\n\
         t('bridge', lambda: socket.create_connection((bridge, {}), 5))\n\
         t('unix', lambda: socket.socket(socket.AF_UNIX))\n\
         t('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))\n\
         t('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))\n",
        listening.local_addr().unwrap().port(),
    );
    let results = place.attempts("ada", &code);
    assert_eq!(results["bridge"], "ok", "{results:?}");
    for name in ["unix", "packet", "raw"] {
        assert_ne!(results[name], "ok", "{name}");
    }
    assert!(listening.accept().is_ok());
}

/// Longer than the silence after which a runner ends: the daemon keeps speaking, although nobody has anything to say.
#[test]
fn a_long_silent_command_goes_on() {
    let Some(place) = Place::new(Kind::Docker) else { return };
    let mut command = sh("ada", "sleep 24; echo done");
    command.timeout = std::time::Duration::from_secs(60);
    let done = place.run(command).unwrap();
    assert_eq!((done.end, done.stdout.text.as_str()), (End::Exited(0), "done\n"));
}
