//! The `Events` service: the event feed over gRPC.
//!
//! A stream must never end early without the sequence number to resume after.

use std::pin::Pin;
use std::task::{Context, Poll};

use ghost_domain::Refusal;
use ghost_proto::LAST_SEQ_TRAILER;
use ghost_proto::v1::{SubscribeRequest, SubscribeResponse};
use tokio_stream::Stream;
use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::dispatch::{Query, Result};
use crate::refusal::{status, status_as};
use crate::streams::{self, DrainTimeout, EndReason, Ended, Item, PermitStream};

pub(crate) async fn subscribe(cx: Query, request: SubscribeRequest) -> Result<Subscriber> {
    let start = Some(request.after_seq.unwrap_or(0));
    let stream = streams::open(&cx, request, start).await?;
    let drain_timeout = DrainTimeout::of(&cx.world);
    Ok(Subscriber(PermitStream::new(stream.items, stream.feeder, stream.permit, drain_timeout, cx.peer.clone())))
}

/// A subscription as a gRPC response stream.
pub struct Subscriber(PermitStream<Item>);

impl Stream for Subscriber {
    type Item = Result<SubscribeResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(ctx).map(|item| {
            Some(match item? {
                Item::Event(encoded, position_seq) => Ok(SubscribeResponse {
                    event: Some(encoded.wire.clone()),
                    ephemeral: encoded.ephemeral,
                    position_seq,
                }),
                Item::Position(position_seq) => Ok(SubscribeResponse { event: None, ephemeral: false, position_seq }),
                Item::Ended(Ended { reason, refusal, position }) => Err(match reason {
                    EndReason::Lagged => ended(tonic::Code::Aborted, &refusal, position),
                    EndReason::Stopping => ended(tonic::Code::Unavailable, &refusal, position),
                    EndReason::Failed => status(&refusal),
                }),
            })
        })
    }
}

/// The status of a stream that its reader can resume.
fn ended(code: tonic::Code, refusal: &Refusal, position: i64) -> Status {
    let mut status = status_as(code, refusal);
    status.metadata_mut().insert(LAST_SEQ_TRAILER, MetadataValue::from(position));
    status
}

#[cfg(test)]
mod tests;
