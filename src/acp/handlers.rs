//! The answers to the agent's requests. The library calls a handler inside its dispatch loop, so every answer, which may
//! wait, is made in a task of the connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    CreateTerminalRequest, CreateTerminalResponse, KillTerminalRequest, KillTerminalResponse, ReadTextFileRequest,
    ReadTextFileResponse, ReleaseTerminalRequest, ReleaseTerminalResponse, RequestPermissionRequest,
    RequestPermissionResponse, TerminalExitStatus, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Channel, Client, Error, ErrorCode, JsonRpcResponse, on_receive_request};
use futures_util::future::join_all;
use ghost_coding::Effect;
use ghost_coding::text::suffix_bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;

use crate::calls::{choose, in_shell, question};
use crate::host::{
    ANSWER_MAX, COMMAND_MAX, Capabilities, Host, HostError, PATH_MAX, Permission, TERMINALS_MAX, Terminal,
    TerminalCommand, TerminalExit, WAITING_MAX, WRITING_MAX,
};
use crate::record::Record;

/// What the handlers of the agent's requests share.
pub(crate) struct Office {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) record: Arc<Record>,
    /// What was offered to the agent.
    pub(crate) offers: Capabilities,
    /// Cancelled when the agent must stop.
    pub(crate) closing: CancellationToken,
    pub(crate) terminals: Terminals,
    waiting: Semaphore,
    writing: Semaphore,
}

/// What a handler gives.
type Answer<T> = Result<T, Error>;

impl Office {
    pub(crate) fn new(host: Arc<dyn Host>, record: Arc<Record>) -> Self {
        Self {
            offers: host.capabilities(),
            host,
            record,
            closing: CancellationToken::new(),
            terminals: Terminals::new(),
            waiting: Semaphore::new(WAITING_MAX),
            writing: Semaphore::new(WRITING_MAX),
        }
    }

    /// Whether a request for `session` is acceptable, if what it needs is `offered`.
    fn check(&self, offered: bool, session: &str) -> Answer<()> {
        if !offered {
            return Err(Error::method_not_found());
        }
        if !self.record.is_session(session) {
            return Err(refused(ErrorCode::INVALID_PARAMS, "this is not the session of this connection"));
        }
        self.record.acted();
        Ok(())
    }

    /// Whether the agent may begin something new.
    fn may_begin(&self) -> Answer<()> {
        if self.closing.is_cancelled() {
            return Err(refused(ErrorCode::REQUEST_CANCELLED, "the session was cancelled"));
        }
        Ok(())
    }

    /// A place among the requests that wait.
    fn waits(&self) -> Answer<SemaphorePermit<'_>> {
        self.waiting.try_acquire().map_err(|_| {
            refused(ErrorCode::INVALID_REQUEST, "too many requests wait for an answer; wait for one of them")
        })
    }

    /// Room for writing so many bytes.
    fn writes(&self, bytes: usize) -> Answer<SemaphorePermit<'_>> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.writing.try_acquire_many(bytes).map_err(|_| {
            refused(ErrorCode::INVALID_REQUEST, "too much is written at the same time; wait for an answer")
        })
    }
}

/// The error that the agent gets.
fn refused(code: ErrorCode, message: &str) -> Error {
    Error::new(code.value(), message)
}

/// The host's error as the agent gets it.
fn host_error(error: &HostError) -> Error {
    let code = match error {
        HostError::NotFound(_) => ErrorCode::RESOURCE_NOT_FOUND,
        HostError::Refused(_) => ErrorCode::INVALID_REQUEST,
        HostError::Failed(_) => ErrorCode::INTERNAL_ERROR,
    };
    refused(code, &error.to_string())
}

/// The open terminals of a run. None may be left when the run is over.
pub(crate) struct Terminals {
    open: Mutex<Open>,
    room: Arc<Semaphore>,
}

#[derive(Default)]
struct Open {
    number: u64,
    all: HashMap<String, (Arc<dyn Terminal>, OwnedSemaphorePermit)>,
}

