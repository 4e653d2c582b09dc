//! Answers of the fake daemon to unary calls.

use ghost_proto::v1::agents_server::Agents;
use ghost_proto::v1::approvals_server::Approvals;
use ghost_proto::v1::budgets_server::Budgets;
use ghost_proto::v1::chat_server::Chat;
use ghost_proto::v1::knowledge_server::Knowledge;
use ghost_proto::v1::ledger_server::Ledger;
use ghost_proto::v1::messages_server::Messages;
use ghost_proto::v1::schedules_server::Schedules;
use ghost_proto::v1::state_server::State;
use ghost_proto::v1::tasks_server::Tasks;
use ghost_proto::v1::tools_server::Tools;
use ghost_proto::v1::turns_server::Turns;
use ghost_proto::v1::world_server::World;
use ghost_proto::v1::*;
use tonic::{Request, Response, Status};

use super::fake::Fake;

fn agent(agent_id: impl ToString) -> Agent {
    Agent {
        agent_id: agent_id.to_string(),
        archetype: "editor".into(),
        status: "running".into(),
        activity: Some("idle".into()),
        kind: "persistent".into(),
        ..Agent::default()
    }
}

/// Implements unary methods that record the request and return the answer.
macro_rules! unary {
    ($service:ident {
        $($method:ident($request:ty) -> $response:ty = |$me:ident, $asked:ident| $answer:expr;)*
    } $($rest:tt)*) => {
        #[tonic::async_trait]
        impl $service for Fake {
            $(async fn $method(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                self.begin(concat!(stringify!($service), ".", stringify!($method)), &request).await?;
                let ($me, $asked) = (self, request.into_inner());
                Ok(Response::new($answer))
            })*
            $($rest)*
        }
    };
}

unary!(Approvals {
    list(ListApprovalsRequest) -> ListApprovalsResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let approval = |n: u32| Approval { approval_id: n.to_string(), ..Approval::default() };
        ListApprovalsResponse { approvals: rows.map(approval).collect(), next_cursor }
    };
    get(GetApprovalRequest) -> Approval = |_fake, _asked| Approval::default();
    decide(DecideApprovalRequest) -> Approval = |_fake, asked| Approval {
        status: if asked.approve { "approved".into() } else { "denied".into() },
        always: asked.always,
        ..Approval::default()
    };
    revoke(RevokeApprovalRequest) -> Approval = |_fake, _asked| Approval::default();
});

unary!(World {
    status(StatusRequest) -> WorldStatus = |_fake, _asked| WorldStatus {
        name: "newsroom".into(),
        last_seq: 2,
        agents_by_status: vec![NamedCount { name: "running".into(), count: 6 }],
        job: Some(Job { job_id: "j".into(), state: "finished".into(), cost_micros: 1_500_000, ..Job::default() }),
        ..WorldStatus::default()
    };
    pause(PauseRequest) -> PauseResponse = |_fake, _asked| PauseResponse { paused: true, changed: true, open_turns: 1 };
    resume(ResumeRequest) -> ResumeResponse = |_fake, _asked| ResumeResponse { paused: false, changed: true };
    confirm_clock(ConfirmClockRequest) -> ConfirmClockResponse = |_fake, _asked| ConfirmClockResponse { changed: true };
    reload(ReloadRequest) -> ReloadResponse = |_fake, asked| ReloadResponse {
        changes: vec![PlanChange { action: "stop".into(), subject: "agent:old".into(), detail: "not named".into() }],
        problems: Vec::new(),
        applied: !asked.dry_run,
    };
    shutdown(ShutdownRequest) -> ShutdownResponse = |fake, _asked| {
        fake.held.notify_one();
        ShutdownResponse { accepted: true, open_turns: 3 }
    };
    reflect(ReflectRequest) -> ReflectResponse = |_fake, _asked| ReflectResponse::default();
    resources(ResourcesRequest) -> ResourcesResponse = |_fake, _asked| ResourcesResponse::default();
    limits(LimitsRequest) -> LimitsResponse = |_fake, _asked| {
        let limit = |name: &str, value| Limit {
            name: name.into(),
            value,
            default_value: 5,
            least: 1,
            most: 9,
            meaning: "What it bounds.".into(),
        };
        LimitsResponse { limits: vec![limit("hops_max", 5), limit("inbox_max", 7)] }
    };
    // A prefix of at least four digits is resolved.
    resolve_id(ResolveIdRequest) -> ResolveIdResponse = |_fake, asked| ResolveIdResponse {
        full_id: if asked.prefix.len() < 4 { asked.prefix } else { format!("{}-whole", asked.prefix) },
    };
});

