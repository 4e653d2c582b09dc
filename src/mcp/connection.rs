//! A connection to one server. Closing it must never wait for the server.

use std::fmt;
use std::sync::Arc;

use rmcp::service::RunningService;
use rmcp::{ClientCacheConfig, RoleClient};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;

use crate::asker::Asker;
use crate::blocks::{Block, CallResult};
use crate::call::{CallOptions, call};
use crate::calls::Calls;
use crate::changes::listen;
use crate::closing::{ClosedReason, Closing};
use crate::definition::{Definition, definitions};
use crate::error::CallError;
use crate::exchange::Exchange;
use crate::gate::Gate;
use crate::handler::Handler;
use crate::limits::Limits;
use crate::link::Link;
use crate::listing::{ListEnd, Listing, Skipped};
use crate::open::{OpenError, start};
use crate::options::Options;
use crate::pages::{List, entries};
use crate::progress::Progress;
use crate::prompts::{self, Prompt, PromptDefinition};
use crate::resources::{self, Resource};
use crate::server::ServerInfo;
use crate::text::shown;
use crate::time::within;

/// A connection to one server. All methods can run at the same time. Dropping it closes it.
pub struct Connection {
    exchange: Exchange,
    calls: Calls,
    limits: Limits,
    server: ServerInfo,
    changed: Arc<Notify>,
    closing: Closing,
    service: Mutex<Option<RunningService<RoleClient, Handler>>>,
    /// The task that listens for changes.
    listening: Option<JoinHandle<()>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("server", &self.server).field("closed", &self.closing.get()).finish()
    }
}

impl Connection {
    /// Opens a connection over `link`. Has to run within a tokio runtime with timers.
    ///
    /// # Errors
    /// If the server does not start, does not answer in `Options::start_timeout`, or speaks another protocol.
    pub async fn open(link: Link, options: Options) -> Result<Self, OpenError> {
        let Options { lifecycle, start_timeout, client_name, client_version, elicitation, limits } = options;
        let (closing, changed) = (Closing::new(), Arc::new(Notify::new()));
        let gate = Arc::new(Gate::new(limits.clone(), closing.clone(), Arc::clone(&changed)));
        let asker = elicitation.map(|handler| Asker::new(handler, limits.clone()));
        let calls = Calls::default();
        let handler = Handler {
            name: client_name,
            version: client_version,
            asker: asker.clone(),
            calls: calls.clone(),
            closing: closing.clone(),
        };
        let service = start(link, handler, Arc::clone(&gate), lifecycle, &limits, start_timeout).await?;
        // Nothing here asks the cache. It must not grow either.
        service.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let Some(info) = service.peer_info() else {
            return Err(OpenError::Closed { reason: closing.get().unwrap_or(ClosedReason::Ended) });
        };
        let Some(server) = ServerInfo::of(&info) else {
            closing.set(ClosedReason::Here);
            return Err(OpenError::NoCommonVersion { server: vec![shown(info.protocol_version.as_str())] });
        };
        let peer = service.peer().clone();
        let listening = (server.is_modern && server.reports_changes)
            .then(|| tokio::spawn(listen(peer.clone(), closing.clone(), Arc::clone(&changed), limits.clone())));
        let exchange = Exchange {
            peer,
            gate,
            closing: closing.clone(),
            asker,
            cancel_timeout: limits.cancel_timeout,
            progress_events: limits.progress_events,
            runtime: Handle::current(),
        };
        let service = Mutex::new(Some(service));
        Ok(Self { exchange, calls, limits, server, changed, closing, service, listening })
    }

    /// What the server says about itself.
    #[must_use]
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// The tools of the server, as far as they can be used.
    ///
    /// # Errors
    /// If a page of the list cannot be read.
    pub async fn tools(&self) -> Result<Listing<Definition>, CallError> {
        self.list(List::Tools, definitions).await
    }

    /// Calls the tool `name`. `progress` gets what the server reports, in order, growing, and never after the end.
    /// Dropping the future cancels the call at the server; the tool may have acted.
    ///
    /// # Errors
    /// If there is no result. [`CallError::may_have_happened`] says whether the tool may have acted. A tool that says
    /// that it failed is a result (`CallResult::is_error`).
    pub async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        options: CallOptions,
        mut progress: impl FnMut(Progress) + Send,
    ) -> Result<CallResult, CallError> {
        call(&self.exchange, &self.calls, &self.limits, (name, arguments), options, &mut progress).await
    }

    /// The resources of the server, as far as they can be used. None if it says that it has none.
    ///
    /// # Errors
    /// If a page of the list cannot be read.
    pub async fn resources(&self) -> Result<Listing<Resource>, CallError> {
        if !self.server.has_resources {
            return Ok(nothing());
        }
        self.list(List::Resources, resources::resources).await
    }

    /// The content of the resource at `uri`, and whether something was left out to keep `Limits::read_bytes`.
    ///
    /// # Errors
    /// If there is no content.
    pub async fn read_resource(&self, uri: &str) -> Result<(Vec<Block>, bool), CallError> {
        resources::read(&self.exchange, &self.limits, uri).await
    }

    /// The prompts of the server, as far as they can be used. None if it says that it has none.
    ///
    /// # Errors
    /// If a page of the list cannot be read.
    pub async fn prompts(&self) -> Result<Listing<PromptDefinition>, CallError> {
        if !self.server.has_prompts {
            return Ok(nothing());
        }
        self.list(List::Prompts, prompts::prompts).await
    }

    /// The prompt `name` with `arguments` filled in.
    ///
    /// # Errors
    /// If there is no prompt.
    pub async fn get_prompt(&self, name: &str, arguments: Map<String, Value>) -> Result<Prompt, CallError> {
        prompts::get(&self.exchange, &self.limits, name, arguments).await
    }

    /// Completes when the tools changed since the last time it did, as far as the server reports it. For one caller
    /// at a time. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The reason, once the connection is closed.
    pub async fn changed(&self) -> Result<(), ClosedReason> {
        tokio::select! {
            biased;
            reason = self.closing.wait() => Err(reason),
            () = self.changed.notified() => Ok(()),
        }
    }

    /// Why it is closed; `None` while it is open.
    #[must_use]
    pub fn closed_reason(&self) -> Option<ClosedReason> {
        self.closing.get()
    }

    /// Completes when it is closed.
    pub async fn closed(&self) -> ClosedReason {
        self.closing.wait().await
    }

    /// Closes it. Takes at most about `Limits::close_timeout`, whatever the server does. Calls that wait end with
    /// [`CallError::Closed`].
    pub async fn close(&self) {
        self.closing.set(ClosedReason::Here);
        let limit = self.limits.close_timeout;
        let close = async {
            if let Some(mut service) = self.service.lock().await.take() {
                drop(service.close_with_timeout(limit).await);
            }
        };
        if within(limit, close).await.is_none() {
            tracing::debug!("the connection did not end in time");
        }
    }

    async fn list<T>(
        &self,
        list: List,
        read: impl FnOnce(Vec<Value>) -> (Vec<T>, Vec<Skipped>),
    ) -> Result<Listing<T>, CallError> {
        let (entries, end) = entries(&self.exchange, list, &self.limits).await?;
        let (items, skipped) = read(entries);
        Ok(Listing { items, skipped, end })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The tasks of `rmcp` and of this crate end with the reason.
        self.closing.set(ClosedReason::Here);
        if let Some(task) = &self.listening {
            task.abort();
        }
    }
}

fn nothing<T>() -> Listing<T> {
    Listing { items: Vec::new(), skipped: Vec::new(), end: ListEnd::Complete }
}
