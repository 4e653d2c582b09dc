//! The skills that agents hold. They survive restarts.

use crate::prelude::*;

/// Maximum skills that one agent may hold.
pub const HELD_MAX: usize = 64;

/// Acquires a skill. Returns whether the agent did not hold it yet.
///
/// # Errors
/// `RateLimited` if the agent holds [`HELD_MAX`] skills.
pub fn acquire(w: &mut Tx, agent_id: &AgentId, skill: &str) -> Result<bool> {
    let held = w.skills_held(agent_id)?;
    if held.iter().any(|held| held.skill == skill) {
        return Ok(false);
    }
    if held.len() >= HELD_MAX {
        return Err(refusal!(RateLimited, "you hold {HELD_MAX} skills, which is the bound")
            .hint("drop one with syscall.skill.drop"));
    }
    let hold =
        HeldSkill { agent_id: agent_id.clone(), skill: skill.to_owned(), active: false, acquired_at: w.ctx.now() };
    w.skill_put(&hold)?;
    emit(w, EventKind::SkillAcquired, agent_id, skill)?;
    Ok(true)
}

/// Marks a skill as active because its document was read. Acquires the skill first if needed.
pub fn activate(w: &mut Tx, agent_id: &AgentId, skill: &str) -> Result<()> {
    acquire(w, agent_id, skill)?;
    for mut held in w.skills_held(agent_id)? {
        if held.skill == skill && !held.active {
            held.active = true;
            w.skill_put(&held)?;
            emit(w, EventKind::SkillActivated, agent_id, skill)?;
        }
    }
    Ok(())
}

/// Drops a skill.
///
/// # Errors
/// `NotFound` if the agent does not hold it.
pub fn drop_skill(w: &mut Tx, agent_id: &AgentId, skill: &str) -> Result<()> {
    if !w.skill_remove(agent_id, skill)? {
        let refusal = refusal!(NotFound, "you do not hold the skill `{skill}`");
        return Err(refusal.hint("syscall.skill.list shows what you hold"));
    }
    emit(w, EventKind::SkillDropped, agent_id, skill)
}

fn emit(w: &mut Tx, kind: EventKind, agent_id: &AgentId, skill: &str) -> Result<()> {
    w.emit(NewEvent::new(kind, json!({ "skill": skill })).agent(agent_id))
}
