//! The tools for workspace files: read, write, edit, patch, list. Every agent may read all files; its write rules say where
//! it may write.

use std::borrow::Cow;
use std::collections::BTreeSet;

use async_trait::async_trait;
use ghost_domain::{FilePlan, GrantId};

use super::common::*;
use super::places::{
    Place, ReadScope, Scope, check_size, only, resolve, scope_note, skill_dir, with_scope_hint, written,
};
use crate::effect::{self, FileTool, FileWork, Run, Typed, choose};
use crate::parameters::parse;
use crate::patch::{FileChange, Kind, parse_patch};
use crate::workspace::{DEPTH_MAX, ENTRIES_MAX, FileText, FileWrite, Lines, list_dir, read_text, sha256_hex};

/// The default number of entries in a listing.
const LIST_DEFAULT: u32 = 500;

/// The space in a page of a file for fields other than text and path, in bytes of JSON.
const PAGE_FIELDS: usize = 1_024;

params! {
    pub(super) struct ReadParams {
        /// The file, relative to the scope.
        path: String,
        /// First line to read, from 1.
        offset: Option<u64>,
        /// Bytes of that line to skip: `next_skip_bytes` of a result that ended inside a long line.
        skip_bytes: Option<u64>,
        /// Most lines to read.
        #[schemars(range(min = 1))]
        limit: Option<u64>,
        /// `agent`: your own directory (the default); `world`: the shared root; `skill`: the path begins with its name.
        #[serde(default)]
        scope: ReadScope,
    }

    pub(super) struct WriteParams {
        /// The file, relative to the scope. Missing directories are created.
        path: String,
        /// The text to write.
        content: String,
        /// Add to the end of the file instead of replacing it.
        #[serde(default)]
        append: bool,
        /// `agent`: your own directory (the default); `world`: the shared root.
        #[serde(default)]
        scope: Scope,
    }

    pub(super) struct EditParams {
        /// The file, relative to the scope.
        path: String,
        /// The text to replace, exactly as in the file, where it occurs once unless replace_all is set.
        old_text: String,
        /// The text that replaces it.
        new_text: String,
        /// Replace every occurrence.
        #[serde(default)]
        replace_all: bool,
        /// `agent`: your own directory (the default); `world`: the shared root.
        #[serde(default)]
        scope: Scope,
    }

    pub(super) struct ListParams {
        /// The directory, relative to the scope; its root if absent.
        path: Option<String>,
        /// Levels to list, 1 to 8.
        depth: Option<u32>,
        /// Only entries whose path or name matches; `*` matches any characters.
        glob: Option<String>,
        /// Most entries, up to 2,000.
        limit: Option<u32>,
        /// `agent`: your own directory (the default); `world`: the shared root; `skill`: the path begins with its name.
        #[serde(default)]
        scope: ReadScope,
    }
}

fn work(path: &WorkspacePath, grant_id: Option<GrantId>, before: Option<String>, bytes: Vec<u8>) -> FileWork {
    let plan = FilePlan { path: path.as_str().to_owned(), before, after: Some(sha256_hex(&bytes)), grant_id };
    FileWork::one(plan, bytes)
}

/// Truncates a text so that its JSON has at most `limit` bytes. Otherwise the model would not get
/// the fields that say where to continue. Quotes and control characters take more bytes in JSON
/// than in the file.
fn shorten(text: &mut FileText, limit: usize) {
    let mut json = 0_usize;
    let first_excess = text.content.char_indices().find(|(_, c)| {
        json += match c {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            c if c.is_ascii_control() => 6,
            c => c.len_utf8(),
        };
        json > limit
    });
    if let Some((end, _)) = first_excess {
        text.content.truncate(end);
        text.lines = text.content.lines().count() as u64;
        text.truncated = true;
    }
}

