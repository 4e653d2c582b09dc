//! `ghostctl shutdown`

use std::time::Duration;

use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{ShutdownRequest, StatusRequest};
use serde_json::json;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::{Failure, came_from_the_daemon, is_lost};
use crate::output::Answer;
use crate::process::Process;
use crate::text::parse_duration;
use crate::wait::{Deadline, pause};

/// How often it is looked whether the daemon still listens.
const LOOK: Duration = Duration::from_millis(50);

/// Stop the daemon in order, and return when it is gone
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl shutdown\n  ghostctl shutdown --grace 5s")]
pub struct Shutdown {
    /// How long open turns may take to finish; the world's setting by default
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,
}

impl Shutdown {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let deadline = Deadline::after(client.timeout);
        // From here on the daemon is known to be there, so that its absence later means that it has stopped.
        let status = rpc!(client, WorldClient::status, StatusRequest {}).await?;
        let process = Process::behind(&client.endpoint).await;
        let request = ShutdownRequest {
            request_id: new_request_id(),
            grace_ms: self.grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX)),
        };
        let mut open_turns = status.open_turns;
        // Why it has not begun to stop, if it says so.
        let mut refused = None;
        loop {
            let answer = deadline.within(WorldClient::new(client.transport()).shutdown(request.clone())).await;
            match answer {
                None => return Err(refused.unwrap_or_else(|| still_there(client))),
                Some(Ok(answer)) => {
                    open_turns = answer.into_inner().open_turns;
                    break;
                }
                // It may have gone before it could answer. If it still listens, the same request is asked again.
                Some(Err(status)) if is_lost(&status) => {
                    if !client.endpoint.listens() {
                        break;
                    }
                    if came_from_the_daemon(&status) {
                        refused = Some(status.into());
                    }
                    if deadline.remaining() <= LOOK {
                        return Err(refused.unwrap_or_else(|| still_there(client)));
                    }
                    pause(LOOK).await;
                }
                Some(Err(status)) => return Err(status.into()),
            }
        }
        // It lets its doors go when its database is closed, and has a few steps left then.
        while client.endpoint.listens() || process.as_ref().is_some_and(|process| !process.ended()) {
            if deadline.remaining() <= LOOK {
                return Err(still_there(client));
            }
            pause(LOOK).await;
        }
        Ok(Answer::object(
            json!({ "stopped": true, "world_id": status.world_id, "open_turns": open_turns }),
            format!("{} has stopped", status.name),
        ))
    }
}

fn still_there(client: &Client) -> Failure {
    Failure::new("timeout", format!("ghostd at {} has not stopped yet", client.endpoint))
        .hint("it goes on stopping; wait, or give it less --grace")
}
