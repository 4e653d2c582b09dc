//! The connection to a Docker engine on this machine. Every call has a time limit.
//!
//! It must never pull an image, and never touch a container that another daemon made.

use std::collections::HashMap;
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
use ghost_domain::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::StreamReader;

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
        tokio::select! {
            biased;
            done = call => done.map_err(|error| described(&error)),
            () = self.clock.sleep(CALL_MAX) => {
                Err(format!("{what}: the engine did not answer for {} seconds", CALL_MAX.as_secs()))
            }
        }
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
                Err(error) => Some(Err(io::Error::other(described(&error)))),
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

/// What went wrong, with its causes: bollard's own texts leave them out.
fn described(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
