//! The briefing: goal, way of working, tools and skills, as tagged blocks in the order of ARCH-09.

use ghost_config::skills::SkillSet;
use ghost_config::spec::AgentSpec;
use ghost_domain::HeldSkill;
use ghost_domain::tool_catalogue::{CALL, DESCRIBE};
use ghost_domain::transcript::ToolSpec;
use ghost_tools::offer::line;

use super::part::Section;
use super::skills::skills;

/// The sections of the briefing, in order. `deferred` are the tools that requests leave out; a request describes the
/// others itself.
#[must_use]
pub fn briefing(spec: &AgentSpec, deferred: &[ToolSpec], all: &SkillSet, held: &[HeldSkill]) -> Vec<Section> {
    let archetype = &spec.archetype;
    vec![
        tagged("goal", &archetype.goal),
        tagged("agent", &archetype.agent),
        tagged("tools", &more_tools(deferred)),
        tagged("user", &archetype.user),
        tagged("skills", &skills(spec, all, held)),
    ]
}

/// The lines of the deferred tools, and how to use them.
fn more_tools(deferred: &[ToolSpec]) -> String {
    if deferred.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = deferred.iter().map(line).collect();
    format!(
        "You also have these tools. Run one with {CALL}, given its name and its arguments; {DESCRIBE} shows its \
         parameters, if its line is not enough.\n{}",
        lines.join("\n")
    )
}

/// A section whose text is in the tags `<name>` and `</name>`; empty if the text is empty.
fn tagged(name: &'static str, text: &str) -> Section {
    let text = text.trim();
    let text = if text.is_empty() { String::new() } else { format!("<{name}>\n{text}\n</{name}>") };
    Section { name, text }
}
