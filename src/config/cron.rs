//! Checks the models and webhooks that a cron job names.
//!
//! A job must never use a model that the world's files do not name.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::schedule::mode::check_thread;
use ghost_domain::schedule::{JobMode, Target};
use ghost_domain::text::{nearest, shown};
use ghost_domain::{AgentId, Code, Refusal};
use serde_json::json;

use crate::models::SCRIPTED_MODEL;
use crate::plan::Plan;

/// The largest number of names in a hint.
const LISTED: usize = 8;

impl Plan {
    /// Checks that the world has the model and the webhook that the job names.
    ///
    /// # Errors
    ///
    /// `NotFound` for an unknown model or webhook, with the nearest name.
    pub fn check_job(&self, mode: &JobMode) -> Result<(), Refusal> {
        self.job_faults(mode).into_iter().next().map_or(Ok(()), Err)
    }

    /// All that [`check_job`](Self::check_job) would refuse.
    pub(crate) fn job_faults(&self, mode: &JobMode) -> Vec<Refusal> {
        let Some(turn) = mode.own_turn() else { return Vec::new() };
        let model = turn.model.as_ref();
        let model = model.and_then(|model| self.model_named(&self.llm.default_provider, model).err());
        let webhook = match &turn.target {
            Target::Webhook { webhook, .. } if !self.webhooks.contains_key(webhook) => {
                let near = nearest(webhook, self.webhooks.keys().map(String::as_str));
                let refusal = Refusal::not_found("webhook", webhook, near).details(json!({ "field": "to" }));
                Some(match near {
                    Some(_) => refusal,
                    None => refusal.hint("webhooks are named under channels.webhooks in world-config.yaml"),
                })
            }
            _ => None,
        };
        model.into_iter().chain(webhook).collect()
    }

    /// Checks that `agent_id` may deliver the final text of its job to this target.
    ///
    /// # Errors
    ///
    /// `AccessDenied` for a webhook thread of another agent; see [`check_thread`].
    pub fn check_target(&self, agent_id: &AgentId, target: &Target) -> Result<(), Refusal> {
        let Target::Webhook { webhook, thread } = target else { return Ok(()) };
        match self.webhooks.get(webhook) {
            Some(plan) => check_thread(agent_id, webhook, thread, &plan.agent),
            // `check_job` refuses an unknown webhook.
            None => Ok(()),
        }
    }

    /// The agent of each webhook, by the webhook's name.
    #[must_use]
    pub fn webhook_agents(&self) -> BTreeMap<String, AgentId> {
        self.webhooks.iter().map(|(name, webhook)| (name.clone(), webhook.agent.clone())).collect()
    }

    /// Resolves `name`, which is `model` or `provider/model`, to a provider and a model. If several
    /// providers have the model, `own_provider` wins.
    ///
    /// # Errors
    ///
    /// `NotFound` for a model that no archetype, agent, fallback, default or price of this world
    /// names.
    pub fn model_named(&self, own_provider: &str, name: &str) -> Result<(String, String), Refusal> {
        let known = self.models();
        let found = match name.split_once('/') {
            Some((provider, model)) if known.contains(&(model, provider)) => Some((provider, model)),
            _ if known.contains(&(name, own_provider)) => Some((own_provider, name)),
            _ => known.iter().find(|(model, _)| *model == name).map(|(model, provider)| (*provider, *model)),
        };
        if let Some((provider, model)) = found {
            return Ok((provider.to_owned(), model.to_owned()));
        }
        let refusal = Refusal::new(Code::NotFound, format!("this world has no model `{}`", shown(name, 80)))
            .details(json!({ "field": "model" }));
        let names: BTreeSet<&str> = known.iter().map(|(model, _)| *model).collect();
        Err(match nearest(name, names.iter().copied()) {
            Some(near) => refusal.hint(format!("did you mean `{near}`?")),
            None => {
                let list: Vec<&str> = names.into_iter().take(LISTED).collect();
                refusal.hint(format!("it has: {}", list.join(", ")))
            }
        })
    }

