//! The tools for droids: start one, check on it, list, steer and end one's own, and move their work to its place. Only its
//! parent moves a droid's work, and only to where the parent may write.

use std::collections::BTreeSet;

use ghost_domain::droid::{OUTPUT_DEFAULT, TASK_FILE, TIMEOUT_DEFAULT, TIMEOUT_MAX};
use ghost_domain::ids::DROIDS;
use ghost_domain::text::prefix_bytes;
use ghost_domain::{AgentId, Code, Droid, DroidMode, DroidTerms, FilePlan, Party};
use ghost_operations::droids::{self as rules, NewDroid};
use ghost_operations::mail::agent_named;

use super::common::*;
use super::places::{Scope, only, resolve, written};
use crate::effect::FileWork;
use crate::workspace::{EntryKind, Lines, sha256_hex};

/// Bytes of the output that a check reads, and characters that it shows.
const PREVIEW_BYTES: usize = 5_000;
const PREVIEW_CHARS: usize = 2_000;
/// Files that a check lists, and levels below the droid's directory.
const FILES_MAX: usize = 100;
const FILES_DEPTH: u32 = 4;
/// Droids in one list.
const LISTED: u32 = 200;
/// Tool words in one call.
const TOOLS_MAX: usize = 100;
/// Stands for all droids of the caller.
const ALL: &str = "all";

params! {
    pub(super) struct SpawnParams {
        /// What the droid is to do, complete: it knows nothing of your work. Name the files that it should read.
        task: String,
        /// The name of its output file, in its own directory.
        output_path: Option<String>,
        /// How long it may work, 1 to 300; 120 if absent.
        #[schemars(range(min = 1, max = 300))]
        timeout_seconds: Option<u32>,
        /// `run` ends with its task; `session` then waits for more work, which you send with `steer`.
        mode: Option<DroidMode>,
        /// A short name, for people.
        label: Option<String>,
        /// Another model of this world.
        model: Option<String>,
        /// Fewer tools than your droids may have.
        tools: Option<Vec<String>>,
    }

    pub(super) struct CheckParams {
        /// The droid.
        droid_id: String,
    }
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    List,
    Steer,
    Kill,
}

params! {
    pub(super) struct ControlParams {
        /// `list` shows your droids, `steer` sends one guidance or more work, `kill` ends one.
        action: Action,
        /// The droid; `all` for kill means all of yours.
        droid_id: Option<String>,
        /// For steer: what it should know or do. For kill: the reason.
        message: Option<String>,
    }
}

pub(super) fn spawn(call: &CallContext, params: SpawnParams, w: &mut Tx) -> Result<Output> {
    let (plan, parent_id) = (call.services.plan(), &call.caller.agent_id);
    let wanted = params.tools.as_deref();
    if wanted.is_some_and(|words| words.len() > TOOLS_MAX) {
        return Err(refusal!(InvalidArguments, "tools has more than {TOOLS_MAX} names"));
    }
    let own: BTreeSet<String> = call.tools.iter().map(|spec| spec.name.clone()).collect();
    let parent = plan.spec_for(&agent_named(w, parent_id)?)?;
    let above = match parent_id.is_droid() {
        true => w.droid_get(parent_id)?.map(|droid| droid.terms.tools),
        false => None,
    };
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let terms = DroidTerms {
        tools: plan.droid_tools(&own, above.as_ref(), wanted)?,
        groups: parent.access.groups().clone(),
        model: params.model.as_deref().map(|model| plan.droid_model(model)).transpose()?,
        parent_model: format!("{}/{}", part(&parent.model.provider), part(&parent.model.model)),
        turn_seconds: params.timeout_seconds.unwrap_or(TIMEOUT_DEFAULT).min(TIMEOUT_MAX),
        depth: 1,
    };
    let new = NewDroid {
        parent_id: parent_id.clone(),
        task: params.task,
        output: params.output_path.unwrap_or_else(|| OUTPUT_DEFAULT.to_owned()),
        mode: params.mode.unwrap_or(DroidMode::Run),
        label: params.label,
        terms,
        chain: call.chain(),
    };
    let droid = rules::spawn(w, new)?;
    let content = json!({
        "droid_id": droid.droid_id, "status": "spawned", "mode": droid.mode, "workspace": format!("{}/", droid.home()),
        "output_path": droid.output_path, "timeout_seconds": droid.terms.turn_seconds, "tools": droid.terms.tools,
    });
    Ok(content.into())
}

