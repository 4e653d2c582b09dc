//! The command line of `ghostd`.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use ghost_config::plan::ListenAddress;
use ghost_config::plan::places::http_address;
use ghost_daemon::HttpOption;

/// A supervisor for worlds of AI agents.
#[derive(Debug, Parser)]
#[command(name = "ghostd", version, about, long_about = None, after_help = "\
Examples:
  ghostd up                              run the newsroom on its own input, with scripted models
  ghostd up worlds/newsroom --input ~/notes
  ghostd up --provider anthropic --model claude-sonnet-4-5
  ghostd check worlds/newsroom           list every problem of a world, start nothing
  ghostd init my-world && ghostd up my-world
  ghostd demo                            kill a working daemon three times, and prove that nothing was lost

Use ghostctl to talk to a running world.")]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `ghostd`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a world until Ctrl-C or `ghostctl shutdown`.
    Up(Up),
    /// Check a world's files and list every problem at once; with --data, check a database at rest. Starts nothing.
    Check {
        /// The world's directory; by default the current one, else worlds/newsroom.
        world_dir: Option<PathBuf>,
        /// Print the problems as a JSON array.
        #[arg(long)]
        json: bool,
        /// Check the database in this data directory instead: every page, its log and its tables. No daemon may use it.
        #[arg(long, value_name = "DIR", conflicts_with_all = ["world_dir", "json"])]
        data: Option<PathBuf>,
    },
    /// Run a world's main job, kill its daemon with -9 three times in the middle, and prove that nothing was lost.
    Demo(Demo),
    /// Print the JSON Schema of a file of a world or a toolbox, for editors and for programs that write such files.
    Schema {
        /// The file.
        #[arg(default_value = "world-config.yaml", value_parser = ghost_config::schema::FILES)]
        file: String,
    },
    /// Write a small world to start from.
    Init {
        /// The directory to create; it must not contain a world yet.
        dir: PathBuf,
    },
}

/// `ghostd up`.
#[derive(Debug, Args)]
pub struct Up {
    /// The world's directory; by default the current one, else worlds/newsroom.
    pub world_dir: Option<PathBuf>,
    /// Where the world keeps its data [default: `data_dir` of the world file, else $GHOST_STATE_DIR/<world>, else
    /// ~/.local/state/ghost/<world>].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where agents keep their files [default: `workspace_dir` of the world file, else <data>/workspace].
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Where the world keeps its records: `sqlite`, in the data directory, or postgres://USER:PASSWORD@HOST/DATABASE. Other
    /// users of this machine can see options: a URL with a password belongs into the variable that `storage.url_env`
    /// names [default: `storage` of the world file, else sqlite].
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// Accept data that another world directory created, for example after the directory was moved.
    #[arg(long)]
    pub adopt: bool,
    /// The files of the main job [default: the world's own].
    #[arg(long, value_name = "DIR")]
    pub input: Option<PathBuf>,
    /// The address of gRPC, `unix:PATH` or `HOST:PORT`; can be repeated [default: `listen.grpc` of the
    /// world file, else <data>/ghostd.sock].
    #[arg(long, value_name = "ADDRESS", value_parser = listener)]
    pub listen: Vec<ListenAddress>,
    /// The address of HTTP (REST, health, metrics), or `off` [default: `listen.http` of the world file, else off].
    #[arg(long, value_name = "HOST:PORT", value_parser = address, allow_negative_numbers = true)]
    pub http: Option<HttpOption>,
    /// Use this provider instead of the archetypes' own: one named in the world file, or anthropic, openai, gemini,
    /// ollama, scripted.
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// The model at that provider.
    #[arg(long, value_name = "M", requires = "provider")]
    pub model: Option<String>,
    /// The base URL of that provider.
    #[arg(long, value_name = "URL", requires = "provider")]
    pub base_url: Option<String>,
    /// Also show agents' reads and the last text of every turn.
    #[arg(short, long)]
    pub verbose: bool,
}

/// `ghostd demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// The world's directory; by default the current one, else worlds/newsroom. Its models must be scripted or
    /// recorded.
    pub world_dir: Option<PathBuf>,
    /// The directory of the demonstration; it must not exist [default: a new directory among the temporary files].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Number of input files for the job, copied from the world's own input.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub files: u16,
    /// Show what the daemons print.
    #[arg(short, long)]
    pub verbose: bool,
}

fn address(text: &str) -> Result<HttpOption, String> {
    if text == "off" { Ok(HttpOption::Off) } else { http_address(text).map(HttpOption::At) }
}

fn listener(text: &str) -> Result<ListenAddress, String> {
    text.parse()
}

/// The world's directory: the one given, else the current one if it has a world file, else the newsroom if it exists.
pub fn world_dir(given: Option<PathBuf>) -> PathBuf {
    let newsroom = Path::new("worlds/newsroom");
    match given {
        Some(dir) => dir,
        None if !Path::new("world-config.yaml").is_file() && newsroom.is_dir() => newsroom.to_owned(),
        None => PathBuf::from("."),
    }
}
