//! `workspace.patch`: a unified diff over several files, all or nothing (BI-04).

use std::borrow::Cow;
use std::collections::BTreeSet;

use async_trait::async_trait;
use ghost_domain::journal::FilePlan;
use ghost_domain::{Code, Refusal};
use ghost_operations::Tx;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::common::without_nulls;
use super::workspace::{Scope, check_size, resolve, with_scope_hint};
use super::written::written;
use crate::context::CallContext;
use crate::effect::{FileTool, FileWork, Output, Run, Typed, choose, read};
use crate::patch::{FileChange, Kind, parse};
use crate::workspace::{FileWrite, sha256_hex};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchParams {
    /// The diff, as `diff -u` and git write it; it may create and delete files. Context must match exactly.
    patch: String,
    /// Only check whether it applies.
    #[serde(default)]
    dry_run: bool,
    /// `agent`: paths are in your own directory (the default); `world`: in the shared root.
    #[serde(default)]
    scope: Scope,
}

/// The tool. Its kind of effect depends on `dry_run`.
pub(super) fn patch() -> Typed<PatchParams> {
    let (apply, check) = (Run::file(Apply), read(check).run);
    choose(move |arguments| {
        let dry = arguments.get("dry_run").and_then(Value::as_bool).unwrap_or(false);
        if dry { check.clone() } else { apply.clone() }
    })
}

/// The patch with a line break at its end, which models leave out.
fn whole(patch: &str) -> Cow<'_, str> {
    if patch.is_empty() || patch.ends_with('\n') { Cow::Borrowed(patch) } else { Cow::Owned(format!("{patch}\n")) }
}

/// Checks a file of the patch and prepares its write.
async fn write_of(call: &CallContext, scope: Scope, file: &FileChange<'_>) -> Result<FileWrite, Refusal> {
    let hint = |refusal| with_scope_hint(refusal, file.path, scope);
    let path = resolve(call, file.path, scope, false)?;
    let grant_id = call.may_write(&path).await.map_err(hint)?;
    let limit = u64::from(call.services.ctx.limits().file_bytes);
    let old = call.services.workspace.text_for_change(&path, limit).await.map_err(hint)?;
    let shown = path.as_str();
    let old = match (file.kind, old) {
        (Kind::Create, Some(_)) => {
            return Err(Refusal::new(Code::Conflict, format!("`{shown}` exists already"))
                .hint("nothing was changed; a patch of an existing file names it on both sides"));
        }
        (Kind::Modify | Kind::Delete, None) => {
            return Err(hint(
                Refusal::new(Code::NotFound, format!("there is no `{shown}`"))
                    .hint("nothing was changed; a file that is to be created has /dev/null as its old side"),
            ));
        }
        (_, old) => old,
    };
    let new = file.apply(old.as_deref().unwrap_or_default())?;
    check_size(call, &path, new.len())?;
    let before = old.map(|old| sha256_hex(old.as_bytes()));
    let bytes = (file.kind != Kind::Delete).then(|| new.into_bytes());
    let after = bytes.as_deref().map(sha256_hex);
    Ok(FileWrite { plan: FilePlan { path: shown.to_owned(), before, after, grant_id }, bytes })
}

/// All writes of a patch. Files are removed last, so that what a crash leaves has lost nothing.
async fn writes_of(call: &CallContext, params: &PatchParams) -> Result<Vec<FileWrite>, Refusal> {
    let text = whole(&params.patch);
    let files = parse(&text)?;
    let most = call.services.ctx.limits().patch_files_max as usize;
    if files.len() > most {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("the patch changes {} files; at most {most} are taken (limits.patch_files_max)", files.len()),
        )
        .hint("nothing was changed; make several patches"));
    }
    let (mut writes, mut seen) = (Vec::with_capacity(files.len()), BTreeSet::new());
    for file in &files {
        let write = write_of(call, params.scope, file).await?;
        if !seen.insert(write.plan.path.clone()) {
            return Err(Refusal::new(Code::InvalidArguments, format!("the patch has `{}` twice", write.plan.path))
                .hint("nothing was changed; put all hunks of a file under one header"));
        }
        writes.push(write);
    }
    writes.sort_by_key(|write| write.bytes.is_none());
    Ok(writes)
}

/// What a plan does to its file.
fn action(plan: &FilePlan) -> &'static str {
    match (&plan.before, &plan.after) {
        (_, None) => "deleted",
        (None, Some(_)) => "created",
        (Some(_), Some(_)) => "modified",
    }
}

async fn check(call: &CallContext, params: PatchParams) -> Result<Output, Refusal> {
    let writes = writes_of(call, &params).await?;
    let files: Vec<Value> =
        writes.iter().map(|write| json!({ "path": write.plan.path, "action": action(&write.plan) })).collect();
    Ok(json!({ "files": files, "dry_run": params.dry_run }).into())
}

struct Apply;

#[async_trait]
impl FileTool for Apply {
    type Params = PatchParams;

    async fn prepare(&self, call: &CallContext, params: &PatchParams) -> Result<FileWork, Refusal> {
        Ok(FileWork { writes: writes_of(call, params).await? })
    }

    async fn prepare_rest(
        &self,
        call: &CallContext,
        params: &PatchParams,
        rest: &[FilePlan],
    ) -> Result<FileWork, Refusal> {
        let text = whole(&params.patch);
        let mut writes = Vec::with_capacity(rest.len());
        for file in &parse(&text)? {
            let path = resolve(call, file.path, params.scope, false)?;
            if rest.iter().any(|plan| plan.path == path.as_str()) {
                writes.push(write_of(call, params.scope, file).await?);
            }
        }
        writes.sort_by_key(|write| write.bytes.is_none());
        Ok(FileWork { writes })
    }

    fn record(&self, call: &CallContext, _: PatchParams, plans: &[FilePlan], w: &mut Tx) -> Result<Output, Refusal> {
        let mut files = Vec::with_capacity(plans.len());
        for plan in plans {
            let artifact_id = written(call, plan, w)?;
            files.push(without_nulls(json!({ "path": plan.path, "action": action(plan), "artifact_id": artifact_id })));
        }
        Ok(json!({ "files": files }).into())
    }
}
