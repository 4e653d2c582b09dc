//! The briefing: goal, way of working, tools and skills, as tagged blocks in the order of ARCH-09.

use ghost_config::skills::SkillSet;
use ghost_config::spec::AgentSpec;
use ghost_domain::HeldSkill;
use ghost_domain::transcript::ToolSpec;

use super::part::Section;
use super::skills::skills;

/// The sections of the briefing, in order.
#[must_use]
pub fn briefing(spec: &AgentSpec, tools: &[ToolSpec], all: &SkillSet, held: &[HeldSkill]) -> Vec<Section> {
    let archetype = &spec.archetype;
    let lines: Vec<String> = tools.iter().map(|tool| format!("- {}: {}", tool.name, tool.description)).collect();
    vec![
        tagged("goal", &archetype.goal),
        tagged("agent", &archetype.agent),
        tagged("tools", &lines.join("\n")),
        tagged("user", &archetype.user),
        tagged("skills", &skills(spec, all, held)),
    ]
}

/// A section whose text is in the tags `<name>` and `</name>`; empty if the text is empty.
fn tagged(name: &'static str, text: &str) -> Section {
    let text = text.trim();
    let text = if text.is_empty() { String::new() } else { format!("<{name}>\n{text}\n</{name}>") };
    Section { name, text }
}