unary!(Agents {
    list(ListAgentsRequest) -> ListAgentsResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        ListAgentsResponse { agents: rows.map(agent).collect(), next_cursor }
    };
    get(GetAgentRequest) -> GetAgentResponse = |_fake, asked| GetAgentResponse {
        agent: Some(agent(asked.agent_id)),
        ..GetAgentResponse::default()
    };
    create(CreateAgentRequest) -> AgentChange = |_fake, asked| AgentChange {
        agent: Some(agent(asked.agent_id.unwrap_or(asked.archetype))),
        changed: true,
        left: None,
    };
    start(StartAgentRequest) -> AgentChange = |_fake, asked| AgentChange {
        agent: Some(agent(asked.agent_id)),
        changed: false,
        left: None,
    };
    stop(StopAgentRequest) -> AgentChange = |_fake, asked| AgentChange {
        agent: Some(agent(asked.agent_id)),
        changed: true,
        left: None,
    };
    delete(DeleteAgentRequest) -> AgentChange = |_fake, asked| AgentChange {
        // The agent `idle` has no tasks and no messages.
        left: Some(match asked.agent_id.as_str() {
            "idle" => AgentLeft::default(),
            _ => AgentLeft { mail_dropped: 2, tasks_left: 1_500, comes_back: false },
        }),
        agent: Some(agent(asked.agent_id)),
        changed: true,
    };
    prompt(AgentPromptRequest) -> AgentPromptResponse = |_fake, _asked| AgentPromptResponse {
        system: "Laws".into(),
        briefing: "<goal>".into(),
        tools_json: r#"[{"name":"t","description":"Does it.","parameters":{"required":["n"],"properties":{"n":{"type":"integer"}}}}]"#.into(),
        history: "<recent>".into(),
        sections: vec![
            PromptSection { part: "system".into(), name: "laws".into(), bytes: 4, estimated_tokens: 2 },
            PromptSection { part: "briefing".into(), name: "goal".into(), bytes: 6, estimated_tokens: 2 },
        ],
        ..AgentPromptResponse::default()
    };
    inspect(InspectAgentRequest) -> InspectAgentResponse = |_fake, _asked| InspectAgentResponse::default();
});

unary!(Turns {
    list(ListTurnsRequest) -> ListTurnsResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let turns = rows.map(|n| Turn { turn_id: n.to_string(), ..Turn::default() }).collect();
        ListTurnsResponse { turns, next_cursor }
    };
    get(GetTurnRequest) -> GetTurnResponse = |fake, asked| {
        let rows = i64::from(fake.script().rows);
        let end = rows.min(asked.after_seq + i64::from(asked.limit));
        let step = |seq| JournalRow { seq, step: "note".into(), ..JournalRow::default() };
        GetTurnResponse {
            turn: Some(Turn { turn_id: asked.turn_id, ..Turn::default() }),
            steps: (asked.after_seq + 1..=end).map(step).collect(),
            more: end < rows,
        }
    };
    settle(SettleCallRequest) -> SettleCallResponse = |_fake, asked| SettleCallResponse {
        call: Some(LedgerRow { call_id: asked.call_id, status: "ok".into(), ..LedgerRow::default() }),
    };
    retry(RetryTurnRequest) -> RetryTurnResponse = |_fake, asked| RetryTurnResponse {
        turn: Some(Turn { turn_id: asked.turn_id, status: "parked".into(), ..Turn::default() }),
    };
    cancel(CancelTurnRequest) -> CancelTurnResponse = |_fake, asked| CancelTurnResponse {
        turn: Some(Turn { turn_id: asked.turn_id, status: "cancelled".into(), ..Turn::default() }),
        changed: true,
    };
});

