//! The tools for workspace files: read, write, edit, list (BI-01..03, BI-05; ACL-01..05). Every agent may read all files; its write rules say where it may write.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Component;
use std::sync::Arc;

use cap_std::fs::Dir;
use ghost_config::skills::Skill;
use ghost_domain::journal::FilePlan;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, GrantId, Refusal};
use ghost_operations::Tx;
use rustix::fs::{CWD, Mode, OFlags, openat};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::common::{LIST_BYTES, fitting, within, without_nulls};
use super::written::{only, written};
use crate::context::CallContext;
use crate::effect::{FileWork, Output};
use crate::workspace::{DEPTH_MAX, ENTRIES_MAX, FileText, Lines, io_refusal, list_dir, read_text, sha256_hex};

/// The default number of entries in a listing.
const LIST_DEFAULT: u32 = 500;

/// The space in a page of a file for fields other than text and path, in bytes of JSON.
const PAGE_FIELDS: usize = 1_024;

/// Directories of the shared root. A path in the agent's own directory that begins with one of them
/// was probably meant to be shared.
const SHARED_DIRS: [&str; 5] = ["agents", "inputs", "output", "projects", "shared"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scope {
    #[default]
    Agent,
    World,
}

/// Where to read. Unlike [`Scope`] it includes the files of skills, which nobody writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReadScope {
    #[default]
    Agent,
    World,
    Skill,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
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

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
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

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
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

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
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

/// The path relative to the workspace's root.
pub(super) fn resolve(
    call: &CallContext,
    path: &str,
    scope: Scope,
    allow_root: bool,
) -> Result<WorkspacePath, Refusal> {
    let (path, scope) = mounted(path).map_or((path, scope), |path| (path, Scope::World));
    let parsed = WorkspacePath::parse(path, allow_root).map_err(|refusal| with_scope_hint(refusal, path, scope))?;
    let full = match scope {
        Scope::World => parsed,
        Scope::Agent => parsed.under(&call.caller.agent_id.home()),
    };
    // The prefix may have made the path too long.
    WorkspacePath::parse(full.as_str(), allow_root)
}

/// The path below the shared root of a path that begins with `/workspace`. Archetypes written for containers name files
/// by the place where the workspace is mounted there.
fn mounted(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/workspace")?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
}

/// What a read or a listing opens.
enum Place {
    Workspace(WorkspacePath, Scope),
    /// A path in the directory of a skill that the caller may hold.
    Skill(Arc<Skill>, WorkspacePath),
}

impl Place {
    fn of(call: &CallContext, path: &str, scope: ReadScope, allow_root: bool) -> Result<Self, Refusal> {
        let scope = match scope {
            _ if mounted(path).is_some() => Scope::World,
            ReadScope::Agent => Scope::Agent,
            ReadScope::World => Scope::World,
            ReadScope::Skill => {
                let parsed = WorkspacePath::parse(path, true)?;
                let (name, inner) = parsed.as_str().split_once('/').unwrap_or((parsed.as_str(), ""));
                if name.is_empty() || (inner.is_empty() && !allow_root) {
                    return Err(Refusal::new(Code::InvalidArguments, format!("`{}` names no file of a skill", path))
                        .hint("give a skill's name and a path, such as git/SKILL.md; workspace.list shows its files"));
                }
                let skill = super::skills::allowed(call, name)?;
                return Ok(Self::Skill(skill, WorkspacePath::parse(inner, allow_root)?));
            }
        };
        Ok(Self::Workspace(resolve(call, path, scope, allow_root)?, scope))
    }

    /// The path for results.
    fn shown(&self) -> String {
        match self {
            Self::Workspace(path, _) => path.as_str().to_owned(),
            Self::Skill(skill, path) if path.as_str().is_empty() => skill.name.clone(),
            Self::Skill(skill, path) => format!("{}/{}", skill.name, path.as_str()),
        }
    }
}

/// The directory of a skill. Nothing outside it can be opened through it.
fn skill_dir(skill: &Skill) -> Result<Dir, Refusal> {
    let failed = |error: io::Error| io_refusal("open", &skill.name, &error);
    let opened = |at: BorrowedFd<'_>, name: &OsStr, more: OFlags| {
        openat(at, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | more, Mode::empty())
            .map_err(|error| failed(error.into()))
    };
    // No part of the path was a link when the skill was read. One that a skill from elsewhere has become since leads to
    // what nobody looked at.
    let mut root = opened(CWD, OsStr::new("/"), OFlags::PATH)?;
    for part in skill.root.components() {
        if let Component::Normal(name) = part {
            root = opened(root.as_fd(), name, OFlags::PATH)?;
        }
    }
    let root = Dir::from_std_file(opened(root.as_fd(), OsStr::new("."), OFlags::empty())?.into());
    if skill.path.as_os_str().is_empty() { Ok(root) } else { root.open_dir(&skill.path).map_err(failed) }
}

