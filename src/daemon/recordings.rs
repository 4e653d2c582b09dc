//! Reads the answers of an earlier run from its database, for providers of kind `recorded`.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;

use ghost_config::plan::{LlmPlan, Plan, ProviderKind, ProviderPlan};
use ghost_config::{Hint, Problem, Severity};
use ghost_domain::journal::Step;
use ghost_domain::{AgentId, Code, Refusal};
use ghost_provider::{Providers, RecordedAnswer, Recording, Unbuilt};
use ghost_store::sqlite::{SqliteOptions, open_store};
use ghost_store::tables::{TurnFilter, UsageFilter};
use ghost_store::{Store, Tx};

use crate::storage;

/// Maximum number of turns in one read.
const PAGE: u32 = 1_000;

/// Reads the recording of every `recorded` provider of a plan.
///
/// # Errors
/// If a provider names no run, or its run cannot be read.
pub async fn read_all(plan: &LlmPlan) -> Result<BTreeMap<String, Recording>, Unbuilt> {
    let mut recordings = BTreeMap::new();
    for (name, provider) in &plan.providers {
        if provider.kind != ProviderKind::Recorded {
            continue;
        }
        let unread = |refusal| Unbuilt { provider: name.clone(), setting: "dir", refusal };
        let Some(dir) = &provider.dir else {
            let refusal = Refusal::new(Code::InvalidArguments, format!("provider {name} is recorded but names no run"));
            return Err(unread(refusal.hint("set llm.providers.<name>.dir to the data directory of the run")));
        };
        recordings.insert(name.clone(), read(dir).await.map_err(unread)?);
    }
    Ok(recordings)
}

/// Moves every recording to the position that this run has reached, so that an agent does not get an answer twice.
///
/// # Errors
/// If the store cannot be read.
pub async fn go_on(store: &Store, providers: &Providers) -> Result<(), Refusal> {
    for (name, recorded) in providers.recorded() {
        let filter = UsageFilter { provider: Some(name.to_owned()), ..UsageFilter::default() };
        let sums: Result<_, Refusal> = store.read(move |r| Ok(r.usage_sum(&filter)?)).await;
        let mut given: BTreeMap<AgentId, u64> = BTreeMap::new();
        for sum in sums? {
            // A usage row with an estimate belongs to an answer that was lost in a crash. That call
            // is made again.
            *given.entry(sum.agent_id).or_default() += sum.calls.saturating_sub(sum.estimated_calls);
        }
        for (agent_id, answers) in given {
            recorded.go_on(&agent_id, usize::try_from(answers).unwrap_or(usize::MAX));
        }
    }
    Ok(())
}

/// Runs a future to its end on a runtime of its own. A reload uses it on its own thread.
///
/// # Errors
/// If no runtime can be created.
pub fn here<T>(work: impl Future<Output = T>) -> Result<T, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Refusal::new(Code::Unavailable, format!("the recordings cannot be read: {error}"))
            .hint("the system is short of threads, memory or file handles; try again")
    })?;
    Ok(runtime.block_on(work))
}

/// The problems of `recorded` providers whose run does not exist.
pub(crate) fn missing(plan: &Plan) -> Vec<Problem> {
    let recorded = plan.llm.providers.iter().filter(|(_, provider)| provider.kind == ProviderKind::Recorded);
    let problem = |(name, provider): (&String, &ProviderPlan)| {
        let refusal = no_run(provider.dir.as_deref()?)?;
        let hint = Hint::of(refusal.hint, "name the data directory of the run");
        Some(plan.origins.provider(name, "dir").problem(Severity::Error, refusal.message, hint))
    };
    recorded.filter_map(problem).collect()
}

/// The refusal if the directory has no run.
fn no_run(data_dir: &Path) -> Option<Refusal> {
    if let Ok(Some(schema)) = storage::schema_of(data_dir) {
        let what = format!("the run in {} is in the schema {schema} of PostgreSQL", data_dir.display());
        let hint = "only a run whose records are in SQLite can be given as a recording";
        return Some(Refusal::new(Code::Unsupported, what).hint(hint));
    }
    let refusal = || Refusal::new(Code::NotFound, format!("there is no run in {}", data_dir.display()));
    let hint = "dir must be the data directory of an earlier run; a relative one starts at the world's directory";
    (!data_dir.join(storage::FILE).is_file()).then(|| refusal().hint(hint))
}

/// Reads the recording of one run.
async fn read(data_dir: &Path) -> Result<Recording, Refusal> {
    if let Some(refusal) = no_run(data_dir) {
        return Err(refusal);
    }
    let file = data_dir.join(storage::FILE);
    let store = open_store(&file, SqliteOptions::default()).await?;
    let recording = store.read(answers).await;
    store.close().await;
    recording
}

/// The answers in the journals, by agent, oldest first.
fn answers(r: &mut Tx) -> Result<Recording, Refusal> {
    // Ordered by time and id: the turns of an agent are serial, and ids grow with time.
    let mut turns = BTreeMap::new();
    let mut after = None;
    loop {
        let page = r.turn_list(&TurnFilter { after, limit: PAGE, ..TurnFilter::default() })?;
        let full = page.len() >= PAGE as usize;
        after = page.last().map(|turn| (turn.started_at, turn.turn_id));
        turns.extend(page.into_iter().map(|turn| ((turn.started_at, turn.turn_id), turn.agent_id)));
        if !full {
            break;
        }
    }
    let mut recording = Recording::default();
    for ((_, turn_id), agent_id) in turns {
        let answered = r.journal_of(turn_id)?.into_iter().filter_map(|row| match row.step {
            Step::ModelAnswered { model, blocks, usage, stop } => Some(RecordedAnswer { model, blocks, usage, stop }),
            _ => None,
        });
        recording.answers.entry(agent_id).or_default().extend(answered);
    }
    Ok(recording)
}
