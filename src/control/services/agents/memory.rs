//! Lists and reads the memory files of an agent. It uses a capability to the agent's directory, so no
//! path and no symbolic link can leave it.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::UNIX_EPOCH;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use ghost_domain::text::prefix_bytes;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{AgentId, Code, Refusal};
use ghost_proto::v1;
use ghost_tools::workspace::Workspace;

/// Largest number of listed files, and of directory levels.
const FILES_MAX: usize = 500;
const DEPTH_MAX: u32 = 4;

/// Lists the memory files of an agent, or reads one of them up to `limit` bytes.
pub(super) async fn inspect(
    workspace: &Workspace,
    data: &Path,
    agent_id: AgentId,
    path: Option<&str>,
    limit: u32,
) -> Result<v1::InspectAgentResponse, Refusal> {
    let path = path.map(|path| WorkspacePath::parse(path, false)).transpose().map_err(|refusal| Refusal {
        code: Code::InvalidArguments,
        details: Some(serde_json::json!({ "field": "path" })),
        ..refusal
    })?;
    let root = data.join("agents").join(agent_id.as_str()).join("memory");
    workspace
        .offload(move || {
            let memory = match Dir::open_ambient_dir(&root, ambient_authority()) {
                Ok(memory) => Some(memory),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(unreadable("memory", &error)),
            };
            match (memory, path) {
                (Some(memory), Some(path)) => file(&memory, &path, limit),
                (None, Some(path)) => Err(missing(&path)),
                (Some(memory), None) => {
                    let mut listing = v1::InspectAgentResponse::default();
                    list(&memory, "", DEPTH_MAX, &mut listing).map_err(|error| unreadable("memory", &error))?;
                    listing.files.sort_by(|a, b| a.path.cmp(&b.path));
                    Ok(listing)
                }
                (None, None) => Ok(v1::InspectAgentResponse::default()),
            }
        })
        .await
}

fn unreadable(what: &str, error: &std::io::Error) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{what} cannot be read: {error}"))
        .hint("check the permissions of the data directory")
}

fn missing(path: &WorkspacePath) -> Refusal {
    Refusal::not_found("memory file", path.as_str(), None).hint("omit the path to list the files")
}

fn file(memory: &Dir, path: &WorkspacePath, limit: u32) -> Result<v1::InspectAgentResponse, Refusal> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => missing(path),
        _ => unreadable(path.as_str(), &error),
    };
    // Checked before opening, because opening a named pipe would block until a writer comes.
    if !memory.symlink_metadata(path.as_str()).map_err(failed)?.is_file() {
        return Err(missing(path));
    }
    let mut bytes = Vec::new();
    let opened = memory.open(path.as_str()).map_err(failed)?;
    opened.take(u64::from(limit) + 1).read_to_end(&mut bytes).map_err(failed)?;
    let truncated = bytes.len() > limit as usize;
    let text = String::from_utf8_lossy(&bytes);
    let content = prefix_bytes(&text, limit as usize).to_owned();
    Ok(v1::InspectAgentResponse { files: Vec::new(), content: Some(content), truncated })
}

fn list(dir: &Dir, under: &str, depth: u32, listing: &mut v1::InspectAgentResponse) -> std::io::Result<()> {
    for entry in dir.entries()? {
        let entry = entry?;
        // A name that is not UTF-8 cannot be requested either.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if under.is_empty() { name } else { format!("{under}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if depth > 1 {
                list(&entry.open_dir()?, &path, depth - 1, listing)?;
            } else {
                listing.truncated = true;
            }
        } else if kind.is_file() {
            if listing.files.len() >= FILES_MAX {
                listing.truncated = true;
                return Ok(());
            }
            let metadata = entry.metadata()?;
            let modified = metadata.modified()?.into_std().duration_since(UNIX_EPOCH).unwrap_or_default();
            listing.files.push(v1::MemoryFile {
                path,
                size_bytes: metadata.len(),
                modified_at_ms: i64::try_from(modified.as_millis()).unwrap_or(i64::MAX),
            });
        }
    }
    Ok(())
}
