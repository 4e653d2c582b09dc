//! The providers of a world, built from its plan, each with its pool and its breaker. Building them uses no network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_config::plan::{LlmPlan, ProviderKind, ProviderPlan};
use ghost_domain::{Clock, Code, Refusal};
use secrecy::SecretString;

use crate::breaker::Breaker;
use crate::exchange::Address;
use crate::http::IdleLimit;
use crate::model::Provider;
use crate::pool::Pool;
use crate::protocols::{HttpProvider, Protocol};
use crate::recorded::{Recorded, Recording};
use crate::scripted::{ScriptDigest, Scripted};

/// One provider with its pool, breaker and settings.
#[derive(Clone)]
pub struct Entry {
    /// Name of the provider in `world-config.yaml`.
    pub name: String,
    /// The adapter that makes the calls.
    pub provider: Arc<dyn Provider>,
    /// Limits the parallel calls.
    pub pool: Arc<Pool>,
    /// Knows which of the provider's models are down.
    pub breaker: Arc<Breaker>,
    /// The provider's settings.
    pub plan: ProviderPlan,
}

impl Entry {
    /// The author of its opaque state. Another kind or address under the same name is another
    /// author.
    #[must_use]
    pub fn author(&self) -> String {
        format!("{}:{}@{}", self.name, self.plan.kind.as_str(), self.plan.base_url.as_deref().unwrap_or_default())
    }
}

/// Why a provider cannot be built.
#[derive(Clone, Debug)]
pub struct Unbuilt {
    /// The provider's name.
    pub provider: String,
    /// The setting that is wrong: `api_key_env`, `base_url` or `dir`.
    pub setting: &'static str,
    /// The error.
    pub refusal: Refusal,
}

impl From<Unbuilt> for Refusal {
    fn from(unbuilt: Unbuilt) -> Self {
        unbuilt.refusal
    }
}

/// The providers of a world, by name.
pub struct Providers {
    entries: BTreeMap<String, Arc<Entry>>,
    /// The rule files of scripted providers, with digests of their content.
    scripts: BTreeMap<PathBuf, ScriptDigest>,
    recorded: BTreeMap<String, Arc<Recorded>>,
    clock: Arc<dyn Clock>,
}

impl Providers {
    /// Builds all providers of `plan`. `env` reads an environment variable.
    ///
    /// # Errors
    /// A named key that is not set, rule files with errors, an invalid base URL, or a `recorded`
    /// provider (which needs [`Self::build_with`]).
    pub fn build(plan: &LlmPlan, env: &dyn Fn(&str) -> Option<String>, clock: Arc<dyn Clock>) -> Result<Self, Refusal> {
        Ok(Self::build_with(plan, env, clock, BTreeMap::new())?)
    }

    /// Like [`Self::build`], with the recordings of `recorded` providers by provider name.
    ///
    /// # Errors
    /// The errors of [`Self::build`]; and a `recorded` provider without a recording in
    /// `recordings`.
    pub fn build_with(
        plan: &LlmPlan,
        env: &dyn Fn(&str) -> Option<String>,
        clock: Arc<dyn Clock>,
        mut recordings: BTreeMap<String, Recording>,
    ) -> Result<Self, Unbuilt> {
        let mut providers =
            Self { entries: BTreeMap::new(), scripts: BTreeMap::new(), recorded: BTreeMap::new(), clock };
        let world_dir = &plan.world_dir;
        for (name, plan) in &plan.providers {
            let provider: Arc<dyn Provider> = match plan.kind {
                ProviderKind::Scripted => {
                    let scripted = scripted(name, plan, world_dir, &providers.clock);
                    let scripted = scripted.map_err(unbuilt(name, "dir"))?;
                    providers.scripts.extend(scripted.files().map(|(file, digest)| (file.to_owned(), digest)));
                    Arc::new(scripted)
                }
                ProviderKind::Recorded => {
                    let recorded = Arc::new(recorded(name, &mut recordings).map_err(unbuilt(name, "dir"))?);
                    providers.recorded.insert(name.clone(), Arc::clone(&recorded));
                    recorded
                }
                _ => build_one(name, plan, env, &providers.clock)?,
            };
            providers.insert(name, plan.clone(), provider);
        }
        Ok(providers)
    }

