//! The entry of the library, and the course of a run: initialize, session, prompt, and stopping. The pipes, the protocol's
//! library and that course run side by side in one task. Each wait has a deadline and ends when the run is cancelled.

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, ContentBlock, FileSystemCapabilities, Implementation, InitializeRequest,
    LoadSessionRequest, NewSessionRequest, PromptRequest, ResumeSessionRequest, TextContent,
};
use agent_client_protocol::{
    Agent, Channel, Error, ErrorCode, UntypedMessage, is_connection_terminated, is_incoming_transport_closed,
};
use ghost_coding::text::one_line;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handlers::{Office, connect};
use crate::host::{Host, PROMPT_MAX, SESSION_MAX, SessionId, Streams, Task, tokens_in};
use crate::outcome::{CannotResume, End, Outcome, StartError, Stop, StopReason, Why};
use crate::record::Record;
use crate::wire::{Reader, Wire, write};

/// One session of a coding agent.
#[derive(Debug)]
pub struct Session;

impl Session {
    /// Gives the agent one task, and returns when the agent has answered, or when it is clear that it will not.
    ///
    /// When `cancel` is cancelled or the future is dropped, the agent is told to stop, every open permission question
    /// is answered with "cancelled", and the agent has [`Timeouts::grace`](crate::Timeouts::grace) to confirm. After a
    /// drop this goes on in a task of the runtime, which keeps the pipes and the host until then.
    ///
    /// The agent's process is the caller's: end it when this returns.
    ///
    /// # Panics
    /// Outside a tokio runtime with time.
    pub async fn run(streams: Streams, task: Task, host: Arc<dyn Host>, cancel: CancellationToken) -> Outcome {
        let began = Instant::now();
        let record = Arc::new(Record::new(&task.cwd));
        let wire = Arc::new(Wire::default());
        let stop = cancel.child_token();
        let driven = drive(streams, task, host, stop.clone(), Arc::clone(&record), Arc::clone(&wire), began);
        // If this future is dropped, the guard cancels the run, and the task goes on until the agent has stopped.
        let guard = stop.drop_guard();
        let end = tokio::spawn(driven).await;
        drop(guard);
        let end = end.unwrap_or_else(|error| {
            let what = if error.is_panic() { "it panicked" } else { "its runtime ended" };
            End::Died { why: Why::Internal(what.to_owned()) }
        });
        let whole = matches!(end, End::Finished { .. } | End::Refused);
        let work = record.work(wire.was_prompt_given(), whole, began.elapsed());
        Outcome { end, work }
    }
}

/// Runs the task, and returns when nothing of it is left.
async fn drive(
    streams: Streams,
    task: Task,
    host: Arc<dyn Host>,
    cancel: CancellationToken,
    record: Arc<Record>,
    wire: Arc<Wire>,
    began: Instant,
) -> End {
    if let Err(why) = check(&task) {
        return End::StartFailed { why };
    }
    let grace = task.timeouts.grace;
    let office = Arc::new(Office::new(Arc::clone(&host), Arc::clone(&record)));
    let flow = Flow { task, office: Arc::clone(&office), wire: Arc::clone(&wire), cancel, began };
    let reader = Reader { wire, record: Arc::clone(&record), host: Arc::clone(&host) };
    let end = side_by_side(streams, flow, reader).await;
    // The handlers are gone now, so no terminal is added any more.
    office.terminals.release_all(grace).await;
    record.said_all().into_iter().chain(record.left_out()).for_each(|note| host.progress(note));
    end
}

