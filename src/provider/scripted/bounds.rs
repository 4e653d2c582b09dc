//! Limits of rule files that several modules share.

/// Longest text of one answer, in bytes.
pub const TEXT_MAX: usize = 256 * 1_024;
/// Maximum rule files in one directory.
pub const FILES_MAX: usize = 256;
/// Maximum calls in one answer.
pub const CALLS_MAX: usize = 64;
