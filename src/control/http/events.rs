//! The feed over HTTP: as server-sent events, and as a WebSocket. Both take the same parameters and give the same objects.
//!
//! Must never: end a stream without saying after which sequence to go on, as far as the reader still listens.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Uri};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, Stream as Flow, StreamExt};
use ghost_domain::text::prefix_bytes;
use ghost_domain::{Code, Limits, Refusal};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite;

use super::admission::{self, Admitted, TICKET};
use super::failed::{Failed, body, http_status, in_an_address};
use super::params::Params;
use super::rest::{Rest, Shared};
use crate::convert::input::bad;
use crate::streams::{self, DrainTimeout, Ended, Item, Start, Stream, Wanted, Why};

/// Bytes of a frame from a reader, who has nothing to say but "close" and "pong".
const FRAME_MAX: usize = 4 * 1024;
/// Bytes of the reason in a closing frame.
const REASON_MAX: usize = 123;
/// Items taken from the queue at once.
const AT_ONCE: usize = 64;

/// How the end of a stream is waited for.
fn drain_timeout(rest: &Rest) -> DrainTimeout {
    let ctx = rest.control.world.ctx();
    DrainTimeout::new(Arc::clone(&ctx.ports.clock), Limits::seconds(ctx.limits().reader_stall_seconds))
}

fn wanted(uri: &Uri, headers: &HeaderMap) -> Result<(Wanted, Naming), Refusal> {
    let params = Params::read(uri, &["agent", "channel", "after", "ephemeral", "unnamed", TICKET], &["kind"])?;
    // A browser that comes back repeats its first address, and says in the header how far it got since.
    let start = match headers.get("last-event-id").filter(|value| !value.is_empty()) {
        Some(value) => {
            let text = value.to_str().unwrap_or_default();
            Start::After(text.parse().map_err(|_| {
                bad("Last-Event-ID", "is no sequence number").hint("send the `id` of the last event that you have seen")
            })?)
        }
        None => match params.get("after") {
            None | Some("oldest" | "0") => Start::Oldest,
            Some("now") => Start::Now,
            Some(text) => Start::After(text.parse().ok().filter(|after| *after >= 0).ok_or_else(|| {
                let what = format!("`{}` is no sequence number", ghost_domain::text::clip(text, 40));
                bad("after", &what).hint("write the sequence to go on after, or `oldest` or `now`")
            })?),
        },
    };
    let naming = if params.flag("unnamed")? { Naming::None } else { Naming::Kind };
    let wanted = Wanted {
        kinds: params.all("kind"),
        agent_id: params.text("agent"),
        channel: params.text("channel"),
        start,
        follow: true,
        ephemeral: params.flag("ephemeral")?,
    };
    Ok((wanted, naming))
}

/// What server-sent events are called. `EventSource.onmessage` gets only those without a name, so a page may ask for them.
#[derive(Clone, Copy)]
enum Naming {
    /// By their kind.
    Kind,
    /// Not at all: the kind stands in the object.
    None,
}

impl Naming {
    fn event(self, name: &str) -> Event {
        match self {
            Self::Kind => Event::default().event(name),
            Self::None => Event::default(),
        }
    }
}

