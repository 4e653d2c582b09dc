use ghost_config::plan::ProviderKind;
use ghost_domain::Code;
use ghost_provider::testing::provider_plan;
use proptest::prelude::*;

use super::*;

const ATTEMPTS: u32 = 3;
const CAP: Duration = Duration::from_secs(30);

struct Model {
    name: &'static str,
    provider: &'static str,
    plan: ProviderPlan,
}

impl Candidate for Model {
    fn model(&self) -> &str {
        self.name
    }

    fn provider(&self) -> &str {
        self.provider
    }

    fn plan(&self) -> &ProviderPlan {
        &self.plan
    }
}

/// Two models of one provider, and one of another.
fn models() -> [Model; 3] {
    [("a", "here"), ("b", "here"), ("c", "there")].map(|(name, provider)| {
        let plan = provider_plan(ProviderKind::OpenAi, None);
        Model { name, provider, plan: ProviderPlan { attempts: ATTEMPTS, retry_cap: CAP, ..plan } }
    })
}

/// A conversation, as far as remedies depend on it.
#[derive(Clone, Copy, Debug, Default)]
struct Talk {
    state: bool,
    images: bool,
    long: bool,
    bytes: usize,
}

impl Talk {
    fn apply(&mut self, remedy: Remedy) {
        match remedy {
            Remedy::Shorten(bytes) => self.bytes = bytes,
            Remedy::DropState => self.state = false,
            Remedy::DropImages => self.images = false,
        }
    }
}

impl Sent for Talk {
    fn has_state(&self) -> bool {
        self.state
    }

    fn shows_images(&self) -> bool {
        self.images
    }

    fn is_long(&self) -> bool {
        self.long
    }

    fn shorter(&self) -> Option<usize> {
        (self.bytes > 1_000).then_some(self.bytes / 2)
    }
}

fn begin(models: &[Model]) -> Attempts {
    Attempts::resume(models, &[], vec![0; models.len()]).unwrap()
}

fn error(kind: ErrorKind) -> ProviderError {
    ProviderError::new(kind, "HTTP 400")
}

fn out_of_time() -> Facts {
    Facts { out_of_time: Some(Refusal::new(Code::LoopGuard, "late")), ..Facts::default() }
}

/// A failure that is reported to its model, which is not down.
fn fail(attempts: &mut Attempts, models: &[Model], kind: ErrorKind, facts: Facts, talk: &Talk) -> Step {
    let verdict = attempts.judge(models, &error(kind), facts, talk);
    attempts.conclude(verdict, error(kind), false)
}

fn failed_before(names: &[(&str, bool)]) -> Vec<Failure> {
    names.iter().map(|(model, transient)| Failure { model: (*model).to_owned(), transient: *transient }).collect()
}

#[test]
fn a_resumed_call_continues_to_count() {
    for (before, then) in [
        (vec![], Ok((0, 0))),
        (vec![("a", true), ("a", false)], Ok((0, 2))),
        (vec![("a", true); 3], Ok((1, 0))),
        (vec![("a", true), ("b", true), ("a", true), ("b", true)], Ok((1, 2))),
        (vec![("gone", true); 9], Ok((0, 0))),
        ([vec![("a", true)], vec![("c", false); 3]].concat(), Ok((0, 0))),
        (vec![("c", false); 3], Err((2, 3))),
    ] {
        let resumed = Attempts::resume(&models(), &failed_before(&before), vec![0; 3]);
        assert_eq!(resumed.map(|attempts| (attempts.at, attempts.failed)), then, "{before:?}");
    }
}

#[test]
fn a_transient_failure_is_retried_then_falls_back_then_ends_the_round() {
    let (models, talk) = (models(), Talk::default());
    let mut attempts = begin(&models);
    for model in 0..3 {
        for _ in 1..ATTEMPTS {
            assert_eq!(attempts.at(), model);
            let step = fail(&mut attempts, &models, ErrorKind::Server, Facts::default(), &talk);
            assert!(matches!(step, Step::Retry(pause) if pause <= CAP), "{step:?}");
        }
        let step = fail(&mut attempts, &models, ErrorKind::Server, Facts::default(), &talk);
        let end = if model < 2 { Step::FallBack { down: true } } else { Step::NextRound { down: true } };
        assert_eq!((step, attempts.last().map(|(at, _)| at)), (end, Some(model)));
    }
    assert_eq!(attempts.next_round(&models, vec![0; 3], &mut 0), RoundEnd::Next);
    assert_eq!((attempts.at(), attempts.failed), (0, 0));
}

