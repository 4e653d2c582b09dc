//! A connection to one server: its start, its requests, its end. Closing it does not wait for the server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::text::prefix_bytes;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ProtocolVersion, RequestMetaObject, ServerPeerInfo,
    SubscriptionFilter,
};
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::Transport;
use rmcp::{ClientCacheConfig, ClientLifecycleMode, ClientServiceExt as _, Peer, RoleClient};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::blocks::{Block, CallResult};
use crate::elicitation::{Asker, Calls, Handler};
use crate::error::{CallError, ClosedReason, OpenError};
use crate::exchange::{Exchange, Inputs, Timing};
use crate::gate::{Gate, Guarded, Progress};
use crate::limits::{after, shown, until, within};
use crate::lists::{self, Listing, Prompt, PromptDefinition, Resource};
use crate::options::{CallOptions, Lifecycle, Link, Options};
use crate::tools::{Definition, definitions};
use crate::transports::{Lines, transport};

/// Bytes of the instructions that are kept.
const INSTRUCTIONS_MAX: usize = 16 * 1_024;
/// Time for the acknowledgement of a subscription.
const ACKNOWLEDGE: Duration = Duration::from_secs(10);
/// Time before a subscription that ended is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// A connection to one server. All methods can run at the same time. Dropping it closes it.
pub struct Connection {
    exchange: Exchange,
    server: ServerInfo,
    service: Mutex<Option<RunningService<RoleClient, Handler>>>,
    /// The task that listens for changes.
    listening: Option<JoinHandle<()>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("server", &self.server).field("closed", &self.closed_reason()).finish()
    }
}

impl Connection {
    /// Opens a connection over `link`. Has to run within a tokio runtime with timers.
    ///
    /// # Errors
    /// If the server does not start, does not answer in `Options::start_timeout`, or speaks another protocol.
    pub async fn open(link: Link, options: Options) -> Result<Self, OpenError> {
        let Options { lifecycle, start_timeout, elicitation, limits } = options;
        let gate = Arc::new(Gate::new(limits));
        let asker = elicitation.map(|handler| Asker::new(handler, gate.limits.clone()));
        let calls = Calls::default();
        let handler = Handler { asker: asker.clone(), calls: calls.clone(), closing: gate.closing.clone() };
        let service = start(link, handler, &gate, lifecycle, start_timeout).await?;
        // Nothing here asks the cache. It must not grow either.
        service.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let Some(info) = service.peer_info() else { return Err(OpenError::Closed { reason: gate.closing.reason() }) };
        let Some(server) = ServerInfo::of(&info) else {
            gate.closing.set(ClosedReason::Here);
            return Err(OpenError::NoCommonVersion { server: vec![shown(info.protocol_version.as_str())] });
        };
        let peer = service.peer().clone();
        let listening =
            (server.is_modern && server.reports_changes).then(|| tokio::spawn(listen(peer.clone(), Arc::clone(&gate))));
        let exchange = Exchange { peer, gate, asker, calls, runtime: Handle::current() };
        Ok(Self { exchange, server, service: Mutex::new(Some(service)), listening })
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
        lists::list(&self.exchange, true, &lists::TOOLS, definitions).await
    }

    /// Calls the tool `name`. `progress` gets what the server reports, in order, growing, and never after the end.
    /// Dropping the future cancels the call at the server; the tool may have acted. A call is never sent twice, except
    /// with the answers that the server asked for.
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
        self.exchange.check_size(&arguments)?;
        let timing = Timing::new(options.timeout, options.idle);
        let _waiting = self.exchange.calls.begin(options.label.clone());
        let request = |inputs: Inputs| {
            let mut params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments.clone());
            params.meta = (!options.meta.is_empty()).then(|| RequestMetaObject::from(options.meta.clone()));
            (params.input_responses, params.request_state) = (inputs.responses, inputs.state);
            ClientRequest::CallToolRequest(CallToolRequest::new(params))
        };
        let result = self.exchange.complete(&timing, options.label.clone(), request, &mut progress).await?;
        Ok(CallResult::read(result, options.result_limit))
    }

    /// The resources of the server, as far as they can be used. None if it says that it has none.
    ///
    /// # Errors
    /// If a page of the list cannot be read.
    pub async fn resources(&self) -> Result<Listing<Resource>, CallError> {
        lists::list(&self.exchange, self.server.has_resources, &lists::RESOURCES, lists::resources).await
    }

    /// The content of the resource at `uri`, and whether something was left out to keep `Limits::read_bytes`.
    ///
    /// # Errors
    /// If there is no content.
    pub async fn read_resource(&self, uri: &str) -> Result<(Vec<Block>, bool), CallError> {
        lists::resource(&self.exchange, uri).await
    }

    /// The prompts of the server, as far as they can be used. None if it says that it has none.
    ///
    /// # Errors
    /// If a page of the list cannot be read.
    pub async fn prompts(&self) -> Result<Listing<PromptDefinition>, CallError> {
        lists::list(&self.exchange, self.server.has_prompts, &lists::PROMPTS, lists::prompts).await
    }

    /// The prompt `name` with `arguments` filled in.
    ///
    /// # Errors
    /// If there is no prompt.
    pub async fn get_prompt(&self, name: &str, arguments: Map<String, Value>) -> Result<Prompt, CallError> {
        lists::prompt(&self.exchange, name, arguments).await
    }

    /// Completes when the tools changed since the last time it did, as far as the server reports it. For one caller
    /// at a time. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The reason, once the connection is closed.
    pub async fn changed(&self) -> Result<(), ClosedReason> {
        let gate = &self.exchange.gate;
        tokio::select! {
            biased;
            reason = gate.closing.wait() => Err(reason),
            () = gate.changed.notified() => Ok(()),
        }
    }

    /// Why it is closed; `None` while it is open.
    #[must_use]
    pub fn closed_reason(&self) -> Option<ClosedReason> {
        self.exchange.gate.closing.get()
    }

    /// Completes when it is closed.
    pub async fn closed(&self) -> ClosedReason {
        self.exchange.gate.closing.wait().await
    }

    /// Closes it. Takes at most about `Limits::close_timeout`, whatever the server does. Calls that wait end with
    /// [`CallError::Closed`].
    pub async fn close(&self) {
        self.exchange.gate.closing.set(ClosedReason::Here);
        let limit = self.exchange.gate.limits.close_timeout;
        let close = async {
            if let Some(mut service) = self.service.lock().await.take() {
                drop(service.close_with_timeout(limit).await);
            }
        };
        if within(limit, close).await.is_none() {
            tracing::debug!("the connection did not end in time");
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The tasks of `rmcp` and of this crate end with the reason.
        self.exchange.gate.closing.set(ClosedReason::Here);
        if let Some(task) = &self.listening {
            task.abort();
        }
    }
}