/// `GET /api/events`
pub(super) async fn sent(
    State(rest): Shared,
    Extension(admission): Admitted,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failed> {
    let (wanted, naming) = wanted(&uri, &headers)?;
    let stream = streams::open(&rest.control, wanted).await?;
    if let Err(refusal) = admission.use_up(&rest) {
        return Ok(admission::unknown(&refusal));
    }
    Ok(Sse::new(server_sent(stream, drain_timeout(&rest), naming)).into_response())
}

fn server_sent(stream: Stream, end: DrainTimeout, naming: Naming) -> impl Flow<Item = Result<Event, Infallible>> {
    let Stream { mut items, feeder, seat } = stream;
    // A task of its own, since nobody looks here while a reader does not read; it ends with the body.
    let mut drain_timeout = JoinSet::new();
    let ending = end.clone();
    drain_timeout.spawn(async move { ending.after(feeder).await });
    let (mut given, mut over) = (None, false);
    futures_util::stream::poll_fn(move |ctx| {
        // Held as long as there is a body: one that is not read counts as a reader until it is gone.
        let _ = &seat;
        if over {
            return Poll::Ready(None);
        }
        let item = if drain_timeout.poll_join_next(ctx).is_ready() {
            // It has had its time for what was on its way to it: it is told why, and goes on after what it got.
            over = true;
            let ended = std::iter::from_fn(|| items.try_recv().ok()).find_map(|item| match item {
                Item::Ended(ended) => Some(ended),
                Item::Event(..) | Item::Position(_) => None,
            });
            // Who got nothing yet has no place to go on from, and asks again as it did.
            Poll::Ready(given.zip(ended).map(|(position, ended)| Item::Ended(Ended { position, ..ended })))
        } else {
            items.poll_recv(ctx)
        };
        if item.is_ready() {
            end.taken();
        }
        item.map(|item| {
            item.map(|item| {
                match &item {
                    Item::Event(shown, _) if !shown.ephemeral => given = Some(shown.wire.seq),
                    Item::Position(position) => given = Some(*position),
                    Item::Event(..) | Item::Ended(_) => {}
                }
                Ok(match item {
                    Item::Event(shown, _) => {
                        let event = naming.event(&shown.wire.kind).data(shown.text());
                        // What is never stored is no place to go on from.
                        if shown.ephemeral { event } else { event.id(shown.wire.seq.to_string()) }
                    }
                    // An id alone is no event to a reader, but it goes on after it.
                    Item::Position(position) => Event::default().comment("alive").id(position.to_string()),
                    Item::Ended(ended) => {
                        let name = match ended.why {
                            Why::Lagged => "lagged",
                            Why::Stopping => "stopping",
                            Why::Failed => "failed",
                        };
                        let event = naming.event(name).data(last_word(&ended).to_string());
                        event.id(ended.position.to_string())
                    }
                })
            })
        })
    })
}

/// `{last_seq, error}`
fn last_word(ended: &Ended) -> serde_json::Value {
    let mut object = body(&ended.refusal);
    if let Some(fields) = object.as_object_mut() {
        fields.insert("last_seq".into(), ended.position.into());
    }
    object
}

/// `GET /api/events/ws`
pub(super) async fn socket(
    State(rest): Shared,
    Extension(admission): Admitted,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failed> {
    let upgrade = upgrade.map_err(|rejection| {
        Refusal::new(Code::InvalidArguments, rejection.body_text())
            .hint("this address speaks WebSocket; /api/events gives the same as server-sent events")
    })?;
    // A page sees nothing of a refused upgrade but that it failed, so refusals are told over the socket.
    let opened = match wanted(&uri, &headers) {
        // A frame of a WebSocket has no name in any case.
        Ok((wanted, _)) => streams::open(&rest.control, wanted).await,
        Err(refusal) => Err(refusal),
    };
    let opened = match opened {
        Ok(stream) => admission.use_up(&rest).map(|()| stream),
        Err(refusal) => Err(refusal),
    };
    let drain_timeout = drain_timeout(&rest);
    Ok(upgrade.max_message_size(FRAME_MAX).max_frame_size(FRAME_MAX).on_upgrade(move |socket| async move {
        let (mut sink, mut source) = socket.split();
        let end = match opened {
            Ok(stream) => talk(&mut sink, &mut source, stream, &drain_timeout).await,
            Err(refusal) => refused(&mut sink, &refusal).await.map_or(End::Gone, End::Close),
        };
        let leave = async {
            match end {
                // Whoever has gone meanwhile need not be told.
                End::Close(close) => {
                    if sink.send(Message::Close(Some(close))).await.is_ok() {
                        while let Some(Ok(_)) = source.next().await {}
                    }
                }
                // The library has the answer ready, and sends it with the next reading.
                End::Closed => while let Some(Ok(_)) = source.next().await {},
                End::Gone => {}
            }
        };
        tokio::select! {
            () = leave => {}
            () = drain_timeout.wait() => {}
        }
    }))
}

/// How a socket ends.
enum End {
    /// This side closes it, for this reason.
    Close(CloseFrame),
    /// The reader closed it, and is to be answered.
    Closed,
    /// Nobody is there.
    Gone,
}

/// What to close with after the reader broke the protocol; nothing if the connection itself is lost (RFC 6455, 7.4.1).
fn broken(error: axum::Error) -> Option<CloseFrame> {
    let (code, reason) = match *error.into_inner().downcast::<tungstenite::Error>().ok()? {
        tungstenite::Error::Capacity(_) => (close_code::SIZE, "a frame has more than 4096 bytes"),
        tungstenite::Error::Utf8(_) => (close_code::INVALID, "a text is not UTF-8"),
        tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => return None,
        tungstenite::Error::Protocol(_) => (close_code::PROTOCOL, "what came is no frame of WebSocket"),
        _ => return None,
    };
    Some(CloseFrame { code, reason: reason.into() })
}

/// Sends what comes until an end.
async fn talk(
    sink: &mut SplitSink<WebSocket, Message>,
    source: &mut SplitStream<WebSocket>,
    stream: Stream,
    drain_timeout: &DrainTimeout,
) -> End {
    let Stream { mut items, feeder, seat: _seat } = stream;
    let sending = async {
        let mut batch = Vec::with_capacity(AT_ONCE);
        while items.recv_many(&mut batch, AT_ONCE).await > 0 {
            for item in batch.drain(..) {
                let message = match item {
                    Item::Event(shown, _) => Message::Text(shown.text().into()),
                    Item::Position(position) => Message::Ping(position.to_string().into_bytes().into()),
                    Item::Ended(ended) => return End::Close(closing(&ended)),
                };
                if sink.feed(message).await.is_err() {
                    return End::Gone;
                }
                drain_timeout.taken();
            }
            if sink.flush().await.is_err() {
                return End::Gone;
            }
            drain_timeout.taken();
        }
        End::Gone
    };
    let listening = async {
        loop {
            match source.next().await {
                // Answered by the library.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Text(_) | Message::Binary(_))) => {
                    return End::Close(CloseFrame {
                        code: close_code::UNSUPPORTED,
                        reason: "this stream takes no messages; say what you want in the address".into(),
                    });
                }
                Some(Ok(Message::Close(_))) => return End::Closed,
                Some(Err(error)) => return broken(error).map_or(End::Gone, End::Close),
                None => return End::Gone,
            }
        }
    };
    tokio::select! {
        biased;
        end = sending => end,
        end = listening => end,
        // It was cut off and does not even read that.
        () = drain_timeout.after(feeder) => End::Gone,
    }
}

fn closing(ended: &Ended) -> CloseFrame {
    let position = ended.position;
    match ended.why {
        Why::Lagged => CloseFrame { code: close_code::AGAIN, reason: format!("lagged {position}").into() },
        Why::Stopping => CloseFrame { code: close_code::AWAY, reason: format!("stopping {position}").into() },
        Why::Failed => {
            let reason = format!("failed {position}: {}", ended.refusal.message);
            CloseFrame { code: close_code::ERROR, reason: prefix_bytes(&reason, REASON_MAX).into() }
        }
    }
}

/// Tells a refusal in one frame, with all that belongs to it, and in the reason to close with: 4000 and the HTTP status.
async fn refused(sink: &mut SplitSink<WebSocket, Message>, refusal: &Refusal) -> Option<CloseFrame> {
    sink.send(Message::Text(body(refusal).to_string().into())).await.ok()?;
    let reason = format!("{}: {}", refusal.code, in_an_address(&refusal.message));
    Some(CloseFrame {
        code: 4_000 + http_status(refusal.code).as_u16(),
        reason: prefix_bytes(&reason, REASON_MAX).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(query: &str, last: Option<&str>) -> Result<Wanted, Refusal> {
        let mut headers = HeaderMap::new();
        if let Some(last) = last {
            headers.insert("last-event-id", last.parse().unwrap());
        }
        wanted(&format!("/api/events?{query}").parse().unwrap(), &headers).map(|(wanted, _)| wanted)
    }

    // covers: CP-06
    #[test]
    fn a_browser_that_comes_back_goes_on_where_it_was() {
        assert_eq!(ask("", None).unwrap().start, Start::Oldest);
        assert_eq!(ask("after=oldest", None).unwrap().start, Start::Oldest);
        assert_eq!(ask("after=now", None).unwrap().start, Start::Now);
        assert_eq!(ask("after=7", None).unwrap().start, Start::After(7));
        assert_eq!(ask("after=7", Some("9")).unwrap().start, Start::After(9));
        assert_eq!(ask("after=7", Some("")).unwrap().start, Start::After(7));
        for (query, last) in
            [("after=x", None), ("after=-1", None), ("after=", None), ("after=1", Some("x")), ("afer=1", None)]
        {
            assert_eq!(ask(query, last).unwrap_err().code, Code::InvalidArguments, "{query} {last:?}");
        }
    }

    #[test]
    fn families_may_be_written_with_a_star() {
        let wanted = ask("kind=turn.*&kind=task.,tool.started&ephemeral=true", None).unwrap();
        // What is taken off is the stream's to say, for every transport.
        assert_eq!(wanted.kinds, ["turn.*", "task.", "tool.started"]);
        assert!(wanted.ephemeral && wanted.follow);
    }

    #[test]
    fn a_reason_fits_its_frame() {
        let refusal = Refusal::new(Code::Internal, "é".repeat(200));
        let closing = closing(&Ended { why: Why::Failed, refusal, position: i64::MAX });
        assert!(closing.reason.len() <= REASON_MAX && closing.reason.starts_with("failed 9223372036854775807: é"));
    }
}
