//! The `Messages` service: messages and asks from operators, and dead letters.

use ghost_domain::{AgentId, Ask, AskStatus, Code, DeadLetter, DeadLetterStatus, Envelope, Kind, Limits, Refusal};
use ghost_operations::mail::{Chain, NewMessage, why_mail_waits};
use ghost_operations::{asks, dead_letters, requests};
use ghost_proto::v1;
use ghost_proto::v1::messages_server::Messages;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{self, input};
use crate::refusal::to_status;
use crate::{caller, queries};

/// Largest length of a subject, in characters.
const SUBJECT_MAX: usize = 200;

/// Implements `ghost.v1.Messages`.
pub struct MessagesService(pub Control);

impl MessagesService {
    async fn send_once(&self, request: Request<v1::SendRequest>) -> Result<Envelope, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "messages.send", &request.get_ref().request_id)?;
        let ctx = self.0.world.ctx().clone();
        let new_message = |request: &v1::SendRequest| {
            let to: AgentId = input::parsed("agent_id", &request.agent_id)?;
            let body = input::prose("body", &request.body, ctx.limits().message_bytes)?;
            Ok(NewMessage {
                subject: input::line_if("subject", request.subject.as_deref(), SUBJECT_MAX)?,
                attachments: input::paths("attachments", &request.attachments)?,
                ..NewMessage::new(&to, by, Kind::Message, body, Chain::root(&ctx))
            })
        };
        let new_message = new_message(request.get_ref()).map_err(to_status)?;
        requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| queries::deliver(w, new_message))
            .await
            .map_err(to_status)
    }

    /// Why the receiver of a message does not take it now. The stored answer of a request has the message only, so a
    /// repeated request gets the state of the receiver at its own time.
    async fn why_it_waits(&self, sent: &Envelope) -> Result<Option<String>, Refusal> {
        let to = sent.to.clone();
        let receiver = self.0.world.store().read(move |r| r.agent_get(&to)).await?;
        let waits = receiver.and_then(|receiver| why_mail_waits(self.0.world.ctx(), &receiver));
        Ok(waits.map(|why| self.0.world.ctx().redactor.redact(&why)))
    }

    /// Opens the ask once and returns its stored row.
    async fn ask_once(&self, request: Request<v1::AskRequest>) -> Result<Ask, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "messages.ask", &request.get_ref().request_id)?;
        let request = request.into_inner();
        let ctx = self.0.world.ctx().clone();
        let limits = ctx.limits();
        let target: AgentId = input::parsed("agent_id", &request.agent_id).map_err(to_status)?;
        let body = input::prose("body", &request.body, limits.message_bytes).map_err(to_status)?;
        let timeout = input::wait("timeout_ms", request.timeout_ms).map_err(to_status)?;
        let timeout = timeout.unwrap_or_else(|| Limits::seconds(limits.ask_seconds));
        let chain = Chain::root(&ctx);
        requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            asks::open(w, by, None, &target, body, timeout, chain)
        })
        .await
        .map_err(to_status)
    }

    async fn dead_page(&self, request: v1::ListDeadRequest) -> Result<v1::ListDeadResponse, Refusal> {
        let agent_id = queries::agent_in_filter(&self.0.world, "agent_id", request.agent_id.as_deref()).await?;
        let status = match request.status.as_deref() {
            None => Some(DeadLetterStatus::Held),
            Some("all") => None,
            Some(status) => Some(input::parsed("status", status).map_err(|refusal| {
                let hint = refusal.hint.clone().map(|hint| format!("{hint}, all"));
                Refusal { hint, ..refusal }
            })?),
        };
        let after = input::position(input::unseal("dead letters", &request.cursor)?)?;
        let limit = input::page(request.limit);
        let page = queries::dead_letters(&self.0.world, agent_id, status, after, limit).await?;
        let (dead_letters, next) = page.map(convert::dead_letter);
        Ok(v1::ListDeadResponse { dead_letters, next_cursor: input::seal("dead letters", &next), truncated: false })
    }

    async fn dead_with_mail(&self, request: v1::GetDeadRequest) -> Result<v1::GetDeadResponse, Refusal> {
        let id = input::parsed("dead_letter_id", &request.dead_letter_id)?;
        let (letter, envelopes) = queries::dead_letter(&self.0.world, id).await?;
        let redactor = &self.0.world.ctx().redactor;
        let mail = envelopes.iter().map(|envelope| convert::envelope(envelope, redactor));
        let (envelopes, truncated) = queries::within_bytes(mail, false);
        Ok(v1::GetDeadResponse { dead_letter: Some(convert::dead_letter(&letter)), envelopes, truncated })
    }
}

