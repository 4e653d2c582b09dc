//! gRPC reflection in both of its versions, whose tables are made when someone first asks for them: few do, and every start
//! would wait for them. Most clients that ask still speak v1alpha alone.
//!
//! Must never: fail a start. That the descriptors are whole is tested.

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

/// What answers, once it is made.
type Made = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// A version of the reflection service.
pub(crate) trait Version: Send + 'static {
    /// The service's full name.
    const NAME: &'static str;

    /// Makes its tables.
    fn make() -> Result<Made, String>;
}

/// The version that newer clients speak.
pub(crate) enum V1 {}

/// The version that most clients speak.
pub(crate) enum V1Alpha {}

impl Version for V1 {
    const NAME: &'static str = "grpc.reflection.v1.ServerReflection";

    fn make() -> Result<Made, String> {
        builder().build_v1().map(BoxCloneSyncService::new).map_err(|error| error.to_string())
    }
}

impl Version for V1Alpha {
    const NAME: &'static str = "grpc.reflection.v1alpha.ServerReflection";

    fn make() -> Result<Made, String> {
        builder().build_v1alpha().map(BoxCloneSyncService::new).map_err(|error| error.to_string())
    }
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// The reflection service.
pub(crate) struct Reflection<V>(Arc<OnceLock<Result<Made, String>>>, PhantomData<fn() -> V>);

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
        let made = Arc::clone(&self.0);
        Box::pin(async move {
            match made.get_or_init(V::make) {
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
    fn the_descriptors_are_whole() {
        assert!(V1::make().is_ok() && V1Alpha::make().is_ok());
    }
}