pub(super) async fn read(call: &CallContext, params: ReadParams) -> Result<Output> {
    let place = Place::of(call, &params.path, params.scope, false)?;
    if params.limit == Some(0) {
        return Err(refusal!(InvalidArguments, "limit is 0; it must be 1 or more")
            .hint("leave it out to read as much as one result holds"));
    }
    if let Place::Workspace(path, scope) = &place {
        let image = call.image(path).await.map_err(|refusal| with_scope_hint(refusal, &params.path, *scope))?;
        if let Some(image) = image {
            let content = json!({
                "path": image.path, "media_type": image.media_type, "bytes": image.bytes,
                "width": image.width, "height": image.height,
            });
            return Ok(Output { images: vec![image], ..content.into() });
        }
    }
    let (first, skip) = (params.offset.unwrap_or(1).max(1), params.skip_bytes.unwrap_or(0));
    // The limit is at least one character of four bytes, so that reading always advances.
    let max_bytes = (call.services.ctx.limits().file_bytes as usize).max(4);
    let lines = Lines { first, skip, count: params.limit, max_bytes };
    let shown = place.shown();
    let workspace = &call.services.workspace;
    let mut text = match place {
        Place::Workspace(path, scope) => {
            let read = workspace.read_text(&path, lines).await;
            read.map_err(|refusal| with_scope_hint(refusal, &params.path, scope))?
        }
        Place::Skill(skill, path) => workspace.offload(move || read_text(&skill_dir(&skill)?, &path, lines)).await?,
    };
    let other_fields = PAGE_FIELDS + 2 * shown.len();
    shorten(&mut text, (super::common::WIDE_VIEW as usize).saturating_sub(other_fields));
    // The next read repeats a truncated last line. If that line alone is longer than a result,
    // the next read continues inside it.
    let cut = !text.content.ends_with('\n');
    let whole = if cut { text.lines.saturating_sub(1) } else { text.lines };
    let next = text.truncated.then(|| first.saturating_add(whole));
    let next_skip = (text.truncated && cut && whole == 0).then(|| skip.saturating_add(text.content.len() as u64));
    let content = without_nulls(json!({
        "path": shown, "content": text.content, "encoding": text.encoding.name(), "bytes": text.bytes,
        "lines": text.lines, "truncated": text.truncated, "next_offset": next, "next_skip_bytes": next_skip,
    }));
    Ok(Output::cut(content, text.truncated))
}

pub(super) async fn prepare_write(call: &CallContext, params: &WriteParams) -> Result<FileWork> {
    let hint = |refusal| with_scope_hint(refusal, &params.path, params.scope);
    let path = resolve(call, &params.path, params.scope, false)?;
    let grant_id = call.may_write(&path).await.map_err(hint)?;
    check_size(call, &path, params.content.len())?;
    if !params.append {
        let before = call.services.workspace.hash(&path).await.map_err(hint)?;
        return Ok(work(&path, grant_id, before, params.content.clone().into_bytes()));
    }
    let limit = u64::from(call.services.ctx.limits().file_bytes);
    let old = call.services.workspace.text_for_change(&path, limit).await.map_err(hint)?;
    let before = old.as_ref().map(|old| sha256_hex(old.as_bytes()));
    let new = old.unwrap_or_default() + &params.content;
    check_size(call, &path, new.len())?;
    Ok(work(&path, grant_id, before, new.into_bytes()))
}

pub(super) fn record_write(call: &CallContext, params: WriteParams, plans: &[FilePlan], w: &mut Tx) -> Result<Output> {
    let bytes = params.content.len();
    let plan = only(plans)?;
    let artifact_id = written(call, plan, None, w)?;
    let content = json!({
        "path": plan.path, "bytes": bytes, "appended": params.append, "artifact_id": artifact_id,
        "note": scope_note(&params.path, params.scope),
    });
    Ok(without_nulls(content).into())
}

pub(super) async fn prepare_edit(call: &CallContext, params: &EditParams) -> Result<FileWork> {
    let hint = |refusal| with_scope_hint(refusal, &params.path, params.scope);
    let path = resolve(call, &params.path, params.scope, false)?;
    let grant_id = call.may_write(&path).await.map_err(hint)?;
    if params.old_text.is_empty() || params.old_text == params.new_text {
        return Err(refusal!(InvalidArguments, "old_text is empty or equal to new_text")
            .hint("give the piece of text to replace and what comes in its place"));
    }
    let limit = u64::from(call.services.ctx.limits().file_bytes);
    let Some(old) = call.services.workspace.text_for_change(&path, limit).await.map_err(hint)? else {
        return Err(hint(
            refusal!(NotFound, "there is no `{}`", path.as_str()).hint("use workspace.write to create it"),
        ));
    };
    let count = old.matches(params.old_text.as_str()).count();
    if count == 0 {
        return Err(refusal!(NotFound, "old_text does not occur in `{}`", path.as_str())
            .hint("read the file and copy the text exactly, white space included"));
    }
    if count > 1 && !params.replace_all {
        return Err(refusal!(Conflict, "old_text occurs {count} times in `{}`", path.as_str())
            .hint("give more of the text around it, or set replace_all"));
    }
    // Check the size before replacing: the result can be much larger than the file.
    let grown = old.len() - count * params.old_text.len();
    check_size(call, &path, grown.saturating_add(count.saturating_mul(params.new_text.len())))?;
    let new = old.replace(params.old_text.as_str(), &params.new_text);
    Ok(work(&path, grant_id, Some(sha256_hex(old.as_bytes())), new.into_bytes()))
}

pub(super) fn record_edit(call: &CallContext, params: EditParams, plans: &[FilePlan], w: &mut Tx) -> Result<Output> {
    // The number of occurrences is known only from the old text, which no longer exists after a
    // crash.
    let replacements = if params.replace_all { json!("all") } else { json!(1) };
    let plan = only(plans)?;
    let artifact_id = written(call, plan, None, w)?;
    let content = json!({ "path": plan.path, "replacements": replacements, "artifact_id": artifact_id });
    Ok(without_nulls(content).into())
}

