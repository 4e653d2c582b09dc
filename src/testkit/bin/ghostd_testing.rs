//! `ghostd` with tools for tests. Arguments, wiring and exit codes are the same.
//!
//! This program must never be shipped.

// `ghostd` and this program share these modules.
#[path = "../../arguments.rs"]
mod arguments;
#[path = "../../report.rs"]
mod report;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use ghost_daemon::{Options, Terminal};

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        report::tell("error: a TLS crypto provider was installed twice");
        return ExitCode::FAILURE;
    }
    let env = |name: &str| std::env::var(name).ok();
    let up = match Arguments::parse().command {
        Command::Check { data: Some(data), .. } => return report::check_data(&data),
        Command::Check { world_dir, json, data: None } => {
            return report::check(&arguments::world_dir(world_dir), json, &env);
        }
        Command::Schema { file } => return report::schema(&file),
        Command::Init { dir } => return report::init(&dir),
        Command::Demo(_) => {
            report::tell("error: this program has no demo; run `ghostd demo`");
            return ExitCode::FAILURE;
        }
        Command::Up(up) => up,
    };
    report::begin_log();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            report::tell(&format!("error: the runtime cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    ghost_testkit::blackbox::test_faults(&env);
    let world_dir = arguments::world_dir(up.world_dir);
    let options = Options {
        world_dir: world_dir.clone(),
        data_dir: up.data,
        workspace: up.workspace,
        store: up.store,
        adopt: up.adopt,
        input: up.input,
        listen: up.listen,
        http: up.http.unwrap_or_default(),
        overrides: ghost_daemon::Overrides { provider: up.provider, model: up.model, base_url: up.base_url },
        env: Arc::new(env),
        extra_tools: ghost_testkit::blackbox::test_tools(&env),
        ports: ghost_testkit::blackbox::test_ports(ghost_daemon::system_ports(), &env),
        page_limit: env("GHOST_DATABASE_PAGES").and_then(|pages| pages.parse().ok()),
        terminal: Terminal::new(std::io::stdout()),
    };
    let outcome = runtime.block_on(async { ghost_daemon::run(options, ghost_daemon::stop_signal()?).await });
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report::failure(&failure, &world_dir),
    }
}
