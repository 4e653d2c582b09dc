//! A model whose answers follow from the seed and the conversation, with the faults of a provider, and the log of all
//! that it was asked: the witness that no journaled answer is asked for again.
//!
//! Must never: remember a conversation. What it answers depends on what it is shown and on how often it was shown it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::transcript::{Block, Role, TokenUsage};
use ghost_domain::{AgentId, Clock, Timestamp, TurnId};
use ghost_provider::{Charge, Deltas, ErrorKind, ModelAnswer, ModelRequest, Provider, ProviderError, estimate_tokens};

use super::chance::Dice;
use super::clock::SimClock;
use super::random_actions::{self, Scene};
use super::tools::Book;

/// One request as the model saw it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// In which turn.
    pub(crate) turn_id: TurnId,
    /// How many answers the conversation held already.
    pub(crate) round: usize,
    /// The mark of the answer that was given; nothing if none was, or if nobody was there to hear it.
    pub(crate) answer: Option<u64>,
}

#[derive(Default)]
struct Log {
    asked: Vec<Asked>,
    /// How often a turn's round was asked for: the dice are thrown anew each time, or a fault would repeat for ever.
    times: BTreeMap<(TurnId, usize), u64>,
    /// Whose requests are under way, and in which turn.
    under_way: BTreeMap<AgentId, TurnId>,
}

/// The model.
pub(crate) struct SimModel {
    seed: u64,
    clock: SimClock,
    book: Book,
    scene: Arc<Scene>,
    /// Requests in 100 that end in a fault.
    faults: u64,
    /// From when to when it answers nobody.
    outage: Option<(Timestamp, Timestamp)>,
    log: Arc<Mutex<Log>>,
}

/// Takes a request off the list of those under way, however it ends.
struct UnderWay {
    log: Arc<Mutex<Log>>,
    agent_id: AgentId,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).under_way.remove(&self.agent_id);
    }
}

impl SimModel {
    pub(crate) fn new(seed: u64, clock: SimClock, book: Book, scene: Arc<Scene>, faults: u64) -> Self {
        Self { seed, clock, book, scene, faults, outage: None, log: Arc::default() }
    }

    /// The same, answering nobody for a while.
    pub(crate) fn out(self, outage: Option<(Timestamp, Timestamp)>) -> Self {
        Self { outage, ..self }
    }

    /// What a server that is down does: it refuses, stalls, and answers 503 and 429, in turn.
    async fn is_out(&self, dice: &mut Dice) -> ProviderError {
        match dice.below(4) {
            0 => ProviderError::new(ErrorKind::Network, "connection refused").charge(Charge::Nothing),
            1 => ProviderError::new(ErrorKind::Overloaded, "no capacity").status(503),
            2 => ProviderError::new(ErrorKind::RateLimited, "slow down").status(429),
            _ => {
                std::future::pending::<()>().await;
                ProviderError::new(ErrorKind::Timeout, "")
            }
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // Nothing under this lock can panic.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.log().asked.clone()
    }

    /// Books a request. Gives its place in the log, and the dice for it.
    fn begin(&self, request: &ModelRequest, round: usize) -> (usize, Dice, UnderWay) {
        let mut log = self.log();
        let times = log.times.entry((request.turn_id, round)).or_default();
        *times += 1;
        let dice = Dice::new(self.seed, &format!("{}/{round}/{times}", request.turn_id));
        if let Some(other) = log.under_way.insert(request.agent_id.clone(), request.turn_id) {
            self.book.wrong(format!("{} thinks in {} and in {other} at once", request.agent_id, request.turn_id));
        }
        log.asked.push(Asked { turn_id: request.turn_id, round, answer: None });
        let under_way = UnderWay { log: Arc::clone(&self.log), agent_id: request.agent_id.clone() };
        (log.asked.len() - 1, dice, under_way)
    }

    async fn fault(&self, dice: &mut Dice) -> ProviderError {
        match dice.below(8) {
            0 => ProviderError::new(ErrorKind::RateLimited, "slow down")
                .status(429)
                .retry_after(Some(Duration::from_secs(dice.between(1, 5)))),
            1 => ProviderError::new(ErrorKind::RateLimited, "come back tomorrow")
                .status(429)
                .retry_after(Some(Duration::from_secs(100))),
            2 => ProviderError::new(ErrorKind::Server, "it broke").status(500),
            3 => ProviderError::new(ErrorKind::Overloaded, "too many").status(529),
            4 => ProviderError::new(ErrorKind::BrokenStream, "the answer broke off in a call"),
            5 => ProviderError::new(ErrorKind::BadAnswer, "that is no JSON: {\"blo"),
            6 => ProviderError::new(ErrorKind::Timeout, "the provider gave up"),
            _ => {
                // It never answers; the caller's deadline has to end this.
                std::future::pending::<()>().await;
                ProviderError::new(ErrorKind::Timeout, "")
            }
        }
    }
}

#[async_trait]
impl Provider for SimModel {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let round = request.messages.iter().filter(|message| message.role == Role::Assistant).count();
        let (place, mut dice, _under_way) = self.begin(request, round);
        self.clock.sleep(Duration::from_millis(dice.between(20, 1_500))).await;
        let now = self.clock.now();
        if self.outage.is_some_and(|(from, until)| now >= from && now < until) {
            return Err(self.is_out(&mut dice).await);
        }
        if dice.chance(self.faults) {
            return Err(self.fault(&mut dice).await);
        }
        let mark = place as u64;
        let (mut blocks, stop) = random_actions::answer(&self.scene, request, round, mark, &mut dice);
        // Shown again with the conversation, so that the journal tells which answer it holds.
        blocks.insert(0, Block::Thinking { text: thought(mark) });
        for block in &blocks {
            if let Block::Text { text } = block {
                deltas.text(text);
            }
        }
        let usage = (!dice.chance(5)).then(|| TokenUsage {
            input: estimate_tokens(request) / 2,
            output: dice.between(5, 200).min(request.max_tokens),
            ..TokenUsage::default()
        });
        if let Some(asked) = self.log().asked.get_mut(place) {
            asked.answer = Some(mark);
        }
        Ok(ModelAnswer { model: request.model.clone(), blocks, usage, estimated: false, stop })
    }
}

fn thought(mark: u64) -> String {
    format!("thought {mark}")
}

/// The mark of an answer in a journal.
pub(crate) fn mark_of(blocks: &[Block]) -> Option<u64> {
    blocks.iter().find_map(|block| match block {
        Block::Thinking { text, .. } => text.strip_prefix("thought ")?.parse().ok(),
        _ => None,
    })
}
