//! The `Skills` service: the skills of the world, and which of them an agent holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_config::skills::Skill;
use ghost_domain::text::nearest;
use ghost_domain::{AgentId, HeldSkill, Refusal};
use ghost_operations::mail;
use ghost_proto::v1;
use ghost_proto::v1::skills_server::Skills;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::input;
use crate::refusal::to_status;
use crate::{caller, queries};

/// Largest length of a skill's name, in characters.
const NAME_MAX: usize = 128;
/// The name of the list in its cursors.
const LIST: &str = "skills";

/// Implements `ghost.v1.Skills`.
pub struct SkillsService(pub Control);

fn shown(skill: &Skill, held: &[HeldSkill]) -> v1::Skill {
    let hold = held.iter().find(|hold| hold.skill == skill.name);
    v1::Skill {
        name: skill.name.clone(),
        description: skill.description.clone(),
        eligible: skill.missing.is_empty(),
        missing: skill.missing.clone(),
        path: skill.root.join(&skill.path).display().to_string(),
        held: hold.is_some(),
        active: hold.is_some_and(|hold| hold.active),
        faults: u32::try_from(skill.faults.len()).unwrap_or(u32::MAX),
    }
}

impl SkillsService {
    /// The filter of an agent and what it holds.
    async fn of_agent(&self, agent_id: AgentId) -> Result<(Option<BTreeSet<String>>, Vec<HeldSkill>), Refusal> {
        let world = &self.0.world;
        let read = world.store().read(move |r| {
            let agent = mail::agent_named(r, &agent_id)?;
            let held = r.skills_held(&agent.agent_id)?;
            Ok::<_, Refusal>((agent, held))
        });
        let (agent, held) = read.await?;
        // An agent that cannot run has no skills to choose from.
        let filter = world.plan().spec_for(&agent)?.skills;
        Ok((filter, held))
    }

    pub(crate) async fn page(&self, request: v1::ListSkillsRequest) -> Result<v1::ListSkillsResponse, Refusal> {
        let after = input::unseal(LIST, &request.cursor)?;
        let agent_id: Option<AgentId> = input::parsed_if("agent_id", request.agent_id.as_deref())?;
        let skills = self.0.world.engine().services.skills();
        let (selected, held): (Vec<Arc<Skill>>, Vec<HeldSkill>) = match agent_id {
            None => (skills.all().values().cloned().collect(), Vec::new()),
            Some(agent_id) => {
                let (filter, held) = self.of_agent(agent_id).await?;
                (skills.visible(filter.as_ref()).cloned().collect(), held)
            }
        };
        let mut rest: Vec<&Arc<Skill>> = selected.iter().filter(|skill| skill.name.as_str() > after).collect();
        rest.sort_by(|one, other| one.name.cmp(&other.name));
        let rows = rest.iter().take(input::page(request.limit)).map(|skill| shown(skill, &held));
        let (skills, _) = queries::within_bytes(rows, false);
        let next_cursor = skills.last().filter(|_| skills.len() < rest.len()).map(|last| input::seal(LIST, &last.name));
        Ok(v1::ListSkillsResponse { next_cursor: next_cursor.unwrap_or_default(), skills })
    }

    pub(crate) fn one(&self, request: &v1::GetSkillRequest) -> Result<v1::GetSkillResponse, Refusal> {
        let name = input::line("name", &request.name, NAME_MAX)?;
        let skills = self.0.world.engine().services.skills();
        match skills.get(&name) {
            Some(skill) => Ok(v1::GetSkillResponse { skill: Some(shown(skill, &[])), document: skill.text() }),
            None => {
                let near = nearest(&name, skills.all().keys().map(String::as_str));
                Err(Refusal::not_found("skill", &name, near))
            }
        }
    }
}

#[tonic::async_trait]
impl Skills for SkillsService {
    async fn list(&self, request: Request<v1::ListSkillsRequest>) -> Result<Response<v1::ListSkillsResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn get(&self, request: Request<v1::GetSkillRequest>) -> Result<Response<v1::GetSkillResponse>, Status> {
        caller::party(&request)?;
        self.one(request.get_ref()).map(Response::new).map_err(to_status)
    }
}
