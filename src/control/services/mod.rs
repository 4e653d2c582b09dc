//! The gRPC services, one file each.

mod agents;
mod approvals;
mod budgets;
mod chat;
mod conversations;
mod events;
mod knowledge;
mod ledger;
mod messages;
mod schedules;
mod sessions;
mod skills;
mod state;
mod tasks;
pub(crate) mod tools;
mod turns;
mod world;

pub use agents::AgentsService;
pub use approvals::ApprovalsService;
pub use budgets::BudgetsService;
pub use chat::ChatService;
pub use conversations::ConversationsService;
pub use events::EventsService;
pub use knowledge::KnowledgeService;
pub use ledger::LedgerService;
pub use messages::MessagesService;
pub use schedules::SchedulesService;
pub use sessions::SessionsService;
pub use skills::SkillsService;
pub use state::StateService;
pub use tasks::TasksService;
pub use tools::ToolsService;
pub use turns::TurnsService;
pub use world::WorldService;
pub(crate) use world::population;
