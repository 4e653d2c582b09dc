//! Answers the requests of a server. It must never offer sampling or roots.

use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorCode, FormElicitationCapability, Implementation, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::Value;

use crate::asker::{Asker, Reply};
use crate::calls::Calls;
use crate::closing::Closing;

/// Answers the requests of one server.
#[derive(Debug)]
pub(crate) struct Handler {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) asker: Option<Asker>,
    pub(crate) calls: Calls,
    pub(crate) closing: Closing,
}

impl Handler {
    /// The answer to a question. The server may take it back, and the connection may end.
    async fn reply(&self, params: &Value, context: &RequestContext<RoleClient>) -> Result<Reply, ErrorData> {
        let Some(asker) = &self.asker else { return Err(refused("elicitation/create")) };
        Ok(tokio::select! {
            biased;
            _ = self.closing.wait() => Reply::Cancel,
            () = context.ct.cancelled() => Reply::Cancel,
            reply = asker.ask(params, self.calls.only()) => reply,
        })
    }
}

fn refused(method: &'static str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.asker.is_some() {
            let form = FormElicitationCapability::new().with_schema_validation(true);
            capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
        }
        ClientConfig::new(capabilities, Implementation::new(self.name.clone(), self.version.clone()))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    // The default answers with an empty list, as if roots were declared.
    // rmcp marks it as deprecated with the protocol of 2026-07-28. Older servers still ask.
    #[allow(deprecated)]
    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(refused("roots/list"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let params = serde_json::to_value(request).unwrap_or_default();
        Ok(match self.reply(&params, &context).await? {
            Reply::Accept(content) => ElicitResult::new(ElicitationAction::Accept).with_content(content.into()),
            Reply::Decline => ElicitResult::new(ElicitationAction::Decline),
            Reply::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    // `rmcp` hands over here a question whose schema it does not know.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != "elicitation/create" {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "unknown method", None));
        }
        let params = request.params.unwrap_or_default();
        Ok(CustomResult(self.reply(&params, &context).await?.json()))
    }
}
