//! The cost of width and age: a world of 20,000 agents and 100,000 turns compared with one of 10 and 1,000. Each
//! figure is the time for one row that is shown; of a start, for one agent.
//!
//! A row must never be counted that was not shown.

use std::path::Path;

use ghost_domain::time::BoxFuture;
use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::budgets_client::BudgetsClient;
use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{ListAgentsRequest, StatusRequest, UsageRequest};
use ghost_testkit::aged;
use tonic::transport::{Channel, Endpoint};

use super::age::{Site, line, start};
use super::ready::answer;
use crate::measure::{Outcome, now, runtime};
use crate::table::Line;

/// Agents and turns of the two worlds.
const NARROW: (usize, u64) = (10, 1_000);
const WIDE: (usize, u64) = (20_000, 100_000);
const STARTS: usize = 3;
const ROUNDS: usize = 5;

/// Runs one command, as `ghostctl` does. Returns the number of rows that it shows.
type Ask = fn(Channel) -> BoxFuture<'static, Outcome<usize>>;

const ASKS: [(&str, Ask); 4] = [
    ("age: status of 20,000 agents", |channel| {
        Box::pin(async move {
            WorldClient::new(channel).status(StatusRequest {}).await?;
            Ok(1)
        })
    }),
    ("age: agent list of 20,000 agents, a row", |channel| {
        Box::pin(async move {
            let (mut rows, mut cursor) = (0, String::new());
            loop {
                let request = ListAgentsRequest { limit: 200, cursor, ..Default::default() };
                let page = AgentsClient::new(channel.clone()).list(request).await?.into_inner();
                rows += page.agents.len();
                cursor = page.next_cursor;
                if cursor.is_empty() {
                    return Ok(rows);
                }
            }
        })
    }),
    ("age: usage of 20,000 agents, a row", |channel| Box::pin(usage(channel, None))),
    ("age: usage of 20,000 agents since a day, a row", |channel| {
        Box::pin(async move {
            let status = WorldClient::new(channel.clone()).status(StatusRequest {}).await?.into_inner();
            usage(channel, Some(status.now_at_ms - 86_400_000)).await
        })
    }),
];

async fn usage(channel: Channel, since_at_ms: Option<i64>) -> Outcome<usize> {
    let (mut rows, mut cursor) = (0, String::new());
    loop {
        let request = UsageRequest { since_at_ms, cursor, ..Default::default() };
        let page = BudgetsClient::new(channel.clone()).usage(request).await?.into_inner();
        rows += page.sums.len();
        cursor = page.next_cursor;
        if cursor.is_empty() {
            return Ok(rows);
        }
    }
}

/// Measures all rows of this module. `young` is the database of a world that has run; nothing has it open.
pub(super) fn measure(dir: &Path, young: &Path, url: &str) -> Outcome<Vec<Line>> {
    let made = |name: &str, (agents, turns)| -> Outcome<Site> {
        let site = Site::with_agents(&dir.join(name), agents, url)?;
        aged::age(young, &site.database(), turns)?;
        aged::spread(&site.database(), agents)?;
        // The first start makes the agents.
        start(&site)?;
        Ok(site)
    };
    let (narrow, wide) = (made("narrow", NARROW)?, made("wide", WIDE)?);
    let (mut of_narrow, mut of_wide) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        of_narrow.push(start(&narrow)? / NARROW.0 as f64);
        of_wide.push(start(&wide)? / WIDE.0 as f64);
    }
    let mut lines = vec![line("age: `ghostd up` with 20,000 agents, an agent", of_narrow, of_wide)];
    let daemons = (narrow.daemon()?, wide.daemon()?);
    lines.extend(runtime()?.block_on(asked(&narrow, &wide))?);
    daemons.0.terminate()?;
    daemons.1.terminate()?;
    Ok(lines)
}

async fn asked(narrow: &Site, wide: &Site) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    let (narrow, wide) = (connect(narrow).await?, connect(wide).await?);
    for (what, ask) in ASKS {
        let (mut of_narrow, mut of_wide) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let (narrow, wide) = (timed(ask, &narrow).await?, timed(ask, &wide).await?);
            // The first round warms up both daemons.
            if round > 0 {
                of_narrow.push(narrow);
                of_wide.push(wide);
            }
        }
        lines.push(line(what, of_narrow, of_wide));
    }
    Ok(lines)
}

async fn connect(site: &Site) -> Outcome<Channel> {
    answer(&site.socket()).await?;
    Ok(Endpoint::from_shared(format!("unix://{}", site.socket().display()))?.connect().await?)
}

/// Seconds for one row.
async fn timed(ask: Ask, channel: &Channel) -> Outcome<f64> {
    let began = now();
    let rows = ask(channel.clone()).await?;
    Ok(began.elapsed().as_secs_f64() / rows.max(1) as f64)
}
