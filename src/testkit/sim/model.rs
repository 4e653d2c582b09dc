//! A model whose answers follow from the seed and the conversation. It simulates faults of a
//! provider and logs all requests. The log is the witness that no journaled answer is requested
//! again.
//!
//! The model must never remember a conversation. An answer depends only on the request and on the
//! number of times that the request was made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::transcript::{Block, Role, TokenUsage};
use ghost_domain::{AgentId, Clock, Timestamp, TurnId};
use ghost_provider::{
    Charge, Deltas, ErrorKind, ModelAnswer, ModelRequest, Provider, ProviderError, Stop, estimate_tokens,
};

use super::chance::Dice;
use super::clock::SimClock;
use super::random_actions;
use super::tools::OutsideLog;

/// A logged request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The turn that made it.
    pub(crate) turn_id: TurnId,
    /// Number of answers in the conversation.
    pub(crate) round: usize,
    /// The mark of the answer; `None` if there was no answer or the caller no longer waited.
    pub(crate) answer: Option<u64>,
    /// The model refused to answer, or what it answered could not be read.
    pub(crate) unusable: bool,
}

#[derive(Default)]
struct Log {
    asked: Vec<Asked>,
    /// Number of requests for each round of a turn. Each one draws new random numbers; otherwise a fault would repeat
    /// for ever.
    times: BTreeMap<(TurnId, usize), u64>,
    /// Agents with a running request, and its turn.
    under_way: BTreeMap<AgentId, TurnId>,
}

/// The simulated model.
pub(crate) struct SimModel {
    seed: u64,
    clock: SimClock,
    outside_log: OutsideLog,
    /// The agents that its answers may name.
    names: Arc<[String]>,
    /// Percentage of requests that end in a fault.
    faults: u64,
    /// The period in which it answers no request.
    outage: Option<(Timestamp, Timestamp)>,
    log: Arc<Mutex<Log>>,
}

/// A running request. Dropping it removes it from the log's running requests.
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
    pub(crate) fn new(seed: u64, clock: SimClock, outside_log: OutsideLog, names: Arc<[String]>, faults: u64) -> Self {
        Self { seed, clock, outside_log, names, faults, outage: None, log: Arc::default() }
    }

    /// The same model with an outage.
    pub(crate) fn with_outage(self, outage: Option<(Timestamp, Timestamp)>) -> Self {
        Self { outage, ..self }
    }

    /// A random failure of a server that is down: connection refused, 503, 429, or no answer.
    async fn outage_error(&self, dice: &mut Dice) -> ProviderError {
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
        // No code under this lock can panic.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All requests so far, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.log().asked.clone()
    }

    /// Logs a request. Returns its index in the log and its random numbers.
    fn begin(&self, request: &ModelRequest, round: usize) -> (usize, Dice, UnderWay) {
        let mut log = self.log();
        let times = log.times.entry((request.turn_id, round)).or_default();
        *times += 1;
        let dice = Dice::new(self.seed, &format!("{}/{round}/{times}", request.turn_id));
        if let Some(other) = log.under_way.insert(request.agent_id.clone(), request.turn_id) {
            self.outside_log
                .wrong(format!("{} thinks in {} and in {other} at once", request.agent_id, request.turn_id));
        }
        log.asked.push(Asked { turn_id: request.turn_id, round, answer: None, unusable: false });
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
                // It never answers. The caller's deadline must end the request.
                std::future::pending::<()>().await;
                ProviderError::new(ErrorKind::Timeout, "")
            }
        }
    }
}

#[async_trait]
impl Provider for SimModel {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let round = request.messages[request.past..].iter().filter(|message| message.role == Role::Assistant).count();
        let (index, mut dice, _under_way) = self.begin(request, round);
        self.clock.sleep(Duration::from_millis(dice.between(20, 1_500))).await;
        let now = self.clock.steady();
        if self.outage.is_some_and(|(from, until)| now >= from && now < until) {
            return Err(self.outage_error(&mut dice).await);
        }
        if dice.chance(self.faults) {
            let error = self.fault(&mut dice).await;
            if let Some(asked) = self.log().asked.get_mut(index) {
                asked.unusable = matches!(error.kind, ErrorKind::BadAnswer | ErrorKind::BrokenStream);
            }
            return Err(error);
        }
        let mark = index as u64;
        let (mut blocks, stop) = random_actions::answer(&self.names, request, round, mark, &mut dice);
        // The mark gets into the journal, so that the check knows which answer it holds.
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
        if let Some(asked) = self.log().asked.get_mut(index) {
            asked.answer = Some(mark);
            asked.unusable = matches!(stop, Stop::Refused(_));
        }
        Ok(ModelAnswer { model: request.model.clone(), blocks, usage, estimated: false, stop })
    }
}

fn thought(mark: u64) -> String {
    format!("thought {mark}")
}

/// The mark in a journaled answer.
pub(crate) fn mark_of(blocks: &[Block]) -> Option<u64> {
    blocks.iter().find_map(|block| match block {
        Block::Thinking { text, .. } => text.strip_prefix("thought ")?.parse().ok(),
        _ => None,
    })
}
