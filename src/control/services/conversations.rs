//! The `Conversations` service: sends, lists, streams, hands off and redelivers.

mod stream_filter;
mod watch;

use std::pin::Pin;

use ghost_domain::conversation::{CONTROL, mime_of};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{AgentId, Attachment, Code, ConversationId, Party, Refusal, RequestKey};
use ghost_operations::approvals::{self, ApproveCommand};
use ghost_operations::conversations::{self as rules, Handover, IncomingMessage, Received, Start};
use ghost_operations::mail::Chain;
use ghost_operations::requests;
use ghost_proto::v1;
use ghost_proto::v1::conversations_server::Conversations;
use ghost_world::World;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::connections::Peer;
use crate::control::Control;
use crate::convert::{conversations as convert, input};
use crate::refusal::to_status;
use crate::{caller, queries};

/// Largest length of a reason, in characters.
const REASON_MAX: usize = 1_000;

/// Implements `ghost.v1.Conversations`.
pub struct ConversationsService(pub Control);

/// Workspace files as attachments. Each must exist, and be no larger than `attachment_bytes`.
fn attachments(world: &World, paths: &[String]) -> Result<Vec<Attachment>, Refusal> {
    let limit = world.ctx().limits().attachment_bytes;
    let mut files = Vec::new();
    for path in input::paths("attachments", paths)? {
        let bytes = world.engine().services.workspace.size_now(&WorkspacePath::parse(&path, false)?)?;
        if bytes > u64::from(limit) {
            let what = format!("`{path}` has {bytes} bytes; the maximum is {limit}");
            return Err(Refusal::new(Code::TooLarge, what).hint("attach a smaller file, or a part of it"));
        }
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        files.push(Attachment { mime_type: mime_of(&name).to_owned(), name, path, bytes });
    }
    Ok(files)
}

impl ConversationsService {
    async fn say_once(&self, request: Request<v1::SayRequest>) -> Result<Received, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "conversations.say", &request.get_ref().request_id)?;
        let request = request.into_inner();
        let world = &self.0.world;
        let parts = |request: &v1::SayRequest| {
            let conversation_id: Option<ConversationId> =
                input::parsed_if("conversation_id", request.conversation_id.as_deref())?;
            let agent_id: Option<AgentId> = input::parsed_if("agent_id", request.agent_id.as_deref())?;
            if conversation_id.is_some() == agent_id.is_some() {
                return Err(input::bad("agent_id", "or conversation_id is needed, but not both")
                    .hint("name the agent to begin a conversation, or the conversation to continue"));
            }
            let message = IncomingMessage {
                from: by.clone(),
                content: input::prose("content", &request.content, world.ctx().limits().message_bytes)?,
                attachments: attachments(world, &request.attachments)?,
                reply_to: None,
                external_id: None,
            };
            Ok((conversation_id, agent_id, message))
        };
        let (conversation_id, agent_id, message) = parts(&request).map_err(to_status)?;
        if let Some(command) = ApproveCommand::read(&message.content) {
            return self.approve(key, by, conversation_id, command.map_err(to_status)?).await.map_err(to_status);
        }
        requests::once(world.store(), world.ctx(), key, move |w| {
            match (conversation_id, agent_id) {
                (Some(id), _) => rules::say(w, id, message),
                (None, Some(owner)) => {
                    let start = Start { adapter: CONTROL.to_owned(), thread: None, owner, party: by };
                    rules::arrive(w, start, message)
                }
                // Refused above.
                (None, None) => {
                    Err(Refusal::new(Code::InvalidArguments, "neither an agent nor a conversation is named"))
                }
            }
        })
        .await
        .map_err(to_status)
    }

    /// Answers an approval from within a conversation.
    async fn approve(
        &self,
        key: RequestKey,
        by: Party,
        conversation_id: Option<ConversationId>,
        command: ApproveCommand,
    ) -> Result<Received, Refusal> {
        let conversation_id = conversation_id.ok_or_else(|| {
            input::bad("content", "is an answer to an approval, but no conversation is named")
                .hint("answer in a conversation, or with `ghostctl approval approve`")
        })?;
        let world = &self.0.world;
        let whole = queries::beginning_with(world, "approval", &command.typed_id).await?;
        let answer = (input::parsed("content", &whole)?, command.decision, command.note);
        let approvers = world.plan().approvals.approvers.clone();
        requests::once(world.store(), world.ctx(), key, move |w| {
            approvals::decide_in_conversation(w, &by, &approvers, conversation_id, answer)
        })
        .await
    }

    async fn page(&self, request: v1::ListConversationsRequest) -> Result<v1::ListConversationsResponse, Refusal> {
        let owner = queries::agent_in_filter(&self.0.world, "owner", request.owner.as_deref()).await?;
        let after = input::position(input::unseal("conversations", &request.cursor)?)?;
        let page = queries::conversations(&self.0.world, owner, after, input::page(request.limit)).await?;
        let (conversations, next) = page.map(convert::conversation);
        let next_cursor = input::seal("conversations", &next);
        Ok(v1::ListConversationsResponse { conversations, truncated: false, next_cursor })
    }

    async fn with_entries(&self, request: v1::GetConversationRequest) -> Result<v1::GetConversationResponse, Refusal> {
        let after = request.after_seq.unwrap_or(0);
        if after < 0 {
            return Err(input::bad("after_seq", format!("is {after}")).hint("give 0 or the seq of an entry"));
        }
        let limit = u32::try_from(input::page(request.limit)).unwrap_or(u32::MAX);
        let id = input::parsed("conversation_id", &request.conversation_id)?;
        let (conversation, entries) = queries::conversation(&self.0.world, id, after, limit).await?;
        if after > conversation.last_seq {
            return Err(queries::beyond_the_end(&conversation, after));
        }
        let redactor = &self.0.world.ctx().redactor;
        let (entries, _) = queries::within_bytes(entries.iter().map(|entry| convert::entry(entry, redactor)), false);
        let more = entries.last().is_some_and(|last| last.seq < conversation.last_seq);
        Ok(v1::GetConversationResponse { conversation: Some(convert::conversation(&conversation)), entries, more })
    }
}

