//! `ghostctl events`: the event feed, also for other commands that watch.

mod line;

use std::str::FromStr;
use std::time::Duration;

use ghost_proto::json;
use ghost_proto::v1::{Event, SubscribeResponse};
use tonic::Status;

use self::line::event_line;
use crate::commands::prelude::*;
use crate::connection::{RetryWindow, lagged};
use crate::output::json_line;
use crate::wait::Deadline;

/// A stream that stays open this long shows that the daemon is working, even if no event arrived.
const SETTLED: Duration = Duration::from_secs(1);

/// Print events, oldest first
///
/// Without --follow, ghostctl prints the stored events and exits. With --follow, it then prints new events. The
/// stream continues across restarts of the daemon without gaps or repetition. It ends if the daemon is unreachable
/// for longer than --timeout.
///
/// Examples:
///   ghostctl events --kind 'turn.*' --agent chora
///   ghostctl events --follow --after now
///   ghostctl --json events --after 1200 | jq -c .payload
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Events {
    /// Continue with new events
    #[arg(long)]
    follow: bool,
    /// Start after this sequence number, at `now`, or at the `oldest` stored event (the default)
    #[arg(long = "after", id = "after_seq", value_name = "SEQ")]
    after: Option<After>,
    /// Print only this kind, or a family such as `turn.*`; may be repeated
    #[arg(long = "kind", id = "kinds", value_name = "K", value_delimiter = ',')]
    kind: Vec<String>,
    /// Print only events of this agent
    #[arg(long = "agent", id = "agent_id", value_name = "A")]
    agent: Option<String>,
    /// Print only events of this channel
    #[arg(long, value_name = "C")]
    channel: Option<String>,
    /// Include ephemeral events, which are not stored: model output as it is written, progress of tools
    #[arg(long)]
    ephemeral: bool,
}

/// The ephemeral kinds: streamed, but not stored.
const EPHEMERAL_KINDS: [&str; 2] = ["model.delta", "tool.progress"];

/// Where to start.
#[derive(Clone, Copy, Debug)]
enum After {
    /// After this sequence number.
    Seq(i64),
    /// After the newest event.
    Now,
    /// With the oldest stored event.
    Oldest,
}

impl FromStr for After {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "now" {
            return Ok(Self::Now);
        }
        if text == "oldest" {
            return Ok(Self::Oldest);
        }
        match text.parse() {
            Ok(seq) if seq >= 0 => Ok(Self::Seq(seq)),
            _ => Err("it must be a sequence number, 0 or more, or now or oldest".to_owned()),
        }
    }
}

impl Events {
    /// A failure if the options select only ephemeral kinds, but do not ask for ephemeral events.
    fn unreachable_kinds(&self) -> Option<Failure> {
        let kinds: Vec<&str> =
            self.kind.iter().map(String::as_str).filter(|kind| EPHEMERAL_KINDS.contains(kind)).collect();
        let missing = match kinds.len() {
            0 => return None,
            _ if !self.ephemeral => "--ephemeral",
            all if all == self.kind.len() && !self.follow => "--follow",
            _ => return None,
        };
        let what = format!("{} is ephemeral: it is printed only with {missing}", kinds.join(", "));
        Some(Failure::new("invalid_arguments", what).hint("use --follow and --ephemeral"))
    }

    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        if let Some(failure) = self.unreachable_kinds() {
            return Err(failure);
        }
        let after_seq = match self.after {
            None | Some(After::Oldest) => None,
            Some(After::Seq(seq)) => Some(seq),
            Some(After::Now) => Some(client.call(v1::StatusRequest {}).await?.last_seq),
        };
        let request = v1::SubscribeRequest {
            // On the wire, a family of kinds is a prefix with a trailing dot.
            kinds: self.kind.iter().map(|kind| kind.strip_suffix('*').unwrap_or(kind).to_owned()).collect(),
            agent_id: self.agent,
            channel: self.channel,
            after_seq,
            follow: self.follow,
            ephemeral: self.ephemeral,
        };
        let view = client.view.clone();
        let form = Box::new(move |event: &Event, ephemeral| Some(line(event, ephemeral, as_json, &view)));
        print_events(client, request, form, out).await
    }
}

