//! What keeps an agent from answering: a model that is down or a budget that is spent, told to whoever waits for the answer.
//!
//! Must never: delay or fail the call that it stands beside.

use std::time::Duration;

use ghost_proto::v1::GetAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use crate::connection::Client;
use crate::text::one_line;
use crate::wait::{Deadline, pause};

/// The agent is asked for so often, and no longer than this each time.
const LOOK: Duration = Duration::from_secs(1);
/// Characters of a reason.
const REASON: usize = 300;

/// Whom someone waits for.
#[derive(Debug, Default)]
pub struct Waits {
    /// What it waits for was told.
    told: bool,
}

impl Waits {
    /// Ends when the agent has begun to wait, with the line that says so; once each time that it does.
    pub async fn line(&mut self, client: &Client, agent_id: &str) -> String {
        loop {
            pause(LOOK).await;
            let request = GetAgentRequest { agent_id: agent_id.to_owned() };
            let mut service = AgentsClient::new(client.transport());
            // What is wrong with it is the business of the call that waits.
            let Some(Ok(answer)) = Deadline::after(LOOK).within(service.get(request)).await else { continue };
            match answer.into_inner().waits {
                Some(reason) if !self.told => {
                    self.told = true;
                    return format!("{agent_id} waits: {}; it goes on by itself", one_line(&reason, REASON));
                }
                waits => self.told = waits.is_some(),
            }
        }
    }
}
