//! Bounds of rule files that several of their parts keep.

/// Longest text of one answer, in bytes.
pub const TEXT_MAX: usize = 256 * 1_024;
/// Most rule files in one directory.
pub const FILES_MAX: usize = 256;
/// Most calls in one answer.
pub const CALLS_MAX: usize = 64;
