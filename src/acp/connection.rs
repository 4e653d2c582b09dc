//! Connects the protocol's library with the handlers.
//!
//! The library calls a handler inside its dispatch loop, so every answer is made in a task of the connection.

use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    CreateTerminalRequest, KillTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest, RequestPermissionRequest,
    TerminalOutputRequest, WaitForTerminalExitRequest, WriteTextFileRequest,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Channel, Client, Error, JsonRpcResponse, on_receive_request};
use tokio::sync::oneshot;

use crate::handlers;
use crate::office::Office;

/// Answers the agent's requests until the future is dropped. `ready` gets the connection.
///
/// # Errors
/// If the library fails.
pub(crate) async fn connect(
    channel: Channel,
    office: Arc<Office>,
    ready: oneshot::Sender<ConnectionTo<Agent>>,
) -> Result<(), Error> {
    macro_rules! handler {
        ($office:ident, $request:ty, $handler:path) => {{
            let office = Arc::clone(&$office);
            async move |request: $request, responder, cx: ConnectionTo<Agent>| {
                answer(&cx, responder, $handler(Arc::clone(&office), request))
            }
        }};
    }
    Client
        .v1()
        .name("ghost")
        .on_receive_request(handler!(office, RequestPermissionRequest, handlers::permission), on_receive_request!())
        .on_receive_request(handler!(office, ReadTextFileRequest, handlers::read_text), on_receive_request!())
        .on_receive_request(handler!(office, WriteTextFileRequest, handlers::write_text), on_receive_request!())
        .on_receive_request(handler!(office, CreateTerminalRequest, handlers::create_terminal), on_receive_request!())
        .on_receive_request(handler!(office, TerminalOutputRequest, handlers::terminal_output), on_receive_request!())
        .on_receive_request(
            handler!(office, WaitForTerminalExitRequest, handlers::wait_for_exit),
            on_receive_request!(),
        )
        .on_receive_request(handler!(office, KillTerminalRequest, handlers::kill_terminal), on_receive_request!())
        .on_receive_request(handler!(office, ReleaseTerminalRequest, handlers::release_terminal), on_receive_request!())
        .connect_with(channel, async move |cx: ConnectionTo<Agent>| {
            // The receiver is gone only when nobody needs the connection.
            let _ = ready.send(cx);
            std::future::pending::<Result<(), Error>>().await
        })
        .await
}

/// Answers a request with what `work` gives, without keeping the dispatch loop.
fn answer<T: JsonRpcResponse + Send>(
    cx: &ConnectionTo<Agent>,
    responder: Responder<T>,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<(), Error> {
    cx.spawn(async move {
        // A failed task would end the connection. An answer fails only when the connection has ended anyway.
        if let Err(error) = responder.respond_with_result(work.await) {
            tracing::debug!(code = error.code.value(), "an answer was not taken");
        }
        Ok(())
    })
}
