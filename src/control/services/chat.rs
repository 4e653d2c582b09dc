//! The `Chat` service.

use ghost_domain::{AgentId, ChannelName, Party, Refusal, RequestKey};
use ghost_operations::chat::{self as rules, HISTORY_DEFAULT, HISTORY_MAX, HistoryQuery, NewChannel, NewPost};
use ghost_operations::mail::Chain;
use ghost_operations::requests;
use ghost_proto::v1;
use ghost_proto::v1::chat_server::Chat;
use prost::Message as _;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{chat as convert, input};
use crate::refusal::to_status;
use crate::{act_as, caller, queries};

/// Largest number of members that one request may name.
const NAMES_MAX: usize = 10_000;

/// Implements `ghost.v1.Chat`.
pub struct ChatService(pub Control);

/// The direction of a membership change.
#[derive(Clone, Copy)]
enum Membership {
    In,
    Out,
}

/// A membership change.
struct MemberChange {
    to: Membership,
    channel: ChannelName,
    agent_id: AgentId,
    as_agent: Option<AgentId>,
}

impl MemberChange {
    fn read(to: Membership, channel: &str, agent_id: &str, as_agent: Option<&str>) -> Result<Self, Refusal> {
        Ok(Self {
            to,
            channel: input::parsed("channel", channel)?,
            agent_id: input::parsed("agent_id", agent_id)?,
            as_agent: act_as::acting_agent(as_agent)?,
        })
    }
}

impl ChatService {
    fn new_channel(&self, request: &v1::CreateChannelRequest) -> Result<NewChannel, Refusal> {
        Ok(NewChannel {
            channel: input::parsed("channel", &request.channel)?,
            members: input::parsed_all("members", &request.members, NAMES_MAX)?,
            gated: request.gated,
            skip_creator: request.skip_creator,
            topic: input::line_if("topic", request.topic.as_deref(), rules::TOPIC_MAX)?,
        })
    }

    fn new_post(&self, request: v1::PostRequest) -> Result<NewPost, Refusal> {
        Ok(NewPost {
            channel: input::parsed("channel", &request.channel)?,
            content: request.content,
            reply_to: request.reply_to,
            deliver: request.deliver,
            chain: Chain::root(self.0.world.ctx()),
        })
    }

    async fn change_member(
        &self,
        by: Party,
        key: RequestKey,
        change: Result<MemberChange, Refusal>,
    ) -> Result<Response<v1::Channel>, Status> {
        let MemberChange { to, channel, agent_id, as_agent } = change.map_err(to_status)?;
        let plan = self.0.world.plan();
        let view = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            let tool = match to {
                Membership::In => "syscall.chat.invite",
                Membership::Out => "syscall.chat.remove",
            };
            let by = act_as::speaker(w, &plan, by, as_agent.as_ref(), tool)?;
            match to {
                Membership::In => rules::invite(w, &by, &channel, &agent_id),
                Membership::Out => rules::remove(w, &by, &channel, &agent_id),
            }
        })
        .await
        .map_err(to_status)?;
        Ok(Response::new(convert::channel(&view, &self.0.world.ctx().redactor)))
    }

    pub(crate) async fn channels(&self, request: v1::ListChannelsRequest) -> Result<v1::ListChannelsResponse, Refusal> {
        let member = queries::agent_in_filter(&self.0.world, "agent_id", request.agent_id.as_deref()).await?;
        let store = self.0.world.store();
        let after = input::unseal("channels", &request.cursor)?.to_owned();
        let limit = input::page(request.limit);
        let (views, more) = store.read(move |r| rules::list_after(r, member.as_ref(), &after, limit)).await?;
        let redactor = &self.0.world.ctx().redactor;
        let (channels, more) = queries::within_bytes(views.iter().map(|view| convert::channel(view, redactor)), more);
        let next_cursor = channels.last().filter(|_| more).map(|channel| input::seal("channels", &channel.channel));
        Ok(v1::ListChannelsResponse { next_cursor: next_cursor.unwrap_or_default(), channels })
    }

    pub(crate) async fn posts(&self, by: Party, request: v1::HistoryRequest) -> Result<v1::HistoryResponse, Refusal> {
        let as_agent = act_as::acting_agent(request.as_agent.as_deref())?;
        let query = HistoryQuery {
            channel: input::parsed("channel", &request.channel)?,
            limit: if request.limit == 0 { HISTORY_DEFAULT } else { request.limit.min(HISTORY_MAX) },
            before_seq: request.before_seq,
            after_seq: request.after_seq,
        };
        let forward = query.after_seq.is_some();
        let (world, plan) = (&self.0.world, self.0.world.plan());
        let mut posts = world
            .read(move |r| {
                let tool = "syscall.chat.history";
                let reader = act_as::speaker(r, &plan, by, as_agent.as_ref(), tool)?;
                rules::history(r, &reader.party, &query)
            })
            .await?;
        // Chat messages that do not fit are omitted at the end of the reading direction.
        if !forward {
            posts.reverse();
        }
        let (total, mut used) = (posts.len(), 0);
        let mut messages: Vec<v1::ChatMessage> = Vec::new();
        for post in posts {
            let message = convert::message(&post, &self.0.world.ctx().redactor);
            used += message.encoded_len();
            if used > queries::PAGE_BYTES && !messages.is_empty() {
                break;
            }
            messages.push(message);
        }
        let cut = messages.len() < total;
        if !forward {
            messages.reverse();
        }
        Ok(v1::HistoryResponse { messages, cut })
    }
}