    /// Every model that the world's files name, with its provider.
    fn models(&self) -> BTreeSet<(&str, &str)> {
        let mut known = BTreeSet::from([(self.llm.default_model.as_str(), self.llm.default_provider.as_str())]);
        if let Some(model) = &self.droids.model {
            let (provider, model) = self.llm.fallback_target(&self.llm.default_provider, model);
            known.insert((model, provider));
        }
        let archetypes = self.archetypes.values().map(|archetype| &archetype.config.model);
        for choice in archetypes.chain(self.agents.iter().map(|agent| &agent.model)) {
            let provider = choice.provider.as_deref().unwrap_or(&self.llm.default_provider);
            match &choice.model {
                Some(model) => known.insert((model, provider)),
                None if self.llm.providers.get(provider).is_some_and(|plan| plan.kind.is_local()) => {
                    known.insert((SCRIPTED_MODEL, provider))
                }
                None => false,
            };
            for fallback in &choice.fallback_models {
                let (provider, model) = self.llm.fallback_target(provider, fallback);
                known.insert((model, provider));
            }
        }
        for priced in self.llm.prices.keys() {
            let (provider, model) = self.llm.fallback_target(&self.llm.default_provider, priced);
            known.insert((model, provider));
        }
        known.retain(|(model, provider)| !model.is_empty() && self.llm.providers.contains_key(*provider));
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{GOOD, World};

    fn thread(webhook: &str, thread: &str) -> Target {
        Target::Webhook { webhook: webhook.into(), thread: thread.into() }
    }

    // covers: SCHED-08
    #[test]
    fn a_job_may_use_only_models_that_the_world_names() {
        let plan = World::new().plan();
        let own = plan.llm.default_provider.clone();
        let default = plan.llm.default_model.clone();
        assert_eq!(plan.model_named(&own, &default).unwrap(), (own.clone(), default.clone()));
        assert_eq!(plan.model_named("x", &format!("{own}/{default}")).unwrap(), (own.clone(), default));
        assert_eq!(plan.model_named(&own, "scripted/huge").unwrap(), ("scripted".into(), "huge".into()));
        let refusal = plan.model_named(&own, "scripted/hugee").unwrap_err();
        assert_eq!((refusal.code, refusal.details), (Code::NotFound, Some(json!({ "field": "model" }))));
    }

    #[test]
    fn a_job_for_an_unknown_webhook_is_refused() {
        let plan = World::new().plan();
        let refusal = plan.check_job(&thread("nowhere", "x").into()).unwrap_err();
        assert_eq!(refusal.code, Code::NotFound);
        assert!(refusal.message.contains("`nowhere`"), "{refusal}");
        plan.check_job(&JobMode::default()).unwrap();
    }

    #[test]
    fn only_the_agent_of_a_webhook_chooses_among_its_threads() {
        let hook =
            "channels: { webhooks: { shop: { url: 'http://127.0.0.1:9/in', secret_env: SECRET, agent: chora } } }\n";
        let world = World::new();
        world.config(&format!("{GOOD}{hook}"));
        let plan = world.plan();
        let (chora, other): (AgentId, AgentId) = ("chora".parse().unwrap(), "other".parse().unwrap());
        plan.check_target(&chora, &thread("shop", "customer-17")).unwrap();
        plan.check_target(&other, &thread("shop", "cron:other/report")).unwrap();
        plan.check_target(&other, &Target::Last).unwrap();
        for foreign in ["customer-17", "cron:chora/report"] {
            let refusal = plan.check_target(&other, &thread("shop", foreign)).unwrap_err();
            assert_eq!(
                (refusal.code, refusal.details),
                (Code::AccessDenied, Some(json!({ "field": "to" }))),
                "{foreign}"
            );
        }
    }
}
