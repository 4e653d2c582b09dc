//! The stream of a coding agent: how much of it is left, how fast it is read beside a bare scan of its lines, and how much
//! memory a hundred times as long a stream takes.

use std::hint::black_box;
use std::io::BufRead as _;

use ghost_coding::{Compactor, Exit, Format};

use crate::alloc;
use crate::measure::{Outcome, median, now};
use crate::table::{Line, Sense};

/// Bytes of the stream, as in the requirement (LIM-11).
const STREAM: usize = 130_000;
/// Bytes of a result that is short enough.
const SHORT: usize = 2_048;
/// How often a round reads the stream.
const EACH: usize = 50;
const ROUNDS: usize = 15;
/// Bytes that come at once.
const PIECE: usize = 16 * 1_024;
/// The event that a bare scan looks for.
const RESULT: &str = "\"type\":\"result\"";

/// Measures the rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    alloc::count();
    let text = stream();
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (floor, our) = (rate(&text, scan)?, rate(&text, |text| Ok(compact(text)?.len()))?);
        if round > 0 {
            floors.push(floor);
            ours.push(our);
        }
    }
    let (floor, our) = (median(floors), median(ours));
    let short = compact(&text)?.len();
    let (small, large) = (held(&text, 1)?, held(&text, 100)?);
    let line = |what, floor: String, ours: String, ratio, (bar, aim), sense| Line {
        what,
        floor,
        ours,
        ratio,
        bar,
        aim,
        sense,
    };
    Ok(vec![
        line(
            "result of a coding agent's stream of 130 KB",
            format!("{SHORT} B"),
            format!("{short} B"),
            short as f64 / SHORT as f64,
            (1.0, 0.5),
            Sense::AtMost,
        ),
        line(
            "reading it, beside a bare scan of its lines",
            format!("{floor:.0} MB/s"),
            format!("{our:.0} MB/s"),
            our / floor,
            (0.5, 1.0),
            Sense::AtLeast,
        ),
        line(
            "memory for 13 MB of it, beside 130 KB",
            format!("{small} B"),
            format!("{large} B"),
            large as f64 / small as f64,
            (1.5, 1.1),
            Sense::AtMost,
        ),
    ])
}

/// A run like those of Cursor: mostly thinking, files that are shown whole, a few edits and commands.
fn stream() -> String {
    let mut text = String::from("{\"type\":\"system\",\"subtype\":\"init\",\"cwd\":\"/w\",\"session_id\":\"s\"}\n");
    let file = "    let value = \\\"text\\\";\\n".repeat(40);
    let mut call = 0;
    while text.len() < STREAM {
        for _ in 0..30 {
            text.push_str(
                "{\"type\":\"thinking\",\"subtype\":\"delta\",\"text\":\" a few words\",\"session_id\":\
                 \"5e55a9d2-71f1-4f0e-9f6e-1d5c9a3f9a10\",\"timestamp_ms\":1770823434041}\n",
            );
        }
        let args = format!("\"args\":{{\"path\":\"/w/src/file_{}.rs\"}}", call % 40);
        text.push_str(&format!(
            "{{\"type\":\"tool_call\",\"subtype\":\"started\",\"call_id\":\"c{call}\",\"tool_call\":{{\"readToolCall\":{{{args}}}}}}}\n\
             {{\"type\":\"tool_call\",\"subtype\":\"completed\",\"call_id\":\"c{call}\",\"tool_call\":{{\"readToolCall\":{{{args},\
             \"result\":{{\"success\":{{\"content\":\"{file}\"}}}}}}}}}}\n"
        ));
        call += 1;
    }
    text + "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"duration_ms\":1000,\"result\":\"Done.\"}\n"
}

/// Megabytes a second of `read`.
fn rate(text: &str, read: impl Fn(&str) -> Outcome<usize>) -> Outcome<f64> {
    let began = now();
    for _ in 0..EACH {
        black_box(read(black_box(text))?);
    }
    Ok((text.len() * EACH) as f64 / 1e6 / began.elapsed().as_secs_f64())
}

/// The floor: splits lines and looks for the result in each, with the searches of the standard library.
fn scan(text: &str) -> Outcome<usize> {
    let (mut rest, mut found) = (text.as_bytes(), 0);
    while !rest.is_empty() {
        let from = rest;
        let length = rest.skip_until(b'\n')?;
        let line = std::str::from_utf8(from.get(..length).unwrap_or_default())?;
        found += usize::from(line.contains(RESULT));
    }
    Ok(found)
}

fn compact(text: &str) -> Outcome<String> {
    let mut compactor = Compactor::new(Format::Cursor, Some("/w".to_owned()));
    for piece in text.as_bytes().chunks(PIECE) {
        black_box(compactor.push(piece));
    }
    let compact = compactor.finish(&Exit::with_code(0), "").ok_or("the stream gave no result")?;
    Ok(compact.text)
}

/// Most live bytes while the stream is read so many times, one after another, as one stream.
fn held(text: &str, times: usize) -> Outcome<isize> {
    let before = alloc::live();
    let mut most = 0;
    let mut compactor = Compactor::new(Format::Cursor, Some("/w".to_owned()));
    for _ in 0..times {
        for piece in text.as_bytes().chunks(PIECE) {
            black_box(compactor.push(piece));
            most = most.max(alloc::live() - before);
        }
    }
    compactor.finish(&Exit::with_code(0), "").ok_or("the stream gave no result")?;
    Ok(most)
}
