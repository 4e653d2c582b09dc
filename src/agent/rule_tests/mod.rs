//! Turns against a model and tools that the tests own, on the store in memory, under a clock that the test moves.

mod act;
mod actor;
mod channel;
mod fakes;
mod held;
mod jobs;
mod kept;
mod length;
mod limits;
mod operator;
mod parking;
mod parking_choices;
mod prompt;
mod resume;
mod resume_file;
mod rig;
mod streaming;
mod think;
mod think_faults;
