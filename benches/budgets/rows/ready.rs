//! Time from the start of `ghostd up` to its first answer, and its peak memory until then, with six agents and an
//! existing database. The floor opens the same database and serves an empty service.

use std::path::Path;
use std::time::Duration;

use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::{GetAgentResponse, ListAgentsRequest};
use rusqlite::Connection;
use tonic::transport::Endpoint;

use crate::child::Child;
use crate::measure::{Outcome, median, now, pause, runtime};
use crate::table::{Line, Sense};
use crate::{empty_service, fixture};

const ROUNDS: usize = 21;
/// Maximum time of a start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two tries to reach a server that has not bound its socket yet.
const LOOK: Duration = Duration::from_micros(200);

/// Measures the rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let dir = tempfile::tempdir()?;
    let (world, data) = (dir.path().join("newsroom"), dir.path().join("data"));
    let (database, bare) = (data.join("ghost.db"), dir.path().join("bare.sock"));
    fixture::idle_newsroom(&world)?;
    let runtime = runtime()?;
    let start_ours = || -> Outcome<(f64, f64)> {
        let began = now();
        let daemon = Child::daemon(&world, &data)?;
        let agents = runtime.block_on(answer(&data.join("ghostd.sock")))?;
        let taken = (began.elapsed().as_secs_f64(), daemon.peak_rss()? as f64);
        daemon.terminate()?;
        match agents {
            6 => Ok(taken),
            other => Err(format!("the newsroom has {other} agents, not six").into()),
        }
    };
    let start_floor = || -> Outcome<(f64, f64)> {
        // A killed helper leaves its socket. An error means that there is none.
        drop(std::fs::remove_file(&bare));
        let began = now();
        let server = Child::part("bare-up", &[&database.display().to_string(), &bare.display().to_string()])?;
        runtime.block_on(answer(&bare))?;
        Ok((began.elapsed().as_secs_f64(), server.peak_rss()? as f64))
    };
    // The first start creates the database and fills the page cache with both programs.
    start_ours()?;
    start_floor()?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(start_ours()?);
        floor.push(start_floor()?);
    }
    let middle = |rounds: &[(f64, f64)]| {
        let (times, sizes) = rounds.iter().copied().unzip();
        (median(times), median(sizes))
    };
    let ((time, size), (floor_time, floor_size)) = (middle(&ours), middle(&floor));
    let line = |what, floor: String, ours: String, ratio| Line {
        what,
        floor,
        ours,
        ratio,
        bar: 3.0,
        aim: 1.5,
        sense: Sense::AtMost,
    };
    let (ms, mb) = (|seconds: f64| format!("{:.1} ms", seconds * 1e3), |bytes: f64| format!("{:.1} MB", bytes / 1e6));
    Ok(vec![
        line("`ghostd up` to ready, six agents: time", ms(floor_time), ms(time), time / floor_time),
        line("`ghostd up` to ready, six agents: memory", mb(floor_size), mb(size), size / floor_size),
    ])
}

/// Waits for the first answer of the server at `socket`. Returns the number of agents in it.
pub(super) async fn answer(socket: &Path) -> Outcome<usize> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
    let began = now();
    loop {
        if let Ok(channel) = endpoint.connect().await {
            match AgentsClient::new(channel).list(ListAgentsRequest { limit: 100, ..Default::default() }).await {
                Ok(answer) => return Ok(answer.into_inner().agents.len()),
                Err(status) if began.elapsed() > PATIENCE => return Err(status.into()),
                Err(_) => {}
            }
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("nothing answers at {}", socket.display()).into());
        }
        pause(LOOK).await;
    }
}

/// The helper process of the floor.
pub fn bare(database: &str, socket: &str) -> Outcome<()> {
    runtime()?.block_on(async {
        // It stays open while the service runs, so that its memory counts.
        let connection = Connection::open(database)?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
        let agents: i64 = connection.query_row("SELECT count(*) FROM agents", [], |row| row.get(0))?;
        if agents == 0 {
            return Err("the database holds no agents".into());
        }
        empty_service::serve(Path::new(socket), GetAgentResponse::default()).await
    })
}
