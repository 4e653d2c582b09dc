//! The floor of gRPC reads: a tonic service that always returns the same answer.

use std::path::Path;

use ghost_proto::v1::agents_server::{Agents, AgentsServer};
use ghost_proto::v1::{
    AgentChange, AgentPromptRequest, AgentPromptResponse, CreateAgentRequest, DeleteAgentRequest, GetAgentRequest,
    GetAgentResponse, InspectAgentRequest, InspectAgentResponse, ListAgentsRequest, ListAgentsResponse,
    StartAgentRequest, StopAgentRequest,
};
use prost::Message;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::measure::{Outcome, runtime};

/// Answers every `Get` and `List` with a fixed answer.
struct Empty {
    answer: GetAgentResponse,
}

fn absent<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("this service is a floor"))
}

#[tonic::async_trait]
impl Agents for Empty {
    async fn list(&self, _: Request<ListAgentsRequest>) -> Result<Response<ListAgentsResponse>, Status> {
        Ok(Response::new(ListAgentsResponse::default()))
    }

    async fn get(&self, _: Request<GetAgentRequest>) -> Result<Response<GetAgentResponse>, Status> {
        Ok(Response::new(self.answer.clone()))
    }

    async fn create(&self, _: Request<CreateAgentRequest>) -> Result<Response<AgentChange>, Status> {
        absent()
    }

    async fn start(&self, _: Request<StartAgentRequest>) -> Result<Response<AgentChange>, Status> {
        absent()
    }

    async fn stop(&self, _: Request<StopAgentRequest>) -> Result<Response<AgentChange>, Status> {
        absent()
    }

    async fn delete(&self, _: Request<DeleteAgentRequest>) -> Result<Response<AgentChange>, Status> {
        absent()
    }

    async fn prompt(&self, _: Request<AgentPromptRequest>) -> Result<Response<AgentPromptResponse>, Status> {
        absent()
    }

    async fn inspect(&self, _: Request<InspectAgentRequest>) -> Result<Response<InspectAgentResponse>, Status> {
        absent()
    }
}

/// Serves at `socket` until the process ends.
pub async fn serve(socket: &Path, answer: GetAgentResponse) -> Outcome<()> {
    let listener = UnixListener::bind(socket)?;
    tonic::transport::Server::builder()
        .add_service(AgentsServer::new(Empty { answer }))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await?;
    Ok(())
}

/// The same in a helper process; `answer` is the encoded answer in hexadecimal.
pub fn serve_alone(socket: &str, answer: &str) -> Outcome<()> {
    let bytes = (0..answer.len() / 2)
        .map(|at| u8::from_str_radix(answer.get(2 * at..2 * at + 2).unwrap_or(""), 16))
        .collect::<Result<Vec<u8>, _>>()?;
    let answer = GetAgentResponse::decode(bytes.as_slice())?;
    runtime()?.block_on(serve(Path::new(socket), answer))
}

/// The encoded answer in hexadecimal, for [`serve_alone`].
pub fn in_hex(answer: &GetAgentResponse) -> String {
    answer.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect()
}
