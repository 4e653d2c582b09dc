//! From a request to its handler and back. A handler is a plain function from a parsed message to a result; the table in
//! [`crate::services`] names all of them. This module finds the caller, reads the message, gives a change its key, and
//! turns a refusal into a status.
//!
//! A handler must never run for a caller that no listener has named.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::ready;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use ghost_domain::{Code, Party, Refusal, RequestKey};
use ghost_operations::{Tx, requests};
use ghost_proto::{Call, Change, json};
use ghost_world::World;
use prost::{DecodeError, Message};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::Grpc;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::refusal::to_status;
use crate::serving::connections::Peer;

/// The result of a handler and of what it is made of.
pub(crate) type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Largest request in bytes: more than the largest message body.
const REQUEST_MAX: usize = 4 * 1024 * 1024;

/// The authenticated name of the caller. The listener that accepted the request sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal(pub String);

/// What a handler that reads gets beside the message.
pub(crate) struct Query {
    control: Control,
    /// Who asks.
    pub(crate) by: Party,
    /// The connection of a gRPC caller.
    pub(crate) peer: Option<Peer>,
}

/// What a handler that changes something gets beside the message.
pub(crate) struct Mutation {
    control: Control,
    /// Who asks.
    pub(crate) by: Party,
    /// The key under which the answer is stored.
    pub(crate) key: RequestKey,
}

impl Query {
    pub(crate) fn new(control: &Control, by: Party) -> Self {
        Self { control: control.clone(), by, peer: None }
    }
}

impl Mutation {
    /// The key has the principal, the client's `request_id`, the method, and a digest of the whole request.
    ///
    /// # Errors
    /// If `request_id` is not one.
    pub(crate) fn new<R: Change>(control: &Control, by: Party, request: &R) -> Result<Self> {
        let digest = Sha256::digest(request.encode_to_vec());
        let key = RequestKey {
            principal: by.clone(),
            request_id: request.request_id().parse()?,
            method: R::METHOD.to_owned(),
            digest: hex::encode(digest),
        };
        Ok(Self { control: control.clone(), by, key })
    }

    /// Runs `work` once for the request; see [`requests::once`].
    pub(crate) async fn once<T, F>(&self, work: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(&mut Tx, &Party) -> Result<T> + Send + 'static,
    {
        let by = self.by.clone();
        requests::once(self.world.store(), self.world.ctx(), self.key.clone(), move |w| work(w, &by)).await
    }

    /// Stores the answer of a change that is not in the store itself. Returns the answer that was stored first.
    pub(crate) async fn answer<T>(&self, answer: T) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        self.once(move |_, _| Ok(answer)).await
    }

    /// The stored answer of this request, if it has been carried out.
    pub(crate) async fn answered<T>(&self) -> Result<Option<T>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        if self.is_answered().await? {
            // Pruned in between, it is as if it had never been carried out.
            let gone = |_: &mut Tx, _: &Party| {
                Err(Refusal::new(Code::Unavailable, "the stored answer is gone").hint("ask again"))
            };
            return self.once(gone).await.map(Some);
        }
        Ok(None)
    }

    /// Whether a request with this key has been carried out.
    pub(crate) async fn is_answered(&self) -> Result<bool> {
        Ok(stored_answer(&self.world, &self.key).await?.is_some())
    }
}

/// The stored answer of a request.
pub(crate) async fn stored_answer(world: &World, key: &RequestKey) -> Result<Option<String>> {
    let (principal, request_id) = (key.principal.clone(), key.request_id.clone());
    let stored = world.store().read(move |r| r.request_get(&principal, &request_id)).await?;
    Ok(stored.map(|stored| stored.answer))
}

impl Deref for Query {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

impl Deref for Mutation {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

/// What a handler gets beside the message: a [`Query`] if its method reads, a [`Mutation`] if it changes something.
pub(crate) trait HandlerContext<R>: Sized {
    fn of(caller: Query, request: &R) -> Result<Self>;
}

impl<R> HandlerContext<R> for Query {
    fn of(caller: Query, _: &R) -> Result<Self> {
        Ok(caller)
    }
}

impl<R: Change> HandlerContext<R> for Mutation {
    fn of(caller: Query, request: &R) -> Result<Self> {
        Self::new(&caller.control, caller.by, request)
    }
}

/// A request of an authenticated caller, before its message is read.
struct Received {
    caller: Query,
    message: Bytes,
}

type Unary = dyn Fn(Received) -> Result<BoxFuture<'static, Result<Bytes>>, DecodeError> + Send + Sync;
type Answers = BoxStream<'static, Result<Bytes, Status>>;
type Streaming = dyn Fn(Received) -> Result<BoxFuture<'static, Result<Answers>>, DecodeError> + Send + Sync;

#[derive(Clone)]
enum Method {
    Unary { run: Arc<Unary>, json: fn(Bytes) -> Result<Value, DecodeError> },
    Streaming(Arc<Streaming>),
}

/// All methods, by the path of their requests. The type of its request says which method a handler is for.
#[derive(Default)]
pub(crate) struct Methods {
    by_path: BTreeMap<&'static str, Method>,
}

impl Methods {
    /// Adds a method that answers once.
    pub(crate) fn unary<C, R, H, F>(mut self, handler: H) -> Self
    where
        C: HandlerContext<R>,
        R: Call,
        R::Answer: Serialize,
        H: Fn(C, R) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R::Answer>> + Send + 'static,
    {
        let run = move |Received { caller, message }: Received| -> Result<BoxFuture<'static, _>, _> {
            let request = R::decode(message)?;
            Ok(match C::of(caller, &request) {
                Ok(cx) => handler(cx, request).map(|answer| Ok(answer?.encode_to_vec().into())).boxed(),
                Err(refusal) => ready(Err(refusal)).boxed(),
            })
        };
        let json = |answer: Bytes| Ok(json::value(&R::Answer::decode(answer)?));
        self.by_path.insert(R::PATH, Method::Unary { run: Arc::new(run), json });
        self
    }