    /// All reasons why providers of `plan` cannot be built, for a check that reports every problem.
    /// Scripted and recorded providers are skipped.
    #[must_use]
    pub fn refusals(plan: &LlmPlan, env: &dyn Fn(&str) -> Option<String>, clock: &Arc<dyn Clock>) -> Vec<Unbuilt> {
        let own = |kind| !matches!(kind, ProviderKind::Scripted | ProviderKind::Recorded);
        let refused = |(name, plan): (&String, &ProviderPlan)| build_one(name, plan, env, clock).err();
        plan.providers.iter().filter(|(_, plan)| own(plan.kind)).filter_map(refused).collect()
    }

    /// A world with one given provider: for tests, and for callers with a provider of their own.
    #[must_use]
    pub fn with(name: &str, plan: ProviderPlan, provider: Arc<dyn Provider>, clock: Arc<dyn Clock>) -> Self {
        let mut providers =
            Self { entries: BTreeMap::new(), scripts: BTreeMap::new(), recorded: BTreeMap::new(), clock };
        providers.insert(name, plan, provider);
        providers
    }

    /// Takes over the pools and breakers of `before`, which these providers replace. It does so for
    /// each provider that keeps its name, kind and address. Running and waiting calls continue, and
    /// the current pause stays. Pool sizes change only with [`Self::size_pools`]. A recording of
    /// the same directory continues at its position.
    pub fn keep_pools(&mut self, before: &Self) {
        for (name, entry) in &mut self.entries {
            let Some(old) = before.entries.get(name) else { continue };
            if old.plan.kind == entry.plan.kind && old.plan.base_url == entry.plan.base_url {
                let mut provider = Arc::clone(&entry.provider);
                if old.plan.dir == entry.plan.dir
                    && let Some(recorded) = before.recorded.get(name)
                {
                    self.recorded.insert(name.clone(), Arc::clone(recorded));
                    provider = Arc::clone(recorded) as Arc<dyn Provider>;
                }
                let (pool, breaker) = (Arc::clone(&old.pool), Arc::clone(&old.breaker));
                *entry = Arc::new(Entry { provider, pool, breaker, ..(**entry).clone() });
            }
        }
    }

    /// Sets the size of every pool as its provider's plan says. Called when these providers become
    /// the current ones.
    pub fn size_pools(&self) {
        for entry in self.entries.values() {
            entry.pool.resize(entry.plan.concurrency);
        }
    }

    /// Adds a provider, or replaces the one of that name together with its pool and breaker.
    pub fn insert(&mut self, name: &str, plan: ProviderPlan, provider: Arc<dyn Provider>) {
        let pool = Arc::new(Pool::new(plan.concurrency, Arc::clone(&self.clock)));
        let breaker = Arc::new(Breaker::new(Arc::clone(&self.clock)));
        self.entries.insert(name.to_owned(), Arc::new(Entry { name: name.to_owned(), provider, pool, breaker, plan }));
    }

    /// The provider of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Entry>> {
        self.entries.get(name).cloned()
    }

    /// The rule files of scripted providers, with digests of their content. All of them were
    /// checked.
    #[must_use]
    pub fn scripts(&self) -> &BTreeMap<PathBuf, ScriptDigest> {
        &self.scripts
    }

    /// The providers that serve a recording, by name.
    pub fn recorded(&self) -> impl Iterator<Item = (&str, &Recorded)> {
        self.recorded.iter().map(|(name, recorded)| (name.as_str(), &**recorded))
    }

    /// All providers, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }
}

/// Makes an error about `setting` of the provider `name`.
fn unbuilt(name: &str, setting: &'static str) -> impl Fn(Refusal) -> Unbuilt {
    move |refusal| Unbuilt { provider: name.to_owned(), setting, refusal }
}

