//! Files of the workspace: read, written, edited, listed (BI-01..03, BI-05; ACL-01..03, ART-01, ART-02). Everyone may
//! read all of it; where an agent may write is its write rules' to say.

use async_trait::async_trait;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::FilePlan;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Refusal};
use ghost_store::Writes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::common::{LIST_BYTES, fitting, without_nulls};
use crate::context::CallContext;
use crate::tool::{FileTool, FileWork, Output, ReadTool};
use crate::workspace::{DEPTH_MAX, ENTRIES_MAX, FileText, Lines, sha256_hex};

/// Entries of a listing unless more are asked for.
const LIST_DEFAULT: u32 = 500;

/// Bytes of JSON that a page of a file may have beside its text and its path.
const PAGE_FIELDS: usize = 1_024;

/// Directories of the shared root: a path in the agent's own directory that begins so is likely meant to be there.
const SHARED_DIRS: [&str; 5] = ["agents", "inputs", "output", "projects", "shared"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scope {
    #[default]
    Agent,
    World,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadParams {
    /// The file, relative to the scope.
    path: String,
    /// First line to read, counted from 1.
    #[serde(default)]
    offset: Option<u64>,
    /// Bytes of that first line to pass over: the `next_skip_bytes` of a result that ended within a long line.
    #[serde(default)]
    skip_bytes: Option<u64>,
    /// How many lines to read at most.
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
    /// `agent`: relative to your own directory; `world`: relative to the shared root.
    #[serde(default)]
    scope: Scope,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteParams {
    /// The file, relative to the scope. Missing directories are created.
    path: String,
    /// The text.
    content: String,
    /// Add to the end of the file instead of replacing it.
    #[serde(default)]
    append: bool,
    /// `agent`: relative to your own directory; `world`: relative to the shared root.
    #[serde(default)]
    scope: Scope,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditParams {
    /// The file, relative to the scope.
    path: String,
    /// The text to replace, exactly as it is in the file. It must occur once unless replace_all is set.
    old_text: String,
    /// What comes in its place.
    new_text: String,
    /// Replace every occurrence.
    #[serde(default)]
    replace_all: bool,
    /// `agent`: relative to your own directory; `world`: relative to the shared root.
    #[serde(default)]
    scope: Scope,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// The directory, relative to the scope; the scope's own root if absent.
    #[serde(default)]
    path: Option<String>,
    /// Levels to go down, 1 to 8.
    #[serde(default)]
    depth: Option<u32>,
    /// Show only entries whose path or name matches; `*` stands for any run of characters.
    #[serde(default)]
    glob: Option<String>,
    /// Entries at most, up to 2,000.
    #[serde(default)]
    limit: Option<u32>,
    /// `agent`: relative to your own directory; `world`: relative to the shared root.
    #[serde(default)]
    scope: Scope,
}

/// The path as the workspace knows it.
pub(super) fn resolve(
    call: &CallContext,
    path: &str,
    scope: Scope,
    allow_root: bool,
) -> Result<WorkspacePath, Refusal> {
    let parsed = WorkspacePath::parse(path, allow_root).map_err(|refusal| hinted(refusal, path, scope))?;
    let full = match scope {
        Scope::World => parsed,
        Scope::Agent => parsed.under(&format!("agents/{}", call.caller.agent_id)),
    };
    // The prefix may have made it too long.
    WorkspacePath::parse(full.as_str(), allow_root)
}

/// Whether a path given under the scope `agent` looks as if the shared root were meant.
fn looks_shared(path: &str, scope: Scope) -> bool {
    let first = path.trim_start_matches(['/', '.']).split('/').next().unwrap_or_default();
    scope == Scope::Agent && SHARED_DIRS.contains(&first)
}

/// Adds the likeliest cause to a refusal. The path itself is never guessed at.
fn hinted(refusal: Refusal, path: &str, scope: Scope) -> Refusal {
    if matches!(refusal.code, Code::NotFound | Code::PathDenied) && looks_shared(path, scope) {
        return refusal.hint("did you mean scope: world? Without it a path is relative to your own directory");
    }
    refusal
}

/// A word to the model that its write went into its own directory, if that may surprise it.
fn scope_note(path: &str, scope: Scope) -> Option<&'static str> {
    looks_shared(path, scope)
        .then_some("this is inside your own directory; for the shared one of that name give scope: world")
}

/// What a file under `output/` is (ART-01).
fn artifact_type(path: &str) -> Option<&'static str> {
    let rest = path.strip_prefix("output/")?;
    Some(match rest.split_once('/').map(|(dir, _)| dir) {
        Some("briefings") => "briefing",
        Some("reports") => "report",
        Some("reviews") => "review",
        Some("digests") => "digest",
        _ => "artifact",
    })
}

/// The output of a write, with the artifact that it made if it made one.
fn written(call: &CallContext, plan: &FilePlan, bytes: Option<usize>, mut content: Value) -> Output {
    let mut output = Output::default();
    if let Some(kind) = artifact_type(&plan.path) {
        let artifact_id = call.services.ctx.id();
        content["artifact_id"] = json!(artifact_id.to_string());
        let payload = without_nulls(json!({
            "artifact_id": artifact_id.to_string(), "path": plan.path, "type": kind, "sha256": plan.after,
            "replaced": plan.before.is_some(), "bytes": bytes, "turn_id": call.turn_id,
        }));
        let event = NewEvent::new(EventKind::ArtifactCreated, payload);
        output.events.push(event.agent(&call.caller.agent_id).correlation(call.root_id));
    }
    output.content = without_nulls(content);
    output
}

/// Refuses content that the file would be too large with.
fn check_size(call: &CallContext, path: &WorkspacePath, bytes: usize) -> Result<(), Refusal> {
    let most = call.services.ctx.limits().file_bytes;
    if bytes > most as usize {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("`{}` would have {bytes} bytes; at most {most} are taken", path.as_str()),
        )
        .hint("nothing was written; spread it over several files"));
    }
    Ok(())
}