pub(super) async fn check(call: &CallContext, params: CheckParams) -> Result<Output> {
    let named = params.droid_id;
    let droid = call.services.store.read(move |r| rules::named(r, &named)).await?;
    let files = files(call, &droid).await?;
    let (preview, preview_truncated) = preview(call, &droid).await?;
    let mut content = summary(&droid);
    let more = json!({
        "error": droid.error.as_ref().map(|error| json!({
            "code": error.code, "message": error.message, "hint": error.hint, "retryable": error.code.retryable(),
        })),
        "answer": droid.result, "files": files, "output_preview": preview,
        "preview_truncated": preview_truncated.then_some(true), "tools": droid.terms.tools,
    });
    extend(&mut content, more);
    Ok(Output { truncated: preview_truncated, ..content.into() })
}

/// The paths of a droid's files, but that of its task.
async fn files(call: &CallContext, droid: &Droid) -> Result<Vec<String>> {
    let home = WorkspacePath::parse(&droid.home(), false)?;
    match call.services.workspace.list(&home, FILES_DEPTH, None, FILES_MAX).await {
        Ok(listing) => {
            let task = format!("{DROIDS}/{}/{TASK_FILE}", droid.droid_id);
            let paths =
                listing.entries.into_iter().filter(|entry| entry.kind == EntryKind::File).map(|entry| entry.path);
            Ok(paths.filter(|path| *path != task).collect())
        }
        Err(refusal) if refusal.code == Code::NotFound => Ok(Vec::new()),
        Err(refusal) => Err(refusal),
    }
}

/// The beginning of a droid's output; `None` if there is none or it is no text.
async fn preview(call: &CallContext, droid: &Droid) -> Result<(Option<String>, bool)> {
    let path = WorkspacePath::parse(&droid.output_path, false)?;
    let lines = Lines { first: 1, skip: 0, count: None, max_bytes: PREVIEW_BYTES };
    match call.services.workspace.read_text(&path, lines).await {
        Ok(text) => {
            let shown = clip(&text.content, PREVIEW_CHARS);
            let truncated = text.truncated || shown.len() < text.content.len();
            Ok((Some(shown), truncated))
        }
        // It has not written it, or wrote something else there: its files say so.
        Err(refusal) if matches!(refusal.code, Code::NotFound | Code::InvalidArguments | Code::PathDenied) => {
            Ok((None, false))
        }
        Err(refusal) => Err(refusal),
    }
}

/// What lists show of a droid.
fn summary(droid: &Droid) -> Value {
    without_nulls(json!({
        "droid_id": droid.droid_id, "parent_id": droid.parent_id, "label": droid.label, "status": droid.state,
        "mode": droid.mode, "output_path": droid.output_path, "created_at": droid.created_at.rfc3339(),
        "deadline_at": droid.ended_at.is_none().then(|| droid.deadline_at.rfc3339()),
        "completed_at": droid.ended_at.map(|at| at.rfc3339()),
    }))
}

pub(super) fn control(call: &CallContext, params: ControlParams, w: &mut Tx) -> Result<Output> {
    let by = call.party();
    let message = params.message.as_deref();
    match params.action {
        Action::List => {
            let droids = w.droid_list(Some(&call.caller.agent_id), None, LISTED)?;
            let rows = droids.iter().map(|droid| {
                let mut row = summary(droid);
                extend(&mut row, json!({ "task": prefix_bytes(&droid.task, 200) }));
                row
            });
            let (droids, all) = fitting(rows, LIST_BYTES);
            Ok(Output { truncated: !all, ..json!({ "droids": droids }).into() })
        }
        Action::Steer => {
            let message = message.ok_or_else(|| missing("message", "say what the droid should know or do"))?;
            let droid = rules::steer(w, &by, needed(params.droid_id.as_deref())?, message, Some(call.chain()))?;
            Ok(json!({ "droid_id": droid.droid_id, "status": droid.state, "steered": true }).into())
        }
        Action::Kill => {
            let mut ended = Vec::new();
            for droid_id in wanted(w, call, needed(params.droid_id.as_deref())?)? {
                let droid = rules::kill(w, &by, &droid_id, message)?;
                ended.push(json!({ "droid_id": droid.droid_id, "status": droid.state }));
            }
            Ok(json!({ "droids": ended }).into())
        }
    }
}

