//! `ghostd` with tools that only tests have (DESIGN.md section 6): the same arguments, the same wiring, the same end.
//!
//! Must never: be shipped.

// The arguments and the reports are those of `ghostd` itself.
#[path = "../../arguments.rs"]
mod arguments;
#[path = "../../report.rs"]
mod report;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use ghost_daemon::{Options, Terminal, system_ports};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("error: a TLS crypto provider was installed twice");
        return ExitCode::FAILURE;
    }
    let env = |name: &str| std::env::var(name).ok();
    let up = match Arguments::parse().command {
        Command::Check { world_dir, json } => return report::check(&arguments::world_dir(world_dir), json, &env),
        Command::Init { dir } => return report::init(&dir),
        Command::Up(up) => up,
    };
    tracing_subscriber::fmt().with_env_filter("warn,genai=off").with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let options = Options {
        world_dir: arguments::world_dir(up.world_dir),
        data_dir: up.data,
        input: up.input,
        listen: up.listen,
        http: up.http,
        overrides: ghost_daemon::Overrides { provider: up.provider, model: up.model, base_url: up.base_url },
        env: Arc::new(env),
        extra_tools: ghost_testkit::blackbox::test_tools(&env),
        ports: system_ports(),
        page_limit: env("GHOST_DATABASE_PAGES").and_then(|pages| pages.parse().ok()),
        terminal: Terminal::new(std::io::stdout()),
    };
    let outcome = runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        let signals = signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
        let (mut terminate, mut interrupt) = match signals {
            Ok(signals) => signals,
            Err(error) => {
                let words = format!("signals cannot be received: {error}");
                return Err(ghost_domain::Refusal::new(ghost_domain::Code::Internal, words).into());
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.send_replace(true);
        });
        ghost_daemon::run(options, stopped).await
    });
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report::failure(&failure),
    }
}