impl Terminals {
    fn new() -> Self {
        Self { open: Mutex::default(), room: Arc::new(Semaphore::new(TERMINALS_MAX)) }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Every change is one call, so a poisoned lock is safe to use.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for one more terminal; `None` if too many are open.
    fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// Keeps a terminal. Returns its id.
    fn add(&self, terminal: Box<dyn Terminal>, room: OwnedSemaphorePermit) -> String {
        let mut open = self.open();
        open.number += 1;
        let id = format!("terminal-{}", open.number);
        open.all.insert(id.clone(), (Arc::from(terminal), room));
        id
    }

    /// The terminal `id`.
    fn get(&self, id: &str) -> Option<Arc<dyn Terminal>> {
        self.open().all.get(id).map(|(terminal, _)| Arc::clone(terminal))
    }

    /// Takes the terminal `id` out: the agent cannot name it any more.
    fn take(&self, id: &str) -> Option<Arc<dyn Terminal>> {
        self.open().all.remove(id).map(|(terminal, _)| terminal)
    }

    /// Ends all commands. Their output can still be read.
    pub(crate) async fn kill_all(&self) {
        let all: Vec<_> = self.open().all.values().map(|(terminal, _)| Arc::clone(terminal)).collect();
        join_all(all.iter().map(|terminal| terminal.kill())).await;
    }

    /// Releases all terminals. One that does not end within `grace` is dropped.
    pub(crate) async fn release_all(&self, grace: Duration) {
        let all: Vec<_> = self.open().all.drain().map(|(_, (terminal, _))| terminal).collect();
        let released = join_all(all.iter().map(|terminal| terminal.release()));
        // Agents are programs of their own, and no simulation has one.
        #[allow(clippy::disallowed_methods)]
        if tokio::time::timeout(grace, released).await.is_err() {
            tracing::warn!(terminals = all.len(), "terminals were not released in time; they are dropped");
        }
    }
}

async fn permission(office: Arc<Office>, request: RequestPermissionRequest) -> Answer<RequestPermissionResponse> {
    office.check(true, &request.session_id.0)?;
    let mut asked = Asked { office: &office, call: request.tool_call.tool_call_id.0.to_string(), allowed: false };
    let (call, notes) = office.record.call(request.tool_call, true);
    notes.into_iter().for_each(|note| office.host.progress(note));
    let ask = question(call, &request.options);
    let answer = if office.closing.is_cancelled() {
        Permission::Cancelled
    } else {
        let _place = office.waits()?;
        tokio::select! {
            biased;
            () = office.closing.cancelled() => Permission::Cancelled,
            answer = office.host.permission(ask) => answer,
        }
    };
    let (outcome, allowed) = choose(&request.options, answer);
    asked.allowed = allowed;
    Ok(RequestPermissionResponse::new(outcome))
}

/// A call that the agent asked about. If it was not allowed, or the run ended before the answer, it did not happen.
struct Asked<'a> {
    office: &'a Office,
    call: String,
    allowed: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.allowed {
            self.office.record.not_allowed(&self.call);
        }
    }
}

async fn read_text(office: Arc<Office>, request: ReadTextFileRequest) -> Answer<ReadTextFileResponse> {
    office.check(office.offers.read_text, &request.session_id.0)?;
    let path = path(&request.path)?;
    let text = office.host.read_text(&path, request.line, request.limit).await.map_err(|error| host_error(&error))?;
    if text.len() > ANSWER_MAX {
        let message = format!("`{path}` has more than {ANSWER_MAX} bytes; read a part of it with `line` and `limit`");
        return Err(refused(ErrorCode::INVALID_REQUEST, &message));
    }
    office.record.done(Effect::Read, &path);
    Ok(ReadTextFileResponse::new(text))
}

async fn write_text(office: Arc<Office>, request: WriteTextFileRequest) -> Answer<WriteTextFileResponse> {
    office.check(office.offers.write_text, &request.session_id.0)?;
    office.may_begin()?;
    let path = path(&request.path)?;
    let _room = office.writes(request.content.len())?;
    office.host.write_text(&path, request.content).await.map_err(|error| host_error(&error))?;
    office.record.done(Effect::Write, &path);
    Ok(WriteTextFileResponse::new())
}

async fn create_terminal(office: Arc<Office>, request: CreateTerminalRequest) -> Answer<CreateTerminalResponse> {
    office.check(office.offers.terminal, &request.session_id.0)?;
    office.may_begin()?;
    let env: Vec<_> = request.env.into_iter().map(|variable| (variable.name, variable.value)).collect();
    let bytes = request.command.len()
        + request.args.iter().map(|arg| arg.len() + 1).sum::<usize>()
        + env.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
    if bytes > COMMAND_MAX {
        return Err(refused(ErrorCode::INVALID_PARAMS, &format!("the command has more than {COMMAND_MAX} bytes")));
    }
    let cwd = request.cwd.as_deref().map(path).transpose()?;
    let room = office.terminals.room().ok_or_else(|| {
        refused(ErrorCode::INVALID_REQUEST, "too many terminals are open; release one with `terminal/release`")
    })?;
    let words: Vec<_> = std::iter::once(request.command.clone()).chain(request.args.iter().cloned()).collect();
    let limit = request.output_byte_limit.map_or(ANSWER_MAX, |limit| usize::try_from(limit).unwrap_or(ANSWER_MAX));
    let command = TerminalCommand {
        command: request.command,
        args: request.args,
        env,
        cwd,
        output_byte_limit: limit.min(ANSWER_MAX),
    };
    let terminal = office.host.terminal(command).await.map_err(|error| host_error(&error))?;
    office.record.done(Effect::Run, &in_shell(&words));
    Ok(CreateTerminalResponse::new(office.terminals.add(terminal, room)))
}

