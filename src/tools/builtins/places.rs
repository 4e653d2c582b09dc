//! Where tools read and write files: the scopes of a path, the directory of a skill, and what is recorded of a write. A tool
//! must never write where the agent may not.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Component;
use std::sync::Arc;

use cap_std::fs::Dir;
use ghost_config::skills::Skill;
use ghost_domain::artifact::{Found, OUTPUT};
use ghost_domain::ids::{ArtifactId, GrantId};
use ghost_domain::{AgentId, Code, FilePlan};
use ghost_operations::artifacts::{self, Origin};
use ghost_operations::grants;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::common::*;
use crate::workspace::{FileWrite, io_refusal};

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

/// The path relative to the workspace's root.
pub(super) fn resolve(call: &CallContext, path: &str, scope: Scope, allow_root: bool) -> Result<WorkspacePath> {
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
pub(super) enum Place {
    Workspace(WorkspacePath, Scope),
    /// A path in the directory of a skill that the caller may hold.
    Skill(Arc<Skill>, WorkspacePath),
}

impl Place {
    pub(super) fn of(call: &CallContext, path: &str, scope: ReadScope, allow_root: bool) -> Result<Self> {
        let scope = match scope {
            _ if mounted(path).is_some() => Scope::World,
            ReadScope::Agent => Scope::Agent,
            ReadScope::World => Scope::World,
            ReadScope::Skill => {
                let parsed = WorkspacePath::parse(path, true)?;
                let (name, inner) = parsed.as_str().split_once('/').unwrap_or((parsed.as_str(), ""));
                if name.is_empty() || (inner.is_empty() && !allow_root) {
                    return Err(refusal!(InvalidArguments, "`{}` names no file of a skill", path)
                        .hint("give a skill's name and a path, such as git/SKILL.md; workspace.list shows its files"));
                }
                let skill = super::skills::allowed(call, name)?;
                return Ok(Self::Skill(skill, WorkspacePath::parse(inner, allow_root)?));
            }
        };
        Ok(Self::Workspace(resolve(call, path, scope, allow_root)?, scope))
    }

    /// The path for results.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Workspace(path, _) => path.as_str().to_owned(),
            Self::Skill(skill, path) if path.as_str().is_empty() => skill.name.clone(),
            Self::Skill(skill, path) => format!("{}/{}", skill.name, path.as_str()),
        }
    }
}

/// The directory of a skill. Nothing outside it can be opened through it.
pub(super) fn skill_dir(skill: &Skill) -> Result<Dir> {
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
pub(super) fn check_size(call: &CallContext, path: &WorkspacePath, bytes: usize) -> Result<()> {
    let limit = call.services.ctx.limits().file_bytes;
    if bytes > limit as usize {
        return Err(refusal!(TooLarge, "`{}` would have {bytes} bytes; at most {limit} are taken", path.as_str())
            .hint("nothing was written; spread it over several files"));
    }
    Ok(())
}

/// The plan of a call that writes one file.
pub(super) fn only(plans: &[FilePlan]) -> Result<&FilePlan> {
    match plans {
        [plan] => Ok(plan),
        plans => Err(refusal!(Internal, "{} files were planned, not one", plans.len())),
    }
}

/// Indexes a written file. Returns the id of its artifact, if it is one. A file whose size cannot be read any more is
/// not indexed: that must not fail the write. `droid_id` names the droid whose work it is.
pub(super) fn written(
    call: &CallContext,
    plan: &FilePlan,
    droid_id: Option<AgentId>,
    w: &mut Tx,
) -> Result<Option<ArtifactId>> {
    if !plan.path.starts_with(OUTPUT) {
        return Ok(None);
    }
    let content = match &plan.after {
        None => None,
        Some(after) => match call.services.workspace.size_now(&WorkspacePath::parse(&plan.path, false)?) {
            Ok(bytes) => Some((after.clone(), bytes)),
            Err(refusal) => {
                tracing::warn!(path = %plan.path, %refusal, "a written file is not indexed");
                return Ok(None);
            }
        },
    };
    let (agent_id, turn_id, root_id) = (call.caller.agent_id.clone(), call.turn_id, call.root_id);
    let origin = Origin { agent_id, turn_id, root_id, droid_id };
    let found = Found { path: plan.path.clone(), content };
    let indexed = artifacts::index(w, Some(&origin), found, true)?;
    Ok(indexed.map(|artifact| artifact.artifact_id))
}

/// Where something is saved.
pub(super) struct Target {
    pub(super) path: WorkspacePath,
    grant_id: Option<GrantId>,
}

/// The path of a file that the caller may write, and the grant without which it could not.
pub(super) async fn target(call: &CallContext, path: &str, scope: Scope) -> Result<Target> {
    let hint = |refusal| with_scope_hint(refusal, path, scope);
    let path = resolve(call, path, scope, false)?;
    let grant_id = call.may_write(&path).await.map_err(hint)?;
    Ok(Target { path, grant_id })
}

/// Writes the file, and adds to `output` what is to be recorded of it.
pub(super) async fn put(
    call: &CallContext,
    Target { path, grant_id }: Target,
    sha256: String,
    bytes: &[u8],
    mut output: Output,
) -> Result<Output> {
    let workspace = &call.services.workspace;
    let (before, after) = (workspace.hash(&path).await?, Some(sha256.clone()));
    let plan = FilePlan { path: path.as_str().to_owned(), before, after, grant_id };
    workspace.carry_out(vec![FileWrite { plan, bytes: Some(bytes.to_vec()) }]).await?;
    if path.as_str().starts_with(OUTPUT) {
        let content = Some((sha256, bytes.len() as u64));
        output.artifacts.push(Found { path: path.as_str().to_owned(), content });
    }
    if let Some(grant_id) = grant_id {
        let (agent_id, path) = (&call.caller.agent_id, Some(path.as_str()));
        output.events.push(grants::used(agent_id, call.turn_id, call.call_id, grant_id, path));
    }
    Ok(output)
}
