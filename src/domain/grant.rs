//! Write grants: a directory that an agent may write to for some time, besides those of
//! its write rules.
//!
//! A grant must never reach into another agent's directory, and never lasts for ever.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, GrantId};
use crate::macros::text_enum;
use crate::party::Party;
use crate::refusal::{Refusal, refusal};
use crate::text::{clip, one_line};
use crate::time::Timestamp;
use crate::write_acl::{WorkspacePath, WriteAcl};

/// How long a grant lasts if nobody says otherwise, and every grant for a mission.
pub const GRANT_DEFAULT: Duration = Duration::from_secs(4 * 3_600);
/// The longest time that a grant lasts: a year. What should last longer belongs into the world file.
pub const GRANT_LONGEST: Duration = Duration::from_secs(366 * 86_400);
/// Characters of a grant's reason.
pub const REASON_MAX: usize = 500;

text_enum! {
    /// What a grant was made for.
    GrantSource, "source of a grant" {
        /// A step of a mission.
        Mission = "mission",
        /// A session of an agent.
        Session = "session",
        /// A person's decision.
        Manual = "manual",
    }
}

/// A write grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Id of the grant.
    pub grant_id: GrantId,
    /// Agent that may write.
    pub agent_id: AgentId,
    /// The directory, relative to the workspace; it ends in `/`.
    pub prefix: String,
    /// What it was made for.
    pub source: GrantSource,
    /// Why, in the words of whoever made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who made it.
    pub created_by: Party,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; it does not hold at this instant any more.
    pub expires_at: Timestamp,
}

/// The parts of a new grant that its maker decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGrant {
    /// Agent that may write.
    pub agent_id: AgentId,
    /// The directory as given.
    pub prefix: String,
    /// What it is made for.
    pub source: GrantSource,
    /// Why.
    pub reason: Option<String>,
    /// How long it lasts.
    pub lasts: Duration,
}

impl NewGrant {
    /// Checks it and makes the grant.
    ///
    /// # Errors
    /// `InvalidArguments` or `PathDenied` for a prefix that is no directory or reaches into another agent's,
    /// and for a time of 0 or above [`GRANT_LONGEST`].
    pub fn checked(self, grant_id: GrantId, by: Party, now: Timestamp) -> Result<Grant, Refusal> {
        let acl = WriteAcl::of(&self.agent_id, std::slice::from_ref(&self.prefix))?;
        let Some(prefix) = acl.prefixes().first().cloned() else {
            return Err(refusal!(Internal, "a prefix was lost"));
        };
        if self.lasts.as_millis() == 0 || self.lasts > GRANT_LONGEST {
            return Err(refusal!(InvalidArguments, "a grant lasts from 1 ms to 366 days")
                .hint("give another time; what should last longer belongs into write_acls of the world file"));
        }
        let reason = self.reason.map(|reason| clip(&one_line(&reason), REASON_MAX)).filter(|reason| !reason.is_empty());
        Ok(Grant {
            grant_id,
            agent_id: self.agent_id,
            prefix,
            source: self.source,
            reason,
            created_by: by,
            created_at: now,
            expires_at: now.plus(self.lasts),
        })
    }
}

impl Grant {
    /// Whether it holds at `now`.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }

    /// Whether it lets its agent write the file at `path` at `now`.
    pub fn allows(&self, path: &WorkspacePath, now: Timestamp) -> bool {
        self.is_live(now)
            && WriteAcl::new(std::slice::from_ref(&self.prefix))
                .is_ok_and(|acl| acl.check(&self.agent_id, path).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::refusal::Code;

    fn new(prefix: &str, lasts: u64) -> Result<Grant, Refusal> {
        let new = NewGrant {
            agent_id: "ada".parse().unwrap(),
            prefix: prefix.into(),
            source: GrantSource::Manual,
            reason: Some(" two\nlines ".into()),
            lasts: Duration::from_millis(lasts),
        };
        new.checked(GrantId(Uuid::nil()), Party::System, Timestamp(1_000))
    }

    // covers: ACL-04, ACL-08
    #[test]
    fn a_grant_is_a_directory_for_some_time() {
        let grant = new("./output//reports/", 5).unwrap();
        assert_eq!((grant.prefix.as_str(), grant.reason.as_deref()), ("output/reports/", Some("two lines")));
        let at = |path: &str, ms| grant.allows(&WorkspacePath::parse(path, false).unwrap(), Timestamp(ms));
        assert!(at("output/reports/a.md", 1_000) && at("output/reports/b/a.md", 1_004));
        assert!(!at("output/reports/a.md", 1_005), "over at its end");
        for path in ["output/reports", "output/reportsx/a", "output/a.md"] {
            assert!(!at(path, 1_000), "{path}");
        }
        assert!(new("agents/ada/", 5).is_ok());
    }

    // covers: ACL-03
    #[test]
    fn what_cannot_be_granted_is_refused() {
        for (prefix, lasts, code) in [
            ("output", 5, Code::InvalidArguments),
            ("agents/", 5, Code::InvalidArguments),
            ("agents/bob/", 5, Code::InvalidArguments),
            ("AGENTS/bob/", 5, Code::InvalidArguments),
            ("/", 5, Code::PathDenied),
            ("./", 5, Code::PathDenied),
            ("../x/", 5, Code::PathDenied),
            ("output/../agents/bob/", 5, Code::PathDenied),
            (".ghost-world/", 5, Code::PathDenied),
            ("output/.git/", 5, Code::PathDenied),
            ("output/", 0, Code::InvalidArguments),
            ("output/", 367 * 86_400_000, Code::InvalidArguments),
        ] {
            assert_eq!(new(prefix, lasts).unwrap_err().code, code, "{prefix} {lasts}");
        }
    }

    proptest! {
        // A grant lets through exactly the paths below its prefix that are nobody else's.
        #[test]
        fn a_grant_allows_what_is_below_its_prefix_alone(
            prefix in "(agents/(ada|bob)/|out/|o/|a\\./)?[a-c./]{0,6}/",
            path in "(agents/(ada|bob)/|out/|o/|a\\./)?[a-c./]{0,10}",
        ) {
            if let (Ok(grant), Ok(path)) = (new(&prefix, 5), WorkspacePath::parse(&path, false)) {
                let mut foreign = path.as_str().split('/');
                let foreign = foreign.next() == Some("agents") && foreign.next() != Some("ada");
                let below = path.as_str().strip_prefix(grant.prefix.as_str()).is_some_and(|rest| !rest.is_empty());
                prop_assert_eq!(grant.allows(&path, Timestamp(1_001)), below && !foreign);
                prop_assert!(!grant.allows(&path, Timestamp(1_005)));
            }
        }
    }
}
