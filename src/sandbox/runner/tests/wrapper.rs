//! Private file systems in memory, and a wrapper around the runner.

use std::fs;
use std::path::Path;

use super::client::*;

#[test]
fn private_tmp() {
    each(|client| {
        if !client.mode.spaces {
            return;
        }
        let mut spec = client.spec(&[
            "sh",
            "-c",
            "echo hello > /tmp/mine; ls /tmp; echo kept > kept; head -c 20000000 /dev/zero > /tmp/big",
        ]);
        spec.flags |= 16;
        spec.paths.push((7, "/tmp".into()));
        let outcome = client.run(&spec);
        let top = client.dir.file_name().unwrap().to_str().unwrap();
        assert_eq!(outcome.stdout(), format!("{top}\nmine\n"), "{outcome:?} {}", outcome.stderr());
        assert!(outcome.stderr().contains("No space left"), "{}", outcome.stderr());
        assert!(!Path::new("/tmp/mine").exists());
        assert_eq!(fs::read_to_string(client.dir.join("work/kept")).unwrap(), "kept\n");
    });
}

#[test]
fn wrapper_applies_the_policy_inside() {
    if !ready() {
        return;
    }
    if !Path::new("/usr/bin/bwrap").exists() {
        eprintln!("skipped: no bubblewrap");
        return;
    }
    for mode in [MODES[1], MODES[3]] {
        let mut client = Client::new(mode);
        let work = client.dir.join("work").display().to_string();
        let wrapper = [
            "bwrap",
            "--unshare-all",
            "--die-with-parent",
            "--ro-bind",
            "/",
            "/",
            "--bind",
            &work,
            &work,
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--",
            &format!("{FOLDER}/runner"),
            "--apply",
        ]
        .map(String::from)
        .to_vec();
        let mut spec = client.spec(&[
            "sh",
            "-c",
            &format!("echo $$; {ESCAPEE} echo x > {work}/f; echo y > {work}/../outside/g; exit 5"),
        ]);
        (spec.wrapper, spec.vouched) = (wrapper.clone(), NAMESPACES | NETNS | TREE);
        spec.required |= NAMESPACES | TREE;
        let outcome = client.run(&spec);
        assert_eq!((outcome.why, outcome.code), (0, 5), "{outcome:?} {}", outcome.stderr());
        assert!(client.dir.join("work/f").exists() && !client.dir.join("outside/g").exists());
        assert_eq!(processes_but_runner(&client), Vec::<String>::new());
        let mut spec = client.attack("calls", &[]);
        (spec.wrapper, spec.vouched) = (wrapper.clone(), NAMESPACES | NETNS | TREE);
        let outcome = client.run(&spec);
        assert_eq!(outcome.results()["unshare_user"], EPERM, "{} {}", outcome.stdout(), outcome.stderr());
        let mut spec = client.spec(&["no-such-program"]);
        (spec.wrapper, spec.vouched) = (wrapper, NAMESPACES);
        let refused = client.run(&spec).refused.unwrap();
        assert_eq!(refused.0, 5, "{refused:?}");
    }
}
