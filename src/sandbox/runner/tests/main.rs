//! Black-box tests of the runner: they start the compiled program and speak the protocol. Every test runs in five
//! configurations (root and unprivileged runner, with namespaces and without, and as in a container). They need root,
//! because each configuration has a user of its own; another user skips them, unless `GHOST_SANDBOX=required`.
//!
//! Attacks are run by this same binary inside the sandbox (`attack_main`), are bounded, and stay on loopback.

// A failure in a test is a panic with a message. The tests start programs and make system calls, as attackers do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout
)]
#![allow(unsafe_code, reason = "the attacks are system calls, which the standard library does not offer")]

mod attacks;
mod client;
mod commands;
mod connections;
mod ends;
mod escapes;
mod limits;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use attacks::*;
use client::*;

/// Not a test: what the sandboxed copy of this program does.
#[test]
fn attack_main() {
    let Ok(attack) = std::env::var("ATTACK") else { return };
    println!();
    match attack.as_str() {
        "calls" => calls(),
        "modes" => modes(),
        "sights" => sights(),
        "writes" => writes(),
        "others" => others(),
        "network" => network(),
        "fork_bomb" => {
            // Bounded by the tokens in a pipe.
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(&[1; 2000]).unwrap();
            drop(writer);
            while reader.read(&mut [0]).unwrap() == 1 {
                if unsafe { fork() } == 0 {
                    unsafe { setsid() };
                }
            }
            std::thread::sleep(Duration::from_secs(60));
        }
        "count_processes" => {
            // Tasks of this test itself, and those that could be added.
            let mut lived = fs::read_dir("/proc/self/task").unwrap().count();
            loop {
                match unsafe { fork() } {
                    0 => loop {
                        std::thread::park();
                    },
                    pid if pid < 0 => break,
                    _ => lived += 1,
                }
            }
            println!("RESULT lived={lived}");
            std::io::stdout().flush().unwrap();
            std::thread::sleep(Duration::from_secs(5));
        }
        "memory_bomb" => {
            let mut held = Vec::new();
            for _ in 0..64 {
                held.push(vec![1u8; 16 << 20]);
                std::thread::sleep(Duration::from_millis(4));
            }
            std::thread::sleep(Duration::from_secs(2));
            drop(held);
        }
        "memory_bomb_of_many" => {
            for _ in 0..10 {
                if unsafe { fork() } == 0 {
                    let held = vec![1u8; 24 << 20];
                    std::thread::sleep(Duration::from_secs(3));
                    drop(held);
                    std::process::exit(0);
                }
            }
            std::thread::sleep(Duration::from_secs(2));
        }
        "shared_memory_bomb" => {
            for _ in 0..64 {
                // mmap(0, 16 MB, READ|WRITE, SHARED|ANONYMOUS|POPULATE)
                let number = if cfg!(target_arch = "x86_64") { 9 } else { 222 };
                unsafe { syscall(number, 0usize, 16usize << 20, 3usize, 0x8021usize, usize::MAX, 0usize) };
                std::thread::sleep(Duration::from_millis(4));
            }
            std::thread::sleep(Duration::from_secs(2));
        }
        "disk_fill" | "disk_fill_unlinked" | "disk_fill_hidden" => {
            if attack == "disk_fill_hidden" {
                fs::create_dir("fill").unwrap();
            }
            let name = if attack == "disk_fill_hidden" { "fill/x" } else { "fill" };
            let mut file = fs::File::create(name).unwrap();
            match attack.as_str() {
                "disk_fill_unlinked" => fs::remove_file("fill").unwrap(),
                "disk_fill_hidden" => fs::set_permissions("fill", fs::Permissions::from_mode(0o000)).unwrap(),
                _ => {}
            }
            for _ in 0..64 {
                file.write_all(&vec![1; 1 << 20]).unwrap();
                std::thread::sleep(Duration::from_millis(4));
            }
            std::thread::sleep(Duration::from_secs(2));
        }
        "deep" => {
            // Longer than a path may be, and with something at its end.
            for _ in 0..800 {
                fs::create_dir("0123456789").unwrap();
                std::env::set_current_dir("0123456789").unwrap();
            }
            fs::write("end", vec![1; 3 << 20]).unwrap();
        }
        "closed" => {
            fs::create_dir_all("closed/in").unwrap();
            fs::write("closed/in/file", vec![1; 3 << 20]).unwrap();
            fs::set_permissions("closed/in", fs::Permissions::from_mode(0o111)).unwrap();
            fs::set_permissions("closed", fs::Permissions::from_mode(0o000)).unwrap();
        }
        "many" => {
            for number in 0..3_000 {
                fs::hard_link("linked", format!("many{number}")).or_else(|_| fs::write("linked", "")).unwrap();
            }
        }
        "disk_fill_names" => {
            for number in 0..8_000 {
                if number % 1000 == 0 {
                    fs::create_dir(format!("fill{}", number / 1000)).unwrap();
                }
                fs::write(format!("fill{}/{number}", number / 1000), "").unwrap();
            }
            std::thread::sleep(Duration::from_secs(3));
        }
        #[cfg(target_arch = "x86_64")]
        "x32" => {
            unsafe { syscall(0x4000_0000 | 39) };
        }
        #[cfg(target_arch = "x86_64")]
        "int80" => unsafe {
            std::arch::asm!("int 0x80", inout("eax") 20 => _);
        },
        other => panic!("unknown attack {other}"),
    }
    std::io::stdout().flush().unwrap();
}
