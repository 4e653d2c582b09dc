//! Commands in sandboxes: `true` in `local` beside bubblewrap, `true` in `docker` beside an exec of the engine's API in the
//! same container, and 100 MB of output through the cap.
//!
//! A part that this machine cannot measure (no bubblewrap, no engine, no image) is left out, and the reason is printed.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use bollard::query_parameters::ListContainersOptionsBuilder;
use ghost_config::plan::{SandboxKind, SandboxPlan};
use ghost_sandbox::{Closed, Command, End, Owner, Sandbox};
use tokio_stream::StreamExt as _;

use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};

/// Commands of one round.
const EACH: u32 = 20;
const ROUNDS: usize = 15;
/// Bytes of the large output.
const OUTPUT: u64 = 100 << 20;

/// Measures the rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let runtime = runtime()?;
    let mut lines = Vec::new();
    for (kind, measured) in [("local", runtime.block_on(local())), ("docker", runtime.block_on(docker()))] {
        match measured {
            Ok(measured) => lines.extend(measured),
            Err(error) => eprintln!("  the sandbox `{kind}` is left out: {error}"),
        }
    }
    Ok(lines)
}

/// A sandbox with directories of its own.
struct Place {
    sandbox: Arc<dyn Sandbox>,
    dir: tempfile::TempDir,
}

impl Place {
    async fn open(kind: SandboxKind) -> Outcome<Self> {
        // Commands may be another user's, who must get there.
        let dir = tempfile::tempdir_in("/var/tmp")?;
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let workspace = dir.path().join("workspace");
        std::fs::create_dir(&workspace)?;
        let plan = SandboxPlan { kind, ..SandboxPlan::default() };
        let owner = Owner { world_id: "bench", data_dir: dir.path() };
        let sandbox =
            ghost_sandbox::open(&plan, owner, &workspace, Arc::new(Closed), Arc::new(ghost_daemon::ports::SystemClock))
                .await?;
        Ok(Self { sandbox, dir })
    }

    async fn run(&self, argv: &[&str]) -> Outcome<u64> {
        let command = Command {
            agent_id: "ada".parse()?,
            conversation_id: None,
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            dir: "agents/ada".into(),
            env: Vec::new(),
            stdin: Vec::new(),
            feed: None,
            drain: None,
            toolbox: None,
            timeout: Duration::from_secs(60),
            writable: vec!["agents/ada/".into()],
            stdout_limit: 50 * 1_024,
            stderr_limit: 10 * 1_024,
        };
        let done = self.sandbox.run(command, &|_| {}).await.map_err(|refusal| refusal.to_string())?;
        if done.end != End::Exited(0) {
            return Err(format!("{argv:?} ended with {:?}", done.end).into());
        }
        Ok(done.stdout.bytes)
    }

    /// Milliseconds of one `true`, of one round.
    async fn trues(&self) -> Outcome<f64> {
        let began = now();
        for _ in 0..EACH {
            self.run(&["true"]).await?;
        }
        Ok(milliseconds(began.elapsed()))
    }

    /// The row of the large output: what it adds to the memory of this process.
    async fn output(&self, what: &'static str) -> Outcome<Line> {
        self.run(&["head", "-c", "1000000", "/dev/zero"]).await?;
        let before = resident()?;
        let bytes = self.run(&["head", "-c", &OUTPUT.to_string(), "/dev/zero"]).await?;
        if bytes != OUTPUT {
            return Err(format!("{bytes} bytes of output came").into());
        }
        let more = resident()?.saturating_sub(before);
        Ok(Line {
            what,
            floor: format!("{OUTPUT} B"),
            ours: format!("{more} B"),
            ratio: more as f64 / OUTPUT as f64,
            bar: 0.05,
            aim: 0.01,
            sense: Sense::AtMost,
        })
    }
}

fn milliseconds(of_round: Duration) -> f64 {
    of_round.as_secs_f64() * 1_000.0 / f64::from(EACH)
}

/// Bytes of memory of this process that no file backs.
fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon")?;
    Ok(line.trim().split(' ').next().ok_or("no number")?.parse::<u64>()? * 1_024)
}

