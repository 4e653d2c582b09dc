//! What the daemon takes from its environment: secrets, the files of mutual TLS, and its own name.
//!
//! Must never: show a value that it read.

use std::path::PathBuf;
use std::sync::Arc;

use ghost_control::TlsFiles;
use ghost_domain::{Code, Refusal};

use crate::loading::Loaded;

/// Reads an environment variable; shared with the reload.
pub type SharedEnv = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The values that must not get out: keys of providers and what the world file names besides.
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
        _ => Err(Refusal::new(Code::InvalidArguments, "mutual TLS is set up in part")
            .hint("set GHOST_TLS_CERT, GHOST_TLS_KEY and GHOST_TLS_CA, or none of them")),
    }
}

/// This daemon's name: the host and the process, so that two daemons on one database are told apart.
pub(crate) fn node_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}
