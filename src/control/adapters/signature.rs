//! The webhook signature, the same in both directions: HMAC-SHA256 over
//! `v1:<timestamp>:<delivery>:<body>`, in hexadecimal.
//!
//! A refusal must never reveal, by its message or by its timing, which part of a signature is
//! wrong.

use ghost_config::plan::WebhookPlan;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Version prefix of a signature.
pub const SIGNATURE_VERSION: &str = "v1";

fn mac(secret: &[u8], timestamp: &str, delivery: &str, body: &[u8]) -> Option<Hmac<Sha256>> {
    // HMAC accepts keys of any length, so this does not fail.
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    for part in [SIGNATURE_VERSION.as_bytes(), b":", timestamp.as_bytes(), b":", delivery.as_bytes(), b":", body] {
        mac.update(part);
    }
    Some(mac)
}

/// The value of the signature header, such as `v1=0f3a…`.
#[must_use]
pub fn sign(secret: &[u8], timestamp: &str, delivery: &str, body: &[u8]) -> String {
    let digest = mac(secret, timestamp, delivery, body).map(|mac| hex::encode(mac.finalize().into_bytes()));
    format!("{SIGNATURE_VERSION}={}", digest.unwrap_or_default())
}

/// Whether `given` is the correct signature header for this request. The comparison takes the same
/// time wherever the two differ.
#[must_use]
pub fn verify(secret: &[u8], timestamp: &str, delivery: &str, body: &[u8], given: &str) -> bool {
    let digits = given.strip_prefix(SIGNATURE_VERSION).and_then(|rest| rest.strip_prefix('='));
    let Some(bytes) = digits.and_then(decode_hex) else { return false };
    mac(secret, timestamp, delivery, body).is_some_and(|mac| mac.verify_slice(&bytes).is_ok())
}

/// Decodes 64 hexadecimal digits into 32 bytes.
fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    (0..64).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// The secret of a webhook, from the environment variable that its plan names. An empty value is
/// treated as missing.
pub(crate) fn secret(plan: &WebhookPlan) -> Option<String> {
    std::env::var(&plan.secret_env).ok().filter(|secret| !secret.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_signature_matches_the_documentation() {
        // Computed with another implementation: `printf 'v1:1700000000:d-1:{}' | openssl dgst -sha256 -hmac secret`.
        let expected = "v1=2f3d097affbe4b9e3ae6a071ce98e84394a39e83a450e48bd1c05f47be1e0fec";
        assert_eq!(sign(b"secret", "1700000000", "d-1", b"{}"), expected);
        assert!(verify(b"secret", "1700000000", "d-1", b"{}", &expected.to_ascii_uppercase().replace("V1=", "v1=")));
    }

    proptest! {
        #[test]
        fn a_change_to_any_part_invalidates_the_signature(
            secret in "[ -~]{1,40}", at in "[0-9]{1,12}", id in "[a-z0-9-]{1,20}", body in ".{0,200}", flip in 0usize..64,
        ) {
            let signature = sign(secret.as_bytes(), &at, &id, body.as_bytes());
            let fits = |secret: String, at: String, id: String, body: String, given: &str| {
                verify(secret.as_bytes(), &at, &id, body.as_bytes(), given)
            };
            let more = |text: &String| format!("{text}0");
            let whole = || (secret.clone(), at.clone(), id.clone(), body.clone());
            let (a, b, c, d) = whole();
            prop_assert!(fits(a, b, c, d, &signature));
            for part in 0..4 {
                let (mut a, mut b, mut c, mut d) = whole();
                let changed = [&mut a, &mut b, &mut c, &mut d].into_iter().nth(part).unwrap();
                *changed = more(changed);
                let taken = fits(a, b, c, d, &signature);
                prop_assert!(!taken, "{}", part);
            }
            let mut digits = signature.into_bytes();
            digits[3 + flip] = if digits[3 + flip] == b'0' { b'1' } else { b'0' };
            let (a, b, c, d) = whole();
            let taken = fits(a, b, c, d, &String::from_utf8(digits).unwrap());
            prop_assert!(!taken);
        }

        #[test]
        fn any_header_is_checked_without_a_panic(given in "\\PC{0,100}") {
            let verified = verify(b"secret", "1", "d", b"{}", &given);
            prop_assert!(!verified);
        }
    }
}
