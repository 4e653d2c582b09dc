//! SQLite's write-ahead log as a file (<https://www.sqlite.org/walformat.html>): its header, its frames, and whether
//! frames that were committed are damaged.
//!
//! This module must never write, and never call a log damaged that a power loss may leave.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Bytes of the log's header.
pub(super) const HEADER: usize = 32;
/// Bytes of a frame's header. The page follows it.
pub(super) const FRAME: usize = 24;

/// The first four bytes of a log, but for the lowest bit. That bit says in which byte order checksums are computed.
const MAGIC: u32 = 0x377f_0682;

/// Path of the write-ahead log of a database.
pub(super) fn log_of(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

/// Path of a file that SQLite keeps beside a database.
pub(super) fn beside(database: &Path, end: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The four bytes at `at` as a number, most significant byte first.
pub(super) fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.iter().skip(at).take(4).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// Offset of frame `frame` (from 1) in a log with pages of `page` bytes.
pub(super) fn frame_at(frame: u32, page: u64) -> u64 {
    HEADER as u64 + u64::from(frame.saturating_sub(1)) * (FRAME as u64 + page)
}

/// A running checksum. Each frame's checksum contains those of all frames before it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sum {
    big: bool,
    sums: (u32, u32),
}

impl Sum {
    fn over(mut self, bytes: &[u8]) -> Self {
        let word = |four: &[u8]| {
            let four = [four[0], four[1], four[2], four[3]];
            if self.big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
        };
        for eight in bytes.chunks_exact(8) {
            let (first, second) = eight.split_at(4);
            self.sums.0 = self.sums.0.wrapping_add(word(first)).wrapping_add(self.sums.1);
            self.sums.1 = self.sums.1.wrapping_add(word(second)).wrapping_add(self.sums.0);
        }
        self
    }

    fn is(self, stored: &[u8]) -> bool {
        self.sums == (number(stored, 0), number(stored, 4))
    }
}

/// Looks for damage in the log of a database that no one has open. Returns what is wrong.
///
/// A commit waits for the disk, so a power loss can tear the newest transaction only. If two commits or more stand
/// behind the first bad frame, something else has damaged the log; SQLite would drop them without a word. A log that
/// was cut at the end of a transaction looks like one that ended there, and is not noticed.
pub(super) fn damage(log: &File) -> io::Result<Option<String>> {
    let size = log.metadata()?.len();
    if size <= HEADER as u64 {
        return Ok(None);
    }
    let mut head = [0; HEADER];
    log.read_exact_at(&mut head, 0)?;
    let start = Sum { big: head[3] & 1 == 1, sums: (0, 0) }.over(&head[..24]);
    if number(&head, 0) & !1 != MAGIC || !start.is(&head[24..]) {
        return Ok(Some("the header of its write-ahead log is damaged".into()));
    }
    let page = u64::from(number(&head, 8));
    let mut buffer = vec![0; FRAME + usize::try_from(page).unwrap_or(0)];
    let (mut sum, mut bad, mut commits) = (start, None, 0_u32);
    let frames = (size - HEADER as u64) / (FRAME as u64 + page);
    for frame in 1..=u32::try_from(frames).unwrap_or(u32::MAX) {
        log.read_exact_at(&mut buffer, frame_at(frame, page))?;
        let (frame_head, content) = buffer.split_at(FRAME);
        // Frames from before SQLite last began the log again have another salt.
        let current = frame_head[8..16] == head[16..24];
        if bad.is_none() {
            sum = sum.over(&frame_head[..8]).over(content);
            if current && sum.is(&frame_head[16..]) {
                continue;
            }
            bad = Some(frame);
        }
        if current && number(frame_head, 4) != 0 {
            commits += 1;
        }
    }
    Ok(bad.filter(|_| commits > 1).map(|frame| {
        format!("its write-ahead log is damaged at frame {frame}, and at least {} commits stand behind it", commits - 1)
    }))
}
