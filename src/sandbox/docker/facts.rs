//! What an engine says about itself, and what follows: whether it can be used, what its containers hold, what is missing.
//! Pure.

use bollard::models::SystemInfo;
use ghost_config::plan::{SandboxNetwork, SandboxPlan, SandboxScope};

use crate::protection::Protection;

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
    held.iter().filter(|(_, holds)| *holds).fold(0, |bits, (protection, _)| bits | protection.bit())
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
