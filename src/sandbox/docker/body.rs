//! What a container is made of (its image, its mounts, its bounds and all that it may not do), and what follows from what an
//! engine says about itself. Pure: nothing is started here. A container gets no capability, no device, not the data
//! directory, no socket of this machine, and no writable place but those listed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountBindOptions,
    MountBindOptionsPropagationEnum, MountType, SystemInfo,
};
use ghost_config::plan::{SandboxNetwork, SandboxPlan, SandboxScope, WorkspaceAccess};

use crate::command::{Protection, ToolboxDir};
use crate::frame::TMP_BYTES;
use crate::own_dirs::Identity;

/// The calls that the kernel answers to a container.
const SECCOMP: &str = include_str!("seccomp.json");
/// Where a container has the workspace.
pub(super) const WORKSPACE: &str = "/workspace";
/// Where it has the runner.
pub(super) const RUNNER: &str = "/ghost-runner";
/// Bytes of `/dev/shm`.
const SHM_BYTES: u64 = 64 << 20;
/// Names in `/tmp`.
const TMP_NAMES: u64 = 65_536;

/// A directory that is mounted, and which one it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Relative to the workspace, without a slash at its end; empty for the workspace itself.
    pub(super) dir: String,
    pub(super) identity: Identity,
    pub(super) writable: bool,
}

impl Place {
    /// Its path in a container.
    pub(super) fn inside(&self) -> String {
        inside(&self.dir)
    }
}

/// The path in a container of a path of the workspace.
pub(super) fn inside(path: &str) -> String {
    match path.trim_matches('/') {
        "" => WORKSPACE.to_owned(),
        path => format!("{WORKSPACE}/{path}"),
    }
}

/// Where a container has the directory of a toolbox.
pub(super) fn toolbox_inside(toolbox: &ToolboxDir) -> String {
    format!("/toolbox/{}", toolbox.name)
}

/// What every container of a world has in common.
#[derive(Clone, Debug)]
pub(super) struct Common {
    /// Id of the image.
    pub(super) image: String,
    pub(super) workspace: PathBuf,
    /// The runner's program on this machine.
    pub(super) program: PathBuf,
    /// User and group of commands.
    pub(super) user: (u32, u32),
    pub(super) labels: HashMap<String, String>,
    /// The toolbox that its containers mount.
    pub(super) toolbox: Option<ToolboxDir>,
}