#[test]
fn what_is_permanent_gives_up_unless_another_model_may_answer_later() {
    let (models, talk) = (models(), Talk::default());
    for kind in [ErrorKind::BadRequest, ErrorKind::StaleState] {
        let mut attempts = begin(&models);
        assert_eq!(fail(&mut attempts, &models, kind, Facts::default(), &talk), Step::GiveUp, "{kind}");
        let mut attempts = begin(&models);
        attempts.opened(1);
        let step = fail(&mut attempts, &models, kind, Facts::default(), &talk);
        assert_eq!(step, Step::NextRound { down: false }, "the first model is only down: {kind}");
        assert!(attempts.may_ask(0) && !attempts.may_ask(1), "{kind}");
    }
    let mut attempts = begin(&models);
    for (at, end) in [(0, Step::FallBack { down: false }), (1, Step::FallBack { down: false }), (2, Step::GiveUp)] {
        assert_eq!(attempts.at(), at);
        assert_eq!(fail(&mut attempts, &models, ErrorKind::ContextTooLong, Facts::default(), &talk), end);
    }
    let mut attempts = begin(&models);
    let step = fail(&mut attempts, &models, ErrorKind::Unauthorized, Facts::default(), &talk);
    assert_eq!((step, attempts.at()), (Step::FallBack { down: true }, 2), "the same key would be refused again");
}

#[test]
fn a_refusal_that_is_the_models_own_is_transient() {
    let models = models();
    let mut attempts = begin(&models);
    let mut verdict = attempts.judge(&models, &error(ErrorKind::BadRequest), Facts::default(), &Talk::default());
    assert!(verdict.is_final() && !verdict.is_of_model());
    verdict.blame_model();
    assert!(verdict.is_of_model());
    let step = attempts.conclude(verdict, error(ErrorKind::BadRequest), true);
    assert_eq!((step, attempts.may_ask(0)), (Step::NextRound { down: true }, true));
}

#[test]
fn each_remedy_is_tried_for_what_it_helps() {
    let models = models();
    let talk = Talk { state: true, images: true, long: true, bytes: 4_000 };
    for (kind, talk, remedy) in [
        (ErrorKind::StaleState, talk, Some(Remedy::DropState)),
        (ErrorKind::BadRequest, talk, Some(Remedy::DropImages)),
        (ErrorKind::BadRequest, Talk { images: false, ..talk }, Some(Remedy::Shorten(2_000))),
        (ErrorKind::BadRequest, Talk { images: false, long: false, ..talk }, None),
        (ErrorKind::StaleState, Talk { state: false, ..talk }, None),
        (ErrorKind::Server, talk, None),
        // A model with a larger window may take it.
        (ErrorKind::ContextTooLong, talk, None),
    ] {
        let verdict = begin(&models).judge(&models, &error(kind), Facts::default(), &talk);
        assert_eq!(verdict.remedy, remedy, "{kind} {talk:?}");
        assert_eq!(begin(&models).judge(&models, &error(kind), out_of_time(), &talk).remedy, None, "{kind}");
    }
    let last = &models[2..];
    let step = fail(&mut begin(last), last, ErrorKind::ContextTooLong, Facts::default(), &talk);
    assert_eq!(step, Step::Remedy(Remedy::Shorten(2_000)));
    let (mut attempts, talk) = (begin(last), Talk { images: false, ..talk });
    let mut refuse = || fail(&mut attempts, last, ErrorKind::BadRequest, Facts::default(), &talk);
    assert_eq!((refuse(), refuse()), (Step::Remedy(Remedy::Shorten(2_000)), Step::GiveUp), "it guesses once");
}

#[test]
fn used_time_ends_the_turn_if_its_own_work_used_it_or_nothing_else_helps() {
    let (models, talk) = (models(), Talk::default());
    let step = |facts, kind| fail(&mut begin(&models), &models, kind, facts, &talk);
    let own = Facts { own_work: true, ..out_of_time() };
    assert!(matches!(step(own, ErrorKind::Timeout), Step::OutOfTime(_)));
    assert!(matches!(step(out_of_time(), ErrorKind::BadRequest), Step::OutOfTime(_)));
    assert_eq!(step(out_of_time(), ErrorKind::Timeout), Step::NextRound { down: true });
    let cut_short = Facts { cut_short: true, ..out_of_time() };
    assert_eq!(step(cut_short, ErrorKind::Timeout), Step::NextRound { down: false });
}

#[test]
fn a_model_that_goes_down_is_left_at_once() {
    let (models, talk) = (models(), Talk::default());
    let mut attempts = begin(&models);
    let verdict = attempts.judge(&models, &error(ErrorKind::Network), Facts::default(), &talk);
    assert_eq!(attempts.conclude(verdict, error(ErrorKind::Network), true), Step::Ask);
    assert_eq!((attempts.at(), attempts.last().map(|(at, _)| at)), (0, Some(0)));
}

