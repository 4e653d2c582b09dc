//! The world that `ghostd init` creates: a lead and a researcher turn files into a briefing, with
//! scripted models.
//!
//! An existing file must never be overwritten.

use std::io::Write;
use std::path::{Path, PathBuf};

use ghost_domain::{Code, Refusal};

/// The schema of the world file, for editors. The first line of the world file names it.
const SCHEMA: &str = "world-config.schema.json";

/// The files of the template: relative path and content.
#[must_use]
pub fn template() -> Vec<(&'static str, &'static str)> {
    vec![
        ("world-config.yaml", include_str!("template/world-config.yaml")),
        ("laws.md", include_str!("template/laws.md")),
        ("tools.md", include_str!("template/tools.md")),
        ("archetype/lead/soul.md", include_str!("template/archetype/lead/soul.md")),
        ("archetype/lead/goal.md", include_str!("template/archetype/lead/goal.md")),
        ("archetype/lead/agent.md", include_str!("template/archetype/lead/agent.md")),
        ("archetype/lead/config.md", include_str!("template/archetype/lead/config.md")),
        ("archetype/researcher/soul.md", include_str!("template/archetype/researcher/soul.md")),
        ("archetype/researcher/goal.md", include_str!("template/archetype/researcher/goal.md")),
        ("archetype/researcher/agent.md", include_str!("template/archetype/researcher/agent.md")),
        ("archetype/researcher/config.md", include_str!("template/archetype/researcher/config.md")),
        ("scripts/default.yaml", include_str!("template/scripts/default.yaml")),
        ("input/harbour.md", include_str!("template/input/harbour.md")),
        ("input/library.md", include_str!("template/input/library.md")),
    ]
}

/// Writes the template into `dir`, which is created if it does not exist. Returns the files
/// written.
///
/// # Errors
///
/// `Conflict` if `dir` is not empty, `InvalidArguments` if its name cannot be a world's id,
/// `Unavailable` if something cannot be written. Files that were already written stay.
pub fn write(dir: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let failed = |path: &Path, error: &std::io::Error| {
        Refusal::new(Code::Unavailable, format!("{} cannot be written: {error}", path.display()))
            .hint("choose a directory that you may write to, with some space left")
    };
    std::fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    let real = dir.canonicalize().map_err(|error| failed(dir, &error))?;
    let name = real.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !crate::reader::is_name(name) {
        let message = format!("a world cannot be called `{}`", ghost_domain::text::clip(name, 80));
        return Err(Refusal::new(Code::InvalidArguments, message)
            .hint("name the directory with 1 to 64 letters, digits, `.`, `_` and `-`"));
    }
    let mut entries = std::fs::read_dir(dir).map_err(|error| failed(dir, &error))?;
    if entries.next().is_some() {
        return Err(Refusal::new(Code::Conflict, format!("{} is not empty", dir.display()))
            .hint("name a directory that is empty or does not exist"));
    }
    let mut written = Vec::new();
    let schema = crate::schema::of("world-config.yaml").unwrap_or_default();
    let files = template().into_iter().chain([(SCHEMA, schema.as_str())]);
    for (relative, content) in files {
        let path = dir.join(relative);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| failed(parent, &error))?;
        }
        let file = std::fs::File::options().write(true).create_new(true).open(&path);
        file.and_then(|mut file| file.write_all(content.as_bytes())).map_err(|error| failed(&path, &error))?;
        written.push(path);
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_loads_without_warnings() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("first");
        assert_eq!(write(&dir).unwrap().len(), template().len() + 1);
        let first = std::fs::read_to_string(dir.join("world-config.yaml")).unwrap();
        assert_eq!(first.lines().next(), Some(format!("# yaml-language-server: $schema={SCHEMA}").as_str()));
        let schema: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join(SCHEMA)).unwrap()).unwrap();
        assert_eq!(schema["properties"]["agents"]["type"][0], "array");
        let plan = crate::load(&dir, &|_| None).unwrap();
        assert_eq!(plan.warnings, []);
        assert_eq!((plan.world_id.as_str(), plan.agents.len()), ("first", 2));
        assert_eq!(plan.job.unwrap().result, "output/briefings");
        assert_eq!(write(&dir).unwrap_err().code, Code::Conflict);
    }
}