unary!(Tools {
    list(ListToolsRequest) -> ListToolsResponse = |_fake, asked| ListToolsResponse {
        next_cursor: String::new(),
        absent: asked.include_absent.then(|| AbsentTool { name: "tts".into(), reason: "no adapter".into() }).into_iter().collect(),
        tools: vec![ToolSummary {
            name: "workspace.read".into(),
            description: "Reads a file".into(),
            label: "Read a file".into(),
            section: "fs".into(),
        }],
    };
    brief(BriefToolsRequest) -> BriefToolsResponse = |_fake, _asked| BriefToolsResponse {
        text: "- workspace.read: Reads a file\n".into(),
    };
    describe(DescribeToolRequest) -> ToolDescription = |_fake, asked| ToolDescription {
        name: asked.tool,
        description: "Reads a file".into(),
        parameters_json: r#"{"properties":{"path":{"type":"string"}},"required":["path"]}"#.into(),
        effect: "read".into(),
        ..ToolDescription::default()
    };
    call(CallToolRequest) -> CallToolResponse = |fake, _asked| fake.script().call.clone();
}
    type WatchStream = tokio_stream::Empty<Result<ToolsChange, Status>>;

    async fn watch(&self, request: Request<WatchToolsRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.begin("Tools.watch", &request).await?;
        Ok(Response::new(tokio_stream::empty()))
    }
);

unary!(Messages {
    send(SendRequest) -> SendResponse = |_fake, asked| SendResponse {
        message_id: "m".into(),
        seq: 4,
        root_id: "r".into(),
        waits: (asked.agent_id == "idle").then(|| "idle is stopped; start it".into()),
    };
    ask(AskRequest) -> AskResponse = |fake, _asked| fake.script().reply.clone();
    list_dead(ListDeadRequest) -> ListDeadResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let letter = |n: u32| DeadLetter { dead_letter_id: n.to_string(), ..DeadLetter::default() };
        ListDeadResponse { dead_letters: rows.map(letter).collect(), next_cursor, truncated: false }
    };
    get_dead(GetDeadRequest) -> GetDeadResponse = |_fake, _asked| GetDeadResponse {
        dead_letter: Some(DeadLetter::default()),
        envelopes: vec![Envelope { body: "poison".into(), ..Envelope::default() }],
        truncated: false,
    };
    retry_dead(RetryDeadRequest) -> DeadChange = |_fake, _asked| DeadChange {
        dead_letter: Some(DeadLetter { status: "retried".into(), ..DeadLetter::default() }),
        changed: true,
    };
    drop_dead(DropDeadRequest) -> DeadChange = |_fake, _asked| DeadChange {
        dead_letter: Some(DeadLetter { status: "dropped".into(), ..DeadLetter::default() }),
        changed: true,
    };
});

unary!(Tasks {
    create(CreateTaskRequest) -> Task = |_fake, asked| Task {
        title: asked.title,
        owner: asked.owner,
        due_at_ms: asked.due_at_ms,
        ..Task::default()
    };
    list(ListTasksRequest) -> ListTasksResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let tasks = rows.map(|n| Task { task_id: n.to_string(), ..Task::default() }).collect();
        ListTasksResponse { tasks, next_cursor, truncated: false }
    };
    get(GetTaskRequest) -> GetTaskResponse = |_fake, asked| GetTaskResponse {
        task: Some(Task { task_id: asked.task_id, ..Task::default() }),
        history: vec![TaskEvent { note: Some("why".into()), ..TaskEvent::default() }],
        history_truncated: false,
    };
    update(UpdateTaskRequest) -> Task = |_fake, asked| Task {
        task_id: asked.task_id,
        status: asked.status.unwrap_or_default(),
        ..Task::default()
    };
});

