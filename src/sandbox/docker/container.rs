//! The Docker engine of this machine, and its containers. Every call of the engine has a time limit; no image is pulled, and no
//! container that another daemon made is touched. A container is started, checked, and removed when nobody holds it any more;
//! one for a single command, such as a browser, mounts nothing of the workspace and is not used again.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, SystemInfo};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use ghost_config::plan::{SandboxNetwork, SandboxPlan, SandboxScope};
use ghost_domain::{Clock, Refusal};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::StreamReader;

use super::body;
use super::body::{Common, Place, RUNNER};
use crate::client::Runner;
use crate::clock::within;
use crate::command::{Alone, End, Finished, unavailable, with_causes};
use crate::environment::{devices, environment, in_memory};
use crate::frame::{Exec, Network, flag, right};
use crate::tunnel;
use crate::tunnel::Exit;

/// Where an engine listens if `DOCKER_HOST` does not say so.
const SOCKET: &str = "/var/run/docker.sock";
/// The longest time of one call. Fifty containers at once take their time.
const CALL_MAX: Duration = Duration::from_secs(60);
/// What the engine answers if a container is not there, or is being removed.
const GONE: [u16; 2] = [404, 409];

/// A connection to an engine.
pub(super) struct Engine {
    docker: Docker,
    clock: Arc<dyn Clock>,
}

/// An image that the engine has.
#[derive(Clone, Debug)]
pub(super) struct Image {
    /// As the world file names it.
    pub(super) name: String,
    /// The digest of its content. Containers are made of this, not of the name.
    pub(super) id: String,
}

/// The streams of a container's main process.
pub(super) struct Streams {
    pub(super) from: Box<dyn AsyncRead + Unpin + Send>,
    pub(super) to: std::pin::Pin<Box<dyn AsyncWrite + Send>>,
}

impl Engine {
    /// Connects to the engine that `host` (`DOCKER_HOST`) names.
    ///
    /// # Errors
    /// Why there is no engine.
    pub(super) async fn connect(host: Option<&str>, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let socket = match host.filter(|host| !host.is_empty()) {
            None => SOCKET,
            Some(host) => host.strip_prefix("unix://").ok_or_else(|| {
                format!("DOCKER_HOST is `{host}`; the engine must be on this machine: set it to `unix:///PATH`")
            })?,
        };
        let docker = Docker::connect_with_unix(socket, CALL_MAX.as_secs(), bollard::API_DEFAULT_VERSION)
            .map_err(|error| format!("no Docker engine listens at {socket}: {error}"))?;
        let engine = Self { docker: docker.clone(), clock };
        let negotiated = engine.within("its version", docker.negotiate_version());
        let docker = negotiated.await.map_err(|why| format!("the Docker engine at {socket} cannot be used: {why}"))?;
        Ok(Self { docker, ..engine })
    }

    /// Waits for a call of the engine, but not for ever: an engine that is stopped says nothing.
    async fn within<T>(&self, what: &str, call: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
        let late = || format!("{what}: the engine did not answer for {} seconds", CALL_MAX.as_secs());
        within(&*self.clock, CALL_MAX, call).await.ok_or_else(late)?.map_err(|error| with_causes(&error))
    }

    /// What the engine says about itself.
    pub(super) async fn info(&self) -> Result<SystemInfo, String> {
        self.within("its facts", self.docker.info()).await
    }

    /// The image of this name, if the engine has it.
    pub(super) async fn image(&self, name: &str) -> Result<Image, String> {
        let found = self.within("the image", self.docker.inspect_image(name)).await.map_err(|why| {
            format!(
                "the engine has no image `{name}` ({why}); build it with `deploy/toolbox/build`, or name another one \
                 in `sandbox.image`"
            )
        })?;
        let id = found.id.ok_or_else(|| format!("the image `{name}` has no id"))?;
        if found.config.and_then(|config| config.volumes).is_some_and(|volumes| !volumes.is_empty()) {
            return Err(format!("the image `{name}` declares volumes, which commands could fill; use one without"));
        }
        Ok(Image { name: name.to_owned(), id })
    }

    /// Creates a container. Returns its id, and what the engine could not do.
    pub(super) async fn create(&self, body: ContainerCreateBody) -> Result<(String, Vec<String>), String> {
        let options = None::<bollard::query_parameters::CreateContainerOptions>;
        let created = self.within("a container", self.docker.create_container(options, body)).await?;
        Ok((created.id, created.warnings))
    }

    /// Attaches to a container and then starts it, so that nothing of what it says is lost.
    pub(super) async fn start(&self, id: &str) -> Result<Streams, String> {
        let options =
            AttachContainerOptionsBuilder::default().stream(true).stdin(true).stdout(true).stderr(true).build();
        let attach = self.within("its streams", self.docker.attach_container(id, Some(options)));
        let AttachContainerResults { output, input } = attach.await?;
        self.within("its start", self.docker.start_container(id, None)).await?;
        // Standard error gets at most the runner's last words; the end of the stream says as much.
        let stdout = output.filter_map(|piece| {
            let piece = match piece {
                Ok(LogOutput::StdOut { message }) => Some(Ok(message)),
                Ok(_) => None,
                Err(error) => Some(Err(io::Error::other(with_causes(&error)))),
            };
            std::future::ready(piece)
        });
        Ok(Streams { from: Box::new(StreamReader::new(stdout.into_stream())), to: input })
    }

