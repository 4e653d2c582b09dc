//! Who commits: the variables that give git the identity of an agent, so that its commits say which agent made them and
//! git asks for nothing that an agent cannot set.
//!
//! It must never replace what the world file or a toolbox sets.

use ghost_config::plan::Plan;
use ghost_domain::AgentId;

/// The variables of git for commands of an agent, without those in `set` and those that the sandbox of the world sets.
pub(crate) fn git_identity<'s>(
    plan: &Plan,
    agent_id: &AgentId,
    set: impl Iterator<Item = &'s String> + Clone,
) -> Vec<(String, String)> {
    let email = format!("{agent_id}@{}.invalid", plan.world_id);
    let of_world = |name: &str| {
        let passes = plan.sandbox.passthrough_env.iter().any(|passed| passed == name);
        plan.sandbox.env.contains_key(name) || (passes && std::env::var_os(name).is_some())
    };
    ["AUTHOR", "COMMITTER"]
        .into_iter()
        .flat_map(|role| {
            [(format!("GIT_{role}_NAME"), agent_id.to_string()), (format!("GIT_{role}_EMAIL"), email.clone())]
        })
        .filter(|(name, _)| !of_world(name) && !set.clone().any(|given| given == name))
        .collect()
}

#[cfg(test)]
mod tests {
    use ghost_config::testing::WorldFiles;

    use super::*;

    // covers: SBX-06
    #[test]
    fn a_commit_names_its_agent_unless_somebody_says_otherwise() {
        let world = "world: { id: desk, name: Desk }\nagents: [{ id: ada, archetype: clerk }]\n\
            llm: { default_provider: p, default_model: m, providers: { p: { kind: openai, base_url: 'http://127.0.0.1:1' } } }\n";
        let files = WorldFiles::new(world, "");
        files.archetype("clerk", "");
        let (mut plan, ada): (Plan, AgentId) = (files.plan(), "ada".parse().unwrap());
        let of = |plan: &Plan, set: &[String]| git_identity(plan, &ada, set.iter());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (author, committer) = (pair("GIT_AUTHOR_NAME", "ada"), pair("GIT_COMMITTER_NAME", "ada"));
        let emails = ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| pair(name, "ada@desk.invalid"));
        assert_eq!(of(&plan, &[]), [author.clone(), emails[0].clone(), committer.clone(), emails[1].clone()]);
        assert_eq!(of(&plan, &["GIT_AUTHOR_EMAIL".into()]), [author, committer, emails[1].clone()]);
        plan.sandbox.env.insert("GIT_AUTHOR_NAME".into(), "Bot".into());
        plan.sandbox.env.insert("GIT_COMMITTER_NAME".into(), "Bot".into());
        assert_eq!(of(&plan, &[]), emails);
    }
}
