//! What judging costs beside the bare parse of the same lines by brush-parser. The bar is 1.5 times.
#![allow(clippy::disallowed_methods, reason = "a bench measures real time")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use brush_parser::{ParserOptions, TokenizerOptions, parse_tokens, uncached_tokenize_str};
use ghost_policy::{Policy, judge, shipped};

const ROUNDS: u32 = 40;

fn parse(line: &str) {
    let (tokenizer, options) = (TokenizerOptions::default(), ParserOptions::default());
    if let Ok(tokens) = uncached_tokenize_str(line, &tokenizer) {
        let _ = black_box(parse_tokens(&tokens, &options));
    }
}

fn time(lines: &[String], mut each: impl FnMut(&str)) -> Duration {
    let started = Instant::now();
    lines.iter().for_each(|line| each(line));
    started.elapsed()
}

/// The smallest ratio's times of many rounds that alternate, so that other load hits both.
fn compare(name: &str, policy: &Policy, lines: &[String]) {
    let mut best = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        best.0 = best.0.min(time(lines, parse));
        best.1 = best.1.min(time(lines, |line| drop(black_box(judge(policy, &[], line)))));
    }
    let ratio = best.1.as_secs_f64() / best.0.as_secs_f64();
    println!("{name}: {} lines, bare parse {:?}, judge {:?}, ratio {ratio:.2} (bar 1.5)", lines.len(), best.0, best.1);
}

fn main() {
    let corpus =
        include_str!("../tests/ordinary.txt").lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    let lines: Vec<String> = corpus.map(|line| line.replace('␊', "\n").replace('␉', "\t")).collect();
    let flat: Vec<String> = lines.iter().filter(|line| !line.contains(['$', '`'])).cloned().collect();
    let policy = Policy::new(shipped());
    compare("ordinary lines", &policy, &lines);
    compare("of them without expansions", &policy, &flat);
    compare(
        "one script of all",
        &policy,
        &[flat.iter().filter(|l| !l.contains("EOF")).cloned().collect::<Vec<_>>().join("\n")],
    );
}
