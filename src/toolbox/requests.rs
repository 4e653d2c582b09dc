//! Reads requests: first their version, then the rest.

use ghost_domain::{Code, Refusal};
use ghost_sandbox::remote::protocol::{VERSION, Versioned};
use serde::de::DeserializeOwned;

/// A request of this version.
pub(crate) fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let version = serde_json::from_slice::<Versioned>(body).map_err(invalid)?.version;
    if version != VERSION {
        let what = format!("the client speaks version {version} of the protocol, and this server speaks {VERSION}");
        return Err(Refusal::new(Code::Conflict, what).hint("use ghostd and ghost-toolbox of the same release"));
    }
    serde_json::from_slice(body).map_err(invalid)
}

/// A request that is not one.
pub(crate) fn invalid(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("the request cannot be read: {why}"))
        .hint("docs/remote.md describes the requests")
}
