//! Answers of an earlier run, read from its database for providers of kind `recorded`.

use std::collections::BTreeMap;
use std::path::Path;

use ghost_config::plan::{LlmPlan, ProviderKind};
use ghost_domain::journal::Step;
use ghost_domain::{Code, Refusal};
use ghost_provider::{RecordedAnswer, RecordedTurn, Recording};
use ghost_store::sqlite::{SqliteOptions, open_store};
use ghost_store::tables::TurnFilter;

/// Reads the recording of every `recorded` provider of a plan.
pub async fn read_all(plan: &LlmPlan) -> Result<BTreeMap<String, Recording>, Refusal> {
    let mut recordings = BTreeMap::new();
    for (name, provider) in &plan.providers {
        if provider.kind != ProviderKind::Recorded {
            continue;
        }
        let Some(dir) = &provider.dir else {
            return Err(Refusal::new(Code::InvalidArguments, format!("provider {name} is recorded and names no run"))
                .hint("set llm.providers.<name>.dir to the data directory of the run"));
        };
        recordings.insert(name.clone(), read(dir).await?);
    }
    Ok(recordings)
}

/// Reads one run, turn by turn, oldest first.
async fn read(data_dir: &Path) -> Result<Recording, Refusal> {
    let file = data_dir.join("ghost.db");
    if !file.is_file() {
        return Err(Refusal::new(Code::NotFound, format!("there is no run in {}", data_dir.display()))
            .hint("dir must be the data directory of an earlier run"));
    }
    let store = open_store(&file, SqliteOptions::default()).await?;
    let recording = store
        .read(|r| {
            Box::pin(async move {
                let mut turns = Vec::new();
                let mut before = None;
                loop {
                    let page = r.turn_list(&TurnFilter { before, limit: 1_000, ..TurnFilter::default() }).await?;
                    before = page.last().map(|turn| turn.started_at);
                    let whole = page.len() >= 1_000;
                    turns.extend(page);
                    if !whole {
                        break;
                    }
                }
                turns.reverse();
                let mut recording = Recording { turns: BTreeMap::new() };
                for turn in turns {
                    let answers: Vec<RecordedAnswer> = r
                        .journal_of(turn.turn_id)
                        .await?
                        .into_iter()
                        .filter_map(|row| match row.step {
                            Step::ModelAnswered { model, blocks, usage, stop } => {
                                Some(RecordedAnswer { digest: None, model, blocks, usage, stop })
                            }
                            _ => None,
                        })
                        .collect();
                    if !answers.is_empty() {
                        recording.turns.entry(turn.agent_id).or_default().push(RecordedTurn { answers });
                    }
                }
                Ok::<_, Refusal>(recording)
            })
        })
        .await;
    store.close().await;
    recording
}