pub(super) async fn list(call: &CallContext, params: ListParams) -> Result<Output> {
    let given = params.path.as_deref().unwrap_or("");
    let place = Place::of(call, given, params.scope, true)?;
    let depth = within("depth", params.depth, 1, DEPTH_MAX, "list a directory further down instead")?;
    let limit = usize::try_from(params.limit.unwrap_or(LIST_DEFAULT)).unwrap_or(ENTRIES_MAX);
    let shown = place.shown();
    let workspace = &call.services.workspace;
    let listing = match place {
        Place::Workspace(path, scope) => {
            let listing = workspace.list(&path, depth, params.glob.as_deref(), limit).await;
            listing.map_err(|refusal| with_scope_hint(refusal, given, scope))?
        }
        Place::Skill(skill, path) => {
            let work = move || list_dir(&skill_dir(&skill)?, &path, depth, params.glob.as_deref(), limit);
            workspace.offload(work).await?
        }
    };
    let (entries, all) = fitting(listing.entries.iter().map(|entry| json!(entry)), LIST_BYTES);
    let truncated = listing.truncated || !all;
    let shown = if shown.is_empty() { "." } else { &shown };
    let content = json!({ "path": shown, "entries": entries, "truncated": truncated });
    Ok(Output::cut(content, truncated))
}

params! {
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
}

/// The tool. Its kind of effect depends on `dry_run`.
pub(super) fn patch() -> Typed<PatchParams> {
    let (apply, check) = (Run::file(Apply), effect::read(check).run);
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
async fn write_of(call: &CallContext, scope: Scope, file: &FileChange<'_>) -> Result<FileWrite> {
    let hint = |refusal| with_scope_hint(refusal, file.path, scope);
    let path = resolve(call, file.path, scope, false)?;
    let grant_id = call.may_write(&path).await.map_err(hint)?;
    let limit = u64::from(call.services.ctx.limits().file_bytes);
    let old = call.services.workspace.text_for_change(&path, limit).await.map_err(hint)?;
    let shown = path.as_str();
    let old = match (file.kind, old) {
        (Kind::Create, Some(_)) => {
            return Err(refusal!(Conflict, "`{shown}` exists already")
                .hint("nothing was changed; a patch of an existing file names it on both sides"));
        }
        (Kind::Modify | Kind::Delete, None) => {
            return Err(hint(
                refusal!(NotFound, "there is no `{shown}`")
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
async fn writes_of(call: &CallContext, params: &PatchParams) -> Result<Vec<FileWrite>> {
    let text = whole(&params.patch);
    let files = parse_patch(&text)?;
    let most = call.services.ctx.limits().patch_files_max as usize;
    if files.len() > most {
        return Err(refusal!(
            TooLarge,
            "the patch changes {} files; at most {most} are taken (limits.patch_files_max)",
            files.len()
        )
        .hint("nothing was changed; make several patches"));
    }
    let (mut writes, mut seen) = (Vec::with_capacity(files.len()), BTreeSet::new());
    for file in &files {
        let write = write_of(call, params.scope, file).await?;
        if !seen.insert(write.plan.path.clone()) {
            return Err(refusal!(InvalidArguments, "the patch has `{}` twice", write.plan.path)
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

async fn check(call: &CallContext, params: PatchParams) -> Result<Output> {
    let writes = writes_of(call, &params).await?;
    let files: Vec<Value> =
        writes.iter().map(|write| json!({ "path": write.plan.path, "action": action(&write.plan) })).collect();
    Ok(json!({ "files": files, "dry_run": params.dry_run }).into())
}

struct Apply;

#[async_trait]
impl FileTool for Apply {
    async fn prepare(&self, call: &CallContext, arguments: &Value) -> Result<FileWork> {
        Ok(FileWork { writes: writes_of(call, &parse(arguments.clone())?).await? })
    }

    async fn prepare_rest(&self, call: &CallContext, arguments: &Value, rest: &[FilePlan]) -> Result<FileWork> {
        let params: PatchParams = parse(arguments.clone())?;
        let text = whole(&params.patch);
        let mut writes = Vec::with_capacity(rest.len());
        for file in &parse_patch(&text)? {
            let path = resolve(call, file.path, params.scope, false)?;
            if rest.iter().any(|plan| plan.path == path.as_str()) {
                writes.push(write_of(call, params.scope, file).await?);
            }
        }
        writes.sort_by_key(|write| write.bytes.is_none());
        Ok(FileWork { writes })
    }

    fn record(&self, call: &CallContext, _: Value, plans: &[FilePlan], w: &mut Tx) -> Result<Output> {
        let mut files = Vec::with_capacity(plans.len());
        for plan in plans {
            let artifact_id = written(call, plan, None, w)?;
            files.push(without_nulls(json!({ "path": plan.path, "action": action(plan), "artifact_id": artifact_id })));
        }
        Ok(json!({ "files": files }).into())
    }
}