fn work(path: &WorkspacePath, before: Option<String>, bytes: Vec<u8>) -> FileWork {
    let plan = FilePlan { path: path.as_str().to_owned(), before, after: sha256_hex(&bytes) };
    FileWork { plan, bytes }
}

/// Cuts a text so that its JSON has at most `most` bytes: what says where to read on must reach the model with it, and
/// quotes and control characters take more room there than in the file.
fn fit(text: &mut FileText, most: usize) {
    let mut json = 0_usize;
    let beyond = text.content.char_indices().find(|(_, c)| {
        json += match c {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            c if c.is_ascii_control() => 6,
            c => c.len_utf8(),
        };
        json > most
    });
    if let Some((end, _)) = beyond {
        text.content.truncate(end);
        text.lines = text.content.lines().count() as u64;
        text.truncated = true;
    }
}

pub(super) struct Read;

#[async_trait]
impl ReadTool for Read {
    type Params = ReadParams;

    async fn run(&self, call: &CallContext, params: ReadParams) -> Result<Output, Refusal> {
        let path = resolve(call, &params.path, params.scope, false)?;
        if params.limit == Some(0) {
            return Err(Refusal::new(Code::InvalidArguments, "limit is 0; it must be 1 or more")
                .hint("leave it out to read as much as one result holds"));
        }
        let (first, skip) = (params.offset.unwrap_or(1).max(1), params.skip_bytes.unwrap_or(0));
        // Any one character fits, so that reading on always gets somewhere.
        let max_bytes = (call.services.ctx.limits().file_bytes as usize).max(4);
        let lines = Lines { first, skip, count: params.limit, max_bytes };
        let mut text = call
            .services
            .workspace
            .read_text(&path, lines)
            .await
            .map_err(|refusal| hinted(refusal, &params.path, params.scope))?;
        let around = PAGE_FIELDS + 2 * path.as_str().len();
        fit(&mut text, (super::common::WIDE_VIEW as usize).saturating_sub(around));
        // A last line that was cut is read again from its beginning; one that is longer than a result is read on.
        let cut = !text.content.ends_with('\n');
        let whole = if cut { text.lines.saturating_sub(1) } else { text.lines };
        let next = text.truncated.then(|| first.saturating_add(whole));
        let next_skip = (text.truncated && cut && whole == 0).then(|| skip.saturating_add(text.content.len() as u64));
        let content = without_nulls(json!({
            "path": path.as_str(), "content": text.content, "encoding": text.encoding.name(), "bytes": text.bytes,
            "lines": text.lines, "truncated": text.truncated, "next_offset": next, "next_skip_bytes": next_skip,
        }));
        Ok(Output { content, truncated: text.truncated, events: Vec::new() })
    }
}

pub(super) struct Write;

#[async_trait]
impl FileTool for Write {
    type Params = WriteParams;