fn bind(source: &Path, target: &str, writable: bool) -> Mount {
    Mount {
        source: Some(source.display().to_string()),
        target: Some(target.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(!writable),
        // What is mounted below stays out: an older engine would leave it writable.
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            non_recursive: Some(true),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A quarter above the bound of one command: the runner measures commands and names what they exceed; this stops what
/// outruns it, and several commands together.
fn above(bound: u64) -> u64 {
    bound.saturating_add(bound / 4)
}

/// The directories that a container mounts, outer ones first. Those within a writable one need no mount of their own.
pub(super) fn mounted(access: WorkspaceAccess, workspace: Identity, writable: &[Place]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let all = Place { dir: String::new(), identity: workspace, writable: false };
    let mut wanted: Vec<&Place> = writable.iter().collect();
    wanted.sort_by(|a, b| a.dir.cmp(&b.dir));
    if access != WorkspaceAccess::None && wanted.first().is_none_or(|first| !first.dir.is_empty()) {
        places.push(all);
    }
    for place in wanted {
        let is_covered = places.iter().any(|outer| {
            outer.writable
                && (outer.dir.is_empty()
                    || place.dir == outer.dir
                    || place.dir.strip_prefix(&outer.dir).is_some_and(|rest| rest.starts_with('/')))
        });
        if !is_covered {
            places.push(place.clone());
        }
    }
    places
}

/// The request for a container that mounts `places`.
pub(super) fn body(plan: &SandboxPlan, common: &Common, places: &[Place]) -> ContainerCreateBody {
    let mut mounts = vec![bind(&common.program, RUNNER, false)];
    mounts.extend(common.toolbox.iter().map(|toolbox| bind(&toolbox.dir, &toolbox_inside(toolbox), false)));
    mounts.extend(places.iter().map(|place| {
        let source = if place.dir.is_empty() { common.workspace.clone() } else { common.workspace.join(&place.dir) };
        bind(&source, &place.inside(), place.writable)
    }));
    let memory = signed(above(plan.memory_bytes) + TMP_BYTES + SHM_BYTES);
    let tmp = format!("rw,exec,nosuid,nodev,mode=1777,size={TMP_BYTES},nr_inodes={TMP_NAMES}");
    let network = match plan.network {
        SandboxNetwork::None | SandboxNetwork::Proxy => "none",
        SandboxNetwork::Open => "bridge",
    };
    let host = HostConfig {
        mounts: Some(mounts),
        tmpfs: Some(HashMap::from([("/tmp".to_owned(), tmp)])),
        readonly_rootfs: Some(true),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges:true".to_owned(), format!("seccomp={SECCOMP}")]),
        privileged: Some(false),
        network_mode: Some(network.to_owned()),
        ipc_mode: Some("private".to_owned()),
        memory: Some(memory),
        // As much as `memory`: no swap.
        memory_swap: Some(memory),
        pids_limit: Some(signed(above(u64::from(plan.processes)) + 64)),
        nano_cpus: plan.cpu_millis.map(|millis| i64::from(millis) * 1_000_000),
        shm_size: Some(signed(SHM_BYTES)),
        // The runner's frames are no log.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        auto_remove: Some(true),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(common.image.clone()),
        entrypoint: Some(vec![RUNNER.to_owned()]),
        cmd: Some(Vec::new()),
        env: Some(Vec::new()),
        working_dir: Some("/".to_owned()),
        hostname: Some("sandbox".to_owned()),
        user: Some(format!("{}:{}", common.user.0, common.user.1)),
        labels: Some(common.labels.clone()),
        tty: Some(false),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        // The end of our stream is the end of the runner's input, which ends everything.
        stdin_once: Some(true),
        stop_signal: Some("SIGKILL".to_owned()),
        // One of the image would run beside the runner, without its bounds.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

/// Whether an engine can be used at all.
pub(super) fn usable(info: &SystemInfo) -> Result<(), String> {
    let options = info.security_options.as_deref().unwrap_or_default();
    let has = |name: &str| options.iter().any(|option| option.split(',').any(|part| part == format!("name={name}")));
    if info.os_type.as_deref().is_some_and(|os| os != "linux") {
        return Err("the engine does not run Linux containers".to_owned());
    }
    if !has("seccomp") {
        return Err("the engine's kernel has no seccomp".to_owned());
    }
    if has("rootless") || has("userns") {
        return Err(
            "the engine gives containers other users than this machine (rootless or userns-remap), so commands \
                    could not write the workspace; use another engine, or the sandbox `local`"
                .to_owned(),
        );
    }
    Ok(())
}

/// The protections that a container gives by itself. Where agents share one, what keeps them apart is the runner's work.
pub(super) fn given(plan: &SandboxPlan, info: &SystemInfo, is_root: bool) -> u32 {
    let alone = plan.scope != SandboxScope::World;
    let held = [
        (Protection::Seccomp, true),
        (Protection::Files, alone),
        (Protection::Network, plan.network != SandboxNetwork::Open),
        (Protection::Signals, alone),
        (Protection::Trace, alone),
        (Protection::Metadata, alone),
        (Protection::Tasks, info.pids_limit == Some(true)),
        (Protection::Namespaces, true),
        (Protection::Netns, true),
        (Protection::Uid, is_root),
        (Protection::Cgroup, info.memory_limit == Some(true) && info.pids_limit == Some(true)),
    ];
    Protection::bits(held.into_iter().filter(|(_, holds)| *holds).map(|(protection, _)| protection))
}

/// What is not enforced, a line each. `reasons` are the runner's: those for what holds all the same are left out.
pub(super) fn missing(
    plan: &SandboxPlan,
    info: &SystemInfo,
    in_force: u32,
    reasons: &[String],
    warnings: &[String],
) -> Vec<String> {
    let holds = |name: &str| Protection::named(name).is_some_and(|protection| in_force & protection.bit() != 0);
    let mut lines: Vec<String> =
        reasons.iter().filter(|reason| !reason.split_once(':').is_some_and(|(name, _)| holds(name))).cloned().collect();
    let mut say = |is_missing: bool, line: &str| {
        if is_missing {
            lines.push(line.to_owned());
        }
    };
    say(plan.network == SandboxNetwork::Open, "network: the world file has `network: open`");
    say(!holds("metadata"), "metadata: agents share a container (`scope: world`), and with it the files' owner");
    say(!holds("uid"), "uid: commands have ghostd's own user, because ghostd is not root");
    say(info.memory_limit != Some(true), "memory: the engine cannot bound it; the runner measures it");
    say(info.pids_limit != Some(true), "tasks: the engine cannot bound them; the runner counts them");
    say(plan.cpu_millis.is_some() && info.cpu_cfs_quota != Some(true), "cpus: the engine cannot bound processor time");
    lines.extend(warnings.iter().map(|warning| format!("engine: {}", warning.trim())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: &str) -> Place {
        Place { dir: dir.to_owned(), identity: Identity { device: 1, inode: dir.len() as u64 }, writable: true }
    }

    fn common() -> Common {
        Common {
            image: "sha256:abc".into(),
            workspace: "/data/workspace".into(),
            program: "/data/sandbox-runner".into(),
            user: (65_534, 65_534),
            labels: HashMap::from([("ghost.world".to_owned(), "w".to_owned())]),
            toolbox: None,
        }
    }

    #[test]
    fn the_outermost_writable_places_are_mounted_over_a_read_only_workspace() {
        let dirs = |access, writable: &[&str]| {
            let writable: Vec<Place> = writable.iter().map(|dir| place(dir)).collect();
            let places = mounted(access, Identity { device: 1, inode: 9 }, &writable);
            places.iter().map(|place| (place.inside(), place.writable)).collect::<Vec<_>>()
        };
        let found = dirs(WorkspaceAccess::ReadWrite, &["output/reports", "agents/ada", "output", "outputs"]);
        let wanted = [("", false), ("/agents/ada", true), ("/output", true), ("/outputs", true)];
        assert_eq!(found, wanted.map(|(dir, writable)| (format!("/workspace{dir}"), writable)));
        assert_eq!(dirs(WorkspaceAccess::None, &["agents/ada"]), [("/workspace/agents/ada".to_owned(), true)]);
        assert_eq!(dirs(WorkspaceAccess::ReadWrite, &["", "agents/ada"]), [("/workspace".to_owned(), true)]);
        assert_eq!(dirs(WorkspaceAccess::ReadOnly, &[]), [("/workspace".to_owned(), false)]);
    }

    // covers: SBX-04, SBX-07
    #[test]
    fn a_container_gets_no_rights_and_only_its_places() {
        let plan =
            SandboxPlan { cpu_millis: Some(500), memory_bytes: 64 << 20, processes: 100, ..SandboxPlan::default() };
        let all = mounted(WorkspaceAccess::ReadWrite, Identity { device: 1, inode: 9 }, &[place("agents/ada")]);
        let body = body(&plan, &common(), &all);
        let host = body.host_config.unwrap();
        assert_eq!((host.cap_drop, host.cap_add), (Some(vec!["ALL".to_owned()]), None));
        assert_eq!((host.readonly_rootfs, host.privileged, host.devices), (Some(true), Some(false), None));
        assert_eq!((host.network_mode.as_deref(), host.binds), (Some("none"), None));
        assert_eq!((host.nano_cpus, host.pids_limit), (Some(500_000_000), Some(189)));
        assert_eq!(host.memory, host.memory_swap);
        assert_eq!(host.memory, Some((80 + 256 + 64) << 20));
        let options = host.security_opt.unwrap();
        assert!(options[0] == "no-new-privileges:true" && options[1].starts_with("seccomp={"));
        let sources: Vec<_> =
            host.mounts.unwrap().into_iter().map(|at| (at.source.unwrap(), at.read_only.unwrap())).collect();
        let wanted = [("/data/sandbox-runner", true), ("/data/workspace", true), ("/data/workspace/agents/ada", false)];
        assert_eq!(sources, wanted.map(|(source, read_only)| (source.to_owned(), read_only)));
        assert_eq!(body.user.as_deref(), Some("65534:65534"));
        assert_eq!((body.stdin_once, body.tty), (Some(true), Some(false)));
        assert_eq!(body.healthcheck.and_then(|check| check.test), Some(vec!["NONE".to_owned()]));
    }

    #[test]
    fn the_profile_allows_what_it_lists_and_never_what_opens_the_kernel() {
        // The order of the file is not that of the kernel; a name must stand in one list only.
        let allowed = SECCOMP.split("never: ").next().unwrap();
        let never = &SECCOMP[allowed.len()..];
        for name in [
            "io_uring_setup",
            "keyctl",
            "ptrace",
            "mount",
            "unshare",
            "setns",
            "bpf",
            "perf_event_open",
            "memfd_secret",
        ] {
            let quoted = format!("\"{name}\"");
            assert!(!allowed.contains(&quoted) && never.contains(&quoted), "{name}");
        }
        assert!(SECCOMP.contains("\"defaultAction\": \"SCMP_ACT_ERRNO\""));
    }

    fn info(options: &[&str]) -> SystemInfo {
        SystemInfo {
            security_options: Some(options.iter().map(|option| (*option).to_owned()).collect()),
            os_type: Some("linux".into()),
            memory_limit: Some(true),
            pids_limit: Some(true),
            ..SystemInfo::default()
        }
    }

    #[test]
    fn an_engine_without_a_filter_or_with_other_users_is_not_used() {
        assert_eq!(usable(&info(&["name=seccomp,profile=default", "name=cgroupns"])), Ok(()));
        for bad in [&[][..], &["name=apparmor"], &["name=seccomp", "name=rootless"], &["name=seccomp", "name=userns"]] {
            assert!(usable(&info(bad)).is_err(), "{bad:?}");
        }
        assert!(usable(&SystemInfo { os_type: Some("windows".into()), ..info(&["name=seccomp"]) }).is_err());
    }

    #[test]
    fn what_a_container_does_not_give_is_said() {
        let has = |plan: &SandboxPlan, protection: Protection| given(plan, &info(&[]), false) & protection.bit() != 0;
        let mut plan = SandboxPlan::default();
        assert!(has(&plan, Protection::Files) && has(&plan, Protection::Network) && !has(&plan, Protection::Uid));
        plan.scope = SandboxScope::World;
        for apart in [Protection::Files, Protection::Signals, Protection::Trace, Protection::Metadata] {
            assert!(!has(&plan, apart), "{apart:?}: agents share the container");
        }
        plan.network = SandboxNetwork::Open;
        assert!(!has(&plan, Protection::Network));
        let reasons = ["namespaces: process: not permitted".to_owned(), "landlock: version 1".to_owned()];
        let bare = SystemInfo { memory_limit: None, pids_limit: None, ..info(&[]) };
        let lines = missing(&plan, &bare, Protection::Namespaces.bit(), &reasons, &["no cpu".to_owned()]);
        let names: Vec<&str> = lines.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(names, ["landlock", "network", "metadata", "uid", "memory", "tasks", "engine"]);
    }
}
