//! `ghostctl`, the command-line client. It sends requests to a running `ghostd` over gRPC and prints the answers.
//! All decisions are the daemon's. Of the world's files, it reads only the socket and the token.

use std::io::IsTerminal as _;
use std::process::ExitCode;

mod arguments;
mod cli;
mod commands;
mod complete;
mod connection;
mod discovery;
mod endpoint;
mod failure;
mod help;
mod lists;
mod output;
mod text;
mod wait;
mod worlds;

#[cfg(test)]
mod testing;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let environment = discovery::Environment::of_process();
    let screen = std::io::stdout().is_terminal().then(columns);
    let code = cli::run(
        std::env::args_os(),
        &environment,
        &mut output::Output::new(Box::new(std::io::BufWriter::new(std::io::stdout())), screen),
        &mut std::io::stderr(),
    )
    .await;
    ExitCode::from(code)
}

/// Width of the terminal in columns; 80 if the terminal does not report one.
fn columns() -> usize {
    let reported = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if reported == 0 { 80 } else { reported }
}