fn handover(request: &v1::HandoffConversationRequest, chain: Chain) -> Result<(ConversationId, Handover), Refusal> {
    let id = input::parsed("conversation_id", &request.conversation_id)?;
    let to = input::parsed("agent_id", &request.agent_id)?;
    let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX)?;
    Ok((id, Handover { to, reason, summary: None, chain }))
}

#[tonic::async_trait]
impl Conversations for ConversationsService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchConversationResponse, Status>> + Send>>;

    async fn list(
        &self,
        request: Request<v1::ListConversationsRequest>,
    ) -> Result<Response<v1::ListConversationsResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn get(
        &self,
        request: Request<v1::GetConversationRequest>,
    ) -> Result<Response<v1::GetConversationResponse>, Status> {
        caller::party(&request)?;
        self.with_entries(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn check_attachments(
        &self,
        request: Request<v1::CheckAttachmentsRequest>,
    ) -> Result<Response<v1::CheckAttachmentsResponse>, Status> {
        caller::party(&request)?;
        let found = attachments(&self.0.world, &request.get_ref().attachments).map_err(to_status)?;
        let attachments = found.iter().map(convert::attachment).collect();
        Ok(Response::new(v1::CheckAttachmentsResponse { attachments }))
    }

    async fn say(&self, request: Request<v1::SayRequest>) -> Result<Response<v1::SayResponse>, Status> {
        let heard = self.say_once(request).await?;
        Ok(Response::new(v1::SayResponse {
            conversation: Some(convert::conversation(&heard.conversation)),
            entry: Some(convert::entry(&heard.entry, &self.0.world.ctx().redactor)),
        }))
    }

    async fn watch(
        &self,
        request: Request<v1::WatchConversationRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        caller::party(&request)?;
        let peer = request.extensions().get::<Peer>().cloned();
        let request = request.into_inner();
        if request.after_seq < 0 {
            return Err(to_status(input::bad("after_seq", "is negative").hint("give 0 or the seq of an entry")));
        }
        let id = input::parsed("conversation_id", &request.conversation_id).map_err(to_status)?;
        let stream = watch::open(&self.0, id, request.after_seq, peer).await.map_err(to_status)?;
        Ok(Response::new(Box::pin(stream)))
    }

    async fn handoff(
        &self,
        request: Request<v1::HandoffConversationRequest>,
    ) -> Result<Response<v1::Conversation>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "conversations.handoff", &request.get_ref().request_id)?;
        let ctx = self.0.world.ctx().clone();
        let request = request.get_ref();
        let (id, handover) = handover(request, Chain::root(&ctx)).map_err(to_status)?;
        let result = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            rules::handoff(w, &by, id, handover)
        })
        .await;
        let conversation = result.map_err(to_status)?;
        Ok(Response::new(convert::conversation(&conversation)))
    }

    async fn end(&self, request: Request<v1::EndConversationRequest>) -> Result<Response<v1::Conversation>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "conversations.end", &request.get_ref().request_id)?;
        let request = request.get_ref();
        let id = input::parsed("conversation_id", &request.conversation_id).map_err(to_status)?;
        let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX).map_err(to_status)?;
        let result = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            rules::end(w, &by, id, reason.as_deref())
        })
        .await;
        Ok(Response::new(convert::conversation(&result.map_err(to_status)?)))
    }

    async fn redeliver(
        &self,
        request: Request<v1::RedeliverRequest>,
    ) -> Result<Response<v1::ConversationEntry>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "conversations.redeliver", &request.get_ref().request_id)?;
        let (typed, seq) = (&request.get_ref().conversation_id, request.get_ref().seq);
        let id = input::parsed("conversation_id", typed).map_err(to_status)?;
        let result =
            requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| rules::redeliver(w, &by, id, seq))
                .await;
        let entry = result.map_err(to_status)?;
        Ok(Response::new(convert::entry(&entry, &self.0.world.ctx().redactor)))
    }
}