#[tonic::async_trait]
impl Chat for ChatService {
    async fn create(
        &self,
        request: Request<v1::CreateChannelRequest>,
    ) -> Result<Response<v1::CreateChannelResponse>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "chat.create", &request.get_ref().request_id)?;
        let as_agent = act_as::acting_agent(request.get_ref().as_agent.as_deref()).map_err(to_status)?;
        let new = self.new_channel(request.get_ref()).map_err(to_status)?;
        let plan = self.0.world.plan();
        let created = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            let by = act_as::speaker(w, &plan, by, as_agent.as_ref(), "syscall.chat.create")?;
            rules::create(w, &by, new)
        })
        .await
        .map_err(to_status)?;
        Ok(Response::new(convert::created(created, &self.0.world.ctx().redactor)))
    }

    async fn post(&self, request: Request<v1::PostRequest>) -> Result<Response<v1::PostResponse>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "chat.post", &request.get_ref().request_id)?;
        let as_agent = act_as::acting_agent(request.get_ref().as_agent.as_deref()).map_err(to_status)?;
        let new = self.new_post(request.into_inner()).map_err(to_status)?;
        let plan = self.0.world.plan();
        let posted = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            let by = act_as::speaker(w, &plan, by, as_agent.as_ref(), "syscall.chat.send")?;
            rules::post(w, &by, plan.chat_wake, new)
        })
        .await
        .map_err(to_status)?;
        Ok(Response::new(convert::posted(&posted, &self.0.world.ctx().redactor)))
    }

    async fn invite(&self, request: Request<v1::InviteRequest>) -> Result<Response<v1::Channel>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "chat.invite", &request.get_ref().request_id)?;
        let request = request.get_ref();
        let read = MemberChange::read(Membership::In, &request.channel, &request.agent_id, request.as_agent.as_deref());
        self.change_member(by, key, read).await
    }

    async fn remove(&self, request: Request<v1::RemoveMemberRequest>) -> Result<Response<v1::Channel>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "chat.remove", &request.get_ref().request_id)?;
        let request = request.get_ref();
        let read =
            MemberChange::read(Membership::Out, &request.channel, &request.agent_id, request.as_agent.as_deref());
        self.change_member(by, key, read).await
    }

    async fn list(
        &self,
        request: Request<v1::ListChannelsRequest>,
    ) -> Result<Response<v1::ListChannelsResponse>, Status> {
        caller::party(&request)?;
        self.channels(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn history(&self, request: Request<v1::HistoryRequest>) -> Result<Response<v1::HistoryResponse>, Status> {
        let by = caller::party(&request)?;
        self.posts(by, request.into_inner()).await.map(Response::new).map_err(to_status)
    }
}
