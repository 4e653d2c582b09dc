//! Attempts to get out, made from inside by Python. `docs/security.md` lists them with what stops each.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use ghost_sandbox::{End, Protection};

use crate::machine::{self, mark, marked};
use crate::place::{Kind, Place, sh};

/// Attempts of one kind, at least; and of all kinds.
const OF_A_KIND: usize = 20;
const OF_ALL: usize = 600;
const KINDS: usize = 15;

/// The attempts of `attempts.py`: whole tables of calls, targets and ways. None gets through, and nothing outside changes.
// covers: SBX-04
pub fn no_attempt_gets_through(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let (workspace, data) = (place.workspace(), place.data().canonicalize().unwrap());
    for agent in ["ada", "bob"] {
        place.sh(agent, "echo untouched > note; mkdir -p drafts");
    }
    std::fs::create_dir_all(workspace.join("shared")).unwrap();
    let kept =
        [data.join("token"), data.join("ghost.db"), workspace.join("shared.txt"), workspace.join("agents/bob/note")];
    kept.iter().for_each(|file| std::fs::write(file, "untouched\n").unwrap());
    let (tcp, unix) = (TcpListener::bind("0.0.0.0:0").unwrap(), workspace.join("socket"));
    let _sockets = [&unix, &data.join("ghostd.sock")].map(|path| UnixListener::bind(path).unwrap());
    // A process of the commands' own user: no difference of users keeps them off it.
    let user = place.user("ada").to_string();
    let mut bystander = std::process::Command::new("sleep");
    if rustix::process::geteuid().is_root() {
        bystander = std::process::Command::new("setpriv");
        bystander.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sleep"]);
    }
    let mut bystander = bystander.arg("600").spawn().unwrap();
    let code = format!(
        "data, inside, port, abstract, tasks = {:?}, {:?}, {}, 'ghost', {}\n\
         outsiders = {{'daemon': {}, 'bystander': {}}}\n{}",
        data.display().to_string(),
        place.inside(),
        tcp.local_addr().unwrap().port(),
        if place.sandbox.report().in_force & Protection::Tasks.bit() == 0 { "False" } else { "True" },
        std::process::id(),
        bystander.id(),
        include_str!("attempts.py"),
    );
    let results = place.attempts("ada", &code);
    let lives = bystander.try_wait().unwrap().is_none();
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    let through: Vec<_> = results.iter().filter(|(_, result)| *result == "ok").map(|(name, _)| name).collect();
    assert!(through.is_empty(), "{kind:?}: {through:?}");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in results.keys() {
        *counts.entry(name.split_once('/').unwrap().0).or_default() += 1;
    }
    eprintln!("{kind:?}, user {user}: 0 through of {} attempts of {} kinds: {counts:?}", results.len(), counts.len());
    assert!(results.len() >= OF_ALL && counts.len() >= KINDS, "{counts:?}");
    assert!(counts.values().all(|count| *count >= OF_A_KIND), "{counts:?}");
    // An attempt that could not even be made shows nothing.
    let unmade: Vec<_> = results.iter().filter(|(_, result)| result.contains("Error")).collect();
    assert!(unmade.is_empty(), "{unmade:?}");
    assert!(lives, "the bystander was hit");
    tcp.set_nonblocking(true).unwrap();
    assert!(tcp.accept().is_err(), "somebody connected");
    for file in kept {
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "untouched\n", "{}", file.display());
    }
    let grants = machine::set_id_files(place.dir.path());
    assert!(grants.is_empty(), "{grants:?}");
    assert_eq!(place.sh("ada", "true").end, End::Exited(0));
}

// covers: SBX-04
pub fn the_daemon_and_its_files_cannot_be_reached(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let data = place.data().canonicalize().unwrap();
    for name in ["ghost.db", "token"] {
        std::fs::write(data.join(name), "secret").unwrap();
    }
    let _socket = UnixListener::bind(data.join("ghostd.sock")).unwrap();
    let code = format!(
        "data, pid, inside = {:?}, {}, {:?}\n\
         def read(path): return open(path, 'rb').read(1)\n\
         for name in ['ghost.db', 'token', 'sandbox-runner']:\n\
         \x20 t('read ' + name, lambda: read(f'{{data}}/{{name}}'))\n\
         \x20 t('write ' + name, lambda: open(f'{{data}}/{{name}}', 'r+b'))\n\
         \x20 t('by .. ' + name, lambda: read(f'{{inside}}/../{{name}}'))\n\
         \x20 t('by the root of 1 ' + name, lambda: read(f'/proc/1/root{{data}}/{{name}}'))\n\
         t('list', lambda: os.listdir(data))\n\
         t('link', lambda: os.link(f'{{data}}/token', 'token'))\n\
         t('socket', lambda: socket.socket(socket.AF_UNIX).connect(f'{{data}}/ghostd.sock'))\n\
         for socket_of in ['/var/run/docker.sock', '/run/docker.sock', '/run/containerd/containerd.sock']:\n\
         \x20 t('connect ' + socket_of, lambda: socket.socket(socket.AF_UNIX).connect(socket_of))\n\
         for of in [1, pid, os.getppid()]:\n\
         \x20 for name in ['environ', 'mem', 'maps', 'root/etc/passwd', 'cwd/.', 'fd/0']:\n\
         \x20\x20 t(f'{{of}} {{name}}', lambda: read(f'/proc/{{of}}/{{name}}'))\n\
         t('signal', lambda: os.kill(pid, 0))\n\
         t('shadow', lambda: read('/etc/shadow'))\n\
         t('kernel memory', lambda: read('/proc/kcore'))\n\
         t('device', lambda: os.mknod('device', 0o60600, os.makedev(8, 0)))\n\
         t('disk', lambda: read('/dev/sda') and read('/dev/vda'))\n\
         t('sysrq', lambda: open('/proc/sysrq-trigger', 'w').write('h'))\n\
         t('cgroup', lambda: os.mkdir('/sys/fs/cgroup/memory/escape'))\n",
        data.display(),
        std::process::id(),
        place.inside(),
    );
    let results = place.attempts("ada", &code);
    assert!(results.len() > 35, "{results:?}");
    for (name, result) in results {
        // The runner may be run and read, not written.
        assert!(result != "ok", "{name}");
    }
    assert_eq!(std::fs::read_to_string(data.join("token")).unwrap(), "secret");
}