fn dead_change(letter: &DeadLetter) -> Response<v1::DeadChange> {
    // A dead letter that was already resolved is refused as a conflict, so this is always a change.
    Response::new(v1::DeadChange { dead_letter: Some(convert::dead_letter(letter)), changed: true })
}

#[tonic::async_trait]
impl Messages for MessagesService {
    async fn send(&self, request: Request<v1::SendRequest>) -> Result<Response<v1::SendResponse>, Status> {
        let sent = self.send_once(request).await?;
        let waits = self.why_it_waits(&sent).await.map_err(to_status)?;
        Ok(Response::new(v1::SendResponse {
            message_id: sent.message_id.to_string(),
            seq: sent.seq,
            root_id: sent.root_id.to_string(),
            waits,
        }))
    }

    async fn ask(&self, request: Request<v1::AskRequest>) -> Result<Response<v1::AskResponse>, Status> {
        let opened = self.ask_once(request).await?;
        let ask = self.0.world.wait_for_ask(opened.ask_id).await.map_err(|refusal| {
            to_status(match refusal.code {
                Code::NotFound => Refusal::new(Code::NotFound, format!("ask {} is no longer stored", opened.ask_id))
                    .hint("its answer was given and has been pruned; ask again with a fresh request_id"),
                _ => refusal,
            })
        })?;
        let refusal = why_unanswered(&ask);
        let error_code = refusal.as_ref().map(|refusal| refusal.code.as_str().to_owned());
        let redact = |text: String| self.0.world.ctx().redactor.redact(&text);
        Ok(Response::new(v1::AskResponse {
            ask_id: ask.ask_id.to_string(),
            status: ask.status.as_str().to_owned(),
            // A late reply stays in the row, but the ask ended without a reply.
            reply: ask.reply.filter(|_| ask.status == AskStatus::Answered).map(redact),
            error_code,
            hint: refusal.as_ref().and_then(|refusal| refusal.hint.clone()).map(redact),
            error: refusal.map(|refusal| refusal.message).map(redact),
            truncated: ask.truncated && ask.status == AskStatus::Answered,
        }))
    }

    async fn list_dead(&self, request: Request<v1::ListDeadRequest>) -> Result<Response<v1::ListDeadResponse>, Status> {
        caller::party(&request)?;
        self.dead_page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn get_dead(&self, request: Request<v1::GetDeadRequest>) -> Result<Response<v1::GetDeadResponse>, Status> {
        caller::party(&request)?;
        self.dead_with_mail(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn retry_dead(&self, request: Request<v1::RetryDeadRequest>) -> Result<Response<v1::DeadChange>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "messages.retry_dead", &request.get_ref().request_id)?;
        let request = request.into_inner();
        let (id, fresh) = (input::parsed("dead_letter_id", &request.dead_letter_id).map_err(to_status)?, request.fresh);
        let result = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            dead_letters::retry(w, &by, id, fresh)
        })
        .await;
        let letter = result.map_err(to_status)?;
        Ok(dead_change(&letter))
    }

    async fn drop_dead(&self, request: Request<v1::DropDeadRequest>) -> Result<Response<v1::DeadChange>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "messages.drop_dead", &request.get_ref().request_id)?;
        let typed = &request.get_ref().dead_letter_id;
        let id = input::parsed("dead_letter_id", typed).map_err(to_status)?;
        let result =
            requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| dead_letters::discard(w, &by, id))
                .await;
        let letter = result.map_err(to_status)?;
        Ok(dead_change(&letter))
    }
}

/// The refusal that an ask ended with. `None` if it is open or was answered.
fn why_unanswered(ask: &Ask) -> Option<Refusal> {
    let text = ask.error.as_deref().unwrap_or("it ended without an answer");
    match ask.status {
        AskStatus::Open | AskStatus::Answered => None,
        AskStatus::TimedOut => Some(Refusal::new(Code::Timeout, text).hint(
            "the question stays in the agent's inbox, and a late reply is kept: see `ghostctl events --kind ask.late`; a \
             longer timeout waits for it",
        )),
        AskStatus::Failed => {
            let refusal = Refusal::new(ask.code.unwrap_or(Code::Unavailable), text);
            Some(ask.hint.iter().fold(refusal, |refusal, hint| refusal.hint(hint)))
        }
    }
}
