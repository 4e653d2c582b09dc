//! The `Tasks` service: the task board.

use ghost_domain::{Refusal, TaskId};
use ghost_operations::mail::Chain;
use ghost_operations::tasks::{self as rules, NewTask, TaskChange};
use ghost_operations::{OperationContext, requests};
use ghost_proto::v1;
use ghost_proto::v1::tasks_server::Tasks;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{self, input};
use crate::queries::TaskText;
use crate::refusal::to_status;
use crate::{caller, queries};

/// Largest length of a title, in characters.
const TITLE_MAX: usize = 200;
/// Largest number of dependencies of one task.
const DEPENDS_MAX: usize = 64;

/// Implements `ghost.v1.Tasks`.
pub struct TasksService(pub Control);

fn new_task(ctx: &OperationContext, request: &v1::CreateTaskRequest) -> Result<NewTask, Refusal> {
    Ok(NewTask {
        title: input::line("title", &request.title, TITLE_MAX)?,
        description: input::prose_or_none("description", &request.description, ctx.limits().message_bytes)?,
        owner: input::parsed("owner", &request.owner)?,
        priority: request.priority,
        depends_on: input::parsed_all("depends_on", &request.depends_on, DEPENDS_MAX)?,
        parent_id: input::parsed_if("parent_id", request.parent_id.as_deref())?,
        due_at: input::instant("due_at_ms", request.due_at_ms)?,
        chain: Chain::root(ctx),
    })
}

fn change(ctx: &OperationContext, request: &v1::UpdateTaskRequest) -> Result<(TaskId, TaskText, TaskChange), Refusal> {
    let limit = ctx.limits().message_bytes;
    let prose = |field: &str, text: Option<&str>| text.map(|text| input::prose_or_none(field, text, limit)).transpose();
    let text = TaskText {
        title: input::line_if("title", request.title.as_deref(), TITLE_MAX)?,
        description: prose("description", request.description.as_deref())?,
        priority: request.priority,
        due_at: input::instant("due_at_ms", request.due_at_ms)?,
    };
    let change = TaskChange {
        status: input::parsed_if("status", request.status.as_deref())?,
        owner: input::parsed_if("owner", request.owner.as_deref())?,
        note: prose("note", request.note.as_deref())?,
        result: prose("result", request.result.as_deref())?,
        depends_on: request
            .depends_on
            .as_ref()
            .map(|list| input::parsed_all("depends_on", &list.task_ids, DEPENDS_MAX))
            .transpose()?,
        reopen: request.reopen,
    };
    Ok((input::parsed("task_id", &request.task_id)?, text, change))
}

impl TasksService {
    pub(crate) async fn page(&self, request: v1::ListTasksRequest) -> Result<v1::ListTasksResponse, Refusal> {
        let owner = queries::agent_in_filter(&self.0.world, "owner", request.owner.as_deref()).await?;
        let status = input::parsed_if("status", request.status.as_deref())?;
        let cursor = input::unseal("tasks", &request.cursor)?;
        let page = queries::task_page(&self.0.world, owner, status, cursor, input::page(request.limit)).await?;
        let (tasks, next) = page.map(|task| convert::task(task, &self.0.world.ctx().redactor));
        Ok(v1::ListTasksResponse { tasks, next_cursor: input::seal("tasks", &next), truncated: false })
    }

    pub(crate) async fn with_history(&self, request: v1::GetTaskRequest) -> Result<v1::GetTaskResponse, Refusal> {
        let found = queries::task(&self.0.world, input::parsed("task_id", &request.task_id)?).await?;
        let redactor = &self.0.world.ctx().redactor;
        Ok(v1::GetTaskResponse {
            task: Some(convert::task(&found.task, redactor)),
            history: found.history.iter().map(|event| convert::task_event(event, redactor)).collect(),
            history_truncated: found.history_truncated,
        })
    }
}

#[tonic::async_trait]
impl Tasks for TasksService {
    async fn create(&self, request: Request<v1::CreateTaskRequest>) -> Result<Response<v1::Task>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "tasks.create", &request.get_ref().request_id)?;
        let ctx = self.0.world.ctx().clone();
        let request = request.get_ref();
        let new = new_task(&ctx, request).map_err(to_status)?;
        let result =
            requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| rules::create(w, &by, new)).await;
        let task = result.map_err(to_status)?;
        Ok(Response::new(convert::task(&task, &self.0.world.ctx().redactor)))
    }

    async fn list(&self, request: Request<v1::ListTasksRequest>) -> Result<Response<v1::ListTasksResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn get(&self, request: Request<v1::GetTaskRequest>) -> Result<Response<v1::GetTaskResponse>, Status> {
        caller::party(&request)?;
        self.with_history(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn update(&self, request: Request<v1::UpdateTaskRequest>) -> Result<Response<v1::Task>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "tasks.update", &request.get_ref().request_id)?;
        let ctx = self.0.world.ctx().clone();
        let request = request.get_ref();
        let (task_id, text, change) = change(&ctx, request).map_err(to_status)?;
        let result = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            queries::edit_task(w, &by, task_id, text, change)
        })
        .await;
        let task = result.map_err(to_status)?;
        Ok(Response::new(convert::task(&task, &self.0.world.ctx().redactor)))
    }
}