async fn terminal_output(office: Arc<Office>, request: TerminalOutputRequest) -> Answer<TerminalOutputResponse> {
    let output = terminal(&office, &request.session_id.0, &request.terminal_id.0)?.output().await;
    let kept = suffix_bytes(&output.output, ANSWER_MAX);
    let response = TerminalOutputResponse::new(kept, output.truncated || kept.len() < output.output.len());
    Ok(response.exit_status(output.exit.map(exit_status)))
}

async fn wait_for_exit(
    office: Arc<Office>,
    request: WaitForTerminalExitRequest,
) -> Answer<WaitForTerminalExitResponse> {
    let terminal = terminal(&office, &request.session_id.0, &request.terminal_id.0)?;
    let _place = office.waits()?;
    Ok(WaitForTerminalExitResponse::new(exit_status(terminal.wait().await)))
}

async fn kill_terminal(office: Arc<Office>, request: KillTerminalRequest) -> Answer<KillTerminalResponse> {
    terminal(&office, &request.session_id.0, &request.terminal_id.0)?.kill().await;
    Ok(KillTerminalResponse::new())
}

async fn release_terminal(office: Arc<Office>, request: ReleaseTerminalRequest) -> Answer<ReleaseTerminalResponse> {
    office.check(office.offers.terminal, &request.session_id.0)?;
    let terminal = office.terminals.take(&request.terminal_id.0).ok_or_else(no_terminal)?;
    terminal.release().await;
    Ok(ReleaseTerminalResponse::new())
}

fn terminal(office: &Office, session: &str, id: &str) -> Result<Arc<dyn Terminal>, Error> {
    office.check(office.offers.terminal, session)?;
    office.terminals.get(id).ok_or_else(no_terminal)
}

fn no_terminal() -> Error {
    refused(ErrorCode::RESOURCE_NOT_FOUND, "there is no such terminal, or it was released")
}

fn exit_status(exit: TerminalExit) -> TerminalExitStatus {
    TerminalExitStatus::new().exit_code(exit.code).signal(exit.signal)
}

fn path(path: &std::path::Path) -> Answer<String> {
    let path = path.to_string_lossy();
    if path.len() > PATH_MAX {
        return Err(refused(ErrorCode::INVALID_PARAMS, &format!("the path has more than {PATH_MAX} bytes")));
    }
    Ok(path.into_owned())
}

/// Answers the agent's requests until the future is dropped. `ready` gets the connection.
///
/// # Errors
/// If the library fails.
pub(crate) async fn connect(
    channel: Channel,
    office: Arc<Office>,
    ready: oneshot::Sender<ConnectionTo<Agent>>,
) -> Result<(), Error> {
    macro_rules! with_handlers {
        ($($request:ty => $handler:ident,)*) => {
            Client.v1().name("ghost")$(.on_receive_request(
                {
                    let office = Arc::clone(&office);
                    async move |request: $request, responder, cx: ConnectionTo<Agent>| {
                        answer(&cx, responder, $handler(Arc::clone(&office), request))
                    }
                },
                on_receive_request!(),
            ))*
        };
    }
    let client = with_handlers! {
        RequestPermissionRequest => permission,
        ReadTextFileRequest => read_text,
        WriteTextFileRequest => write_text,
        CreateTerminalRequest => create_terminal,
        TerminalOutputRequest => terminal_output,
        WaitForTerminalExitRequest => wait_for_exit,
        KillTerminalRequest => kill_terminal,
        ReleaseTerminalRequest => release_terminal,
    };
    client
        .connect_with(channel, async move |cx: ConnectionTo<Agent>| {
            // The receiver is gone only when nobody needs the connection.
            let _ = ready.send(cx);
            std::future::pending::<Result<(), Error>>().await
        })
        .await
}

/// Answers a request with what `work` gives, without keeping the dispatch loop.
fn answer<T: JsonRpcResponse + Send>(
    cx: &ConnectionTo<Agent>,
    responder: Responder<T>,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<(), Error> {
    cx.spawn(async move {
        // A failed task would end the connection. An answer fails only when the connection has ended anyway.
        if let Err(error) = responder.respond_with_result(work.await) {
            tracing::debug!(code = error.code.value(), "an answer was not taken");
        }
        Ok(())
    })
}