/// The ids that a word stands for.
fn wanted(r: &mut Tx, call: &CallContext, word: &str) -> Result<Vec<String>> {
    if word != ALL {
        return Ok(vec![word.to_owned()]);
    }
    let live = r.droids_live()?;
    let own = live.into_iter().filter(|droid| droid.parent_id == call.caller.agent_id);
    Ok(own.map(|droid| droid.droid_id.to_string()).collect())
}

fn needed(droid_id: Option<&str>) -> Result<&str> {
    droid_id.ok_or_else(|| missing("droid_id", "name the droid; `list` shows yours"))
}

fn missing(field: &str, hint: &str) -> Refusal {
    refusal!(InvalidArguments, "this action needs `{field}`").hint(hint).details(json!({ "field": field }))
}

/// The largest file that is promoted, in bytes.
const PROMOTED_MAX: u64 = 16 * 1_024 * 1_024;

params! {
    pub(super) struct PromoteParams {
        /// The droid's file, as its check shows it: `droids/droid-…/…`.
        from: String,
        /// Where it goes, relative to the shared root, such as `output/reports/water.md`.
        to: String,
    }
}

/// The droid whose directory has the file.
fn droid_of(path: &WorkspacePath) -> Result<AgentId> {
    let mut parts = path.as_str().split('/');
    let (first, id) = (parts.next(), parts.next().and_then(|id| id.parse::<AgentId>().ok()));
    match id.filter(|id| id.is_droid() && first == Some(DROIDS)) {
        Some(id) if parts.next().is_some() => Ok(id),
        _ => Err(refusal!(InvalidArguments, "`{}` is not a file of a droid", path.as_str())
            .hint("`from` is a path such as droids/droid-1a2b3c4d/output.md; write your own files with workspace.write")
            .details(json!({ "field": "from" }))),
    }
}

pub(super) async fn prepare_promotion(call: &CallContext, params: &PromoteParams) -> Result<FileWork> {
    let from = resolve(call, &params.from, Scope::World, false)?;
    let to = resolve(call, &params.to, Scope::World, false)?;
    let (droid_id, by) = (droid_of(&from)?.to_string(), Party::Agent(call.caller.agent_id.clone()));
    let droid = call.services.store.read(move |r| rules::own(r, &by, &droid_id)).await?;
    if droid.mode == DroidMode::Run && !droid.state.is_over() {
        return Err(refusal!(Conflict, "{} is still at work on it", droid.droid_id)
            .hint("wait for the message about its end, then promote"));
    }
    let grant_id = call.may_write(&to).await?;
    let workspace = &call.services.workspace;
    // Refuses links, which could lead elsewhere by the time of the read.
    let Some(hash) = workspace.hash(&from).await? else {
        return Err(
            refusal!(NotFound, "there is no `{}`", from.as_str()).hint("check on the droid: it lists its files")
        );
    };
    let bytes = workspace.read(&from, PROMOTED_MAX).await?;
    if sha256_hex(&bytes) != hash {
        return Err(
            refusal!(Conflict, "`{}` changed while it was read", from.as_str()).hint("nothing was written; try again")
        );
    }
    let before = workspace.hash(&to).await?;
    let plan = FilePlan { path: to.as_str().to_owned(), before, after: Some(hash), grant_id };
    Ok(FileWork::one(plan, bytes))
}

pub(super) fn record_promotion(
    call: &CallContext,
    params: PromoteParams,
    plans: &[FilePlan],
    w: &mut Tx,
) -> Result<Output> {
    let from = resolve(call, &params.from, Scope::World, false)?;
    let (droid_id, plan) = (droid_of(&from)?, only(plans)?);
    let artifact_id = written(call, plan, Some(droid_id.clone()), w)?;
    let content = json!({
        "path": plan.path, "from": from.as_str(), "droid_id": droid_id, "artifact_id": artifact_id,
    });
    Ok(without_nulls(content).into())
}
