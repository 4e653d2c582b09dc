//! Unary reads over a Unix socket, 64 in flight: `Agents.Get` of a running daemon. The floor is a service in
//! another process that returns the same bytes without any work.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ghost_proto::v1::GetAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;
use tonic::transport::{Channel, Endpoint};

use crate::child::Child;
use crate::empty_service::in_hex;
use crate::fixture;
use crate::measure::{Outcome, median, now, pause, runtime};
use crate::table::{Line, Sense};

const IN_FLIGHT: usize = 64;
/// Number of connections. A single one would measure the client.
const CONNECTIONS: usize = 8;
/// Number of requests in one round, for each of those in flight.
const EACH: usize = 250;
const ROUNDS: usize = 9;
/// Maximum number of tries to connect to a starting server, 10 ms apart.
const LOOKS: usize = 1_000;
const AGENT: &str = "primus";

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let dir = tempfile::tempdir()?;
    let (world, data, bare) = (dir.path().join("newsroom"), dir.path().join("data"), dir.path().join("empty.sock"));
    fixture::idle_newsroom(&world)?;
    let daemon = Child::daemon(&world, &data)?;
    let line = runtime()?.block_on(async {
        let ours = Arc::new(connect(&data.join("ghostd.sock")).await?);
        let request = GetAgentRequest { agent_id: AGENT.into() };
        let answer = AgentsClient::new(ours[0].clone()).get(request).await?.into_inner();
        let server = Child::part("empty-service", &[&bare.display().to_string(), &in_hex(&answer)])?;
        let floor = Arc::new(connect(&bare).await?);
        let (mut ours_rates, mut floor_rates) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let (ours, floor) = (reads(&ours).await?, reads(&floor).await?);
            // The first round warms up both.
            if round > 0 {
                ours_rates.push(ours);
                floor_rates.push(floor);
            }
        }
        drop(server);
        let (ours, floor) = (median(ours_rates), median(floor_rates));
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Line {
            what: "unary gRPC read, Unix socket, 64 in flight",
            floor: format!("{floor:.0}/s"),
            ours: format!("{ours:.0}/s"),
            ratio: ours / floor,
            bar: 0.7,
            aim: 0.9,
            sense: Sense::AtLeast,
        })
    })?;
    daemon.terminate()?;
    Ok(vec![line])
}

/// Connects to a server that may still be starting.
async fn connect(socket: &Path) -> Outcome<Vec<Channel>> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
    let mut channels = Vec::with_capacity(CONNECTIONS);
    for _ in 0..LOOKS {
        match endpoint.connect().await {
            Ok(channel) => channels.push(channel),
            Err(_) => pause(Duration::from_millis(10)).await,
        }
        if channels.len() == CONNECTIONS {
            return Ok(channels);
        }
    }
    Err(format!("nothing serves {}", socket.display()).into())
}

/// Runs one round. Returns requests per second.
async fn reads(channels: &Arc<Vec<Channel>>) -> Outcome<f64> {
    let began = now();
    let readers: Vec<_> = (0..IN_FLIGHT)
        .map(|reader| {
            let mut client = AgentsClient::new(channels[reader % channels.len()].clone());
            tokio::spawn(async move {
                for _ in 0..EACH {
                    client.get(GetAgentRequest { agent_id: AGENT.into() }).await?;
                }
                Ok::<_, tonic::Status>(())
            })
        })
        .collect();
    for reader in readers {
        reader.await??;
    }
    Ok((IN_FLIGHT * EACH) as f64 / began.elapsed().as_secs_f64())
}
