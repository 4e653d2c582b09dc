//! The runner: runs commands inside a sandbox and carries their bytes over one stream, its standard input and output.
//! The daemon starts it once for each agent (`local`) or as the main process of a container (`docker`); after that a
//! command costs a fork, not a container exec. `PROTOCOL.md` describes the frames, `DESIGN.md` the reasons.
//!
//! It must never run a command with less protection than the request requires, never leave a process behind when its
//! input ends, never hold output beyond the credit it was given, and never trust what a command does or says. It has no
//! dependencies, starts no thread (so that a forked child may allocate), and reads nothing from its environment.

#[macro_use]
mod kernel;
mod commands;
mod disk;
mod filter;
mod frame;
mod launch;
mod orders;
mod places;
mod protections;
mod service;
mod tree;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use kernel::quit;
use service::{End, Runner};

/// `--identify`: says which directories stand at the given paths, a line of two numbers each, and ends. With it the daemon
/// finds out, in a container, whether the engine mounted what it was told to mount.
fn identify(paths: impl Iterator<Item = std::ffi::OsString>) -> ! {
    for path in paths {
        match fs::symlink_metadata(&path) {
            Ok(data) => println!("{} {}", data.dev(), data.ino()),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                quit(1);
            }
        }
    }
    quit(0)
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(word) if word == "--identify" => identify(arguments),
        None => {}
        _ => {
            eprintln!("runner: started by ghostd; takes no argument but --identify");
            quit(2);
        }
    }
    let end = match Runner::new() {
        Ok(mut runner) => runner.serve(),
        Err(errno) => End::System("start", errno),
    };
    match end {
        End::Closed | End::Signal => quit(0),
        End::Malformed(text) => eprintln!("runner: malformed frame: {text}"),
        End::System(what, errno) => eprintln!("runner: {what}: {}", io::Error::from_raw_os_error(errno)),
    }
    quit(2);
}