/// Runs everything until the flow ends, and drops the rest.
async fn side_by_side(streams: Streams, flow: Flow, reader: Reader) -> End {
    let Streams { output, input } = streams;
    let (ours, theirs) = Channel::duplex();
    let (from_library, to_library) = ours.into_parts();
    let (ready, connected) = oneshot::channel();
    let wire = Arc::clone(&reader.wire);
    let flow_office = Arc::clone(&flow.office);
    let run = async {
        match connected.await {
            Ok(cx) => flow.run(&cx).await,
            // The library ended before it began, and says why.
            Err(_) => std::future::pending().await,
        }
    };
    let reading = async {
        // The closure is dropped after the last message. For the library, that is the end of the agent's output.
        let deliver = move |frame| drop(to_library.unbounded_send(frame));
        reader.read(output, deliver).await;
        std::future::pending::<()>().await;
    };
    let writing = async {
        write(&wire, input, from_library).await;
        std::future::pending::<()>().await;
    };
    // The reading half comes last: it can always go on when the agent floods it, and the others must have their turn.
    tokio::select! {
        biased;
        end = run => end,
        result = connect(theirs, flow_office, ready) => {
            let message = result.err().map(|error| one_line(&error.to_string(), 200));
            End::Died { why: Why::Internal(message.unwrap_or_else(|| "the connection ended".to_owned())) }
        }
        () = writing => End::Died { why: Why::Ended },
        () = reading => End::Died { why: Why::Ended },
    }
}

fn check(task: &Task) -> Result<(), StartError> {
    let bad = |text: String| Err(StartError::BadTask(text));
    if !task.cwd.starts_with('/') {
        return bad("its directory is not an absolute path".to_owned());
    }
    if task.prompt.trim().is_empty() {
        return bad("its prompt is empty".to_owned());
    }
    if task.prompt.len() > PROMPT_MAX {
        return bad(format!("its prompt has {} bytes, and at most {PROMPT_MAX} are allowed", task.prompt.len()));
    }
    match &task.resume {
        Some(id) if id.0.is_empty() || id.0.len() > SESSION_MAX => {
            bad("its session id is empty or too long".to_owned())
        }
        _ => Ok(()),
    }
}

/// How long an answer may still come from an agent that closed its input.
const LINGER: Duration = Duration::from_secs(2);

struct Flow {
    task: Task,
    office: Arc<Office>,
    wire: Arc<Wire>,
    cancel: CancellationToken,
    began: Instant,
}

/// What the agent said about itself.
struct Known {
    resume: bool,
    load: bool,
    logins: Vec<String>,
}

impl Flow {
    /// Runs the task on the connection `cx`.
    async fn run(&self, cx: &ConnectionTo<Agent>) -> End {
        match self.start(cx).await {
            Ok(session) => self.prompt(cx, session).await,
            Err(end) => end,
        }
    }