/// Formats an event; the flag says whether it is ephemeral. `None` skips the event.
pub type Form = Box<dyn FnMut(&Event, bool) -> Option<String>>;

/// Prints the events that match a filter.
pub async fn print_events(
    client: &Client,
    filter: v1::SubscribeRequest,
    form: Form,
    out: &mut Output,
) -> Result<Answer, Failure> {
    Reader { seen: filter.after_seq, request: filter, form }.read(client, out).await?;
    Ok(Answer::default())
}

/// Reads the event feed and reconnects when the connection breaks.
struct Reader {
    /// The filter.
    request: v1::SubscribeRequest,
    /// The format of a printed event.
    form: Form,
    /// All matching events up to this sequence number are printed.
    seen: Option<i64>,
}

/// Why a connection ended.
enum End {
    /// All stored events were read.
    Done,
    /// The connection broke, or the daemon refused the request.
    Status(Status),
}

impl Reader {
    /// Reads to the end of the stored events. With `follow`, reads until the daemon is unreachable
    /// for longer than the timeout.
    async fn read(&mut self, client: &Client, out: &mut Output) -> Result<(), Failure> {
        // The retry period. Each connection that delivered an item starts a new period.
        let mut retries: Option<RetryWindow> = None;
        loop {
            let mut alive = false;
            let end = self.connection(client, out, &mut alive).await;
            // A reconnect may take long, so the buffered output is printed first.
            out.flush()?;
            let status = match end? {
                End::Done => return Ok(()),
                End::Status(status) => status,
            };
            if alive {
                retries = None;
            }
            // This client read too slowly and was disconnected. The daemon is fine and has stored the rest.
            if lagged(&status) && alive {
                continue;
            }
            retries.get_or_insert_with(|| client.retry_window(client.timeout)).wait_or_fail(client, status).await?;
        }
    }

    /// One subscription, continuing after the last printed event.
    async fn connection(&mut self, client: &Client, out: &mut Output, alive: &mut bool) -> Result<End, Failure> {
        let request = v1::SubscribeRequest { after_seq: self.seen, ..self.request.clone() };
        let mut stream = match client.open("event stream", request).await? {
            Ok(stream) => stream,
            Err(status) => return Ok(End::Status(status)),
        };
        let settled = Deadline::after(SETTLED);
        let mut pending = false;
        loop {
            // Flush as soon as no further message is ready. So a reader of a pipe sees each event at once, and a long
            // history takes few writes.
            let message = tokio::select! {
                biased;
                message = stream.message() => message,
                () = std::future::ready(()), if pending => {
                    out.flush()?;
                    pending = false;
                    continue;
                }
            };
            *alive |= settled.remaining().is_zero();
            match message {
                Ok(Some(response)) => {
                    *alive = true;
                    pending |= self.print(&response, out)?;
                }
                // A followed stream ends only when the daemon stops.
                Ok(None) if self.request.follow => return Ok(End::Status(Status::unavailable("the daemon stopped"))),
                Ok(None) => return Ok(End::Done),
                Err(status) => return Ok(End::Status(status)),
            }
        }
    }

    /// Prints the event of a message if it is new. Returns whether anything was printed.
    fn print(&mut self, response: &SubscribeResponse, out: &mut Output) -> Result<bool, Failure> {
        let printed = match &response.event {
            // An ephemeral event has the sequence number of the event before it and is never repeated.
            Some(event) if response.ephemeral || self.seen.is_none_or(|seen| event.seq > seen) => {
                let line = (self.form)(event, response.ephemeral);
                if let Some(line) = &line {
                    out.text(line)?;
                }
                line.is_some()
            }
            _ => false,
        };
        let reached = match &response.event {
            Some(event) if !response.ephemeral => response.position_seq.max(event.seq),
            _ => response.position_seq,
        };
        if reached > 0 {
            self.seen = Some(self.seen.map_or(reached, |seen| seen.max(reached)));
        }
        Ok(printed)
    }
}

fn line(event: &Event, ephemeral: bool, as_json: bool, view: &View) -> String {
    match as_json {
        true => json_line(&json::event(event, ephemeral)),
        false => event_line(event, ephemeral, view),
    }
}
