//! gRPC reflection, whose tables are made when someone first asks for them: few do, and every start would wait for them.
//!
//! Must never: fail a start. That the descriptors are whole is tested.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use ghost_proto::FILE_DESCRIPTOR_SET;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// What answers, once it is made.
type Made = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The reflection service.
#[derive(Clone, Default)]
pub(crate) struct Reflection(Arc<OnceLock<Result<Made, String>>>);

impl NamedService for Reflection {
    const NAME: &'static str = "grpc.reflection.v1.ServerReflection";
}

impl Service<Request<Body>> for Reflection {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let made = Arc::clone(&self.0);
        Box::pin(async move {
            match made.get_or_init(make) {
                Ok(service) => service.clone().oneshot(request).await,
                Err(error) => Ok(Status::internal(format!("reflection cannot be built: {error}")).into_http()),
            }
        })
    }
}

fn make() -> Result<Made, String> {
    let service = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1();
    service.map(BoxCloneSyncService::new).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_are_whole() {
        assert!(make().is_ok());
    }
}
