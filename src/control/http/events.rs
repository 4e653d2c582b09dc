//! The event feed over HTTP: as server-sent events and as a WebSocket. Both accept the same parameters
//! and send the same JSON objects.
//!
//! While the client still reads, a stream must never end without the sequence number to resume
//! after.

use std::convert::Infallible;
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
use ghost_domain::{Code, Refusal};
use ghost_proto::http::{Field, Kind};
use ghost_proto::v1::SubscribeRequest;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite;

use super::guard::{self, Admitted, TICKET};
use super::rest::{Failed, Shared, body, http_status, with_parameter_names};
use super::transcode::{Params, query};
use crate::convert::input::bad;
use crate::streams::{self, DrainTimeout, EndReason, Ended, Item, Stream};

/// Largest frame from a client in bytes. Clients send only "close" and "pong".
const FRAME_MAX: usize = 4 * 1024;
/// Largest reason in a close frame, in bytes (RFC 6455).
const REASON_MAX: usize = 123;
/// Items that a WebSocket takes from the queue at once.
const AT_ONCE: usize = 64;

/// The parameters of a stream.
pub(super) const FIELDS: &[Field] = &[
    query("agent", Kind::Text, "Only events about this agent."),
    query("channel", Kind::Text, "Only events about this chat channel."),
    query("after", Kind::Text, "A sequence number to resume after, or `oldest` or `now`."),
    query(
        "last_event_id",
        Kind::Number(0, i64::MAX),
        "The `id` of the last event that you have seen; replaces `after`.",
    ),
    query("ephemeral", Kind::Flag, "Include model deltas and tool progress, which are never stored."),
    query("unnamed", Kind::Flag, "Events without a name, for EventSource.onmessage."),
    query(TICKET, Kind::Text, "A ticket in place of the token."),
    query("kind", Kind::Texts, "Only these kinds, or families such as `turn.*`."),
];

/// What a URL asks for, after which event (see [`streams::open`]), and how events are named.
fn request(uri: &Uri, headers: &HeaderMap) -> Result<(SubscribeRequest, Option<i64>, Naming), Refusal> {
    let params = Params::read(uri, FIELDS)?;
    // A browser that reconnects repeats the original URL, and sends its position in this header. A WebSocket cannot send
    // the header.
    let header = headers.get("last-event-id").map(|value| ("Last-Event-ID", value.to_str().unwrap_or("?")));
    let last = header.into_iter().chain(params.get("last_event_id").map(|last| ("last_event_id", last)));
    let start = match last.into_iter().find(|(_, last)| !last.is_empty()) {
        Some((name, last)) => Some(last.parse().ok().filter(|last| *last >= 0).ok_or_else(|| {
            bad(name, "is not a sequence number").hint("send the `id` of the last event that you have seen")
        })?),
        None => match params.get("after") {
            None | Some("oldest") => Some(0),
            Some("now") => None,
            Some(text) => Some(text.parse().ok().filter(|after| *after >= 0).ok_or_else(|| {
                let what = format!("`{}` is not a sequence number", ghost_domain::text::clip(text, 40));
                bad("after", &what).hint("give the sequence number to resume after, or `oldest` or `now`")
            })?),
        },
    };
    let naming = if params.flag("unnamed")? { Naming::None } else { Naming::Kind };
    let request = SubscribeRequest {
        kinds: params.all("kind"),
        agent_id: params.get("agent").map(str::to_owned),
        channel: params.get("channel").map(str::to_owned),
        after_seq: start,
        follow: true,
        ephemeral: params.flag("ephemeral")?,
    };
    Ok((request, start, naming))
}

