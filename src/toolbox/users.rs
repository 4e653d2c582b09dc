//! The users that agents' commands run as: one for each agent of each world, and a group for each world. No number
//! goes to a second agent, also not after a crash: it is on the disk before it is used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use ghost_domain::text::shown;
use ghost_domain::{AgentId, Code, Refusal};
use ghost_sandbox::User;
use ghost_sandbox::remote::protocol::is_world;

/// The file with the users, in the server's directory. Each line is a number, a world, and an agent or [`GROUP`].
const FILE: &str = "users";
/// What stands for the group of a world.
const GROUP: &str = "*";
/// Bytes of the file that are read: room for the largest range.
const FILE_MAX: u64 = 256 << 20;
/// The lowest number, below which the system has users of its own.
const LOWEST: u32 = 1_000;

/// The numbers that agents' users and worlds' groups get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    first: u32,
    last: u32,
}

impl Default for Range {
    /// In the part that systemd's "Users, Groups, UIDs and GIDs on systemd systems" knows no user of.
    fn default() -> Self {
        Self { first: 1_900_000_000, last: 1_900_999_999 }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}-{}", self.first, self.last)
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        let (first, last) = numbers.ok_or("it has the form FIRST-LAST, such as 20000-59999")?;
        // The system takes 65534 for nobody, and 65535 and 2^32-1 for no user at all.
        if first < LOWEST || last <= first || last == u32::MAX || (first <= 65_535 && last >= 65_534) {
            return Err(format!(
                "it begins at {LOWEST} or later, ends after it begins, and is without 65534 and 65535"
            ));
        }
        Ok(Self { first, last })
    }
}

impl Range {
    fn has(self, number: u32) -> bool {
        (self.first..=self.last).contains(&number)
    }

    /// Whether all its numbers are in a map of numbers, as `/proc/self/uid_map` has it (user_namespaces(7)).
    fn is_mapped(self, map: &str) -> bool {
        map.lines().any(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(inside)), Some(Ok(_)), Some(Ok(count))) = (numbers.next(), numbers.next(), numbers.next())
            else {
                return false;
            };
            inside <= self.first.into() && u64::from(self.last) < inside.saturating_add(count)
        })
    }
}

/// What is known.
struct Known {
    file: File,
    /// Bytes of the file that hold whole lines.
    length: u64,
    /// What a failed write left could not be removed, so no line may follow it.
    is_broken: bool,
    /// By world and agent.
    numbers: BTreeMap<(String, String), u32>,
    next: u32,
}

/// The users of all worlds.
pub(crate) struct AgentUsers {
    range: Range,
    path: PathBuf,
    known: Mutex<Known>,
}

/// The users of one world.
pub(crate) struct WorldUsers {
    all: Arc<AgentUsers>,
    world: String,
}

fn damaged(path: &Path, line: &str) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        format!("{} has a line that cannot be read: `{}`", path.display(), shown(line, 100)),
    )
    .hint("restore the file; a number that two agents have would let one change the other's files")
}

/// Reads a line.
fn parsed(line: &str) -> Option<(u32, String, String)> {
    let mut words = line.split(' ');
    let (number, world, agent) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let is_valid = is_world(world) && (agent == GROUP || agent.parse::<AgentId>().is_ok());
    (is_valid && words.next().is_none() && number >= LOWEST).then(|| (number, world.to_owned(), agent.to_owned()))
}

