//! Reading the event feed from storage up to the encoded gRPC message. The floor runs the same query on the same
//! file, page by page and on the calling thread, and encodes each message from its row.

use std::path::Path;

use ghost_control::convert;
use ghost_domain::event::EventFilter;
use ghost_operations::feed::Subscription;
use ghost_proto::v1::{Event, SubscribeResponse};
use ghost_store::Store;
use prost::Message;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use crate::measure::{Outcome, median, now};
use crate::table::{Line, Sense};

/// Number of events in one round.
const EVENTS: usize = 14_000;
/// Number of rows in one page of the feed.
const PAGE: i64 = 256;
const ROUNDS: usize = 7;

/// Measures the row of this module.
pub(super) async fn measure(store: &Store, database: &Path) -> Outcome<Vec<Line>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(database, flags)?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (read, bare) = (feed(store).await?, bare(&conn)?);
        if read.1 != bare.1 {
            return Err(format!("the feed gave {} bytes, and the floor {}", read.1, bare.1).into());
        }
        if round > 0 {
            ours.push(read.0);
            floor.push(bare.0);
        }
    }
    let (ours, floor) = (median(ours), median(floor));
    Ok(vec![Line {
        what: "age: reading the feed from storage, the bare query and encoding",
        floor: format!("{floor:.0}/s"),
        ours: format!("{ours:.0}/s"),
        ratio: ours / floor,
        bar: 0.5,
        aim: 0.8,
        sense: Sense::AtLeast,
    }])
}

/// Reads through a subscription. Returns events per second, and the bytes of their messages.
async fn feed(store: &Store) -> Outcome<(f64, usize)> {
    let began = now();
    let mut subscription = Subscription::open(store, Some(0), EventFilter::default(), false).await?;
    let (mut seen, mut bytes, mut buffer) = (0, 0, Vec::new());
    while seen < EVENTS {
        let Some(event) = subscription.next().await? else { break };
        let message =
            SubscribeResponse { position_seq: event.seq, event: Some(convert::event(&event)), ephemeral: false };
        buffer.clear();
        message.encode(&mut buffer)?;
        bytes += buffer.len();
        seen += 1;
    }
    Ok((seen as f64 / began.elapsed().as_secs_f64(), bytes))
}

/// The floor: the same with plain SQL.
fn bare(conn: &Connection) -> Outcome<(f64, usize)> {
    const SQL: &str = "SELECT seq, event_id, ts, kind, agent_id, channel, correlation_id, payload, correlation \
        FROM events WHERE seq > ? ORDER BY seq LIMIT ?";
    let mut page = conn.prepare_cached(SQL)?;
    let began = now();
    let (mut seen, mut after, mut bytes, mut buffer) = (0, 0_i64, 0, Vec::new());
    while seen < EVENTS {
        let seen_before = seen;
        let mut rows = page.query((after, PAGE))?;
        while seen < EVENTS {
            let Some(row) = rows.next()? else { break };
            after = row.get(0)?;
            // Parts of the stored identifiers are in the rows and in the payload.
            let (correlation, payload) = (row.get_ref(8)?.as_blob_or_null()?, row.get_ref(7)?.as_str()?);
            let correlation = correlation.map(Uuid::from_slice).transpose()?.map(|id| id.to_string());
            let event = Event {
                seq: after,
                event_id: Uuid::from_slice(row.get_ref(1)?.as_blob()?)?.to_string(),
                ts_ms: row.get(2)?,
                kind: row.get(3)?,
                agent_id: row.get(4)?,
                channel: row.get(5)?,
                payload_json: correlation.as_ref().map_or(payload.to_owned(), |id| payload.replace('\u{1}', id)),
                correlation_id: match correlation {
                    Some(id) => Some(id),
                    None => row.get(6)?,
                },
            };
            let message = SubscribeResponse { position_seq: after, event: Some(event), ephemeral: false };
            buffer.clear();
            message.encode(&mut buffer)?;
            bytes += buffer.len();
            seen += 1;
        }
        if seen == seen_before {
            break;
        }
    }
    Ok((seen as f64 / began.elapsed().as_secs_f64(), bytes))
}
