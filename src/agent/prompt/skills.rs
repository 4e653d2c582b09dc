//! The skills section: which skills there are, how to choose one, and the documents of active skills (SKILL-35, 36, 38, 41,
//! 46). Skills may be fetched from elsewhere, so their descriptions and documents are not trusted.
//!
//! This module must never show a skill that the agent may not hold, or let the text of one leave its tag.

use ghost_config::skills::{Skill, SkillSet, active_room};
use ghost_config::spec::AgentSpec;
use ghost_domain::HeldSkill;
use ghost_domain::text::clip;

use super::escape::{escape, escape_attribute, within};

const HOW: &str = "\
Look through these descriptions before you begin. If exactly one skill clearly fits the work, load it with \
syscall.skill.load and follow it. If several fit, take the most specific one. If none fits, load none. Never load more than \
one up front. The texts of [active] skills are below; drop a skill with syscall.skill.drop when you no longer need it.";

/// Maximum skills and characters of the list.
const LISTED_MAX: usize = 150;
const LIST_CHARS: usize = 18_000;
/// Characters of a shortened description.
const SHORT_CHARS: usize = 100;

/// The text of the section; empty if there are no skills.
pub fn skills(spec: &AgentSpec, all: &SkillSet, held: &[HeldSkill]) -> String {
    let hold = |name: &str| held.iter().find(|held| held.skill == name);
    let usable: Vec<&Skill> = all
        .visible(spec.skills.as_ref())
        .filter(|skill| skill.missing.is_empty() || hold(&skill.name).is_some())
        .map(AsRef::as_ref)
        .collect();
    let gone: Vec<&HeldSkill> =
        held.iter().filter(|held| usable.iter().all(|skill| skill.name != held.skill)).collect();
    if usable.is_empty() && gone.is_empty() {
        return String::new();
    }
    let mut text = format!("{HOW}\n{}", list(&usable, hold));
    for held in gone {
        text.push_str(&format!("\n- {} [held, not available]", held.skill));
    }
    let room = active_room(spec.limits.context_bytes);
    let mut bytes = 0;
    for held in held.iter().filter(|held| held.active) {
        let Some(skill) = usable.iter().find(|skill| skill.name == held.skill) else { continue };
        bytes += skill.document.len();
        let document = if bytes > room {
            format!("[Left out: the active skills have more than {room} bytes. Drop one.]")
        } else {
            within("skill", &skill.text())
        };
        text.push_str(&format!("\n<skill name=\"{}\">\n{document}\n</skill>", escape_attribute(&skill.name)));
    }
    text
}

/// The list of skills, with shorter descriptions if it would be too long.
fn list<'h>(skills: &[&Skill], hold: impl Fn(&str) -> Option<&'h HeldSkill>) -> String {
    let line = |skill: &&Skill, chars: usize| {
        let description = clip(&skill.description, chars);
        let colon = if description.is_empty() || chars == 0 { "" } else { ": " };
        let description = if chars == 0 { "" } else { &description };
        let mark = match hold(&skill.name) {
            Some(held) if held.active => " [active]",
            Some(_) => " [held]",
            None => "",
        };
        format!("- {}{colon}{}{mark}", skill.name, escape(description))
    };
    let listed = &skills[..skills.len().min(LISTED_MAX)];
    let all = |chars: usize| listed.iter().map(|skill| line(skill, chars)).collect::<Vec<_>>().join("\n");
    let mut text = all(usize::MAX);
    for chars in [SHORT_CHARS, 0] {
        if text.chars().count() > LIST_CHARS {
            text = all(chars);
        }
    }
    if listed.len() < skills.len() {
        text.push_str(&format!("\n- {} more: syscall.skill.list", skills.len() - listed.len()));
    }
    text
}
