//! The feed over gRPC.
//!
//! Must never: end a stream early without saying where to go on.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ghost_domain::{Limits, Refusal};
use ghost_proto::LAST_SEQ_TRAILER;
use ghost_proto::v1::{SubscribeRequest, SubscribeResponse, events_server};
use tokio_stream::Stream;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use crate::caller;
use crate::control::Control;
use crate::refusal::{status, status_as, to_status};
use crate::streams::{self, Ended, Item, SeatedStream, Start, Wanted, Why};

/// `ghost.v1.Events`.
pub struct EventsService(pub Control);

#[tonic::async_trait]
impl events_server::Events for EventsService {
    type SubscribeStream = Subscriber;

    async fn subscribe(&self, request: Request<SubscribeRequest>) -> Result<Response<Subscriber>, Status> {
        caller::party(&request)?;
        let stream = streams::open(&self.0, wanted(request.into_inner())).await.map_err(to_status)?;
        let ctx = self.0.world.ctx();
        let patience = Limits::seconds(ctx.limits().reader_stall_seconds);
        let clock = Arc::clone(&ctx.ports.clock);
        Ok(Response::new(Subscriber(SeatedStream::new(stream.items, stream.feeder, stream.seat, clock, patience))))
    }
}

fn wanted(request: SubscribeRequest) -> Wanted {
    Wanted {
        kinds: request.kinds,
        agent_id: request.agent_id,
        channel: request.channel,
        // 0 is before the first there ever was: the oldest that is kept, as without a sequence.
        start: request.after_seq.filter(|after| *after != 0).map_or(Start::Oldest, Start::After),
        follow: request.follow,
        ephemeral: request.ephemeral,
    }
}

/// A stream as gRPC sends it.
pub struct Subscriber(SeatedStream<Item>);

impl Stream for Subscriber {
    type Item = Result<SubscribeResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(ctx).map(|item| {
            Some(match item? {
                Item::Event(shown, position_seq) => {
                    Ok(SubscribeResponse { event: Some(shown.wire.clone()), ephemeral: shown.ephemeral, position_seq })
                }
                Item::Position(position_seq) => Ok(SubscribeResponse { event: None, ephemeral: false, position_seq }),
                Item::Ended(Ended { why, refusal, position }) => Err(match why {
                    Why::Lagged => ended(tonic::Code::Aborted, &refusal, position),
                    Why::Stopping => ended(tonic::Code::Unavailable, &refusal, position),
                    Why::Failed => status(&refusal),
                }),
            })
        })
    }
}

/// An end that a reader can go on from.
fn ended(code: tonic::Code, refusal: &Refusal, position: i64) -> Status {
    let mut told = status_as(code, refusal);
    told.metadata_mut().insert(LAST_SEQ_TRAILER, MetadataValue::from(position));
    told
}

#[cfg(test)]
mod tests;
