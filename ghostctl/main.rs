//! `ghostctl`: drives a running `ghostd` over gRPC.
//!
//! Must never: hold a rule of the world, touch its files beyond finding the socket and the token, or compile a
//! database or an actor. It asks, prints and exits; the daemon decides.

use std::io::IsTerminal as _;
use std::process::ExitCode;

mod cli;
mod commands;
mod complete;
mod connection;
mod discovery;
mod endpoint;
mod failure;
mod help;
mod ids;
mod line;
mod lists;
mod output;
mod process;
mod record;
mod source;
mod table;
mod text;
mod times;
mod view;
mod wait;
mod waits;
mod wording;

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

/// The columns of the terminal; as many as most have if it does not say.
fn columns() -> usize {
    let said = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if said == 0 { 80 } else { said }
}