#[test]
fn a_turn_whose_model_answers_others_pauses_longer_each_round_and_is_faulty_in_the_end() {
    let models = &models()[..1];
    let (mut attempts, mut alone) = (begin(models), 0);
    let ends: Vec<RoundEnd> = (1..=u64::from(ALONE_MAX))
        .map(|answers| {
            attempts.reported(ErrorKind::Server, answers);
            attempts.last = Some((0, error(ErrorKind::Server)));
            attempts.next_round(models, vec![answers], &mut alone)
        })
        .collect();
    let pauses = (1..ALONE_MAX).map(|round| RoundEnd::Pause(CAP * round));
    assert_eq!(ends, pauses.chain([RoundEnd::Faulty]).collect::<Vec<_>>());
    attempts.reported(ErrorKind::RateLimited, 99);
    assert_eq!(attempts.next_round(models, vec![99], &mut alone), RoundEnd::Next, "load is not the turn's fault");
}

#[test]
fn a_fall_back_without_budget_or_price_is_left_out() {
    let models = models();
    let mut attempts = begin(&models);
    assert!(!attempts.has_another(), "the first model waits for its budget");
    attempts.opened(1);
    assert!(attempts.has_another());
    attempts.cannot_afford(7);
    assert!(attempts.at() == 0 && !attempts.may_ask(1));
    attempts.recheck_budgets(7);
    assert!(!attempts.may_ask(1));
    attempts.recheck_budgets(8);
    assert!(attempts.may_ask(1));
    attempts.opened(2);
    assert_eq!(attempts.pass_over(None), Step::NextRound { down: false }, "the first two are only down");
    assert!(!attempts.may_ask(2));
    // Only the fall-back without a price was left for a conversation that is too long.
    let mut attempts = begin(&models[..2]);
    fail(&mut attempts, &models[..2], ErrorKind::ContextTooLong, Facts::default(), &Talk::default());
    assert_eq!((attempts.at(), attempts.too_long_for()), (1, Some(0)));
    assert_eq!(attempts.pass_over(Some(0)), Step::Ask);
    assert!(attempts.at() == 0 && attempts.may_ask(0) && !attempts.may_ask(1));
}

proptest! {
    /// Whatever fails, each round ends after a bounded number of attempts, and no model is asked that must not be.
    #[test]
    fn every_round_ends(
        kinds in prop::collection::vec((0..ErrorKind::ALL.len(), any::<bool>(), any::<bool>(), 0..40_u8), 400),
        (state, images, long) in any::<(bool, bool, bool)>(),
    ) {
        let models = models();
        let (mut attempts, mut alone, mut in_round) = (begin(&models), 0, 0);
        let mut talk = Talk { state, images, long, bytes: 64_000 };
        let mut remedies = 0;
        for (kind, down, blame, time) in kinds {
            prop_assert!(attempts.at() < models.len() && attempts.may_ask(attempts.at()));
            let kind = ErrorKind::ALL[kind];
            let facts = if time == 0 { out_of_time() } else { Facts::default() };
            let mut verdict = attempts.judge(&models, &error(kind), facts, &talk);
            if blame && verdict.is_final() {
                verdict.blame_model();
            }
            in_round += 1;
            // Three attempts for each model, and after each remedy again; a model that is down is not asked again.
            prop_assert!(in_round <= (ATTEMPTS + 1) * (3 + remedies), "{in_round} {remedies}");
            match attempts.conclude(verdict, error(kind), down) {
                Step::Retry(pause) => prop_assert!(pause <= CAP),
                Step::Remedy(remedy) => {
                    talk.apply(remedy);
                    remedies += 1;
                    prop_assert!(remedies <= 10);
                }
                Step::FallBack { .. } => {}
                step @ (Step::Ask | Step::NextRound { .. }) => {
                    // The gate lets the next model through that may be asked.
                    let next = (attempts.at() + 1..models.len()).find(|index| attempts.may_ask(*index));
                    match next.filter(|_| step == Step::Ask) {
                        Some(next) => attempts.opened(next),
                        None => {
                            attempts.next_round(&models, vec![0; 3], &mut alone);
                            in_round = 0;
                            let Some(first) = (0..3).find(|index| attempts.may_ask(*index)) else {
                                prop_assert!(attempts.all_refused());
                                return Ok(());
                            };
                            attempts.opened(first);
                        }
                    }
                }
                Step::OutOfTime(_) | Step::GiveUp => return Ok(()),
            }
        }
    }
}
