//! The caller of a request, and the key under which a mutation's answer is stored.

use ghost_domain::{Party, Refusal, RequestKey};
use prost::Message;
use sha2::{Digest, Sha256};
use tonic::{Request, Status};

use crate::refusal::to_status;

/// The authenticated name of the caller. The listener that accepted the request sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal(pub String);

/// The operator that a request comes from. A request without a [`Principal`] is refused.
pub fn party<T>(request: &Request<T>) -> Result<Party, Status> {
    match request.extensions().get::<Principal>() {
        Some(Principal(name)) => Ok(Party::Operator(name.clone())),
        None => Err(Status::unauthenticated("the request has no principal")),
    }
}

/// The key under which a mutation's answer is stored: principal, the client's `request_id`, method, and
/// a digest of the whole request.
pub fn key<T: Message>(request: &Request<T>, method: &str, request_id: &str) -> Result<RequestKey, Status> {
    let principal = party(request)?;
    let request_id = request_id.parse().map_err(|refusal: Refusal| to_status(refusal))?;
    let digest = Sha256::digest(request.get_ref().encode_to_vec());
    let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(RequestKey { principal, request_id, method: method.to_owned(), digest })
}