fn line(what: &'static str, floors: Vec<f64>, ours: Vec<f64>, bar: f64, aim: f64) -> Line {
    let (floor, ours) = (median(floors), median(ours));
    Line {
        what,
        floor: format!("{floor:.2} ms"),
        ours: format!("{ours:.2} ms"),
        ratio: ours / floor,
        bar,
        aim,
        sense: Sense::AtMost,
    }
}

async fn local() -> Outcome<Vec<Line>> {
    let place = Place::open(SandboxKind::Local).await?;
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (floor, our) = (bubblewraps().await?, place.trues().await?);
        // The first round warms up both.
        if round > 0 {
            floors.push(floor);
            ours.push(our);
        }
    }
    let row = line("`local` sandbox, one `true`", floors, ours, 1.5, 1.0);
    let output = place.output("`local`: memory of 100 MB of output").await?;
    place.sandbox.close().await;
    Ok(vec![row, output])
}

/// The floor of `local`: what somebody would type.
async fn bubblewraps() -> Outcome<f64> {
    let began = now();
    for _ in 0..EACH {
        // A floor is measured with the programs that people have; this is no command of an agent.
        #[allow(clippy::disallowed_methods)]
        let mut command = tokio::process::Command::from(std::process::Command::new("bwrap"));
        command.args(["--unshare-all", "--ro-bind", "/", "/", "true"]).stdin(Stdio::null()).stdout(Stdio::null());
        let ended = command.status().await.map_err(|error| format!("bwrap: {error}"))?;
        if !ended.success() {
            return Err(format!("bwrap ended with {ended}").into());
        }
    }
    Ok(milliseconds(began.elapsed()))
}

async fn docker() -> Outcome<Vec<Line>> {
    let place = Place::open(SandboxKind::Docker).await?;
    place.run(&["true"]).await?;
    let engine = match std::env::var("DOCKER_HOST") {
        Ok(host) => bollard::Docker::connect_with_unix(&host, 60, bollard::API_DEFAULT_VERSION)?,
        Err(_) => bollard::Docker::connect_with_unix("/var/run/docker.sock", 60, bollard::API_DEFAULT_VERSION)?,
    };
    let engine = engine.negotiate_version().await?;
    let container = container_of(&engine, place.dir.path()).await?;
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS / 3 {
        let (floor, our) = (execs(&engine, &container).await?, place.trues().await?);
        if round > 0 {
            floors.push(floor);
            ours.push(our);
        }
    }
    let row = line("`docker` sandbox, one `true`", floors, ours, 0.3, 0.1);
    let output = place.output("`docker`: memory of 100 MB of output").await?;
    place.sandbox.close().await;
    Ok(vec![row, output])
}

/// The container that the sandbox made.
async fn container_of(engine: &bollard::Docker, data: &Path) -> Outcome<String> {
    let label = format!("ghost.data={}", data.canonicalize()?.display());
    let filters = HashMap::from([("label".to_owned(), vec![label])]);
    let options = ListContainersOptionsBuilder::default().filters(&filters).build();
    let found = engine.list_containers(Some(options)).await?;
    found.into_iter().find_map(|found| found.id).ok_or_else(|| "the sandbox has no container".into())
}

/// The floor of `docker`: an exec of the engine's API in the same container, output and exit code included.
async fn execs(engine: &bollard::Docker, container: &str) -> Outcome<f64> {
    let began = now();
    for _ in 0..EACH {
        let config = ExecConfig {
            cmd: Some(vec!["true".to_owned()]),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let exec = engine.create_exec(container, config).await?;
        if let StartExecResults::Attached { mut output, .. } = engine.start_exec(&exec.id, None).await? {
            while let Some(piece) = output.next().await {
                piece?;
            }
        }
        let code = engine.inspect_exec(&exec.id).await?.exit_code;
        if code != Some(0) {
            return Err(format!("the exec ended with {code:?}").into());
        }
    }
    Ok(milliseconds(began.elapsed()))
}
