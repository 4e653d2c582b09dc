//! Listens for changes of the tools (protocol 2026-07-28). A refusal is no failure, and it must never listen again
//! without a bound.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use rmcp::{Peer, RoleClient};
use tokio::sync::Notify;

use crate::closing::Closing;
use crate::limits::Limits;
use crate::time::{after, until, within};

/// Time for the acknowledgement of a subscription.
const ACKNOWLEDGE: Duration = Duration::from_secs(10);
/// Time before a subscription that ended is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// Listens until the server refuses, until the connection is closed, or until `Limits::listens` are used up. The gate
/// takes the changes themselves: this task only keeps the subscription open.
pub(crate) async fn listen(peer: Peer<RoleClient>, closing: Closing, changed: Arc<Notify>, limits: Limits) {
    let keep = async {
        for round in 0..=limits.listens {
            if round > 0 {
                until(after(PAUSE)).await;
            }
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            let Some(Ok(mut subscription)) = within(ACKNOWLEDGE, peer.listen(filter)).await else {
                tracing::debug!("the server does not report changes of its tools");
                return;
            };
            if round > 0 {
                // Nobody listened for a moment.
                changed.notify_one();
            }
            while let Ok(Some(_)) = subscription.next().await {}
        }
        tracing::debug!("the server ended the subscription to changes of its tools too often");
    };
    tokio::select! {
        () = keep => {}
        _ = closing.wait() => {}
    }
}