    /// Adds a method that answers with a stream.
    pub(crate) fn stream<R, S, H, F>(mut self, handler: H) -> Self
    where
        R: Call,
        S: Stream<Item = Result<R::Answer, Status>> + Send + 'static,
        H: Fn(Query, R) -> F + Send + Sync + 'static,
        F: Future<Output = Result<S>> + Send + 'static,
    {
        let run = move |Received { caller, message }: Received| -> Result<BoxFuture<'static, _>, _> {
            let items = handler(caller, R::decode(message)?);
            let encoded = |item: Result<R::Answer, Status>| item.map(|item| item.encode_to_vec().into());
            Ok(items.map(move |items| Ok(items?.map(encoded).boxed())).boxed())
        };
        self.by_path.insert(R::PATH, Method::Streaming(Arc::new(run)));
        self
    }

    /// The full names of the services, in order.
    pub(crate) fn services(&self) -> BTreeSet<&str> {
        self.by_path.keys().filter_map(|path| path.trim_start_matches('/').split('/').next()).collect()
    }

    /// The paths of all methods, in order.
    #[cfg(test)]
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().copied()
    }

    /// The encoded answer of a method to a caller that does not speak gRPC.
    pub(crate) async fn answer(&self, path: &str, caller: Query, message: Bytes) -> Result<Bytes> {
        let Some(Method::Unary { run, .. }) = self.by_path.get(path) else { return Err(no_method(path)) };
        run(Received { caller, message }).map_err(malformed)?.await
    }

    /// An encoded answer of a method as JSON.
    pub(crate) fn json(&self, path: &str, answer: Bytes) -> Result<Value> {
        let Some(Method::Unary { json, .. }) = self.by_path.get(path) else { return Err(no_method(path)) };
        json(answer).map_err(malformed)
    }
}

fn no_method(path: &str) -> Refusal {
    Refusal::new(Code::Internal, format!("there is no method {path}"))
}

fn malformed(error: DecodeError) -> Refusal {
    Refusal::new(Code::Internal, error.to_string())
}

/// Serves the methods over gRPC, behind a gate that names the caller.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    pub(crate) methods: Arc<Methods>,
    pub(crate) control: Control,
}

/// A request to one method and its caller.
fn received(control: Control, request: Request<Bytes>) -> Result<Received, Status> {
    let (_, extensions, message) = request.into_parts();
    let Some(Principal(name)) = extensions.get::<Principal>() else {
        return Err(Status::unauthenticated("the request has no principal"));
    };
    let peer = extensions.get::<Peer>().cloned();
    Ok(Received { caller: Query { control, by: Party::Operator(name.clone()), peer }, message })
}

/// What a method gives for a call, with its refusal as a status.
async fn given<T>(answer: Result<BoxFuture<'static, Result<T>>, DecodeError>) -> Result<Response<T>, Status> {
    let answer = answer.map_err(|error| Status::internal(error.to_string()))?;
    answer.await.map(Response::new).map_err(to_status)
}

impl tower::Service<axum::http::Request<Body>> for Dispatcher {
    type Response = axum::http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: axum::http::Request<Body>) -> Self::Future {
        let method = self.methods.by_path.get(request.uri().path()).cloned();
        let control = self.control.clone();
        Box::pin(async move {
            // The limit also applies to decompressed requests. Responses are not compressed, because most clients are on
            // the same machine.
            let mut grpc = Grpc::new(Raw)
                .accept_compressed(CompressionEncoding::Gzip)
                .apply_max_message_size_config(Some(REQUEST_MAX), None);
            Ok(match method {
                None => Status::unimplemented("").into_http(),
                Some(Method::Unary { run, .. }) => {
                    let answer = tower::service_fn(|request| {
                        let answer = received(control.clone(), request).map(&*run);
                        async move { given(answer?).await }
                    });
                    grpc.unary(answer, request).await
                }
                Some(Method::Streaming(run)) => {
                    let answer = tower::service_fn(|request| {
                        let answer = received(control.clone(), request).map(&*run);
                        async move { given(answer?).await }
                    });
                    grpc.server_streaming(answer, request).await
                }
            })
        })
    }
}

/// Messages as bytes, so that the code of gRPC is compiled once and not for each method.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestControl;

    #[tokio::test]
    async fn a_request_without_a_principal_is_refused() {
        let test = TestControl::new().await;
        let refused = received(test.control.clone(), Request::new(Bytes::new())).map(drop);
        assert_eq!(refused.unwrap_err().code(), tonic::Code::Unauthenticated);
    }
}
