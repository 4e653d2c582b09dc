//! The handlers of all methods, one file for each service, and the table that names them.

mod agents;
mod approvals;
mod artifacts;
mod budgets;
mod chat;
mod conversations;
mod droids;
mod events;
mod grants;
mod knowledge;
mod ledger;
mod messages;
mod schedules;
mod sessions;
mod skills;
mod state;
mod tasks;
mod toolboxes;
mod tools;
mod tools_watch;
mod turns;
mod world;

#[cfg(test)]
mod paging_tests;

pub(crate) use world::population;

use crate::dispatch::Methods;

/// All methods of the control plane.
pub(crate) fn methods() -> Methods {
    let mut all = Methods::default();
    all.service("Agents")
        .query("List", agents::list)
        .query("Get", agents::get)
        .mutation("Create", agents::create)
        .mutation("Start", agents::start)
        .mutation("Stop", agents::stop)
        .mutation("Delete", agents::delete)
        .query("Prompt", agents::prompt)
        .query("Inspect", agents::inspect);
    all.service("Approvals")
        .query("List", approvals::list)
        .query("Get", approvals::get)
        .mutation("Decide", approvals::decide)
        .mutation("Revoke", approvals::revoke);
    all.service("Artifacts")
        .query("List", artifacts::list)
        .mutation("Rebuild", artifacts::rebuild)
        .mutation("Remove", artifacts::remove);
    all.service("Budgets").query("List", budgets::list).mutation("Set", budgets::set).query("Usage", budgets::usage);
    all.service("Chat")
        .mutation("Create", chat::create)
        .mutation("Post", chat::post)
        .mutation("Invite", chat::invite)
        .mutation("Remove", chat::remove)
        .query("List", chat::list)
        .query("History", chat::history);
    all.service("Conversations")
        .query("List", conversations::list)
        .query("Get", conversations::get)
        .mutation("Say", conversations::say)
        .query("CheckAttachments", conversations::check_attachments)
        .stream("Watch", conversations::watch)
        .mutation("Handoff", conversations::handoff)
        .mutation("End", conversations::end)
        .mutation("Redeliver", conversations::redeliver);
    all.service("Droids")
        .query("List", droids::list)
        .query("Get", droids::get)
        .mutation("Steer", droids::steer)
        .mutation("Kill", droids::kill);
    all.service("Events").stream("Subscribe", events::subscribe);
    all.service("Grants").mutation("Add", grants::add).query("List", grants::list).mutation("Revoke", grants::revoke);
    all.service("Knowledge")
        .query("List", knowledge::list)
        .query("Read", knowledge::read)
        .mutation("Write", knowledge::write)
        .mutation("Delete", knowledge::delete);
    all.service("Ledger").query("List", ledger::list).query("Totals", ledger::totals);
    all.service("Messages")
        .mutation("Send", messages::send)
        .mutation("Ask", messages::ask)
        .query("ListDead", messages::list_dead)
        .query("GetDead", messages::get_dead)
        .mutation("RetryDead", messages::retry_dead)
        .mutation("DropDead", messages::drop_dead);
    all.service("Schedules")
        .query("List", schedules::list)
        .query("Get", schedules::get)
        .mutation("Set", schedules::set)
        .mutation("Enable", schedules::enable)
        .mutation("Cancel", schedules::cancel)
        .mutation("Run", schedules::run)
        .query("Runs", schedules::runs);
    all.service("Sessions")
        .query("List", sessions::list)
        .query("Get", sessions::get)
        .mutation("Reset", sessions::reset);
    all.service("Skills").query("List", skills::list).query("Get", skills::get);
    all.service("State").query("Get", state::get).mutation("Set", state::set).query("List", state::list);
    all.service("Tasks")
        .mutation("Create", tasks::create)
        .query("List", tasks::list)
        .query("Get", tasks::get)
        .mutation("Update", tasks::update);
    all.service("Toolboxes")
        .query("List", toolboxes::list)
        .query("Check", toolboxes::check)
        .mutation("Trust", toolboxes::trust);
    all.service("Tools")
        .query("List", tools::list)
        .query("Brief", tools::brief)
        .query("Describe", tools::describe)
        .stream("Watch", tools::watch)
        .mutation("Call", tools::call);
    all.service("Turns")
        .query("List", turns::list)
        .query("Get", turns::get)
        .mutation("Cancel", turns::cancel)
        .mutation("Retry", turns::retry)
        .mutation("Settle", turns::settle);
    all.service("World")
        .query("Status", world::status)
        .mutation("Pause", world::pause)
        .mutation("Resume", world::resume)
        .mutation("ConfirmClock", world::confirm_clock)
        .mutation("Reload", world::reload)
        .mutation("Shutdown", world::shutdown)
        .query("Reflect", world::reflect)
        .query("Resources", world::resources)
        .query("Limits", world::limits)
        .query("ResolveId", world::resolve_id);
    all
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