impl AgentUsers {
    /// Reads the users that there are.
    ///
    /// # Errors
    /// If the file is damaged or cannot be used, this process may not have the numbers of `range`, or the file system
    /// cannot let a group share a directory.
    pub(crate) fn open(dir: &Path, range: Range) -> Result<Arc<Self>, Refusal> {
        for map in ["/proc/self/uid_map", "/proc/self/gid_map"] {
            let found = std::fs::read_to_string(map).unwrap_or_default();
            if !range.is_mapped(&found) {
                let what = format!("the numbers {range} of agents' users are not in {map}");
                return Err(Refusal::new(Code::Unavailable, what)
                    .hint("in a container with users of its own, name others: --agent-uids 20000-59999"));
            }
        }
        ghost_sandbox::keeps_groups(dir).map_err(|error| {
            let what = format!("agents cannot share files in {}: it keeps no access lists ({error})", dir.display());
            Refusal::new(Code::Unavailable, what)
                .hint("give --dir a file system with POSIX ACLs: ext4, XFS, Btrfs, tmpfs")
        })?;
        Self::read(dir, range)
    }

    fn read(dir: &Path, range: Range) -> Result<Arc<Self>, Refusal> {
        let path = dir.join(FILE);
        let unusable = |error: std::io::Error| {
            Refusal::new(Code::Unavailable, format!("{} cannot be used: {error}", path.display()))
                .hint("an operator must look at the server's disk")
        };
        let opened = std::fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path);
        let file = opened.map_err(unusable)?;
        let mut text = String::new();
        if file.metadata().map_err(unusable)?.len() > FILE_MAX {
            return Err(unusable(std::io::ErrorKind::FileTooLarge.into()));
        }
        (&file).take(FILE_MAX).read_to_string(&mut text).map_err(unusable)?;
        // A crash may have cut the last line. Nobody has its number yet.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let length = whole as u64;
        file.set_len(length).map_err(unusable)?;
        let (mut numbers, mut taken) = (BTreeMap::new(), BTreeSet::new());
        for line in text[..whole].lines() {
            let (number, world, agent) = parsed(line).ok_or_else(|| damaged(&path, line))?;
            if !taken.insert(number) || numbers.insert((world, agent), number).is_some() {
                return Err(damaged(&path, line));
            }
        }
        let next = taken.range(range.first..=range.last).next_back().map_or(range.first, |last| last + 1);
        Ok(Arc::new(Self { range, path, known: Mutex::new(Known { file, length, is_broken: false, numbers, next }) }))
    }

    /// The number of an agent, or of the group of its world.
    fn number(&self, world: &str, agent: &str) -> Result<u32, Refusal> {
        // A number that could not be written is not given out, so what is known is valid after a panic, too.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (world.to_owned(), agent.to_owned());
        if let Some(number) = known.numbers.get(&key) {
            return Ok(*number);
        }
        let number = known.next;
        if !self.range.has(number) {
            return Err(Refusal::new(Code::RateLimited, format!("all users for agents, {}, are in use", self.range))
                .hint("an operator starts the server with other numbers: --agent-uids FIRST-LAST"));
        }
        let unusable = |why: &dyn std::fmt::Display| {
            Refusal::new(Code::Unavailable, format!("{} cannot be written: {why}", self.path.display()))
                .hint("an operator must look at the server's disk, and start it again")
        };
        if known.is_broken {
            return Err(unusable(&"an earlier write failed"));
        }
        let line = format!("{number} {world} {agent}\n");
        if let Err(error) = known.file.write_all(line.as_bytes()).and_then(|()| known.file.sync_data()) {
            known.is_broken = known.file.set_len(known.length).and_then(|()| known.file.sync_data()).is_err();
            return Err(unusable(&error));
        }
        known.length += line.len() as u64;
        known.next += 1;
        known.numbers.insert(key, number);
        Ok(number)
    }

    /// The users of a world, which has a valid name.
    pub(crate) fn of_world(self: &Arc<Self>, world: &str) -> Arc<WorldUsers> {
        Arc::new(WorldUsers { all: Arc::clone(self), world: world.to_owned() })
    }
}

