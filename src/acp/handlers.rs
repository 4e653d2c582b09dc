//! The answers to the agent's requests.
//!
//! Each function may wait, so it must never run in the library's dispatch loop.

use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    CreateTerminalRequest, CreateTerminalResponse, KillTerminalRequest, KillTerminalResponse, ReadTextFileRequest,
    ReadTextFileResponse, ReleaseTerminalRequest, ReleaseTerminalResponse, RequestPermissionRequest,
    RequestPermissionResponse, TerminalExitStatus, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use agent_client_protocol::{Error, ErrorCode};

use crate::bounds::{ANSWER_MAX, COMMAND_MAX, PATH_MAX};
use crate::calls::in_shell;
use crate::host::Permission;
use crate::office::{Office, host_error, refused};
use crate::permission::{choose, question};
use crate::terminal::{Terminal, TerminalCommand, TerminalExit};
use ghost_coding::Effect;
use ghost_coding::text::suffix_bytes;

pub(crate) async fn permission(
    office: Arc<Office>,
    request: RequestPermissionRequest,
) -> Result<RequestPermissionResponse, Error> {
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

pub(crate) async fn read_text(
    office: Arc<Office>,
    request: ReadTextFileRequest,
) -> Result<ReadTextFileResponse, Error> {
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

pub(crate) async fn write_text(
    office: Arc<Office>,
    request: WriteTextFileRequest,
) -> Result<WriteTextFileResponse, Error> {
    office.check(office.offers.write_text, &request.session_id.0)?;
    office.may_begin()?;
    let path = path(&request.path)?;
    let _room = office.writes(request.content.len())?;
    office.host.write_text(&path, request.content).await.map_err(|error| host_error(&error))?;
    office.record.done(Effect::Write, &path);
    Ok(WriteTextFileResponse::new())
}

pub(crate) async fn create_terminal(
    office: Arc<Office>,
    request: CreateTerminalRequest,
) -> Result<CreateTerminalResponse, Error> {
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

pub(crate) async fn terminal_output(
    office: Arc<Office>,
    request: TerminalOutputRequest,
) -> Result<TerminalOutputResponse, Error> {
    let output = terminal(&office, &request.session_id.0, &request.terminal_id.0)?.output().await;
    let kept = suffix_bytes(&output.output, ANSWER_MAX);
    let response = TerminalOutputResponse::new(kept, output.truncated || kept.len() < output.output.len());
    Ok(response.exit_status(output.exit.map(exit_status)))
}

pub(crate) async fn wait_for_exit(
    office: Arc<Office>,
    request: WaitForTerminalExitRequest,
) -> Result<WaitForTerminalExitResponse, Error> {
    let terminal = terminal(&office, &request.session_id.0, &request.terminal_id.0)?;
    let _place = office.waits()?;
    Ok(WaitForTerminalExitResponse::new(exit_status(terminal.wait().await)))
}

pub(crate) async fn kill_terminal(
    office: Arc<Office>,
    request: KillTerminalRequest,
) -> Result<KillTerminalResponse, Error> {
    terminal(&office, &request.session_id.0, &request.terminal_id.0)?.kill().await;
    Ok(KillTerminalResponse::new())
}

pub(crate) async fn release_terminal(
    office: Arc<Office>,
    request: ReleaseTerminalRequest,
) -> Result<ReleaseTerminalResponse, Error> {
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

fn path(path: &std::path::Path) -> Result<String, Error> {
    let path = path.to_string_lossy();
    if path.len() > PATH_MAX {
        return Err(refused(ErrorCode::INVALID_PARAMS, &format!("the path has more than {PATH_MAX} bytes")));
    }
    Ok(path.into_owned())
}
