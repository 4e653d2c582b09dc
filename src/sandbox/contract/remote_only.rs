//! What only the `remote` sandbox has: a server that can be away, and two copies of the workspace.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ghost_config::plan::{RemotePlan, SandboxPlan};
use ghost_domain::Code;
use ghost_sandbox::{End, Feed, Owner, Protection, Remote};
use ghost_testkit::blackbox::ToolboxServer;

use crate::deaths::run_and;
use crate::machine::{gone, mark, marked, until};
use crate::place::{Kind, Place, SystemClock, open_dir, plan, remote_plan, runtime, server_in, sh, skipped};

/// Opens a sandbox in a directory of its own. Returns why there is none.
fn refused(remote: RemotePlan, token: Option<&str>, change: impl FnOnce(&mut SandboxPlan)) -> Option<String> {
    let (dir, runtime) = (open_dir(), runtime());
    let data = dir.path().join("data");
    let mut plan = SandboxPlan { remote: Some(remote), ..plan(Kind::Remote) };
    change(&mut plan);
    let owner = Owner { world_id: "contract", data_dir: &data };
    let workspace = data.join("workspace");
    runtime.block_on(Remote::open(&plan, token, owner, &workspace, Arc::new(SystemClock))).err()
}

fn server(dir: &Path) -> Option<ToolboxServer> {
    server_in(dir).inspect_err(|why| skipped(Kind::Remote, why)).ok()
}

// covers: TBX-07
#[test]
fn without_the_token_the_server_or_a_protection_there_is_no_sandbox() {
    let dir = open_dir();
    let Some(mut server) = server(dir.path()) else { return };
    let (remote, token) = (remote_plan(&server.url), Some(ToolboxServer::TOKEN));
    assert_eq!(refused(remote.clone(), token, |_| {}), None);
    let why = refused(remote.clone(), Some("another-token-of-16"), |_| {}).unwrap();
    assert!(why.contains("token") && !why.contains("another-token"), "{why}");
    let why = refused(remote.clone(), None, |_| {}).unwrap();
    assert!(why.contains("GHOST_TOOLBOX_TOKEN"), "{why}");
    // What is required and cannot be had on that machine.
    let have = {
        let place = Place::new(Kind::Remote).unwrap();
        place.sandbox.report().in_force
    };
    if let Some(missing) = Protection::ALL.iter().find(|protection| have & protection.bit() == 0) {
        let name = missing.as_str();
        let why = refused(remote.clone(), token, |plan| plan.require = vec![name.to_owned()]).unwrap();
        assert!(why.contains(name), "{why}");
    }
    server.kill();
    let why = refused(remote, token, |_| {}).unwrap();
    assert!(why.contains("cannot be reached"), "{why}");
}