unary!(Knowledge {
    list(ListKnowledgeRequest) -> ListKnowledgeResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let entries = rows.map(|n| KnowledgeEntry { entry_id: n.to_string(), ..KnowledgeEntry::default() }).collect();
        ListKnowledgeResponse { entries, next_cursor }
    };
    read(ReadKnowledgeRequest) -> ReadKnowledgeResponse = |_fake, asked| ReadKnowledgeResponse {
        entry: Some(KnowledgeEntry { entry_id: asked.entry_id, content: "text".into(), ..KnowledgeEntry::default() }),
        versions: vec![KnowledgeVersion { version: 1, ..KnowledgeVersion::default() }],
    };
    write(WriteKnowledgeRequest) -> KnowledgeEntry = |_fake, asked| KnowledgeEntry {
        entry_id: asked.entry_id,
        content: asked.content,
        ..KnowledgeEntry::default()
    };
    delete(DeleteKnowledgeRequest) -> KnowledgeEntry = |_fake, asked| KnowledgeEntry {
        entry_id: asked.entry_id,
        deleted: true,
        ..KnowledgeEntry::default()
    };
});

unary!(State {
    get(GetStateRequest) -> StateEntry = |_fake, asked| StateEntry {
        key: asked.key,
        value_json: "7".into(),
        ..StateEntry::default()
    };
    set(SetStateRequest) -> StateEntry = |_fake, asked| StateEntry {
        key: asked.key,
        value_json: asked.value_json,
        version: 1,
        ..StateEntry::default()
    };
    list(ListStateRequest) -> ListStateResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let entry = |n: u32| StateEntry { key: format!("k{n}"), value_json: "1".into(), ..StateEntry::default() };
        ListStateResponse { entries: rows.map(entry).collect(), next_cursor }
    };
});

unary!(Budgets {
    list(ListBudgetsRequest) -> ListBudgetsResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let budgets = rows.map(|n| Budget { scope: format!("agent:{n}"), ..Budget::default() }).collect();
        ListBudgetsResponse { budgets, next_cursor }
    };
    set(SetBudgetRequest) -> Budget = |_fake, asked| Budget {
        scope: asked.scope,
        limit_tokens: asked.limit_tokens,
        limit_micros: asked.limit_micros,
        spent_tokens: 120,
        spent_micros: 2_500_000,
        passed: [
            asked.limit_tokens.filter(|limit| *limit <= 120).map(|_| "tokens".to_owned()),
            asked.limit_micros.filter(|limit| (1..=2_500_000).contains(limit)).map(|_| "usd".to_owned()),
        ]
        .into_iter()
        .flatten()
        .collect(),
        ..Budget::default()
    };
    usage(UsageRequest) -> UsageResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let sums = rows
            .map(|n| UsageSum {
                agent_id: n.to_string(),
                calls: 2,
                tokens: Some(TokenUsage { input: 10, output: 5, ..TokenUsage::default() }),
                cost_micros: 500_000,
                estimated_calls: 1,
                estimated_micros: 200_000,
                // Only the first model has a price.
                unpriced_tokens: if n == 0 { 0 } else { 15 },
                ..UsageSum::default()
            })
            .collect();
        UsageResponse { sums, next_cursor }
    };
});

fn channel(channel: String, members: Vec<String>) -> Channel {
    Channel { channel, member_count: 2, members, creator: "operator:test".into(), ..Channel::default() }
}

