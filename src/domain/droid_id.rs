//! The form of a droid's id, and where its directory is. Other agents cannot have such an id, so both follow from the id
//! alone.

/// The beginning of every droid's id. Eight lower-case hexadecimal digits follow.
const PREFIX: &str = "droid-";
/// Digits after the prefix.
const DIGITS: usize = 8;
/// The directory of the workspace that has the droids' own directories.
pub const DROIDS: &str = "droids";

/// 2^32 divided by the golden ratio. It is odd, so multiplication by it maps no two numbers to one.
const SCATTER: u32 = 0x9e37_79b1;

/// The id of a world's droid number `n`. No two numbers have the same id, and ids of neighbours do not look alike.
#[must_use]
pub fn id_of(n: u32) -> String {
    format!("{PREFIX}{:08x}", n.wrapping_mul(SCATTER))
}

/// Whether `id` has the form of a droid's id.
#[must_use]
pub fn is_droid(id: &str) -> bool {
    id.strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: DROID-02
    #[test]
    fn ids_of_droids_have_one_form() {
        assert_eq!((id_of(1), id_of(2)), ("droid-9e3779b1".to_owned(), "droid-3c6ef362".to_owned()));
        assert!(is_droid(&id_of(u32::MAX)));
        assert_eq!((0..10_000).map(id_of).collect::<std::collections::BTreeSet<_>>().len(), 10_000);
        for bad in ["droid-", "droid-1234567", "droid-123456789", "droid-1234567G", "droid-ABCDEF12", "xdroid-12345678"]
        {
            assert!(!is_droid(bad), "{bad}");
        }
    }
}