// covers: SBX-04
pub fn nothing_is_gained_by_being_privileged(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let status = place.sh("ada", "cat /proc/self/status").stdout.text;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name} in {status}")).trim().to_owned()
    };
    for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(name), "0000000000000000", "{name}");
    }
    assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1".to_owned(), "2".to_owned()));
    let user = place.user("ada").to_string();
    assert!(field("Uid").split_whitespace().all(|id| id == user), "{}", field("Uid"));
    // A program that belongs to root and has the set-user-id bit, put there by the operator, gives nothing.
    let own = place.workspace().join("agents/ada");
    std::fs::copy("/usr/bin/id", own.join("setuid")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o6755);
    std::fs::set_permissions(own.join("setuid"), mode).unwrap();
    let done = place.sh("ada", "./setuid -u");
    assert_eq!(done.stdout.text.trim(), user, "{}", done.stderr.text);
    for line in
        ["su root -c id", "mount -t tmpfs x /tmp", "unshare -r id", "nsenter -t 1 -m id", "chown 0 /tmp", "kill -9 1"]
    {
        assert_ne!(place.sh("ada", line).end, End::Exited(0), "{line}");
    }
    assert_eq!(place.sh("ada", "echo still").stdout.text, "still\n");
}

// covers: SBX-04
pub fn agents_see_nothing_of_each_other(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let (mark, begun) = (mark(), tokio::sync::Notify::new());
    let progress = |_: &[u8]| begun.notify_one();
    let script = format!("echo secret > /tmp/of-ada 2>/dev/null; echo ready; sleep {mark}; true");
    let mut of_ada = sh("ada", &script);
    of_ada.env.push(("SECRET".into(), "tiger".into()));
    place.runtime.block_on(async {
        let run = place.sandbox.run(of_ada, &progress);
        tokio::pin!(run);
        tokio::select! {
            biased;
            done = &mut run => panic!("it ended: {done:?}"),
            () = begun.notified() => {}
        }
        machine::until("the command sleeps", || !marked(&mark).is_empty());
        let target = *marked(&mark).last().unwrap();
        let code = format!(
            "import glob, signal\n\
             def seen(): return [p for p in glob.glob('/proc/[0-9]*/cmdline') if b'{mark}' in open(p, 'rb').read()]\n\
             print('RESULT seen=' + str(len(seen())))\n\
             def tiger():\n\
             \x20 for p in glob.glob('/proc/[0-9]*/environ'):\n\
             \x20\x20 try:\n\
             \x20\x20\x20 if b'tiger' in open(p, 'rb').read(): return\n\
             \x20\x20 except OSError: pass\n\
             \x20 raise OSError(13, 'x')\n\
             t('environment', tiger)\n\
             t('file', lambda: open('/tmp/of-ada').read())\n\
             t('kill', lambda: os.kill({target}, signal.SIGKILL))\n\
             t('all', lambda: call(62 if os.uname().machine != 'aarch64' else 129, -1, 0))\n\
             t('memory', lambda: open('/proc/{target}/mem', 'rb'))\n\
             t('queue', lambda: call(68 if os.uname().machine != 'aarch64' else 186, 77, 0))\n"
        );
        let mut of_bob = crate::place::command("bob", &["python3", "-I", "-"]);
        of_bob.stdin = format!("{}\n{code}", crate::place::ATTEMPTS).into_bytes();
        let done = place.sandbox.run(of_bob, &|_| {}).await.unwrap();
        let text = &done.stdout.text;
        assert_eq!(done.end, End::Exited(0), "{} {}", text, done.stderr.text);
        for held in ["seen=0", "environment=EACCES"] {
            assert!(text.contains(&format!("RESULT {held}\n")), "{held}: {text}");
        }
        for name in ["file", "kill", "memory", "queue"] {
            assert!(!text.contains(&format!("RESULT {name}=ok")) || name == "queue", "{name}: {text}");
        }
        assert!(!marked(&mark).is_empty(), "bob ended ada's command");
    });
    machine::gone(&mark);
}
