//! What the server says, checked and in ghostd's own words; and the name of a workspace on the server.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use ghost_domain::text::shown;

use super::protocol::{Ended, Health, is_world};
use crate::capture::Captured;
use crate::command::{Command, Finished};
use crate::protection::{Protection, Report};

/// The file of the data directory with the workspace's name on servers.
const NAME_FILE: &str = "remote-workspace";
/// Bytes of that file that are read.
const NAME_MAX: u64 = 256;
/// Reasons for missing protections that are kept, and their characters.
const REASONS: usize = 32;
const REASON: usize = 300;
/// Longest path of a workspace.
const PATH_MAX: usize = 1_024;
/// Bytes of the mark that an output with a missing part has.
const MARK: usize = 64;

/// The name of a workspace on a server: the world's id, and something that only this data directory has, because two
/// worlds with one id may use one server.
///
/// # Errors
/// If it cannot be read or written.
pub(super) fn world_name(world_id: &str, data_dir: &Path) -> io::Result<String> {
    let path = data_dir.join(NAME_FILE);
    let read = |file: File| -> io::Result<String> {
        let mut text = String::new();
        file.take(NAME_MAX).read_to_string(&mut text)?;
        Ok(text.trim().to_owned())
    };
    let own = match ghost_config::regular(&path) {
        Ok(Some(file)) => read(file)?,
        Ok(None) => return Err(io::Error::other(format!("{NAME_FILE} is not a regular file"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut random = [0; 12];
            File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random))?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(hex::encode(random).as_bytes())?;
            file.sync_all()?;
            hex::encode(random)
        }
        Err(error) => return Err(error),
    };
    let id: String =
        world_id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).take(64).collect();
    let name = format!("{id}-{own}").trim_start_matches('-').to_owned();
    if own.len() < 16 || !is_world(&name) {
        return Err(io::Error::other(format!("{NAME_FILE} is damaged; remove it to get a new one")));
    }
    Ok(name)
}

/// What a server enforces.
pub(super) fn report(health: &Health) -> Report {
    let bits = health.protections.iter().filter_map(|name| Protection::named(name));
    let missing = health.missing.iter().take(REASONS).map(|reason| shown(reason, REASON)).collect();
    Report { in_force: bits.fold(0, |bits, protection| bits | protection.bit()), missing, ..Report::default() }
}

/// Where commands see the workspace, if the server says something that can be such a place.
pub(super) fn inside(health: &Health) -> Option<String> {
    let path = health.workspace.as_ref()?;
    let is_place = path.starts_with('/')
        && path.len() <= PATH_MAX
        && !path.chars().any(ghost_domain::text::is_strange)
        && !path.split('/').any(|part| part == "..");
    is_place.then(|| path.clone())
}

/// The result of a command, if its outputs are not larger than was asked for.
pub(super) fn finished(ended: Ended, command: &Command) -> Option<Finished> {
    // A byte that is no UTF-8 becomes a character of three.
    let fits = |output: &Captured, limit: usize| output.text.len() <= limit.saturating_mul(3).saturating_add(MARK);
    if !fits(&ended.stdout, command.stdout_limit) || !fits(&ended.stderr, command.stderr_limit) {
        return None;
    }
    let bits = ended.protections.iter().filter_map(|name| Protection::named(name));
    Some(Finished {
        end: ended.end,
        duration: Duration::from_millis(ended.duration_ms),
        cpu: Duration::from_millis(ended.cpu_ms),
        stdout: ended.stdout,
        stderr: ended.stderr,
        in_force: bits.fold(0, |bits, protection| bits | protection.bit()),
    })
}

/// Adds notes about files to what the agent reads.
pub(super) fn add_notes(stderr: &mut Captured, notes: &[String]) {
    for note in notes {
        if !stderr.text.is_empty() && !stderr.text.ends_with('\n') {
            stderr.text.push('\n');
        }
        stderr.text.push_str(&format!("[ghostd: {}]\n", shown(note, 1_000)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let name = world_name("my world", dir.path()).unwrap();
        assert!(name.starts_with("myworld-") && is_world(&name), "{name}");
        assert_eq!(world_name("my world", dir.path()).unwrap(), name);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(world_name("my world", other.path()).unwrap(), name);
        assert!(is_world(&world_name("ü", other.path()).unwrap()));
        std::fs::write(dir.path().join(NAME_FILE), "../x").unwrap();
        assert!(world_name("w", dir.path()).is_err());
    }

    #[test]
    fn what_a_server_says_is_checked() {
        let health = |workspace: &str, missing: usize| Health {
            version: 1,
            program: String::new(),
            protections: vec!["files".into(), "invented".into()],
            missing: vec!["x".repeat(10_000); missing],
            workspace: Some(workspace.into()),
        };
        let report = report(&health("/w", 1_000));
        assert_eq!((report.in_force, report.missing.len()), (Protection::Files.bit(), REASONS));
        assert!(report.missing[0].chars().count() <= REASON + 1);
        assert_eq!(inside(&health("/w/a", 0)).as_deref(), Some("/w/a"));
        for bad in ["", "w", "/a/../b", "/a\nb", &format!("/{}", "x".repeat(2_000))] {
            assert_eq!(inside(&health(bad, 0)), None, "{bad}");
        }
    }
}
