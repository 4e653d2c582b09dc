//! The program `ghost-toolbox`: a server that runs commands of agents whose world lives on another machine. It runs them in the
//! `local` sandbox alone, and talks to nobody who does not know the token.

mod exec;
mod files;
mod requests;
mod server;
mod settings;
mod users;
mod worlds;

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ghost_domain::{Code, Refusal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::settings::Settings;
use crate::users::Range;

#[derive(Parser)]
#[command(name = "ghost-toolbox", version, about = "Runs commands of Ghost's agents on this machine")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves worlds that have `sandbox: { kind: remote }`
    Serve(Serve),
}

#[derive(clap::Args)]
struct Serve {
    /// Where to listen. Without TLS, this machine's own addresses only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    listen: SocketAddr,
    /// The directory for copies of workspaces. The server's alone
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The file with the token that clients must send. Nobody else may read it
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// The PEM file with the server's certificate and those above it
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The PEM file with the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// If the server is root: the numbers of the users that agents' commands run as
    #[arg(long, value_name = "FIRST-LAST", default_value_t)]
    agent_uids: Range,
}

fn main() -> ExitCode {
    let Command::Serve(serve) = Arguments::parse().command;
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let failed = |refusal: &Refusal| {
        // Without standard error there is nobody to tell.
        drop(writeln!(std::io::stderr(), "error: {}", refusal.in_words()));
        ExitCode::FAILURE
    };
    // The only crypto provider of this process.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return failed(&Refusal::new(Code::Internal, "a TLS crypto provider was installed twice"));
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&Refusal::new(Code::Internal, format!("the runtime cannot start: {error}"))),
    };
    let done = runtime.block_on(run(serve));
    // A blocked thread must not keep the process alive.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => failed(&refusal),
    }
}

async fn run(serve: Serve) -> Result<(), Refusal> {
    let tls = serve.tls_cert.zip(serve.tls_key);
    let settings = Settings::read(serve.listen, &serve.dir, &serve.token_file, tls, serve.agent_uids)?;
    let refuse = |error: std::io::Error| Refusal::new(Code::Internal, format!("signals cannot be received: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refuse)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(refuse)?;
    let (stop, stopped) = watch::channel(false);
    let stopping = tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.send_replace(true);
        // Whoever waits for this flag sees it before it goes away.
        std::future::pending::<()>().await;
    });
    let done = server::serve(settings, stopped).await;
    stopping.abort();
    done
}
