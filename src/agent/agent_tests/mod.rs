//! Runs turns with a fake model and fake tools, on the memory store, under a clock that the test
//! moves.

mod act;
mod actor;
mod agent_world;
mod approvals;
mod bounds;
mod budget_waits;
mod channel;
mod deferred;
mod fakes;
mod jobs;
mod length;
mod limits;
mod operator;
mod outage_matrix;
mod parking;
mod parking_choices;
mod prompt;
mod reloads;
mod resume;
mod resume_file;
mod sessions;
mod store_failures;
mod streaming;
mod think;
mod think_faults;