    async fn prepare(&self, call: &CallContext, params: &WriteParams) -> Result<FileWork, Refusal> {
        let hint = |refusal| hinted(refusal, &params.path, params.scope);
        let path = resolve(call, &params.path, params.scope, false)?;
        call.caller.write_acl.check(&call.caller.agent_id, &path).map_err(hint)?;
        check_size(call, &path, params.content.len())?;
        if !params.append {
            let before = call.services.workspace.hash(&path).await.map_err(hint)?;
            return Ok(work(&path, before, params.content.clone().into_bytes()));
        }
        let most = u64::from(call.services.ctx.limits().file_bytes);
        let old = call.services.workspace.text_for_change(&path, most).await.map_err(hint)?;
        let before = old.as_ref().map(|old| sha256_hex(old.as_bytes()));
        let new = old.unwrap_or_default() + &params.content;
        check_size(call, &path, new.len())?;
        Ok(work(&path, before, new.into_bytes()))
    }

    async fn record(
        &self,
        call: &CallContext,
        params: WriteParams,
        plan: &FilePlan,
        _: &mut dyn Writes,
    ) -> Result<Output, Refusal> {
        let bytes = params.content.len();
        let content = json!({
            "path": plan.path, "bytes": bytes, "appended": params.append,
            "note": scope_note(&params.path, params.scope),
        });
        Ok(written(call, plan, (!params.append).then_some(bytes), content))
    }
}

pub(super) struct Edit;

#[async_trait]
impl FileTool for Edit {
    type Params = EditParams;

    async fn prepare(&self, call: &CallContext, params: &EditParams) -> Result<FileWork, Refusal> {
        let hint = |refusal| hinted(refusal, &params.path, params.scope);
        let path = resolve(call, &params.path, params.scope, false)?;
        call.caller.write_acl.check(&call.caller.agent_id, &path).map_err(hint)?;
        if params.old_text.is_empty() || params.old_text == params.new_text {
            return Err(Refusal::new(Code::InvalidArguments, "old_text is empty or equal to new_text")
                .hint("give the piece of text to replace and what comes in its place"));
        }
        let most = u64::from(call.services.ctx.limits().file_bytes);
        let Some(old) = call.services.workspace.text_for_change(&path, most).await.map_err(hint)? else {
            return Err(hint(
                Refusal::new(Code::NotFound, format!("there is no `{}`", path.as_str()))
                    .hint("use workspace.write to create it"),
            ));
        };
        let count = old.matches(params.old_text.as_str()).count();
        if count == 0 {
            return Err(Refusal::new(Code::NotFound, format!("old_text does not occur in `{}`", path.as_str()))
                .hint("read the file and copy the text exactly, white space included"));
        }
        if count > 1 && !params.replace_all {
            return Err(Refusal::new(Code::Conflict, format!("old_text occurs {count} times in `{}`", path.as_str()))
                .hint("give more of the text around it, or set replace_all"));
        }
        // Counted first: a replacement can be much longer than what it replaces.
        let grown = old.len() - count * params.old_text.len();
        check_size(call, &path, grown.saturating_add(count.saturating_mul(params.new_text.len())))?;
        let new = old.replace(params.old_text.as_str(), &params.new_text);
        Ok(work(&path, Some(sha256_hex(old.as_bytes())), new.into_bytes()))
    }

    async fn record(
        &self,
        call: &CallContext,
        params: EditParams,
        plan: &FilePlan,
        _: &mut dyn Writes,
    ) -> Result<Output, Refusal> {
        // How many there were is known only while the old text is there, which after a crash it is not.
        let replacements = if params.replace_all { json!("all") } else { json!(1) };
        Ok(written(call, plan, None, json!({ "path": plan.path, "replacements": replacements })))
    }
}

pub(super) struct List;

#[async_trait]
impl ReadTool for List {
    type Params = ListParams;

    async fn run(&self, call: &CallContext, params: ListParams) -> Result<Output, Refusal> {
        let given = params.path.as_deref().unwrap_or("");
        let path = resolve(call, given, params.scope, true)?;
        let depth = params.depth.unwrap_or(1);
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(Refusal::new(Code::InvalidArguments, format!("depth is {depth}; it must be 1 to {DEPTH_MAX}"))
                .hint("list a directory further down instead"));
        }
        let limit = usize::try_from(params.limit.unwrap_or(LIST_DEFAULT)).unwrap_or(ENTRIES_MAX);
        let listing = call
            .services
            .workspace
            .list(&path, depth, params.glob.as_deref(), limit)
            .await
            .map_err(|refusal| hinted(refusal, given, params.scope))?;
        let (entries, all) = fitting(listing.entries.iter().map(|entry| json!(entry)), LIST_BYTES);
        let truncated = listing.truncated || !all;
        let shown = if path.as_str().is_empty() { "." } else { path.as_str() };
        let content = json!({ "path": shown, "entries": entries, "truncated": truncated });
        Ok(Output { content, truncated, events: Vec::new() })
    }
}
