//! The handlers of all methods, one file for a service or for a few that belong together, and the table that names them.

mod agents;
mod chat;
mod conversations;
mod cost;
mod events;
mod knowledge;
mod messages;
mod schedules;
mod tasks;
mod toolboxes;
mod tools;
mod tools_watch;
mod turns;
mod workspace;
mod world;

#[cfg(test)]
mod paging_tests;

pub(crate) use world::population;

use crate::dispatch::Methods;

macro_rules! unary {
    ($($service:ident: $($handler:ident),*;)*) => { Methods::default()$($(.unary($service::$handler))*)* };
}

/// All methods of the control plane.
pub(crate) fn methods() -> Methods {
    let unary = unary! {
        agents: list, get, create, start, stop, delete, prompt, inspect, list_droids, get_droid, steer_droid, kill_droid;
        chat: create, post, invite, remove, list, history;
        conversations: list, get, say, check_attachments, handoff, end, redeliver, list_sessions, get_session,
            reset_session;
        cost: list_budgets, set_budget, usage, list_calls, totals;
        knowledge: list, read, write, delete, get_state, set_state, list_state;
        messages: send, ask, list_dead, get_dead, retry_dead, drop_dead;
        schedules: list, get, set, enable, cancel, run, runs;
        tasks: create, list, get, update;
        toolboxes: list, check, trust, list_skills, get_skill;
        tools: list, brief, describe, call;
        turns: list, get, cancel, retry, settle, list_approvals, get_approval, decide, revoke;
        workspace: list_artifacts, rebuild_artifacts, remove_artifact, add_grant, list_grants, revoke_grant;
        world: status, pause, resume, confirm_clock, reload, shutdown, reflect, resources, limits, resolve_id;
    };
    unary.stream(conversations::watch).stream(events::subscribe).stream(tools::watch)
}

#[cfg(test)]
mod tests {
    use ghost_proto::FILE_DESCRIPTOR_SET;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    // covers: CP-01
    #[test]
    fn the_table_has_the_methods_of_the_contract() {
        let contract = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let services = contract.file.iter().filter(|file| file.package() == "ghost.v1").flat_map(|file| &file.service);
        let wanted = services.flat_map(|service| {
            service.method.iter().map(|method| format!("/ghost.v1.{}/{}", service.name(), method.name()))
        });
        let mut wanted: Vec<String> = wanted.collect();
        wanted.sort();
        assert_eq!(methods().paths().collect::<Vec<_>>(), wanted);
    }
}