unary!(Chat {
    create(CreateChannelRequest) -> CreateChannelResponse = |_fake, asked| CreateChannelResponse {
        channel: Some(channel(asked.channel, asked.members)),
        advisory: Some("gate it".into()),
    };
    post(PostRequest) -> PostResponse = |_fake, asked| PostResponse {
        message: Some(ChatMessage { channel: asked.channel, seq: 7, content: asked.content, ..ChatMessage::default() }),
        delivered: 2,
        woken: 1,
        skipped: vec![SkippedMember {
            agent_id: "bob".into(),
            error_code: "inbox_full".into(),
            reason: "the inbox of bob is full".into(),
        }],
        held: false,
    };
    invite(InviteRequest) -> Channel = |_fake, asked| channel(asked.channel, vec![asked.agent_id]);
    remove(RemoveMemberRequest) -> Channel = |_fake, asked| channel(asked.channel, Vec::new());
    list(ListChannelsRequest) -> ListChannelsResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let channels = rows.map(|n| channel(n.to_string(), vec!["ada".into()])).collect();
        ListChannelsResponse { channels, next_cursor }
    };
    history(HistoryRequest) -> HistoryResponse = |fake, asked| {
        // Chat messages 1 to `rows`, at most 100 in one answer.
        let rows = i64::from(fake.script().rows);
        let limit = i64::from(asked.limit).min(100);
        let range = match (asked.after_seq, asked.before_seq) {
            (Some(after), _) => after + 1..(after + 1 + limit).min(rows + 1),
            (None, before) => {
                let end = before.unwrap_or(rows + 1);
                (end - limit).max(1)..end
            }
        };
        let cut = i64::from(asked.limit) > 100 && range.end - range.start == 100;
        let message = |seq| ChatMessage {
            channel: asked.channel.clone(),
            seq,
            from: "ada".into(),
            content: format!("post {seq}"),
            ..ChatMessage::default()
        };
        HistoryResponse { messages: range.map(message).collect(), cut }
    };
});

unary!(Ledger {
    list(ListLedgerRequest) -> ListLedgerResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let rows = rows.map(|n| LedgerRow { call_id: n.to_string(), ..LedgerRow::default() }).collect();
        ListLedgerResponse { rows, next_cursor }
    };
    totals(LedgerTotalsRequest) -> LedgerTotalsResponse = |_fake, _asked| LedgerTotalsResponse {
        totals: [("ok", 1_000_000), ("failed", 35_000)]
            .map(|(status, cost_micros)| CallTotals {
                tool: "tool.cli".into(),
                status: status.into(),
                calls: 2,
                tokens: 7,
                cost_micros,
                ..CallTotals::default()
            })
            .to_vec(),
    };
});

fn schedule(schedule_id: String, kind: &str) -> Schedule {
    Schedule { schedule_id, kind: kind.into(), agent_id: "ada".into(), when_json: "{}".into(), ..Schedule::default() }
}

unary!(Schedules {
    list(ListSchedulesRequest) -> ListSchedulesResponse = |fake, asked| {
        let (rows, next_cursor) = fake.page(asked.limit, &asked.cursor);
        let names = fake.script().schedules.clone();
        let named = |n: u32| names.get(n as usize).cloned().unwrap_or_default();
        let row = |n: u32| Schedule { name: named(n), ..schedule(n.to_string(), asked.kind()) };
        let schedules = rows.map(row).collect();
        ListSchedulesResponse { schedules, truncated: false, next_cursor }
    };
    get(GetScheduleRequest) -> Schedule = |_fake, asked| schedule(asked.schedule_id, "cron");
    set(SetScheduleRequest) -> Schedule = |_fake, asked| schedule("s".into(), &asked.kind);
    enable(EnableScheduleRequest) -> Schedule = |_fake, asked| schedule(asked.schedule_id, "cron");
    cancel(CancelScheduleRequest) -> Schedule = |_fake, asked| schedule(asked.schedule_id, "cron");
    run(RunScheduleRequest) -> ScheduleRun = |_fake, _asked| ScheduleRun::default();
    runs(ListRunsRequest) -> ListRunsResponse = |fake, asked| ListRunsResponse {
        runs: (0..fake.script().rows.min(asked.limit)).map(|_| ScheduleRun::default()).collect(),
    };
});