impl ghost_sandbox::Users for WorldUsers {
    fn user_of(&self, agent_id: &AgentId) -> Result<User, Refusal> {
        let gid = self.all.number(&self.world, GROUP)?;
        Ok(User { uid: self.all.number(&self.world, agent_id.as_str())?, gid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ghost_sandbox::Users as _;

    fn user(users: &Arc<AgentUsers>, world: &str, agent: &str) -> Result<(u32, u32), Code> {
        let found = users.of_world(world).user_of(&agent.parse().unwrap());
        found.map(|user| (user.uid, user.gid)).map_err(|refusal| refusal.code)
    }

    // covers: TBX-08
    #[test]
    fn each_agent_of_each_world_keeps_its_user_and_no_other_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let range: Range = "2000-2006".parse().unwrap();
        let users = AgentUsers::read(dir.path(), range).unwrap();
        let ada = user(&users, "w", "ada").unwrap();
        assert_eq!(ada, (2_001, 2_000));
        assert_eq!(user(&users, "w", "bob"), Ok((2_002, 2_000)));
        assert_eq!(user(&users, "v", "ada"), Ok((2_004, 2_003)));
        assert_eq!(user(&users, "w", "ada"), Ok(ada));
        drop(users);
        // A crash in the middle of a line: its number was not given out.
        let path = dir.path().join(FILE);
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}2005 w ca")).unwrap();
        let users = AgentUsers::read(dir.path(), range).unwrap();
        assert_eq!(user(&users, "w", "ada"), Ok(ada));
        assert_eq!(user(&users, "w", "cyd"), Ok((2_005, 2_000)));
        assert_eq!(user(&users, "w", "dan"), Ok((2_006, 2_000)));
        assert_eq!(user(&users, "w", "eve"), Err(Code::RateLimited));
        drop(users);
        // With other numbers, those who have one keep it.
        let users = AgentUsers::read(dir.path(), "3000-3001".parse().unwrap()).unwrap();
        assert_eq!((user(&users, "w", "ada"), user(&users, "w", "eve")), (Ok(ada), Ok((3_000, 2_000))));
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        for lines in [
            "2000 w ada\n2000 w bob\n",
            "2000 w ada\n2001 w ada\n",
            "2000 w\n",
            "0 w ada\n",
            "x\n",
            "\n",
            "2000 .. a b\n",
        ] {
            std::fs::write(dir.path().join(FILE), lines).unwrap();
            let opened = AgentUsers::read(dir.path(), Range::default());
            assert_eq!(opened.map(drop).unwrap_err().code, Code::Unavailable, "{lines:?}");
        }
    }

    #[test]
    fn a_number_that_cannot_be_written_is_not_given_out() {
        let dir = tempfile::tempdir().unwrap();
        let range = Range::default();
        let users = AgentUsers::read(dir.path(), range).unwrap();
        assert!(user(&users, "w", "ada").is_ok());
        users.known.lock().unwrap().file = std::fs::OpenOptions::new().append(true).open("/dev/full").unwrap();
        for _ in 0..2 {
            assert_eq!(user(&users, "w", "bob"), Err(Code::Unavailable));
        }
        assert!(user(&users, "w", "ada").is_ok(), "who has one keeps it");
        assert!(users.known.lock().unwrap().is_broken, "what is on the disk is not known");
        let users = AgentUsers::read(dir.path(), range).unwrap();
        assert_eq!(user(&users, "w", "bob"), Ok((range.first + 2, range.first)));
    }

    #[test]
    fn a_range_is_of_numbers_that_no_system_user_has() {
        for wrong in
            ["", "5", "-", "999-2000", "0-5000", "2000-2000", "3000-2000", "60000-70000", "2000-4294967295", "a-b"]
        {
            assert!(wrong.parse::<Range>().is_err(), "{wrong}");
        }
        let range: Range = "20000-59999".parse().unwrap();
        assert_eq!(range.to_string(), "20000-59999");
        assert!(range.is_mapped("0 0 4294967295\n") && range.is_mapped("0 1000 1\n1 100000 65535\n"));
        assert!(
            !range.is_mapped("0 1000 1\n1 100000 50000\n")
                && !range.is_mapped("")
                && !Range::default().is_mapped("0 1 65536")
        );
    }
}
