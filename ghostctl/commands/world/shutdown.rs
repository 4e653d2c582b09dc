//! `ghostctl shutdown`

use std::time::Duration;

use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{ShutdownRequest, StatusRequest};
use serde_json::json;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::{Failure, came_from_the_daemon, is_connection_failure};
use crate::output::Answer;
use crate::process::Process;
use crate::text::parse_duration;
use crate::wait::{Deadline, pause};

/// How often to check whether the daemon still listens.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Stop the daemon and wait until it has stopped
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl shutdown\n  ghostctl shutdown --grace 5s")]
pub struct Shutdown {
    /// Let open turns finish within this time (default: the world's setting)
    #[arg(long = "grace", id = "grace_ms", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    grace: Option<Duration>,
}

impl Shutdown {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let deadline = Deadline::after(client.timeout);
        // The daemon answers now. So if it does not listen later, it has stopped.
        let status = rpc!(client, WorldClient::status, StatusRequest {}).await?;
        let process = Process::behind(&client.endpoint).await;
        let request = ShutdownRequest {
            request_id: new_request_id(),
            grace_ms: self.grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX)),
        };
        let mut open_turns = status.open_turns;
        // The daemon's reason for not stopping yet, if it gave one.
        let mut refused = None;
        loop {
            let answer = deadline.within(WorldClient::new(client.transport()).shutdown(request.clone())).await;
            match answer {
                None => return Err(refused.unwrap_or_else(|| still_there(client))),
                Some(Ok(answer)) => {
                    open_turns = answer.into_inner().open_turns;
                    break;
                }
                // It may have stopped before it could answer. If it still listens, repeat the same request.
                Some(Err(status)) if is_connection_failure(&status) => {
                    if !client.endpoint.listens() {
                        break;
                    }
                    if came_from_the_daemon(&status) {
                        refused = Some(status.into());
                    }
                    if deadline.remaining() <= POLL_INTERVAL {
                        return Err(refused.unwrap_or_else(|| still_there(client)));
                    }
                    pause(POLL_INTERVAL).await;
                }
                Some(Err(status)) => return Err(status.into()),
            }
        }
        // The daemon closes its listeners after its database, and takes a few more steps before the process ends.
        while client.endpoint.listens() || process.as_ref().is_some_and(|process| !process.ended()) {
            if deadline.remaining() <= POLL_INTERVAL {
                return Err(still_there(client));
            }
            pause(POLL_INTERVAL).await;
        }
        Ok(Answer::object(
            json!({ "stopped": true, "world_id": status.world_id, "open_turns": open_turns }),
            format!("{} has stopped", status.name),
        ))
    }
}

fn still_there(client: &Client) -> Failure {
    Failure::new("timeout", format!("ghostd at {} has not stopped yet", client.endpoint))
        .hint("it is still stopping; wait, or use a shorter --grace")
}