// covers: TBX-07
#[test]
fn a_server_with_a_certificate_of_its_own_is_trusted_by_its_file_alone() {
    let dir = open_dir();
    let own = dir.path().join("toolbox");
    std::fs::create_dir_all(&own).unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (own.join("cert.pem"), own.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    // An address that others could reach needs it, and has it.
    let why = ToolboxServer::start(&own, "0.0.0.0:0", None).unwrap_err();
    assert!(why.contains("--tls-cert"), "{why}");
    let server = match ToolboxServer::start(&own, "127.0.0.1:0", Some((&certificate, &key))) {
        Ok(server) => server,
        Err(why) => return skipped(Kind::Remote, &why),
    };
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let token = Some(ToolboxServer::TOKEN);
    let trusting = RemotePlan { ca_file: Some(certificate), ..remote_plan(&server.url) };
    assert_eq!(refused(trusting.clone(), token, |_| {}), None);
    let why = refused(remote_plan(&server.url), token, |_| {}).unwrap();
    assert!(why.contains("certificate") && !why.contains(ToolboxServer::TOKEN), "{why}");
    let why = refused(RemotePlan { ca_file: Some(key), ..trusting.clone() }, token, |_| {}).unwrap();
    assert!(why.contains("sandbox.ca_file"), "{why}");
    let plain = server.url.replace("https://", "http://");
    assert!(refused(remote_plan(&plain), token, |_| {}).is_some(), "TLS is not left out");
}

// covers: TBX-07
#[test]
fn a_server_that_is_killed_is_an_error_and_leaves_nothing() {
    let Some(mut place) = Place::new(Kind::Remote) else { return };
    let (mark, begun) = (mark(), Instant::now());
    let mut command = sh("ada", &format!("echo began > note; (setsid sleep {mark} &); echo ready; sleep {mark}"));
    command.timeout = Duration::from_secs(60);
    let mut server = place.server.take().unwrap();
    let refused = run_and(&place, command, || {
        until("the command sleeps", || marked(&mark).len() >= 2);
        server.kill();
    });
    assert_eq!(refused.unwrap_err().code, Code::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    gone(&mark);
    let refused = place.run(sh("ada", "true")).unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
}

// covers: TBX-07
#[test]
fn a_server_that_stops_in_order_kills_its_commands() {
    let Some(mut place) = Place::new(Kind::Remote) else { return };
    let mark = mark();
    let mut command = sh("ada", &format!("(setsid sleep {mark} &); echo ready; sleep {mark}"));
    command.timeout = Duration::from_secs(60);
    let server = place.server.take().unwrap();
    let refused = run_and(&place, command, || {
        until("the command sleeps", || marked(&mark).len() >= 2);
        assert_eq!(server.stop(), 0);
    });
    assert_eq!(refused.unwrap_err().code, Code::Unavailable);
    gone(&mark);
}

// covers: TBX-07
#[test]
fn what_changes_on_one_side_is_there_on_the_other() {
    let Some(place) = Place::new(Kind::Remote) else { return };
    let own = place.workspace().join("agents/ada");
    std::fs::create_dir_all(own.join("sub/deep")).unwrap();
    std::fs::write(own.join("sub/deep/old"), "old").unwrap();
    std::fs::write(own.join("run"), "#!/bin/sh\necho ran\n").unwrap();
    std::fs::set_permissions(own.join("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink("run", own.join("alias")).unwrap();
    let done = place.sh(
        "ada",
        "./run; ./alias; cat sub/deep/old; rm -r sub; mkdir -p new/empty; echo made > new/file; chmod +x new/file; \
         ln -s new link; echo more >> ../../output/log",
    );
    assert_eq!((done.end, done.stdout.text.as_str()), (End::Exited(0), "ran\nran\nold"), "{}", done.stderr.text);
    assert!(!own.join("sub").exists() && own.join("new/empty").is_dir());
    assert_eq!(std::fs::read_to_string(own.join("new/file")).unwrap(), "made\n");
    assert_eq!(std::fs::metadata(own.join("new/file")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(std::fs::read_to_string(place.workspace().join("output/log")).unwrap(), "more\n");
    // A link stays where the command made it, and the agent is told.
    assert!(own.join("link").symlink_metadata().is_err() && done.stderr.text.contains("`agents/ada/link`"));
    assert_eq!(place.sh("ada", "cat link/file").stdout.text, "made\n");
    // What goes here goes there.
    std::fs::remove_file(own.join("new/file")).unwrap();
    std::fs::write(place.workspace().join("shared.txt"), "shared").unwrap();
    let done = place.sh("ada", "ls new; cat ../../shared.txt");
    assert_eq!(done.stdout.text, "empty\nshared");
    // Also what a command wrote that failed, timed out or was killed.
    place.sh("ada", "echo failed > failed; exit 3");
    let mut late = sh("ada", "echo late > late; sleep 30");
    late.timeout = Duration::from_millis(800);
    assert_eq!(place.run(late).unwrap().end, End::Deadline);
    for name in ["failed", "late"] {
        assert_eq!(std::fs::read_to_string(own.join(name)).unwrap(), format!("{name}\n"));
    }
    let begun = tokio::sync::Notify::new();
    let progress = |_: &[u8]| begun.notify_one();
    place.runtime.block_on(async {
        tokio::select! {
            biased;
            done = place.sandbox.run(sh("ada", "echo cut > cut; echo ready; sleep 30"), &progress) => panic!("{done:?}"),
            () = begun.notified() => {}
        }
    });
    until("the file of a killed command comes back", || own.join("cut").exists());
}

// covers: TBX-07
#[test]
fn what_a_command_closes_or_overfills_ends_no_later_command() {
    // The bound of a command must be above that of a copy.
    let Some(place) = Place::with(Kind::Remote, |plan| plan.disk_bytes = 1 << 30) else { return };
    let own = place.workspace().join("agents/ada");
    let done = place.sh(
        "ada",
        "mkdir -p shut/in; echo kept > shut/in/file; echo x > note; chmod 000 shut/in/file shut/in shut note",
    );
    assert_eq!(done.end, End::Exited(0), "{}", done.stderr.text);
    assert_eq!(std::fs::read_to_string(own.join("shut/in/file")).unwrap(), "kept\n");
    // The workspace changes the same places.
    std::fs::write(own.join("shut/in/file"), "changed").unwrap();
    std::fs::remove_file(own.join("note")).unwrap();
    let done = place.sh("ada", "cat shut/in/file; test -e note || echo gone");
    assert_eq!(done.stdout.text, "changedgone\n", "{}", done.stderr.text);
    // More entries than a copy may have: its commands are told once, and then there is a new copy.
    let script = "mkdir many; cd many; seq 1 50100 | xargs touch; mkdir shut; touch shut/file; chmod 000 shut";
    let fill = place.run(sh("ada", script));
    let next = place.run(sh("bob", "echo ok"));
    let refused = fill.is_err() as usize + next.is_err() as usize;
    assert!(refused == 1 || fill.is_ok_and(|done| !done.stderr.text.is_empty()), "the loss is not shown");
    let done = place.sh("bob", "cat ../ada/shut/in/file; ls ../ada");
    assert_eq!((done.end, done.stdout.text.as_str()), (End::Exited(0), "changedshut\n"), "{}", done.stderr.text);
    assert!(!own.join("many").exists());
}

// covers: TBX-07
#[test]
fn a_file_that_changes_on_both_sides_is_kept_twice() {
    let Some(place) = Place::new(Kind::Remote) else { return };
    let own = place.workspace().join("agents/ada");
    let script = "echo theirs > note; echo ready; while [ ! -e go ]; do sleep 0.05; done; echo again > other";
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("other"), "before").unwrap();
    let done = run_and(&place, sh("ada", script), || {
        std::fs::write(own.join("note"), "ours").unwrap();
        std::fs::write(own.join("go"), "").unwrap();
        // Another command makes the copies agree while the first one runs.
        let done = std::thread::scope(|scope| scope.spawn(|| place.sh("bob", "cat ../ada/note")).join().unwrap());
        assert_eq!(done.stdout.text, "ours", "{}", done.stderr.text);
    });
    let done = done.unwrap();
    assert_eq!(done.end, End::Exited(0), "{}", done.stderr.text);
    assert_eq!(std::fs::read_to_string(own.join("note")).unwrap(), "ours");
    assert_eq!(std::fs::read_to_string(own.join("other")).unwrap(), "again\n");
    let beside: Vec<_> = std::fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let beside = beside.iter().filter_map(|name| name.to_str()).find(|name| name.starts_with("note.remote-"));
    assert_eq!(std::fs::read_to_string(own.join(beside.unwrap())).unwrap(), "theirs\n");
}

// covers: TBX-07
#[test]
fn a_server_that_lost_its_copy_deletes_nothing_here() {
    let Some(mut place) = Place::new(Kind::Remote) else { return };
    place.sh("ada", "echo kept > note; mkdir d; echo kept > d/f");
    let toolbox = place.dir.path().join("toolbox");
    let port = place.server.as_ref().unwrap().url.rsplit(':').next().unwrap().to_owned();
    assert_eq!(place.server.take().unwrap().stop(), 0);
    std::fs::remove_dir_all(toolbox.join("server/worlds")).unwrap();
    place.server = Some(ToolboxServer::start(&toolbox, &format!("127.0.0.1:{port}"), None).unwrap());
    let done = place.sh("ada", "cat note d/f");
    assert_eq!(done.stdout.text, "kept\nkept\n", "{}", done.stderr.text);
    assert_eq!(std::fs::read_to_string(place.workspace().join("agents/ada/d/f")).unwrap(), "kept\n");
}

// covers: TBX-07, BI-11
#[test]
fn standard_input_comes_while_the_command_runs() {
    let Some(place) = Place::new(Kind::Remote) else { return };
    let feed = Feed::default();
    let mut command = sh("ada", "echo ready; cat; echo end");
    command.stdin = b"first\n".to_vec();
    command.feed = Some(feed.clone());
    let done = run_and(&place, command, || {
        feed.push(&[b'x'; 60_000]).unwrap();
        until("the command has read it", || feed.push(&[b'y'; 60_000]).is_ok());
        feed.close();
    });
    let done = done.unwrap();
    assert_eq!((done.end, done.stdout.bytes), (End::Exited(0), 6 + 6 + 120_000 + 4), "{}", done.stderr.text);
    assert!(done.stdout.text.starts_with("ready\nfirst\nxxx") && done.stdout.text.ends_with("yend\n"));
}

// covers: TBX-07
#[test]
fn a_plain_client_is_answered_and_its_command_dies_with_its_connection() {
    use std::io::{Read as _, Write as _};
    let Some(place) = Place::new(Kind::Remote) else { return };
    let url = &place.server.as_ref().unwrap().url;
    let ask = |path: &str, token: &str, version: u32, script: &str| {
        let body = serde_json::json!({
            "version": version, "world": "plain", "agent_id": "ada", "argv": ["/bin/sh", "-c", script], "dir": "agents/ada",
            "timeout_ms": 60_000, "access": "rw", "stdout_limit": 1_000, "stderr_limit": 1_000,
            "bounds": { "memory_bytes": 64 << 20, "processes": 16, "disk_bytes": 1 << 20 },
        });
        let body = format!("{body}\n");
        let mut stream = std::net::TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: box\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        stream
    };
    let answer = |mut stream: std::net::TcpStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let token = ToolboxServer::TOKEN;
    let text = answer(ask("/exec", token, 1, "echo hello; exit 7"));
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"exited\":7") && text.contains("hello\\n"), "{text}");
    for (path, token, version, status, code) in [
        ("/exec", "another-token-of-16", 1, 401, "access_denied"),
        ("/exec", token, 2, 409, "conflict"),
        ("/exec-stream", token, 2, 409, "conflict"),
        ("/workspace/read", token, 1, 400, "invalid_arguments"),
        ("/none", token, 1, 404, "not_found"),
    ] {
        let text = answer(ask(path, token, version, "true"));
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")) && text.contains(code), "{path} {version}: {text}");
    }
    let mark = mark();
    let stream = ask("/exec", token, 1, &format!("(setsid sleep {mark} &); sleep {mark}"));
    until("the command sleeps", || marked(&mark).len() >= 2);
    drop(stream);
    gone(&mark);
}

/// Runs a shell script on this machine as a user, without the sandbox. Returns whether it succeeded.
fn as_user((uid, gid): (u32, u32), dir: &Path, script: &str) -> bool {
    #[allow(clippy::disallowed_methods, reason = "what the users may do without the sandbox is under test")]
    let mut command = std::process::Command::new("setpriv");
    let identity = [format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()];
    command.args(identity).args(["/bin/sh", "-c", script]).current_dir(dir).stderr(std::process::Stdio::null());
    command.status().unwrap().success()
}

// covers: TBX-08
#[test]
fn the_operating_system_keeps_agents_apart_also_without_the_sandbox() {
    if !rustix::process::geteuid().is_root() {
        return skipped(Kind::Remote, "only root gives agents users of their own");
    }
    let Some(place) = Place::new(Kind::Remote) else { return };
    // Made by one, changed by the other.
    place.sh("ada", "mkdir -p ../../output/both/deep; echo a > ../../output/both/deep/f; echo mine > own; mkdir dir");
    place.sh("bob", "echo b >> ../../output/both/deep/f; touch ../../output/both/deep/g; echo mine > own");
    let both = place.workspace().join("output/both/deep");
    assert_eq!(std::fs::read_to_string(both.join("f")).unwrap(), "a\nb\n");
    // What ghostd sends is theirs, too.
    std::fs::create_dir(both.join("sent")).unwrap();
    std::fs::write(both.join("sent/file"), "sent\n").unwrap();
    std::fs::write(place.workspace().join("agents/ada/sent"), "sent\n").unwrap();
    place.sh("ada", "echo a >> ../../output/both/deep/sent/file; echo a >> sent");
    place.sh("bob", "echo b >> ../../output/both/deep/sent/file; rm ../../output/both/deep/g; cat ../ada/own > read");
    assert_eq!(std::fs::read_to_string(both.join("sent/file")).unwrap(), "sent\na\nb\n");
    assert_eq!(std::fs::read_to_string(place.workspace().join("agents/ada/sent")).unwrap(), "sent\na\n");
    assert_eq!(std::fs::read_to_string(place.workspace().join("agents/bob/read")).unwrap(), "mine\n");
    assert!(!both.join("g").exists());
    // The same users without Landlock and namespaces: what only the operating system holds.
    let copy = std::path::PathBuf::from(place.sandbox.workspace_path());
    let group = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(copy.join("output")).unwrap());
    let (ada, bob) = ((place.user("ada"), group), (place.user("bob"), group));
    assert!(ada.0 != bob.0 && ada.0 >= 1_900_000_000 && bob.0 >= 1_900_000_000);
    for script in
        ["echo x >> agents/ada/own", "echo x > agents/ada/new", "rm agents/ada/own", "echo x > agents/ada/dir/f"]
    {
        assert!(!as_user(bob, &copy, script), "{script}");
    }
    assert!(as_user(ada, &copy, "echo x >> agents/ada/own && echo x > agents/ada/dir/f"));
    assert!(as_user(bob, &copy, "cat agents/ada/own && echo x >> output/both/deep/f && rm -r output/both/deep/sent"));
    assert!(!as_user(bob, &copy, "cat ../../../users") && !as_user(bob, &copy, "echo x > file"));
    let mark = mark();
    let mut command = sh("ada", &format!("echo ready; sleep {mark}"));
    command.timeout = Duration::from_secs(60);
    let done = run_and(&place, command, || {
        until("the command sleeps", || !marked(&mark).is_empty());
        let pid = marked(&mark)[0];
        assert!(!as_user(bob, &copy, &format!("kill -9 {pid}")), "another agent's process");
        assert!(as_user(ada, &copy, &format!("kill -9 {pid}")), "its own");
    });
    assert!(done.is_ok(), "{done:?}");
}

// covers: TBX-08
#[test]
fn what_one_agent_copies_into_a_shared_directory_another_one_can_change() {
    if !rustix::process::geteuid().is_root() {
        return skipped(Kind::Remote, "only root gives agents users of their own");
    }
    let Some(place) = Place::new(Kind::Remote) else { return };
    // `cp` takes the mode of its source, and a temporary file is closed.
    let made = "mkdir -m 755 dir; echo a > dir/f; chmod 644 dir/f; cp -r dir ../../output/; umask 077; echo t > ../../output/tmp; echo s > secret";
    place.sh("ada", made);
    let done = place.sh("bob", "cd ../../output; echo b >> dir/f && echo b > dir/g && cat tmp ../agents/ada/secret");
    assert_eq!((done.end, done.stdout.text.as_str()), (End::Exited(0), "t\ns\n"), "{}", done.stderr.text);
    // Modes that an agent gives its entries end no command of another one, and hide nothing from the bound of its disk.
    place.sh("ada", "mkdir ../../output/x ../../output/y; touch ../../output/x/f; chmod 744 ../../output/x; chmod 730 ../../output/y");
    let done = place.sh(
        "bob",
        "cd ../../output; ls x y; for n in 1 2 3; do dd if=/dev/zero of=y/$n bs=1M count=20; done; sleep 10",
    );
    assert_eq!(done.end, End::Disk, "{done:?}");
    // The same in a directory that is closed while the command runs, so that its bytes cannot be counted.
    let copy = std::path::PathBuf::from(place.sandbox.workspace_path());
    place.sh("ada", "mkdir ../../output/z");
    let mut command =
        sh("bob", "echo ready; cd ../../output; until [ -e z/go ]; do sleep 0.1; done; echo x > z/f; sleep 20");
    command.timeout = Duration::from_secs(60);
    let done = run_and(&place, command, || {
        std::fs::write(copy.join("output/z/go"), "").unwrap();
        std::fs::set_permissions(copy.join("output/z"), std::fs::Permissions::from_mode(0o730)).unwrap();
    });
    assert_eq!(done.unwrap().end, End::Disk);
    assert_eq!(place.sh("bob", "echo still").stdout.text, "still\n");
}

// covers: TBX-08
#[test]
fn a_copy_of_an_earlier_release_goes_to_the_agents_users_who_keep_them() {
    if !rustix::process::geteuid().is_root() {
        return skipped(Kind::Remote, "only root gives agents users of their own");
    }
    let Some(mut place) = Place::new(Kind::Remote) else { return };
    place.sh("ada", "mkdir dir; echo a > dir/f; mkdir ../../output/d; echo a > ../../output/d/f");
    // As it was when all commands had one user.
    let copy = std::path::PathBuf::from(place.sandbox.workspace_path());
    #[allow(clippy::disallowed_methods, reason = "it makes the files of an earlier release")]
    let mut chown = std::process::Command::new("chown");
    chown.args(["-R", "65534:65534", "agents/ada", "output"]).current_dir(&copy);
    assert!(chown.status().unwrap().success());
    let id = |place: &Place, agent: &str| place.sh(agent, "id -u; id -g").stdout.text;
    assert_eq!(place.sh("ada", "echo b >> dir/f && echo b >> ../../output/d/f").end, End::Exited(0));
    assert_eq!(place.sh("bob", "echo b >> ../../output/d/f").end, End::Exited(0));
    let before = (id(&place, "ada"), id(&place, "bob"));
    assert_ne!(before.0, before.1);
    // The users are the same after the death of the server.
    let address = place.server.as_ref().unwrap().url.trim_start_matches("http://").to_owned();
    place.server.take().unwrap().kill();
    place.server = Some(ToolboxServer::start(&place.dir.path().join("toolbox"), &address, None).unwrap());
    assert_eq!((id(&place, "ada"), id(&place, "bob")), before);
}
