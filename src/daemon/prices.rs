//! Warns about models without a price where money is limited: every call of such a model is
//! refused.
//!
//! The warnings must never prevent a start, because the model may never be called.

use std::collections::{BTreeMap, BTreeSet};

use ghost_config::plan::{ModelChoice, Plan};
use ghost_config::{Problem, Severity};
use ghost_domain::Scope;
use ghost_domain::text::clip;
use ghost_provider::price;

/// The agents and budgets that a model without a price affects.
#[derive(Default)]
struct Affected<'p> {
    who: Vec<String>,
    scopes: BTreeSet<&'p Scope>,
}

/// One warning for each model without a price that an agent with a money budget uses, fall-back models included.
pub(crate) fn unpriced(plan: &Plan) -> Vec<Problem> {
    let limited: BTreeSet<&Scope> =
        plan.budgets.iter().filter(|(_, limits)| limits.money.is_some()).map(|(scope, _)| scope).collect();
    if limited.is_empty() {
        return Vec::new();
    }
    let mut affected: BTreeMap<Model, Affected<'_>> = BTreeMap::new();
    let mut check = |who: &dyn Fn() -> String, choice: &ModelChoice, scopes: &[Scope]| {
        let bound: Vec<&Scope> = limited
            .iter()
            .filter(|limited| scopes.iter().any(|scope| is_or_is_daily(limited, scope)))
            .copied()
            .collect();
        if bound.is_empty() {
            return;
        }
        for model in models_without_price(plan, choice) {
            let affected = affected.entry(model).or_default();
            affected.who.push(who());
            affected.scopes.extend(&bound);
        }
    };
    for agent in &plan.agents {
        let own = [Scope::World, Scope::Agent(agent.agent_id.clone())];
        let scopes: Vec<Scope> = own.into_iter().chain(agent.team.clone().map(Scope::Team)).collect();
        check(&|| agent.agent_id.to_string(), &agent.model, &scopes);
    }
    // Agents that are created later pay at least from the world's budget.
    for archetype in plan.creatable.iter().filter_map(|name| plan.archetypes.get(name)) {
        let who = || format!("agents created from {}", archetype.name);
        check(&who, &archetype.config.model, &[Scope::World]);
    }
    if let Some((choice, _)) = plan.droid_choice() {
        check(&|| "droids".to_owned(), &choice, &[Scope::World]);
    }
    affected.into_iter().map(|(model, affected)| problem(plan, &model, &affected)).collect()
}

fn is_or_is_daily(limited: &Scope, scope: &Scope) -> bool {
    limited == scope || scope.daily().as_ref() == Some(limited)
}

/// A provider and a model.
type Model = (String, String);

/// The models of a choice, fall-back models included, that have no known price.
fn models_without_price(plan: &Plan, choice: &ModelChoice) -> BTreeSet<Model> {
    let resolved = plan.llm.resolve(choice);
    let (Some(provider), Some(model)) = (&resolved.provider, &resolved.model) else { return BTreeSet::new() };
    let fallbacks = resolved.fallback_models.iter().map(|entry| plan.llm.fallback_target(provider, entry));
    std::iter::once((provider.as_str(), model.as_str()))
        .chain(fallbacks)
        .filter(|(provider, model)| {
            // Another check reports an unknown provider.
            let kind = plan.llm.providers.get(*provider).map(|provider| provider.kind);
            kind.is_some_and(|kind| price(&plan.llm, provider, kind, model).is_none())
        })
        .map(|(provider, model)| (provider.to_owned(), model.to_owned()))
        .collect()
}

/// The warning, at the place where the model is first named.
fn problem(plan: &Plan, (provider, model): &Model, affected: &Affected<'_>) -> Problem {
    let origin = plan.origins.model(provider, model);
    let model = format!("{provider}/{model}");
    let model = clip(&model, 120);
    let scopes: Vec<String> = affected.scopes.iter().map(ToString::to_string).collect();
    let message = format!(
        "`{model}` has no price, and money is limited ({}): every call of it is refused, for {}",
        clip(&scopes.join(", "), 200),
        clip(&affected.who.join(", "), 200)
    );
    let hint = format!(
        "write `{model}: {{ input: …, output: … }}` under `llm.prices` in the world file, or limit tokens instead"
    );
    origin.problem(Severity::Warning, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(more: &str) -> Vec<(usize, String)> {
        let dir = tempfile::tempdir().unwrap();
        let world = format!(
            "world: {{ id: test }}\nagents:\n  - {{ id: ada, archetype: worker, team: desk }}\n  - {{ id: ben, archetype: \
             worker, overrides: {{ model: gpt-4o, fallback_models: [spare] }} }}\nteams: [ {{ name: desk }} ]\n\
             llm: {{ default_provider: openai, default_model: nobody-knows, providers: {{ openai: {{ kind: openai, \
             base_url: 'http://127.0.0.1:1' }} }} }}\n{more}"
        );
        for (path, text) in [
            ("world-config.yaml", world.as_str()),
            ("archetype/worker/soul.md", "s"),
            ("archetype/worker/goal.md", "g"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let plan = ghost_config::load(dir.path(), &|_| None).unwrap_or_else(|problems| panic!("{problems}"));
        unpriced(&plan).into_iter().map(|problem| (problem.line, problem.message)).collect()
    }

    #[test]
    fn a_model_without_a_price_gets_a_warning_where_money_is_limited() {
        // Each warning: its line, the model, the scopes and who is affected.
        let warns = |more: &str, expected: &[(usize, [&str; 3])]| {
            let found = warnings(more);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for ((line, text), (at, parts)) in found.iter().zip(expected) {
                assert!(line == at && parts.iter().all(|part| text.contains(part)), "{at} {parts:?} is not {text}");
            }
        };
        assert_eq!(warnings(""), []);
        assert_eq!(warnings("budgets: { world: { tokens: 5 } }\n"), []);
        let (default, spare) = ("`openai/nobody-knows`", "`openai/spare`");
        // The list has a price for gpt-4o.
        let both = [(6, [default, "world", "ada"]), (4, [spare, "world", "ben"])];
        warns("budgets: { world: { usd: 5 } }\n", &both);
        warns("budgets: { team: { desk: { usd: 5 } } }\n", &[(6, [default, "team:desk", "ada"])]);
        warns("budgets: { agent: { ben: { usd: 5 } } }\n", &[(4, [spare, "agent:ben", "ben"])]);
        let priced = "budgets: { world: { usd: 5 } }\nagents_may_create: [worker]\n";
        assert!(warnings(priced)[0].1.contains("worker"), "new agents pay from the world's budget");
    }
}
