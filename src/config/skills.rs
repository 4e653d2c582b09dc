//! The skills of a world: directories with a SKILL.md, read when a plan is made.
//!
//! Reading must never follow a link out of a skill root. A broken skill must never hide the others.

mod discover;
mod eligible;
mod head;
mod skill;

pub use head::Fault;
pub use skill::{DOCUMENT_CHARS, Skill, SkillSet, Skipped, active_room};
