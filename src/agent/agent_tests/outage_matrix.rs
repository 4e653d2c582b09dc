//! No failure of a model consumes mail: whatever comes back in place of an answer, the mail is answered, parked or held as a
//! dead letter. A cell is a status, a body, a protocol, and one agent or ten.
//!
//! The adapters turn each status and body into an error over HTTP. What a turn does depends on that error alone, so the
//! worlds run once for each error that differs, on the virtual clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ghost_config::testing::WorldFiles;
use ghost_domain::{DeadLetterStatus, MailState, TurnStatus};
use ghost_provider::testing::{FakeReply, FakeServer, OWN, Reply, Wire, request, say, wrong_replies};
use ghost_provider::{Charge, ErrorKind, NoDeltas, ProviderError, Providers};
use ghost_store::tables::TurnFilter;

use super::agent_world::{AgentWorld, id, read};

const WORLD: &str = "\
world: { id: test, name: Test }
agents: [{ id: ada, archetype: worker }]
llm:
  default_provider: Chat
  default_model: m
  providers:
";

const NAMES: [&str; 10] = ["ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal", "ida", "jim"];

/// The error of every cell, by what a turn can tell apart.
async fn errors() -> (u32, Vec<(String, ProviderError)>) {
    let reply = Arc::new(Mutex::new(FakeReply::new(500, "text/plain", "")));
    let now = Arc::clone(&reply);
    let server = FakeServer::start(false, move |_| now.lock().unwrap().clone()).await.unwrap();
    let providers = Wire::ALL.map(|wire| format!("    {wire:?}: {}\n", wire.provider(&server.url(), "")));
    let files = WorldFiles::new(&format!("{WORLD}{}", providers.concat()), "");
    let clock = ghost_domain::testing::ManualClock::at(0);
    let providers = Providers::build(&files.plan().llm, &|_| Some("key".to_owned()), clock).unwrap();
    let (mut cells, mut found) = (0, BTreeMap::new());
    for status in std::iter::once(200).chain(300..600) {
        for wire in Wire::ALL {
            for (body, answer) in wrong_replies(status, wire) {
                *reply.lock().unwrap() = answer;
                let entry = providers.get(&format!("{wire:?}")).unwrap();
                let failed = entry.provider.complete(&request("m", "Hello."), &mut NoDeltas).await;
                let error = failed.expect_err("not an answer");
                let cell = format!("{status} {body} from {wire:?}: {error}");
                // Only the provider itself says that a request is wrong, and only a size says so for it.
                let page = body != OWN && status != 413;
                assert!(error.kind.is_transient() || !page, "{cell}");
                // Nothing is charged where no answer was made. A body that broke off may have been one.
                let broke_off = status == 200 && (body == "a cut body" || body == OWN);
                assert!(error.charge == Charge::Nothing || broke_off, "{cell}");
                cells += 1;
                found.entry((error.kind, error.charge == Charge::Nothing)).or_insert((cell, error));
            }
        }
    }
    (cells, found.into_values().collect())
}

/// Every mail of these agents with the state of its turn.
async fn fates(world: &AgentWorld, names: &[&str]) -> Vec<(MailState, Option<TurnStatus>)> {
    let turns: BTreeMap<_, _> = read!(world, |r| r.turn_list(&TurnFilter { limit: 1_000, ..TurnFilter::default() })?)
        .into_iter()
        .map(|turn| (turn.turn_id, turn.status))
        .collect();
    let mut fates = Vec::new();
    for name in names {
        let agent_id = id(name);
        let mail = read!(world, |r| r.messages_recent(&agent_id, 100)?);
        fates.extend(
            mail.iter().map(|mail| (mail.state, mail.turn_id.and_then(|turn_id| turns.get(&turn_id).copied()))),
        );
    }
    fates
}

async fn held(world: &AgentWorld) -> usize {
    let letters = read!(world, |r| r.dead_letter_list(None, Some(DeadLetterStatus::Held), None, 1_000)?);
    letters.iter().map(|letter| letter.messages.len()).sum()
}

// covers: LOOP-09
#[tokio::test]
async fn no_failure_of_a_model_consumes_mail() {
    let (cells, errors) = errors().await;
    assert!(errors.len() >= 8, "{errors:?}");
    for (cell, error) in &errors {
        for names in [&NAMES[..1], &NAMES[..]] {
            let world = AgentWorld::of(names, |_| {}).await;
            let failure = error.clone();
            world.model.reply_with(move |_, _| Reply::Fail(failure.clone()));
            for name in names {
                world.send(name, "first").await;
                world.send(name, "second").await;
            }
            world.run_seconds(300, names).await;
            let sent = names.len() * 2;
            let dead = held(&world).await;
            for (state, turn) in fates(&world, names).await {
                let safe = match state {
                    MailState::Pending => true,
                    MailState::Taken => turn == Some(TurnStatus::Open),
                    MailState::Dead => turn == Some(TurnStatus::Dead),
                    MailState::Consumed => false,
                };
                assert!(safe, "{cell}, {} agents: {state:?} {turn:?}", names.len());
            }
            // What looks permanent is held. A second agent's same refusal shows that it is the model's.
            let most = match error.kind {
                kind if kind.is_transient() => 0,
                ErrorKind::ContextTooLong => sent,
                _ => 2,
            };
            assert!(dead <= most, "{cell}, {} agents: {dead} held", names.len());
            world.model.reply_with(|_, _| say("well"));
            world.run_seconds(300, names).await;
            let mut fates = fates(&world, names).await;
            fates.retain(|(state, turn)| !(*state == MailState::Consumed && *turn == Some(TurnStatus::Finished)));
            assert_eq!((fates.len(), held(&world).await), (dead, dead), "{cell}, {} agents: {fates:?}", names.len());
        }
    }
    // One agent and ten. The count is for the reader of a CI run.
    #[allow(clippy::print_stdout)]
    {
        println!("{} cells, {} different errors: no mail lost", cells * 2, errors.len());
    }
}
