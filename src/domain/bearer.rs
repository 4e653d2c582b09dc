//! Bearer tokens: which texts may be one, and whether a request carries it.

use std::ops::RangeInclusive;

use sha2::{Digest, Sha256};

/// Whether an `Authorization` header carries the token. The comparison takes the same time wherever
/// the two differ.
pub fn bearer_matches(header: &str, token: &str) -> bool {
    let Some(given) = header.strip_prefix("Bearer ").or_else(|| header.strip_prefix("bearer ")) else { return false };
    // Digests have the same length, so the comparison does not reveal the length of the token.
    let (given, token) = (Sha256::digest(given.trim().as_bytes()), Sha256::digest(token.as_bytes()));
    given.iter().zip(token.iter()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Allowed length of a token in bytes. It travels in a header, and servers accept 8 KiB of headers.
/// ghostctl has the same upper bound.
const TOKEN_BYTES: RangeInclusive<usize> = 16..=4_096;

/// Checks that a text can be a token. The error completes the sentence "the token …".
///
/// # Errors
/// Why it can be none.
pub fn check_token(token: &str) -> Result<(), String> {
    let (min, max) = (TOKEN_BYTES.start(), TOKEN_BYTES.end());
    match token.len() {
        length if length < *min => Err(format!("is shorter than {min} characters")),
        length if length > *max => Err(format!("has {length} bytes; the maximum is {max}")),
        // A header value allows nothing else, and spaces at its ends are trimmed.
        _ if token.trim() != token || !token.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
            Err("is not one line of printable ASCII".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: CP-10
    #[test]
    fn only_the_token_matches() {
        assert!(bearer_matches("Bearer abcdefghijklmnop", "abcdefghijklmnop"));
        for wrong in ["Bearer abcdefghijklmno", "abcdefghijklmnop", "Bearer ", "Basic abcdefghijklmnop", ""] {
            assert!(!bearer_matches(wrong, "abcdefghijklmnop"), "{wrong}");
        }
    }
}
