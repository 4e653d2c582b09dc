//! One running container: started, checked, and removed when nobody holds it any more.

use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::SandboxPlan;
use ghost_domain::{Clock, Code, Refusal};

use super::body::{self, Common, Place, RUNNER};
use super::engine::Engine;
use crate::client::Runner;
use crate::command::End;
use crate::frame::{Exec, right};
use crate::tunnel::{self, Exit};

/// How long a runner may take to greet, and to say what is mounted. Many containers may start at once.
const GREETING: Duration = Duration::from_secs(30);
/// Bytes of a runner's answer to that question.
const ANSWER_MAX: usize = 64 * 1024;

/// Why a command finds no container.
pub(super) fn unavailable(why: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("there is no sandbox now: {why}")).hint("try again later")
}

/// A container that was created. Dropped, it is killed and removed.
struct Created {
    engine: Arc<Engine>,
    id: String,
}

impl Drop for Created {
    fn drop(&mut self) {
        let (engine, id) = (Arc::clone(&self.engine), std::mem::take(&mut self.id));
        // Without a runtime the daemon is ending: the end of its streams ends the container.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Err(why) = engine.remove(&id).await {
                tracing::warn!("the container {id} was not removed: {why}");
            }
        });
    }
}

/// A running container with its runner.
pub(super) struct Container {
    pub(super) runner: Runner,
    /// What it mounts of the workspace.
    pub(super) places: Vec<Place>,
    /// What the engine could not do for it.
    pub(super) warnings: Vec<String>,
    _created: Created,
}

impl Container {
    /// Starts a container that mounts `places`. With an `exit` the runner listens at the proxy's port.
    ///
    /// # Errors
    /// Why it does not run, or not with those very places.
    pub(super) async fn start(
        engine: Arc<Engine>,
        plan: &SandboxPlan,
        common: &Common,
        places: Vec<Place>,
        exit: Option<Exit>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let (id, warnings) = engine.create(body::body(plan, common, &places)).await?;
        let created = Created { engine: Arc::clone(&engine), id };
        let streams = engine.start(&created.id).await?;
        let listens = exit.is_some();
        let greeting = clock.sleep(GREETING);
        let runner = tokio::select! {
            biased;
            runner = Runner::connect(streams.from, streams.to, exit) => {
                runner.map_err(|why| format!("the runner does not work: {why}"))?
            }
            () = greeting => return Err("the runner does not greet".to_owned()),
        };
        runner.keep_speaking(Arc::clone(clock)).await.map_err(|refusal| refusal.message)?;
        check(&runner, &places, &**clock).await?;
        if listens {
            tokio::select! {
                biased;
                listening = runner.listen(tunnel::PORT) => {
                    listening.map_err(|why| format!("the proxy's port cannot be had: {why}"))?;
                }
                () = clock.sleep(GREETING) => return Err("the runner does not listen".to_owned()),
            }
        }
        Ok(Self { runner, places, warnings, _created: created })
    }
}

/// Checks that the mounted directories are those that were looked at. The engine follows links in a path, and a command of
/// another agent that may write next to a directory could have put one in its place meanwhile.
async fn check(runner: &Runner, places: &[Place], clock: &dyn Clock) -> Result<(), String> {
    if places.is_empty() {
        return Ok(());
    }
    let mut argv = vec![RUNNER.to_owned(), "--identify".to_owned()];
    argv.extend(places.iter().map(Place::inside));
    let exec = Exec {
        deadline: GREETING,
        cwd: "/".to_owned(),
        argv,
        paths: vec![(right::READ | right::EXECUTE, "/".to_owned())],
        ..Exec::default()
    };
    let done = runner.run(&exec, (&[], None), (ANSWER_MAX, ANSWER_MAX, None), &|_| {}, clock).await;
    let (done, _) = done.map_err(|refusal| format!("the mounts cannot be checked: {}", refusal.message))?;
    if done.end != End::Exited(0) {
        return Err(format!("the mounts cannot be checked: {}", done.stderr.text.trim()));
    }
    let found: Vec<&str> = done.stdout.text.lines().collect();
    let wanted: Vec<String> =
        places.iter().map(|place| format!("{} {}", place.identity.device, place.identity.inode)).collect();
    if found == wanted {
        return Ok(());
    }
    let wrong = places.iter().zip(&wanted).zip(found.iter().chain(std::iter::repeat(&"")));
    let names: Vec<String> = wrong
        .filter(|((_, wanted), found)| wanted.as_str() != **found)
        .map(|((place, _), _)| format!("`{}`", if place.dir.is_empty() { "." } else { &place.dir }))
        .collect();
    Err(format!(
        "the engine mounted other directories of the workspace than {}: they were replaced meanwhile, or the engine does \
         not run on this machine",
        names.join(", ")
    ))
}
