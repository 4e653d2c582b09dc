//! What a run did to files and which commands it ran, as plain data.

/// Files and commands of a run, in the order in which they came first. Nothing is listed twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Files that were read and not written. Paths below the directory of the session are relative to it.
    pub read: Vec<String>,
    /// Files that were written. A deleted one ends in ` (deleted)`, one of which only the
    /// beginning is known in ` (begun)`.
    pub written: Vec<String>,
    /// Commands, each on one line of at most 120 characters.
    pub commands: Vec<String>,
    /// Files that were read and are not listed.
    pub more_read: usize,
    /// Files that were written and are not listed.
    pub more_written: usize,
    /// Commands that are not listed.
    pub more_commands: usize,
}

impl Manifest {
    /// Whether nothing is known to have happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
