//! The values that the daemon reads from its environment: secrets, the files of mutual TLS, and the
//! name of its node.
//!
//! This module must never show a value that it has read.

use std::path::PathBuf;
use std::sync::Arc;

use ghost_control::TlsFiles;
use ghost_domain::{Code, Refusal};

use crate::loading::Loaded;

/// Reads an environment variable; shared with the reload.
pub type SharedEnv = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The values that redaction removes: keys of providers, `GHOST_TOKEN`, and the variables that
/// `world-config.yaml` names.
pub(crate) fn secrets_of(loaded: &Loaded, env: &(dyn Fn(&str) -> Option<String> + Send + Sync)) -> Vec<String> {
    let keys = loaded.plan.llm.providers.values().filter_map(|provider| provider.api_key_env.as_deref());
    let named = loaded.plan.secret_env.iter().map(String::as_str);
    keys.chain(named).chain(["GHOST_TOKEN"]).filter_map(env).filter(|value| !value.is_empty()).collect()
}

/// The files of mutual TLS, if the environment names them: all three, or none.
pub(crate) fn tls_files(env: &(dyn Fn(&str) -> Option<String> + Send + Sync)) -> Result<Option<TlsFiles>, Refusal> {
    let named = |name: &str| env(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    match (named("GHOST_TLS_CERT"), named("GHOST_TLS_KEY"), named("GHOST_TLS_CA")) {
        (None, None, None) => Ok(None),
        (Some(certificate), Some(key), Some(client_ca)) => Ok(Some(TlsFiles { certificate, key, client_ca })),
        _ => Err(Refusal::new(Code::InvalidArguments, "mutual TLS is only partly configured")
            .hint("set GHOST_TLS_CERT, GHOST_TLS_KEY and GHOST_TLS_CA, or none of them")),
    }
}

/// The name of this daemon's node: host and process id, so that two daemons on one database have different names.
pub(crate) fn node_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}
