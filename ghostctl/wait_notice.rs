//! Notices for a user who waits for an answer: the agent waits for a model that is down, for a spent
//! budget or for an approval.
//!
//! A notice must never delay or fail the call that the user waits for.

use std::time::Duration;

use ghost_proto::v1::GetAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use crate::connection::Client;
use crate::text::one_line;
use crate::wait::{Deadline, pause};

/// Interval between two reads of the agent's state, and the time limit of each.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A reason is truncated to this many characters.
const REASON_CHARACTERS: usize = 300;

/// Polls an agent and reports when it starts to wait.
#[derive(Debug, Default)]
pub struct WaitNotice {
    /// Whether the current wait was reported.
    reported: bool,
}

impl WaitNotice {
    /// Completes when the agent starts to wait, with the line to print. Reports each wait once.
    pub async fn line(&mut self, client: &Client, agent_id: &str) -> String {
        loop {
            pause(POLL_INTERVAL).await;
            let request = GetAgentRequest { agent_id: agent_id.to_owned() };
            let mut service = AgentsClient::new(client.transport());
            // Errors are ignored here: the call that the user waits for reports its own.
            let Some(Ok(answer)) = Deadline::after(POLL_INTERVAL).within(service.get(request)).await else { continue };
            match answer.into_inner().waits {
                Some(reason) if !self.reported => {
                    self.reported = true;
                    return format!("{agent_id} waits: {}", one_line(&reason, REASON_CHARACTERS));
                }
                waits => self.reported = waits.is_some(),
            }
        }
    }
}