fn build_one(
    name: &str,
    plan: &ProviderPlan,
    env: &dyn Fn(&str) -> Option<String>,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Provider>, Unbuilt> {
    let protocol = match plan.kind {
        ProviderKind::Anthropic => Protocol::Anthropic,
        ProviderKind::OpenAi => Protocol::OpenAi,
        ProviderKind::Gemini => Protocol::Gemini,
        ProviderKind::Ollama => Protocol::Ollama,
        ProviderKind::Scripted => {
            return Ok(Arc::new(scripted(name, plan, Path::new(""), clock).map_err(unbuilt(name, "dir"))?));
        }
        ProviderKind::Recorded => {
            return Ok(Arc::new(recorded(name, &mut BTreeMap::new()).map_err(unbuilt(name, "dir"))?));
        }
    };
    let address = Address {
        name,
        base: plan.base_url.as_deref(),
        key: key(name, plan, env).map_err(unbuilt(name, "api_key_env"))?,
        headers: &plan.headers,
        query: &plan.query,
        extra_body: &plan.extra_body,
        idle: IdleLimit { clock: Arc::clone(clock), max: plan.idle_timeout },
    };
    Ok(Arc::new(HttpProvider::new(protocol, address, plan.api).map_err(unbuilt(name, "base_url"))?))
}

fn recorded(name: &str, recordings: &mut BTreeMap<String, Recording>) -> Result<Recorded, Refusal> {
    let recording = recordings.remove(name).ok_or_else(|| {
        Refusal::new(Code::InvalidArguments, format!("provider `{name}` is recorded but has no recording"))
            .hint("give it `dir:`, the data directory of the run to replay")
    });
    Ok(Recorded::new(recording?))
}

fn scripted(name: &str, plan: &ProviderPlan, world_dir: &Path, clock: &Arc<dyn Clock>) -> Result<Scripted, Refusal> {
    let dir = plan.dir.as_deref().ok_or_else(|| {
        Refusal::new(Code::InvalidArguments, format!("provider `{name}` is scripted but names no `dir`"))
            .hint("give it `dir:`, the directory with its `<model>.yaml` rule files")
    })?;
    if world_dir.as_os_str().is_empty() {
        Scripted::load(dir, Arc::clone(clock))
    } else {
        Scripted::load_within(dir, world_dir, Arc::clone(clock))
    }
}

/// The key that the plan names. A provider at its default address needs one, except Ollama, which
/// is local.
fn key(name: &str, plan: &ProviderPlan, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<SecretString>, Refusal> {
    let Some(variable) = &plan.api_key_env else {
        if plan.base_url.is_some() || plan.kind == ProviderKind::Ollama {
            return Ok(None);
        }
        return Err(Refusal::new(Code::InvalidArguments, format!("provider `{name}` names no key"))
            .hint("give it `api_key_env:`, the name of the environment variable that holds its key"));
    };
    match env(variable).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()) {
        Some(value) => Ok(Some(SecretString::from(value))),
        None => Err(Refusal::new(
            Code::Unavailable,
            format!("provider `{name}` needs the environment variable {variable}, which is not set"),
        )
        .hint(format!("export {variable}=<key> before starting, or choose another provider"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Class;
    use crate::testing::provider_plan;
    use futures_util::future::poll_immediate;
    use ghost_domain::Timestamp;
    use ghost_domain::testing::ManualClock;

    fn one(concurrency: u32, url: &str) -> Providers {
        let plan = ProviderPlan { concurrency, ..provider_plan(ProviderKind::OpenAi, Some(url.to_owned())) };
        let plan = LlmPlan { providers: BTreeMap::from([("p".to_owned(), plan)]), ..LlmPlan::default() };
        Providers::build(&plan, &|_| None, ManualClock::at(0)).unwrap()
    }

    #[test]
    fn another_address_under_the_same_name_is_another_author() {
        let author = |url| one(1, url).get("p").unwrap().author();
        assert_eq!(author("http://127.0.0.1:1/v1"), author("http://127.0.0.1:1/v1"));
        assert_ne!(author("http://127.0.0.1:1/v1"), author("http://127.0.0.1:2/v1"));
    }

    #[tokio::test]
    async fn replacing_providers_keeps_their_pools() {
        let (here, there) = ("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1");
        let before = one(1, here);
        let slot = before.get("p").unwrap().pool.admit(Class::Machine).await;
        let mut after = one(1, here);
        after.keep_pools(&before);
        after.size_pools();
        let pool = Arc::clone(&after.get("p").unwrap().pool);
        let mut waiting = Box::pin(pool.admit(Class::Machine));
        assert!(poll_immediate(&mut waiting).await.is_none(), "the running call counts");
        let mut larger = one(2, here);
        larger.keep_pools(&after);
        assert!(poll_immediate(&mut waiting).await.is_none(), "not in force yet");
        larger.size_pools();
        let second = poll_immediate(&mut waiting).await.expect("there are two slots now");
        // Resized back, as a reload that fails does.
        after.size_pools();
        drop(second);
        assert!(poll_immediate(&mut Box::pin(pool.admit(Class::Machine))).await.is_none());
        drop(slot);
        pool.cool_down(Timestamp(5_000));
        let mut again = one(1, here);
        again.keep_pools(&after);
        assert_eq!(again.get("p").unwrap().pool.closed_until(), Some(Timestamp(5_000)), "the pause stays");
        let mut moved = one(1, there);
        moved.keep_pools(&after);
        assert_eq!(moved.get("p").unwrap().pool.closed_until(), None, "another server asked for none");
    }
}