    /// Waits for `answer` until the deadline, the end of the agent, or the end of the run.
    async fn answer<T>(&self, answer: impl Future<Output = Result<T, Error>>, until: Instant) -> Result<T, Halt> {
        let gone = || Halt::Gone(self.wire.why().unwrap_or(Why::Ended));
        let broken = async {
            self.wire.broken.cancelled().await;
            pause(LINGER).await;
        };
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|error| if is_closed(&error) { gone() } else { Halt::Answered(error) }),
            () = self.cancel.cancelled() => Err(Halt::Cancelled),
            () = tokio::time::sleep_until(until) => Err(Halt::Deadline),
            () = broken => Err(gone()),
        }
    }

    /// When the whole run must be over.
    fn last(&self) -> Instant {
        self.began + self.task.timeouts.total
    }

    /// When the session must be there.
    fn started(&self) -> Instant {
        self.last().min(self.began + self.task.timeouts.start)
    }

    async fn ask(&self, cx: &ConnectionTo<Agent>, method: &'static str, params: impl Serialize) -> Result<Value, Halt> {
        let message = UntypedMessage::new(method, params).map_err(Halt::Answered)?;
        self.answer(cx.send_request(message).block_task(), self.started()).await
    }

    async fn start(&self, cx: &ConnectionTo<Agent>) -> Result<SessionId, End> {
        let known = self.initialize(cx).await?;
        let session = match &self.task.resume {
            Some(id) => self.resume(cx, id.clone(), &known).await?,
            None => self.new_session(cx, &known).await?,
        };
        self.office.record.set_session(session.clone());
        let told = async {
            self.office.host.session(&session).await;
            Ok(())
        };
        self.answer(told, self.started()).await.map_err(|halt| self.not_started(halt, "session/new", &known.logins))?;
        Ok(session)
    }

    async fn initialize(&self, cx: &ConnectionTo<Agent>) -> Result<Known, End> {
        let offers = self.office.offers;
        let files = FileSystemCapabilities::new().read_text_file(offers.read_text).write_text_file(offers.write_text);
        let request = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::new().fs(files).terminal(offers.terminal))
            .client_info(Implementation::new("ghost", env!("CARGO_PKG_VERSION")));
        let answer = self.ask(cx, "initialize", request).await;
        // The library answers with an error of its own if the version is another one.
        if let Some(offered) = self.wire.version().filter(|version| *version != 1) {
            return Err(End::StartFailed { why: StartError::WrongVersion { offered } });
        }
        let answer = answer.map_err(|halt| self.not_started(halt, "initialize", &[]))?;
        let can = answer.get("agentCapabilities");
        let logins = answer.get("authMethods").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let name = |login: &Value| Some(one_line(login.get("name")?.as_str()?, 60));
        Ok(Known {
            resume: can.and_then(|can| can.get("sessionCapabilities")?.get("resume")).is_some_and(Value::is_object),
            load: can.and_then(|can| can.get("loadSession")).and_then(Value::as_bool).unwrap_or_default(),
            logins: logins.iter().filter_map(name).take(8).collect(),
        })
    }

    async fn new_session(&self, cx: &ConnectionTo<Agent>, known: &Known) -> Result<SessionId, End> {
        let answer = self.ask(cx, "session/new", NewSessionRequest::new(&self.task.cwd)).await;
        let answer = answer.map_err(|halt| self.not_started(halt, "session/new", &known.logins))?;
        let bad = |message: &str| {
            let why = Why::BadAnswer { method: "session/new", message: message.to_owned() };
            End::StartFailed { why: why.into() }
        };
        match answer.get("sessionId").and_then(Value::as_str) {
            Some(id) if id.len() > SESSION_MAX => Err(bad("its session id is too long")),
            Some(id) if !id.is_empty() => Ok(SessionId(id.to_owned())),
            _ => Err(bad("it has no session id")),
        }
    }

    async fn resume(&self, cx: &ConnectionTo<Agent>, id: SessionId, known: &Known) -> Result<SessionId, End> {
        // The agent may need files of the host to find the session again.
        self.office.record.set_session(id.clone());
        let cwd = &self.task.cwd;
        let (method, answer) = if known.resume {
            ("session/resume", self.ask(cx, "session/resume", ResumeSessionRequest::new(id.0.clone(), cwd)).await)
        } else if known.load {
            ("session/load", self.ask(cx, "session/load", LoadSessionRequest::new(id.0.clone(), cwd)).await)
        } else {
            return Err(End::CannotResume { why: CannotResume::NotDeclared });
        };
        match answer {
            Ok(_) => Ok(id),
            Err(Halt::Answered(error)) if error.code != ErrorCode::AUTH_REQUIRED => {
                let (code, message) = told(&error);
                Err(End::CannotResume { why: CannotResume::Refused { method, code, message } })
            }
            Err(halt) => Err(self.not_started(halt, method, &known.logins)),
        }
    }

    /// The end of a run that has no session.
    fn not_started(&self, halt: Halt, method: &'static str, logins: &[String]) -> End {
        let why = match halt {
            Halt::Cancelled => return End::Cancelled { stop: Stop::NothingRan },
            Halt::Deadline => StartError::TimedOut { after: self.began.elapsed() },
            Halt::Gone(why) => StartError::Gone(why),
            Halt::Answered(error) if error.code == ErrorCode::AUTH_REQUIRED => {
                StartError::AuthNeeded { methods: logins.to_vec() }
            }
            Halt::Answered(error) => {
                let (code, message) = told(&error);
                StartError::Refused { method, code, message }
            }
        };
        End::StartFailed { why }
    }

    async fn prompt(&self, cx: &ConnectionTo<Agent>, session: SessionId) -> End {
        let text = ContentBlock::Text(TextContent::new(self.task.prompt.clone()));
        let message = match UntypedMessage::new("session/prompt", PromptRequest::new(session.0.clone(), vec![text])) {
            Ok(message) => message,
            Err(error) => return End::Died { why: Why::Internal(told(&error).1) },
        };
        self.office.record.set_live();
        let mut answer = std::pin::pin!(cx.send_request(message).block_task());
        match self.answer(answer.as_mut(), self.last()).await {
            Ok(answer) => self.finished(&answer),
            Err(Halt::Gone(why)) => End::Died { why },
            Err(Halt::Answered(error)) => {
                let (code, message) = told(&error);
                End::Died { why: Why::Failed { code, message } }
            }
            Err(Halt::Cancelled) => End::Cancelled { stop: self.stop(cx, session, answer).await },
            Err(Halt::Deadline) => End::TimedOut { stop: self.stop(cx, session, answer).await },
        }
    }

    fn finished(&self, answer: &Value) -> End {
        self.count(answer);
        let stop_reason = match answer.get("stopReason").and_then(Value::as_str) {
            Some("end_turn") => StopReason::EndTurn,
            Some("max_tokens") => StopReason::MaxTokens,
            Some("max_turn_requests") => StopReason::MaxTurnRequests,
            Some("refusal") => return End::Refused,
            Some("cancelled") => return End::Cancelled { stop: Stop::Itself },
            Some(other) => StopReason::Other(one_line(other, 60)),
            None => {
                let message = "it has no reason for the stop".to_owned();
                return End::Died { why: Why::BadAnswer { method: "session/prompt", message } };
            }
        };
        End::Finished { stop_reason }
    }

    /// Takes over the usage in the answer to the prompt. It is not yet in the stable protocol.
    fn count(&self, answer: &Value) {
        if let Some(tokens) = answer.get("usage").and_then(tokens_in) {
            let usage = self.office.record.usage(|usage| usage.tokens = Some(tokens));
            self.office.host.usage(usage);
        }
    }

    /// Tells the agent to stop, and gives it its time of grace.
    async fn stop(
        &self,
        cx: &ConnectionTo<Agent>,
        session: SessionId,
        answer: impl Future<Output = Result<Value, Error>>,
    ) -> Stop {
        if let Err(error) = cx.send_notification(CancelNotification::new(session.0)) {
            tracing::debug!(code = error.code.value(), "the agent cannot be told to stop");
        }
        // Open permission questions are answered by this.
        self.office.closing.cancel();
        let kill = async {
            self.office.terminals.kill_all().await;
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = kill => return Stop::Unconfirmed,
            () = pause(self.task.timeouts.grace) => return Stop::Unconfirmed,
        };
        match answer {
            Ok(answer) => {
                self.count(&answer);
                let stopped = answer.get("stopReason").and_then(Value::as_str) == Some("cancelled");
                if stopped { Stop::Confirmed } else { Stop::TooLate }
            }
            // An error of the agent is an answer, too: the turn is over.
            Err(error) if !is_closed(&error) => Stop::Confirmed,
            Err(_) => Stop::Unconfirmed,
        }
    }
}

/// Waits on real time: agents are programs of their own, and no simulation has one.
#[allow(clippy::disallowed_methods)]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The code and the message of an error, for people.
fn told(error: &Error) -> (i32, String) {
    let details = error.data.as_ref().and_then(|data| {
        let text = data.as_str().or_else(|| data.get("details")?.as_str()).or_else(|| data.get("message")?.as_str())?;
        Some(format!(": {text}"))
    });
    (error.code.value(), one_line(&format!("{}{}", error.message, details.unwrap_or_default()), 200))
}

/// Why there is no answer.
enum Halt {
    /// The run was cancelled.
    Cancelled,
    /// It is too late.
    Deadline,
    /// The agent is gone.
    Gone(Why),
    /// The answer is an error.
    Answered(Error),
}

/// Whether the library made this error because the connection ended.
fn is_closed(error: &Error) -> bool {
    is_incoming_transport_closed(error) || is_connection_terminated(error)
}
