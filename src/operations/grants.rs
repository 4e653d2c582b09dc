//! Write grants: operators let an agent write to a directory for some time.
//!
//! Every change is an event and a signal, so that no agent's rights are remembered for longer than they hold.

use ghost_domain::grant::NewGrant;

use crate::lookup;
use crate::prelude::*;

/// Makes a grant. It holds from the next call of the agent.
///
/// # Errors
/// `NotFound` for an unknown or deleted agent; the errors of [`NewGrant::checked`]; `RateLimited` above
/// `limits.grants_max`.
pub fn add(w: &mut Tx, by: &Party, new: NewGrant) -> Result<Grant> {
    let ctx = w.ctx;
    let agent = lookup::agent_for(w, by, &new.agent_id)?;
    let grant = new.checked(GrantId(ctx.id()), by.clone(), ctx.now())?;
    let live = u32::try_from(w.grants_live(&agent.agent_id, ctx.now())?.len()).unwrap_or(u32::MAX);
    let what = format!("write grants are held by {}", agent.agent_id);
    at_most("grants_max", live, ctx.limits().grants_max, &what, "revoke one, or grant a directory above several")?;
    w.grant_put(&grant)?;
    let payload = json!({
        "grant_id": grant.grant_id, "prefix": grant.prefix, "source": grant.source, "reason": grant.reason,
        "by": by, "expires_at": grant.expires_at,
    });
    w.emit(NewEvent::new(EventKind::GrantCreated, payload).agent(&grant.agent_id))?;
    w.signal(Signal::Grants(grant.agent_id.clone()));
    Ok(grant)
}

/// Takes a grant back. The next call of the agent is refused.
///
/// # Errors
/// `NotFound` if there is no such grant, or none any more.
pub fn revoke(w: &mut Tx, by: &Party, grant_id: GrantId) -> Result<Grant> {
    match w.grant_get(grant_id)? {
        Some(grant) if grant.is_live(w.ctx.now()) => take_back(w, by, grant),
        _ => Err(Refusal::not_found("write grant", &grant_id.to_string(), None)
            .hint("list the grants; one that was revoked or is over is not among them")),
    }
}

/// Takes all grants of an agent back, because the agent is deleted: the next agent of that id must not have
/// them.
pub(crate) fn revoke_all(w: &mut Tx, by: &Party, agent_id: &AgentId) -> Result<()> {
    let now = w.ctx.now();
    loop {
        let live = w.grants_live(agent_id, now)?;
        if live.is_empty() {
            return Ok(());
        }
        for grant in live {
            take_back(w, by, grant)?;
        }
    }
}

fn take_back(w: &mut Tx, by: &Party, grant: Grant) -> Result<Grant> {
    w.grant_remove(grant.grant_id)?;
    let payload = json!({ "grant_id": grant.grant_id, "prefix": grant.prefix, "by": by });
    w.emit(NewEvent::new(EventKind::GrantRevoked, payload).agent(&grant.agent_id))?;
    w.signal(Signal::Grants(grant.agent_id.clone()));
    Ok(grant)
}

/// The event for a use of a grant. `path` is the file that was written; without it, a command ran that could
/// write below the grant's prefix.
#[must_use]
pub fn used(agent_id: &AgentId, turn_id: TurnId, call_id: CallId, grant_id: GrantId, path: Option<&str>) -> NewEvent {
    let payload = json!({ "grant_id": grant_id, "path": path, "turn_id": turn_id, "call_id": call_id });
    NewEvent::new(EventKind::GrantUsed, payload).agent(agent_id).correlation(turn_id)
}
