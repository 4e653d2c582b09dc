//! The program `ghostd`: arguments, environment and exit codes. The work is in the crate `ghost-daemon`.

mod arguments;
mod report;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use ghost_daemon::{DemoOptions, Options, Style, Terminal, stop_signal, system_ports};
use ghost_domain::text::shown;
use ghost_domain::{Code, Refusal};

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    bound_arenas();
    // The only crypto provider of this process. With two, the first TLS handshake would panic.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        report::tell("error: a TLS crypto provider was installed twice");
        return ExitCode::FAILURE;
    }
    let arguments = Arguments::parse();
    let env = |name: &str| std::env::var(name).ok();
    match arguments.command {
        Command::Check { data: Some(data), .. } => report::check_data(&data),
        Command::Check { world_dir, json, data: None } => report::check(&arguments::world_dir(world_dir), json, &env),
        Command::Schema { file } => report::schema(&file),
        Command::Init { dir } => report::init(&dir),
        Command::Demo(options) => demo(options, &env),
        Command::Up(up) => {
            report::begin_log();
            let page_limit = match page_limit(env("GHOST_DATABASE_PAGES").as_deref()) {
                Ok(limit) => limit,
                Err(refusal) => return report::refused(&refusal),
            };
            let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    report::tell(&format!("error: the runtime cannot start: {error}"));
                    return ExitCode::FAILURE;
                }
            };
            let world_dir = arguments::world_dir(up.world_dir);
            let style = style(up.verbose, &env);
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
                extra_tools: Vec::new(),
                ports: system_ports(),
                page_limit,
                terminal: Terminal::styled(std::io::stdout(), style),
            };
            let code = match runtime.block_on(async { ghost_daemon::run(options, stop_signal()?).await }) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => report::failure(&failure, &world_dir),
            };
            // A tool's blocked thread must not keep the process alive.
            runtime.shutdown_background();
            code
        }
    }
}

/// `ghostd demo`. The daemons that it starts and kills run this program.
fn demo(options: arguments::Demo, env: &dyn Fn(&str) -> Option<String>) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            report::tell(&format!("error: this program's own file cannot be found: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let unnamed = || std::env::temp_dir().join(format!("ghost-demo-{}", std::process::id()));
    let world_dir = arguments::world_dir(options.world_dir);
    let demo = DemoOptions {
        program,
        world_dir: world_dir.clone(),
        dir: options.dir.unwrap_or_else(unnamed),
        files: usize::from(options.files),
        style: style(options.verbose, env),
    };
    match ghost_daemon::demo(&demo, env, &mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report::failure(&failure, &world_dir),
    }
}

/// The style of standard output: width and colours on a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
fn style(verbose: bool, env: &dyn Fn(&str) -> Option<String>) -> Style {
    let is_terminal = std::io::stdout().is_terminal();
    let given = |name: &str| env(name).filter(|value| !value.is_empty());
    let plain = given("NO_COLOR").is_some() || given("TERM").is_some_and(|term| term == "dumb");
    Style { colour: is_terminal && !plain, width: is_terminal.then_some(columns as fn() -> Option<usize>), verbose }
}

/// The width of the terminal in columns.
fn columns() -> Option<usize> {
    terminal_size::terminal_size().map(|(terminal_size::Width(columns), _)| usize::from(columns))
}

/// Parses `GHOST_DATABASE_PAGES`. An invalid value is refused; otherwise the database would have no limit.
fn page_limit(given: Option<&str>) -> Result<Option<u32>, Refusal> {
    let Some(given) = given.filter(|given| !given.is_empty()) else { return Ok(None) };
    match given.parse() {
        Ok(pages) if pages > 0 => Ok(Some(pages)),
        _ => {
            let what = format!("GHOST_DATABASE_PAGES is `{}`, which is not a number of pages", shown(given, 40));
            Err(Refusal::new(Code::InvalidArguments, what)
                .hint(format!("write a whole number from 1 to {}, or leave it unset for no limit", u32::MAX)))
        }
    }
}

/// Keeps the C library's allocator from spreading freed memory over many arenas; called before the program has threads. Lets
/// the program have one arena for each processor. The library's default is eight; each keeps what its threads have
/// freed, which costs a world of 20,000 agents some 25 MB (`cargo bench -- many`).
#[cfg(target_env = "gnu")]
fn bound_arenas() {
    use std::ffi::c_int;

    /// `M_ARENA_MAX` of glibc's `malloc.h`.
    const ARENA_MAX: c_int = -8;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let arenas = c_int::try_from(processors).unwrap_or(c_int::MAX);
    #[allow(unsafe_code, reason = "the standard library has no way to set this")]
    {
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        // SAFETY: `mallopt` takes two integers, has no requirement but that no other thread allocates meanwhile, and is
        // called first thing in `main`. If it refuses, the defaults stay.
        let _ = unsafe { mallopt(ARENA_MAX, arenas) };
    }
}

/// Other C libraries have no arenas.
#[cfg(not(target_env = "gnu"))]
fn bound_arenas() {}