    /// Kills and removes a container. One that is gone already is no error.
    pub(super) async fn remove(&self, id: &str) -> Result<(), String> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let removed = async {
            match self.docker.remove_container(id, Some(options)).await {
                Err(Error::DockerResponseServerError { status_code, .. }) if GONE.contains(&status_code) => Ok(()),
                done => done,
            }
        };
        self.within("the removal of a container", removed).await
    }

    /// The containers, also those that have ended, that have all of these labels.
    pub(super) async fn labelled(
        &self,
        labels: &[(&str, &str)],
    ) -> Result<Vec<(String, HashMap<String, String>)>, String> {
        let wanted = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let filters = HashMap::from([("label".to_owned(), wanted)]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let found = self.within("its containers", self.docker.list_containers(Some(options))).await?;
        Ok(found.into_iter().filter_map(|found| Some((found.id?, found.labels.unwrap_or_default()))).collect())
    }
}

/// How long a runner may take to greet, and to say what is mounted. Many containers may start at once.
const GREETING: Duration = Duration::from_secs(30);
/// Bytes of a runner's answer to that question.
const ANSWER_MAX: usize = 64 * 1024;

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
        let runner = Runner::connect(streams.from, streams.to, exit, (&**clock, GREETING)).await?;
        runner.keep_speaking(Arc::clone(clock)).await.map_err(|refusal| refusal.message)?;
        check(&runner, &places, &**clock).await?;
        if listens {
            let listening = within(&**clock, GREETING, runner.listen(tunnel::PORT)).await;
            listening
                .ok_or("the runner does not listen")?
                .map_err(|why| format!("the proxy's port cannot be had: {why}"))?;
        }
        Ok(Self { runner, places, warnings, _created: created })
    }

    /// Starts a container in a task of its own: a caller that goes away must not leave a container that nobody knows.
    pub(super) async fn start_apart(
        engine: &Arc<Engine>,
        plan: SandboxPlan,
        common: Common,
        places: Vec<Place>,
        exit: Option<Exit>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Refusal> {
        let (engine, clock) = (Arc::clone(engine), Arc::clone(clock));
        let started = tokio::spawn(async move { Self::start(engine, &plan, &common, places, exit, &clock).await });
        let started = started.await.map_err(|error| unavailable(&format!("its start failed: {error}")))?;
        started.map_err(|why| unavailable(&why))
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

/// Containers of one command at one time. More wait.
pub(super) const ALONE_MAX: usize = 4;
/// What a browser needs at least, whatever other commands may have.
const MEMORY_LEAST: u64 = 1 << 30;
const TASKS_LEAST: u32 = 512;
const DISK_LEAST: u64 = 512 << 20;
/// Its directory.
const HOME: &str = "/tmp";
/// Bytes of messages that are kept.
const STDERR_LIMIT: usize = 10 * 1024;
/// How long the question for a version may take.
const QUESTION: Duration = Duration::from_secs(20);

/// What a command with a container of its own may use: the image, devices, and files in memory.
fn readable() -> Vec<(u8, String)> {
    std::iter::once((right::READ | right::EXECUTE, "/".to_owned())).chain(devices()).chain(in_memory()).collect()
}

/// The version of the browser in the image of a container, if it has one.
pub(super) async fn browser(probe: &Container, clock: &dyn Clock) -> Result<Option<String>, String> {
    let script = "command -v chromium >/dev/null && dpkg-query --show --showformat '${Version}' chromium";
    let exec = Exec {
        deadline: QUESTION,
        cwd: "/".to_owned(),
        argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        env: vec!["PATH=/usr/local/bin:/usr/bin:/bin".to_owned()],
        paths: readable(),
        ..Exec::default()
    };
    let done = probe.runner.run(&exec, (&[], None), (1_024, 1_024, None), &|_| {}, clock).await;
    let (done, _) = done.map_err(|refusal| format!("the image cannot be looked at: {}", refusal.message))?;
    let version = done.stdout.text.trim();
    Ok((done.end == End::Exited(0)).then(|| format!("Chromium {version}")))
}

/// Runs a command in a container of its own, whose connections go to `exit`. Protections that the container does not give
/// are `required` of its runner.
pub(super) async fn run_alone(
    engine: &Arc<Engine>,
    (plan, common): (&SandboxPlan, &Common),
    required: u32,
    exit: Exit,
    clock: &Arc<dyn Clock>,
    command: Alone,
) -> Result<Finished, Refusal> {
    let plan = SandboxPlan {
        network: SandboxNetwork::Proxy,
        scope: SandboxScope::Agent,
        memory_bytes: plan.memory_bytes.max(MEMORY_LEAST),
        processes: plan.processes.max(TASKS_LEAST),
        disk_bytes: plan.disk_bytes.max(DISK_LEAST),
        // Hostile pages run there. What commands are given is not for them.
        env: BTreeMap::new(),
        passthrough_env: Vec::new(),
        ..plan.clone()
    };
    let exec = Exec {
        flags: flag::STDIN | flag::UNIX | flag::MEMFD,
        required,
        cwd: HOME.to_owned(),
        env: environment(&plan, HOME, HOME, HOME, &[]),
        paths: readable(),
        // The container's network has nothing but the proxy's port.
        network: Network::Open,
        ..Exec::bounded(&plan, command.argv, command.timeout)
    };
    let container = Container::start_apart(engine, plan, common.clone(), Vec::new(), Some(exit), clock).await?;
    let limits = (command.stdout_limit, STDERR_LIMIT, None);
    // It mounts nothing that outlives it, so what it left is gone with it.
    container.runner.run(&exec, (&command.stdin, None), limits, &|_| {}, &**clock).await.map(|(done, _)| done)
}