/// Whether a path in the scope `agent` was probably meant to be in the shared root.
fn looks_shared(path: &str, scope: Scope) -> bool {
    let first = path.trim_start_matches(['/', '.']).split('/').next().unwrap_or_default();
    scope == Scope::Agent && SHARED_DIRS.contains(&first)
}

/// Adds a hint about the scope to a refusal if the scope is the likely cause. The path itself is
/// never changed.
pub(super) fn with_scope_hint(refusal: Refusal, path: &str, scope: Scope) -> Refusal {
    if matches!(refusal.code, Code::NotFound | Code::PathDenied) && looks_shared(path, scope) {
        return refusal.hint("did you mean scope: world? Without it a path is relative to your own directory");
    }
    refusal
}

/// The note for a write that went into the agent's own directory, perhaps by mistake.
pub(super) fn scope_note(path: &str, scope: Scope) -> Option<&'static str> {
    looks_shared(path, scope)
        .then_some("this is inside your own directory; for the shared one of that name give scope: world")
}

/// Refuses a write that would make the file too large.
pub(super) fn check_size(call: &CallContext, path: &WorkspacePath, bytes: usize) -> Result<(), Refusal> {
    let limit = call.services.ctx.limits().file_bytes;
    if bytes > limit as usize {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("`{}` would have {bytes} bytes; at most {limit} are taken", path.as_str()),
        )
        .hint("nothing was written; spread it over several files"));
    }
    Ok(())
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

pub(super) async fn read(call: &CallContext, params: ReadParams) -> Result<Output, Refusal> {
    let place = Place::of(call, &params.path, params.scope, false)?;
    if params.limit == Some(0) {
        return Err(Refusal::new(Code::InvalidArguments, "limit is 0; it must be 1 or more")
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

pub(super) async fn prepare_write(call: &CallContext, params: &WriteParams) -> Result<FileWork, Refusal> {
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

pub(super) fn record_write(
    call: &CallContext,
    params: WriteParams,
    plans: &[FilePlan],
    w: &mut Tx,
) -> Result<Output, Refusal> {
    let bytes = params.content.len();
    let plan = only(plans)?;
    let artifact_id = written(call, plan, w)?;
    let content = json!({
        "path": plan.path, "bytes": bytes, "appended": params.append, "artifact_id": artifact_id,
        "note": scope_note(&params.path, params.scope),
    });
    Ok(without_nulls(content).into())
}

pub(super) async fn prepare_edit(call: &CallContext, params: &EditParams) -> Result<FileWork, Refusal> {
    let hint = |refusal| with_scope_hint(refusal, &params.path, params.scope);
    let path = resolve(call, &params.path, params.scope, false)?;
    let grant_id = call.may_write(&path).await.map_err(hint)?;
    if params.old_text.is_empty() || params.old_text == params.new_text {
        return Err(Refusal::new(Code::InvalidArguments, "old_text is empty or equal to new_text")
            .hint("give the piece of text to replace and what comes in its place"));
    }
    let limit = u64::from(call.services.ctx.limits().file_bytes);
    let Some(old) = call.services.workspace.text_for_change(&path, limit).await.map_err(hint)? else {
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
    // Check the size before replacing: the result can be much larger than the file.
    let grown = old.len() - count * params.old_text.len();
    check_size(call, &path, grown.saturating_add(count.saturating_mul(params.new_text.len())))?;
    let new = old.replace(params.old_text.as_str(), &params.new_text);
    Ok(work(&path, grant_id, Some(sha256_hex(old.as_bytes())), new.into_bytes()))
}

pub(super) fn record_edit(
    call: &CallContext,
    params: EditParams,
    plans: &[FilePlan],
    w: &mut Tx,
) -> Result<Output, Refusal> {
    // The number of occurrences is known only from the old text, which no longer exists after a
    // crash.
    let replacements = if params.replace_all { json!("all") } else { json!(1) };
    let plan = only(plans)?;
    let artifact_id = written(call, plan, w)?;
    let content = json!({ "path": plan.path, "replacements": replacements, "artifact_id": artifact_id });
    Ok(without_nulls(content).into())
}

pub(super) async fn list(call: &CallContext, params: ListParams) -> Result<Output, Refusal> {
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
