//! Answers of an earlier run, read from its database for providers of kind `recorded`.

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
use ghost_store::{Reads, Store};

use crate::database;

/// Turns of a run that are read at once; never more than a list has.
const PAGE: u32 = 1_000;

/// Reads the recording of every `recorded` provider of a plan.
///
/// # Errors
/// Whose run names none, or cannot be read.
pub async fn read_all(plan: &LlmPlan) -> Result<BTreeMap<String, Recording>, Unbuilt> {
    let mut recordings = BTreeMap::new();
    for (name, provider) in &plan.providers {
        if provider.kind != ProviderKind::Recorded {
            continue;
        }
        let unread = |refusal| Unbuilt { provider: name.clone(), setting: "dir", refusal };
        let Some(dir) = &provider.dir else {
            let refusal = Refusal::new(Code::InvalidArguments, format!("provider {name} is recorded and names no run"));
            return Err(unread(refusal.hint("set llm.providers.<name>.dir to the data directory of the run")));
        };
        recordings.insert(name.clone(), read(dir).await.map_err(unread)?);
    }
    Ok(recordings)
}

/// Lets every recording go on where this run has come to: what an agent was answered by a provider of that name is not
/// answered again.
///
/// # Errors
/// When the store cannot be read.
pub async fn go_on(store: &Store, providers: &Providers) -> Result<(), Refusal> {
    for (name, recorded) in providers.recorded() {
        let filter = UsageFilter { provider: Some(name.to_owned()), ..UsageFilter::default() };
        let sums: Result<_, Refusal> =
            store.read(move |r| Box::pin(async move { Ok(r.usage_sum(&filter).await?) })).await;
        let mut given: BTreeMap<AgentId, u64> = BTreeMap::new();
        for sum in sums? {
            // An estimate stands for an answer that a crash lost, which is asked for again.
            *given.entry(sum.agent_id).or_default() += sum.calls.saturating_sub(sum.estimated_calls);
        }
        for (agent_id, answers) in given {
            recorded.go_on(&agent_id, usize::try_from(answers).unwrap_or(usize::MAX));
        }
    }
    Ok(())
}

/// Runs what reads a recording to its end, for a reload, whose thread is its own.
///
/// # Errors
/// When there is nothing to run it on.
pub fn here<T>(work: impl Future<Output = T>) -> Result<T, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Refusal::new(Code::Unavailable, format!("the recordings cannot be read: {error}"))
            .hint("the machine is short of something; try again")
    })?;
    Ok(runtime.block_on(work))
}

/// The `recorded` providers whose run is not there.
pub(crate) fn missing(plan: &Plan) -> Vec<Problem> {
    let recorded = plan.llm.providers.iter().filter(|(_, provider)| provider.kind == ProviderKind::Recorded);
    let told = |(name, provider): (&String, &ProviderPlan)| {
        let refusal = no_run(provider.dir.as_deref()?)?;
        let hint = Hint::of(refusal.hint, "name the data directory of the run");
        Some(plan.origins.provider(name, "dir").problem(Severity::Error, refusal.message, hint))
    };
    recorded.filter_map(told).collect()
}

/// Why there is no run to read, if there is none.
fn no_run(data_dir: &Path) -> Option<Refusal> {
    let refusal = || Refusal::new(Code::NotFound, format!("there is no run in {}", data_dir.display()));
    let hint = "dir must be the data directory of an earlier run; a relative one starts at the world's directory";
    (!data_dir.join(database::FILE).is_file()).then(|| refusal().hint(hint))
}

/// Reads one run, turn by turn, oldest first.
async fn read(data_dir: &Path) -> Result<Recording, Refusal> {
    if let Some(refusal) = no_run(data_dir) {
        return Err(refusal);
    }
    let file = data_dir.join(database::FILE);
    let store = open_store(&file, SqliteOptions::default()).await?;
    let recording = store.read(|r| Box::pin(answers(r))).await;
    store.close().await;
    recording
}

/// The answers in a journal, by agent and in order.
async fn answers(r: &mut dyn Reads) -> Result<Recording, Refusal> {
    // By time and id: an agent's turns follow one another, and ids grow with time.
    let mut turns = BTreeMap::new();
    let mut after = None;
    loop {
        let page = r.turn_list(&TurnFilter { after, limit: PAGE, ..TurnFilter::default() }).await?;
        let full = page.len() >= PAGE as usize;
        after = page.last().map(|turn| (turn.started_at, turn.turn_id));
        turns.extend(page.into_iter().map(|turn| ((turn.started_at, turn.turn_id), turn.agent_id)));
        if !full {
            break;
        }
    }
    let mut recording = Recording::default();
    for ((_, turn_id), agent_id) in turns {
        let answered = r.journal_of(turn_id).await?.into_iter().filter_map(|row| match row.step {
            Step::ModelAnswered { model, blocks, usage, stop } => Some(RecordedAnswer { model, blocks, usage, stop }),
            _ => None,
        });
        recording.answers.entry(agent_id).or_default().extend(answered);
    }
    Ok(recording)
}
