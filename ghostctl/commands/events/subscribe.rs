//! `ghostctl events`

use std::str::FromStr;
use std::time::Duration;

use ghost_proto::v1::events_client::EventsClient;
use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{Event, StatusRequest, SubscribeRequest, SubscribeResponse};
use tonic::{Status, Streaming};

use super::event_line::event_line;
use crate::connection::{ANSWER_BYTES, Client, Patience, lagged, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body, Output};
use crate::record;
use crate::view::View;
use crate::wait::Deadline;

/// A stream that stood for so long was a daemon at work, even if nothing happened in it.
const SETTLED: Duration = Duration::from_secs(1);

/// Print events, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --follow, the events that are kept are printed. With it, what happens next follows, over restarts of the
daemon too, without gap or repetition, until it has been away for longer than --timeout.

Examples:
  ghostctl events --kind 'turn.*' --agent chora
  ghostctl events --follow --after now
  ghostctl --json events --after 1200 | jq -c .payload")]
pub struct Subscribe {
    /// Go on with what happens next
    #[arg(long)]
    follow: bool,
    /// Only events after this sequence number, `now`, or from the `oldest` that is kept
    #[arg(long, value_name = "SEQ")]
    after: Option<After>,
    /// Of this kind, or family such as `turn.*`; may be given several times
    #[arg(long, value_name = "K", value_delimiter = ',')]
    kind: Vec<String>,
    /// About this agent
    #[arg(long, value_name = "A")]
    agent: Option<String>,
    /// In this channel
    #[arg(long, value_name = "C")]
    channel: Option<String>,
    /// With what is streamed only and never kept: words as models write them, progress of tools
    #[arg(long)]
    ephemeral: bool,
}

/// Kinds that are streamed only and never kept.
const STREAMED: [&str; 2] = ["model.delta", "tool.progress"];

/// Where to begin.
#[derive(Clone, Copy, Debug)]
enum After {
    /// After this sequence number.
    Seq(i64),
    /// After what has happened already.
    Now,
    /// With the oldest that is kept.
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

impl Subscribe {
    /// Why nothing of what is asked for would ever come, if so.
    fn in_vain(&self) -> Option<Failure> {
        let kinds: Vec<&str> = self.kind.iter().map(String::as_str).filter(|kind| STREAMED.contains(kind)).collect();
        let missing = match kinds.len() {
            0 => return None,
            _ if !self.ephemeral => "--ephemeral",
            all if all == self.kind.len() && !self.follow => "--follow",
            _ => return None,
        };
        let what =
            format!("{} is streamed only and never kept: without {missing} nothing of it comes", kinds.join(", "));
        Some(Failure::new("invalid_arguments", what).hint("give --follow and --ephemeral"))
    }

    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        if let Some(failure) = self.in_vain() {
            return Err(failure);
        }
        let after_seq = match self.after {
            None | Some(After::Oldest) => None,
            Some(After::Seq(seq)) => Some(seq),
            Some(After::Now) => Some(rpc!(client, WorldClient::status, StatusRequest {}).await?.last_seq),
        };
        let request = SubscribeRequest {
            // The daemon knows a family by its trailing dot.
            kinds: self.kind.iter().map(|kind| kind.strip_suffix('*').unwrap_or(kind).to_owned()).collect(),
            agent_id: self.agent,
            channel: self.channel,
            after_seq,
            follow: self.follow,
            ephemeral: self.ephemeral,
        };
        let view = client.view.clone();
        let form = Box::new(move |event: &Event, ephemeral| Some(line(event, ephemeral, as_json, &view)));
        Reader { request, form, seen: after_seq }.read(client, out).await?;
        Ok(Body::Printed.into())
    }
}

/// What is printed of an event, given whether it is ephemeral.
pub type Form = Box<dyn FnMut(&Event, bool) -> Option<String>>;

/// Reads the feed over as many connections as it takes.
pub struct Reader {
    /// What is wanted.
    pub request: SubscribeRequest,
    /// What is printed; nothing of what is passed over.
    pub form: Form,
    /// The sequence up to which everything wanted has been printed.
    pub seen: Option<i64>,
}

/// Why a connection ended.
enum End {
    /// The feed was read to its present.
    Done,
    /// The daemon went away, or said no.
    Status(Status),
}

impl Reader {
    /// Reads until the end of the feed, or, if it is followed, of patience with a daemon that is away.
    pub async fn read(&mut self, client: &Client, out: &mut Output) -> Result<(), Failure> {
        // How long the daemon may be away; begun anew by every connection that brought something.
        let mut away: Option<Patience> = None;
        loop {
            let mut alive = false;
            let end = self.connection(client, out, &mut alive).await;
            // Whatever comes next may take long; what is known is handed on first.
            out.flush()?;
            let status = match end? {
                End::Done => return Ok(()),
                End::Status(status) => status,
            };
            if alive {
                away = None;
            }
            // This reader was too slow: nothing is amiss with the daemon, which keeps the rest.
            if lagged(&status) && alive {
                continue;
            }
            away.get_or_insert_with(|| client.patience(client.timeout)).bear(client, status).await?;
        }
    }

    /// One subscription, from where the last one ended.
    async fn connection(&mut self, client: &Client, out: &mut Output, alive: &mut bool) -> Result<End, Failure> {
        let request = SubscribeRequest { after_seq: self.seen, ..self.request.clone() };
        let mut events = EventsClient::new(client.transport()).max_decoding_message_size(ANSWER_BYTES);
        let opening = Deadline::after(client.timeout).within(events.subscribe(request)).await;
        let mut stream: Streaming<SubscribeResponse> = match opening {
            None => {
                return Err(Failure::new("timeout", "the daemon did not open the event stream in time")
                    .hint("is it busy? --timeout sets how long to wait"));
            }
            Some(Err(status)) => return Ok(End::Status(status)),
            Some(Ok(response)) => {
                client.meet();
                response.into_inner()
            }
        };
        let settled = Deadline::after(SETTLED);
        let mut pending = false;
        loop {
            // What was printed is handed on as soon as nothing more is at hand, so that a reader at the other end of a
            // pipe sees each event when it happens, and a long past in few writes.
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
                // A stream that was to go on ends only because the daemon does.
                Ok(None) if self.request.follow => return Ok(End::Status(Status::unavailable("the daemon stopped"))),
                Ok(None) => return Ok(End::Done),
                Err(status) => return Ok(End::Status(status)),
            }
        }
    }

    /// Prints what is new in a message; says whether there was anything.
    fn print(&mut self, response: &SubscribeResponse, out: &mut Output) -> Result<bool, Failure> {
        let printed = match &response.event {
            // Ephemeral events bear the sequence that they follow and are never repeated.
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
        true => format!("{}\n", record::event(event, ephemeral)),
        false => event_line(event, ephemeral, view),
    }
}