/// What a server says about itself. None of it is checked: it is text of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The version of the protocol that both use, for example `2026-07-28`.
    pub protocol: String,
    /// Whether that version has no handshake (2026-07-28 and later).
    pub is_modern: bool,
    /// Its name.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// What it says about its use, at most 16 KiB.
    pub instructions: Option<String>,
    /// Whether it says that it has tools.
    pub has_tools: bool,
    /// Whether it says that it has resources.
    pub has_resources: bool,
    /// Whether it says that it has prompts.
    pub has_prompts: bool,
    /// Whether it says that it reports changes of its tools.
    pub reports_changes: bool,
}

impl ServerInfo {
    /// What `info` says; `None` if its protocol version is unknown here.
    fn of(info: &ServerPeerInfo) -> Option<Self> {
        let is_known = ProtocolVersion::KNOWN_VERSIONS.contains(&info.protocol_version);
        let tools = info.capabilities.tools.as_ref();
        is_known.then(|| Self {
            protocol: info.protocol_version.as_str().to_owned(),
            is_modern: !info.protocol_version.has_initialize(),
            name: info.server_info.as_ref().map(|server| shown(&server.name)),
            version: info.server_info.as_ref().map(|server| shown(&server.version)),
            instructions: info.instructions.as_deref().map(|text| prefix_bytes(text, INSTRUCTIONS_MAX).to_owned()),
            has_tools: tools.is_some(),
            has_resources: info.capabilities.resources.is_some(),
            has_prompts: info.capabilities.prompts.is_some(),
            reports_changes: tools.is_some_and(|tools| tools.list_changed == Some(true)),
        })
    }
}

/// Makes the start over `link`. All of it takes at most `limit`.
async fn start(
    link: Link,
    handler: Handler,
    gate: &Arc<Gate>,
    lifecycle: Lifecycle,
    limit: Duration,
) -> Result<RunningService<RoleClient, Handler>, OpenError> {
    let started = match link {
        Link::Streams { reader, writer } => {
            let lines = Lines::new(reader, writer, Arc::clone(gate));
            within(limit, serve(handler, Guarded::new(lines, gate), lifecycle)).await
        }
        Link::Http { client, url, token } => {
            if !url.starts_with("https://") && !url.starts_with("http://") {
                return Err(OpenError::Address);
            }
            let http = transport(client, &url, token.as_ref(), Arc::clone(gate));
            within(limit, serve(handler, Guarded::new(http, gate), lifecycle)).await
        }
    };
    let started = started.ok_or(OpenError::Timeout { after: limit });
    let started = started.and_then(|started| started.map_err(|error| OpenError::of(error, &gate.closing)));
    if started.is_err() {
        gate.closing.set(ClosedReason::Here);
    }
    started
}

async fn serve<T: Transport<RoleClient> + 'static>(
    handler: Handler,
    transport: T,
    lifecycle: Lifecycle,
) -> Result<RunningService<RoleClient, Handler>, ClientInitializeError> {
    let mode = match lifecycle {
        Lifecycle::Auto => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
        Lifecycle::Initialize => ClientLifecycleMode::Initialize,
    };
    handler.serve_with_lifecycle(transport, mode).await
}

/// Listens for changes of the tools (protocol 2026-07-28) until the server refuses, which is no failure, until the
/// connection is closed, or until `Limits::listens` are used up. The gate takes the changes themselves: this task only
/// keeps the subscription open.
async fn listen(peer: Peer<RoleClient>, gate: Arc<Gate>) {
    let keep = async {
        for round in 0..=gate.limits.listens {
            if round > 0 {
                until(after(PAUSE)).await;
            }
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            let Some(Ok(mut subscription)) = within(ACKNOWLEDGE, peer.listen(filter)).await else {
                tracing::debug!("the server does not report changes of its tools");
                return;
            };
            if round > 0 {
                // Nobody listened for a moment.
                gate.changed.notify_one();
            }
            while let Ok(Some(_)) = subscription.next().await {}
        }
        tracing::debug!("the server ended the subscription to changes of its tools too often");
    };
    tokio::select! {
        () = keep => {}
        _ = gate.closing.wait() => {}
    }
}
