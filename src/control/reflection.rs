//! gRPC reflection, v1 and v1alpha. Its tables are built at the first request: few clients use
//! reflection, and building them would slow down every start. Many clients support only v1alpha.
//!
//! A failure to build the tables must never fail the start. A test checks that the descriptors are
//! valid.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use ghost_proto::FILE_DESCRIPTOR_SET;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic_reflection::server::Builder;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// The built reflection service.
type Built = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// A version of the reflection service.
pub(crate) trait Version: Send + 'static {
    /// The service's full name.
    const NAME: &'static str;

    /// Builds its tables.
    fn build() -> Result<Built, String>;
}

/// `grpc.reflection.v1`, for newer clients.
pub(crate) enum V1 {}

/// `grpc.reflection.v1alpha`, for older clients.
pub(crate) enum V1Alpha {}

impl Version for V1 {
    const NAME: &'static str = "grpc.reflection.v1.ServerReflection";

    fn build() -> Result<Built, String> {
        builder().build_v1().map(BoxCloneSyncService::new).map_err(|error| error.to_string())
    }
}

impl Version for V1Alpha {
    const NAME: &'static str = "grpc.reflection.v1alpha.ServerReflection";

    fn build() -> Result<Built, String> {
        builder().build_v1alpha().map(BoxCloneSyncService::new).map_err(|error| error.to_string())
    }
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// The reflection service of one version, built at its first request.
pub(crate) struct Reflection<V>(Arc<OnceLock<Result<Built, String>>>, PhantomData<fn() -> V>);

impl<V> Default for Reflection<V> {
    fn default() -> Self {
        Self(Arc::default(), PhantomData)
    }
}

impl<V> Clone for Reflection<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), PhantomData)
    }
}

impl<V: Version> NamedService for Reflection<V> {
    const NAME: &'static str = V::NAME;
}

impl<V: Version> Service<Request<Body>> for Reflection<V> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let built = Arc::clone(&self.0);
        Box::pin(async move {
            match built.get_or_init(V::build) {
                Ok(service) => service.clone().oneshot(request).await,
                Err(error) => Ok(Status::internal(format!("reflection cannot be built: {error}")).into_http()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_are_valid() {
        assert!(V1::build().is_ok() && V1Alpha::build().is_ok());
    }
}
