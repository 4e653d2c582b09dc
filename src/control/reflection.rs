//! gRPC reflection, v1 and v1alpha. Its tables are built at the first request: few clients use
//! reflection, and building them would slow down every start. Many clients support only v1alpha.
//!
//! A failure to build the tables must never fail the start. A test checks that the descriptors are
//! valid.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use ghost_proto::FILE_DESCRIPTOR_SET;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic_reflection::server::Builder;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// The built reflection service.
type Built = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// The reflection service of one version, built at its first request.
#[derive(Clone)]
pub(crate) struct Reflection {
    /// The full name of the service.
    pub(crate) name: &'static str,
    build: fn() -> Result<Built, String>,
    built: Arc<OnceLock<Result<Built, String>>>,
}

impl Reflection {
    /// The service in both versions.
    pub(crate) fn versions() -> [Self; 2] {
        let of = |name, build| Self { name, build, built: Arc::default() };
        [
            of("grpc.reflection.v1.ServerReflection", || {
                builder().build_v1().map(BoxCloneSyncService::new).map_err(|error| error.to_string())
            }),
            of("grpc.reflection.v1alpha.ServerReflection", || {
                builder().build_v1alpha().map(BoxCloneSyncService::new).map_err(|error| error.to_string())
            }),
        ]
    }
}

impl Service<Request<Body>> for Reflection {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (built, build) = (Arc::clone(&self.built), self.build);
        Box::pin(async move {
            match built.get_or_init(build) {
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
        assert!(Reflection::versions().iter().all(|version| (version.build)().is_ok()));
    }
}
