//! Rows and queries of the skills that agents hold.

use ghost_domain::{AgentId, HeldSkill};

use crate::error::Result;
use crate::row::{Args, Keyed, ReadRow, Row, from_record, to_json};
use crate::sql::{Sql, sql};
use crate::tx::Tx;

impl Row for HeldSkill {
    const TABLE: &'static str = "agent_skills";
    const WRITE: Sql = sql!(
        "INSERT INTO agent_skills (agent_id, skill, record) VALUES ($1, $2, $3) ON CONFLICT (agent_id, \
        skill) DO UPDATE SET record = excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.text(self.agent_id.as_str()).text(&self.skill).put(to_json(Self::TABLE, &self.skill, self)?);
        Ok(())
    }
}

impl Keyed for HeldSkill {
    type Key = (AgentId, String);
    const SELECT: Sql = sql!("SELECT record FROM agent_skills WHERE agent_id = $1 AND skill = $2");

    fn bind_key(key: &Self::Key, args: &mut Args) {
        args.text(key.0.as_str()).text(&key.1);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Tx {
    /// The skills that an agent holds, in order of name.
    pub fn skills_held(&mut self, agent_id: &AgentId) -> Result<Vec<HeldSkill>> {
        let mut args = Args::default();
        args.text(agent_id.as_str());
        self.list(sql!("SELECT record FROM agent_skills WHERE agent_id = $1 ORDER BY skill"), args)
    }
}

impl Tx {
    /// Inserts or replaces a held skill.
    pub fn skill_put(&mut self, held: &HeldSkill) -> Result<()> {
        self.put(held)
    }

    /// Removes a held skill. Returns whether it existed.
    pub fn skill_remove(&mut self, agent_id: &AgentId, skill: &str) -> Result<bool> {
        let mut args = Args::default();
        args.text(agent_id.as_str()).text(skill);
        let sql = sql!("DELETE FROM agent_skills WHERE agent_id = $1 AND skill = $2");
        Ok(self.execute(sql, args)? > 0)
    }
}