/// Whether server-sent events have a name. `EventSource.onmessage` receives only events without a
/// name, so a page may request those.
#[derive(Clone, Copy)]
enum Naming {
    /// The event's kind is its name.
    Kind,
    /// No name. The kind is in the JSON object.
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
pub(super) async fn server_sent_events(
    State(rest): Shared,
    Extension(admission): Admitted,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failed> {
    let (request, start, naming) = request(&uri, &headers)?;
    let stream = streams::open(&rest.control, request, start).await?;
    if let Err(refusal) = admission.redeem(&rest) {
        return Ok(guard::unauthorized(&refusal));
    }
    Ok(Sse::new(server_sent(stream, DrainTimeout::of(&rest.control.world), naming)).into_response())
}

fn server_sent(stream: Stream, end: DrainTimeout, naming: Naming) -> impl Flow<Item = Result<Event, Infallible>> {
    let Stream { mut items, feeder, permit } = stream;
    // A separate task, because the body is not polled while the client does not read. It ends with the
    // body.
    let mut drain_timeout = JoinSet::new();
    let ending = end.clone();
    drain_timeout.spawn(async move { ending.after(feeder).await });
    let (mut position_sent, mut over) = (None, false);
    futures_util::stream::poll_fn(move |ctx| {
        // Kept as long as the body: an open body is counted as a reader, even if the client does
        // not read.
        let _ = &permit;
        if over {
            return Poll::Ready(None);
        }
        let item = if drain_timeout.poll_join_next(ctx).is_ready() {
            // The drain timeout is over. The client gets the reason, and resumes after the last
            // event that it received.
            over = true;
            let ended = std::iter::from_fn(|| items.try_recv().ok()).find_map(|item| match item {
                Item::Ended(ended) => Some(ended),
                Item::Event(..) | Item::Position(_) => None,
            });
            // A client that received nothing has no position, and repeats its request.
            Poll::Ready(position_sent.zip(ended).map(|(position, ended)| Item::Ended(Ended { position, ..ended })))
        } else {
            items.poll_recv(ctx)
        };
        if item.is_ready() {
            end.taken();
        }
        item.map(|item| {
            item.map(|item| {
                match &item {
                    Item::Event(encoded, _) if !encoded.ephemeral => position_sent = Some(encoded.wire.seq),
                    Item::Position(position) => position_sent = Some(*position),
                    Item::Event(..) | Item::Ended(_) => {}
                }
                Ok(match item {
                    Item::Event(encoded, _) => {
                        let event = naming.event(&encoded.wire.kind).data(encoded.text());
                        // A client cannot resume after an ephemeral event, so it gets no id.
                        if encoded.ephemeral { event } else { event.id(encoded.wire.seq.to_string()) }
                    }
                    // A comment with an id is not an event, but it moves the position that the browser
                    // resumes after.
                    Item::Position(position) => Event::default().comment("alive").id(position.to_string()),
                    Item::Ended(ended) => {
                        let name = match ended.reason {
                            EndReason::Lagged => "lagged",
                            EndReason::Stopping => "stopping",
                            EndReason::Failed => "failed",
                        };
                        let event = naming.event(name).data(end_object(&ended).to_string());
                        event.id(ended.position.to_string())
                    }
                })
            })
        })
    })
}

/// The last object of a stream: `{last_seq, error}`.
fn end_object(ended: &Ended) -> serde_json::Value {
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
    // A page cannot see why an upgrade was refused, so refusals are sent over the socket.
    let opened = match request(&uri, &headers) {
        // WebSocket frames have no names, so `unnamed` has no effect here.
        Ok((request, start, _)) => streams::open(&rest.control, request, start).await,
        Err(refusal) => Err(refusal),
    };
    let opened = match opened {
        Ok(stream) => admission.redeem(&rest).map(|()| stream),
        Err(refusal) => Err(refusal),
    };
    let drain_timeout = DrainTimeout::of(&rest.control.world);
    Ok(upgrade.max_message_size(FRAME_MAX).max_frame_size(FRAME_MAX).on_upgrade(move |socket| async move {
        let (mut sink, mut source) = socket.split();
        let end = match opened {
            Ok(stream) => run_socket(&mut sink, &mut source, stream, &drain_timeout).await,
            Err(refusal) => refused(&mut sink, &refusal).await.map_or(End::Lost, End::Close),
        };
        let leave = async {
            match end {
                // A client that has disconnected gets nothing.
                End::Close(close) => {
                    if sink.send(Message::Close(Some(close))).await.is_ok() {
                        while let Some(Ok(_)) = source.next().await {}
                    }
                }
                // The library sends its answer to the close frame with the next read.
                End::Closed => while let Some(Ok(_)) = source.next().await {},
                End::Lost => {}
            }
        };
        tokio::select! {
            () = leave => {}
            () = drain_timeout.wait() => {}
        }
    }))
}

/// Why a socket ends.
enum End {
    /// This side closes it.
    Close(CloseFrame),
    /// The client closed it and gets an answer.
    Closed,
    /// The connection is lost.
    Lost,
}

/// The close frame after a protocol error of the client; `None` if the connection itself is lost (RFC
/// 6455, 7.4.1).
fn protocol_error(error: axum::Error) -> Option<CloseFrame> {
    let (code, reason) = match *error.into_inner().downcast::<tungstenite::Error>().ok()? {
        tungstenite::Error::Capacity(_) => (close_code::SIZE, "a frame has more than 4096 bytes"),
        tungstenite::Error::Utf8(_) => (close_code::INVALID, "a text is not UTF-8"),
        tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => return None,
        tungstenite::Error::Protocol(_) => (close_code::PROTOCOL, "the data is not a WebSocket frame"),
        _ => return None,
    };
    Some(CloseFrame { code, reason: reason.into() })
}

/// Sends the items of a stream until it ends.
async fn run_socket(
    sink: &mut SplitSink<WebSocket, Message>,
    source: &mut SplitStream<WebSocket>,
    stream: Stream,
    drain_timeout: &DrainTimeout,
) -> End {
    let Stream { mut items, feeder, permit: _permit } = stream;
    let sending = async {
        let mut batch = Vec::with_capacity(AT_ONCE);
        while items.recv_many(&mut batch, AT_ONCE).await > 0 {
            for item in batch.drain(..) {
                let message = match item {
                    Item::Event(encoded, _) => Message::Text(encoded.text().into()),
                    Item::Position(position) => Message::Ping(position.to_string().into_bytes().into()),
                    Item::Ended(ended) => return End::Close(close_frame(&ended)),
                };
                if sink.feed(message).await.is_err() {
                    return End::Lost;
                }
                drain_timeout.taken();
            }
            if sink.flush().await.is_err() {
                return End::Lost;
            }
            drain_timeout.taken();
        }
        End::Lost
    };
    let listening = async {
        loop {
            match source.next().await {
                // The library answers pings.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Text(_) | Message::Binary(_))) => {
                    return End::Close(CloseFrame {
                        code: close_code::UNSUPPORTED,
                        reason: "this stream accepts no messages; use query parameters".into(),
                    });
                }
                Some(Ok(Message::Close(_))) => return End::Closed,
                Some(Err(error)) => return protocol_error(error).map_or(End::Lost, End::Close),
                None => return End::Lost,
            }
        }
    };
    tokio::select! {
        biased;
        end = sending => end,
        end = listening => end,
        // The client was disconnected for not reading, so it does not read the close frame either.
        () = drain_timeout.after(feeder) => End::Lost,
    }
}

fn close_frame(ended: &Ended) -> CloseFrame {
    let position = ended.position;
    match ended.reason {
        EndReason::Lagged => CloseFrame { code: close_code::AGAIN, reason: format!("lagged {position}").into() },
        EndReason::Stopping => CloseFrame { code: close_code::AWAY, reason: format!("stopping {position}").into() },
        EndReason::Failed => {
            let reason = format!("failed {position}: {}", ended.refusal.message);
            CloseFrame { code: close_code::ERROR, reason: prefix_bytes(&reason, REASON_MAX).into() }
        }
    }
}

/// Sends a refusal as one frame. The close frame has the code 4000 plus the HTTP status.
async fn refused(sink: &mut SplitSink<WebSocket, Message>, refusal: &Refusal) -> Option<CloseFrame> {
    sink.send(Message::Text(body(refusal).to_string().into())).await.ok()?;
    let reason = format!("{}: {}", refusal.code, with_parameter_names(&refusal.message));
    Some(CloseFrame {
        code: 4_000 + http_status(refusal.code).as_u16(),
        reason: prefix_bytes(&reason, REASON_MAX).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str, last: Option<&str>) -> Result<SubscribeRequest, Refusal> {
        let mut headers = HeaderMap::new();
        if let Some(last) = last {
            headers.insert("last-event-id", last.parse().unwrap());
        }
        request(&format!("/api/events?{query}").parse().unwrap(), &headers).map(|(request, ..)| request)
    }

    // covers: CP-06
    #[test]
    fn a_browser_that_reconnects_resumes_at_its_position() {
        assert_eq!(parse("", None).unwrap().after_seq, Some(0));
        assert_eq!(parse("after=oldest", None).unwrap().after_seq, Some(0));
        assert_eq!(parse("after=now", None).unwrap().after_seq, None);
        assert_eq!(parse("after=7", None).unwrap().after_seq, Some(7));
        assert_eq!(parse("after=7", Some("9")).unwrap().after_seq, Some(9));
        assert_eq!(parse("after=7", Some("")).unwrap().after_seq, Some(7));
        assert_eq!(parse("after=7&last_event_id=8", None).unwrap().after_seq, Some(8));
        assert_eq!(parse("last_event_id=8", Some("9")).unwrap().after_seq, Some(9), "the header is newer");
        for (query, last) in [
            ("after=x", None),
            ("after=-1", None),
            ("after=", None),
            ("after=1", Some("x")),
            ("last_event_id=x", None),
            ("last_event_id=-1", None),
            ("afer=1", None),
        ] {
            assert_eq!(parse(query, last).unwrap_err().code, Code::InvalidArguments, "{query} {last:?}");
        }
    }

    #[test]
    fn families_may_end_with_a_star() {
        let request = parse("kind=turn.*&kind=task.,tool.started&ephemeral=true", None).unwrap();
        // `streams::filter` removes the star, for every transport.
        assert_eq!(request.kinds, ["turn.*", "task.", "tool.started"]);
        assert!(request.ephemeral && request.follow);
    }

    #[test]
    fn a_reason_fits_its_frame() {
        let refusal = Refusal::new(Code::Internal, "é".repeat(200));
        let close_frame = close_frame(&Ended { reason: EndReason::Failed, refusal, position: i64::MAX });
        assert!(
            close_frame.reason.len() <= REASON_MAX && close_frame.reason.starts_with("failed 9223372036854775807: é")
        );
    }
}
