//! The adapters. That of a webhook posts messages and actions of agents as signed JSON to the address in the world's
//! configuration; the field `type` is `message`, or one of the actions that the configuration lists. It follows no redirect,
//! reads the body of no response, and sends redacted text only. That of the control plane delivers by storing.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ghost_config::plan::WebhookPlan;
use ghost_domain::conversation::CONTROL_ACTIONS;
use ghost_domain::redact::Redactor;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Action, ActionKind, Attachment, Refusal};
use ghost_operations::conversations::{Outcome, OutgoingMessage};
use ghost_world::World;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{StatusCode, header};
use serde_json::{Value, json};
use sha2::Sha256;

/// Header with the id of a delivery. All attempts of one delivery have the same id.
pub const DELIVERY: &str = "x-ghost-delivery";
/// Header with the time of signing, in seconds since 1970.
pub const TIMESTAMP: &str = "x-ghost-timestamp";
/// Header with the signature, see [`sign`].
pub const SIGNATURE: &str = "x-ghost-signature";

/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest `Retry-After` that is respected.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

pub(super) struct Webhook {
    plan: WebhookPlan,
    http: reqwest::Client,
}

impl Webhook {
    pub(super) fn new(plan: WebhookPlan, http: reqwest::Client) -> Self {
        Self { plan, http }
    }
}

#[async_trait]
impl Adapter for Webhook {
    fn actions(&self) -> &[ActionKind] {
        &self.plan.actions
    }

    async fn deliver(&self, world: &World, outgoing: &OutgoingMessage) -> Outcome {
        let Some(secret) = secret(&self.plan) else {
            return Outcome::Retry { error: format!("{} is not set", self.plan.secret_env), after: None };
        };
        let files = files(world, outgoing).await;
        let missing = files
            .iter()
            .filter_map(|file| file.content.as_ref().err().map(|why| format!("{}: {why}", file.attachment.name)));
        let missing: Vec<String> = missing.collect();
        let body = body(world, outgoing, &files).to_string();
        let delivery = outgoing.entry.message_id.to_string();
        let timestamp = (world.ctx().now().0 / 1_000).to_string();
        let signature = sign(secret.as_bytes(), &timestamp, &delivery, body.as_bytes());
        let answer = self
            .http
            .post(&self.plan.url)
            .timeout(ATTEMPT_TIMEOUT)
            .header(header::CONTENT_TYPE, "application/json")
            .header(DELIVERY, delivery)
            .header(TIMESTAMP, timestamp)
            .header(SIGNATURE, signature)
            .body(body)
            .send()
            .await;
        match answer {
            Ok(answer) => outcome_of(answer.status(), answer.headers().get(header::RETRY_AFTER), missing),
            Err(error) => Outcome::Retry { error: error_text(&error.without_url()), after: None },
        }
    }
}

/// The outcome of a response. Any 2xx is a success. 410 is a permanent failure, because the
/// receiver no longer exists. Everything else may be retried.
fn outcome_of(status: StatusCode, after: Option<&header::HeaderValue>, missing: Vec<String>) -> Outcome {
    if status.is_success() {
        return Outcome::Delivered { missing };
    }
    let error = format!("the webhook answered {status}");
    if status == StatusCode::GONE {
        return Outcome::Gone { error };
    }
    let after = after
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.trim().parse::<u64>().ok())
        .map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
    Outcome::Retry { error, after }
}

/// The text of an error and its causes.
fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Reads the attached files. Together they may have at most `attachment_bytes` bytes.
async fn files(world: &World, outgoing: &OutgoingMessage) -> Vec<File> {
    let mut remaining_bytes = u64::from(world.ctx().limits().attachment_bytes);
    let mut files = Vec::new();
    for attachment in outgoing.entry.attachments.iter().cloned() {
        let read = match WorkspacePath::parse(&attachment.path, false) {
            Ok(path) => world.engine().services.workspace.read(&path, remaining_bytes).await,
            Err(refusal) => Err(refusal),
        };
        if let Ok(bytes) = &read {
            remaining_bytes = remaining_bytes.saturating_sub(bytes.len() as u64);
        }
        files.push(File { attachment, content: read.map_err(|refusal| refusal.message) });
    }
    files
}

fn body(world: &World, outgoing: &OutgoingMessage, files: &[File]) -> Value {
    let redactor = &world.ctx().redactor;
    let (conversation, entry) = (&outgoing.conversation, &outgoing.entry);
    let attachments: Vec<Value> = files
        .iter()
        .map(|file| {
            let mut object = json!({
                "name": file.attachment.name, "mime_type": file.attachment.mime_type, "path": file.attachment.path,
            });
            match &file.content {
                Ok(bytes) => {
                    object["bytes"] = bytes.len().into();
                    object["content_base64"] = STANDARD.encode(bytes).into();
                }
                Err(why) => object["error"] = redactor.redact(why).into(),
            }
            object
        })
        .collect();
    let mut body = json!({
        "type": "message",
        "message_id": entry.message_id, "conversation_id": conversation.conversation_id, "thread": conversation.thread,
        "seq": entry.seq, "from": entry.from.agent(), "text": redactor.redact(&entry.content), "reply_to": entry.reply_to,
        "sent_at": entry.at.rfc3339(), "attachments": attachments,
    });
    if let Some(action) = &entry.action {
        add_action(action, redactor, &mut body);
    }
    body
}

/// Adds the fields of an action to `body`.
fn add_action(action: &Action, redactor: &Redactor, body: &mut Value) {
    body["type"] = action.kind().as_str().into();
    body["target"] = action.message_id().into();
    match action {
        Action::React { emoji, remove, .. } => {
            body["emoji"] = redactor.redact(emoji).into();
            body["remove"] = (*remove).into();
        }
        Action::Pin { remove, .. } => body["remove"] = (*remove).into(),
        Action::Poll { options } => {
            body["options"] = options.iter().map(|option| redactor.redact(option)).collect();
        }
        Action::Delete { .. } | Action::Thread { .. } => {}
    }
}

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

/// A file that is attached to a message.
pub struct File {
    /// Name, type and workspace path of the file.
    pub attachment: Attachment,
    /// Content of the file, or the reason why it could not be read.
    pub content: Result<Vec<u8>, String>,
}

/// Delivers messages and actions to one kind of receiver outside the world.
#[async_trait]
pub trait Adapter: Send + Sync {
    /// The kinds of action that this adapter supports. Every adapter supports sending. An
    /// agent's action of another kind is refused before anything is recorded.
    fn actions(&self) -> &[ActionKind] {
        &[ActionKind::Send]
    }

    /// Makes one attempt to deliver. The same entry may be delivered again under the same id, because
    /// the daemon may die before it records the outcome.
    async fn deliver(&self, world: &World, outgoing: &OutgoingMessage) -> Outcome;
}

/// The HTTP client that all webhooks share. It is created at the first delivery, because it loads the
/// system's certificates, which would slow down the start.
#[derive(Clone, Default)]
pub(super) struct Http(Arc<OnceLock<reqwest::Client>>);

impl Http {
    /// The client, created on the first call.
    pub(super) fn client(&self) -> Result<reqwest::Client, Refusal> {
        if let Some(client) = self.0.get() {
            return Ok(client.clone());
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have installed it first, which is fine.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let built = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| {
                Refusal::new(ghost_domain::Code::Internal, format!("the HTTP client cannot be created: {error}"))
            })?;
        Ok(self.0.get_or_init(|| built).clone())
    }
}

pub(super) struct Control;

#[async_trait]
impl Adapter for Control {
    fn actions(&self) -> &[ActionKind] {
        CONTROL_ACTIONS
    }

    async fn deliver(&self, world: &World, outgoing: &OutgoingMessage) -> Outcome {
        let workspace = &world.engine().services.workspace;
        let mut missing = Vec::new();
        for file in &outgoing.entry.attachments {
            let size = WorkspacePath::parse(&file.path, false).and_then(|path| workspace.size_now(&path));
            if let Err(refusal) = size {
                missing.push(format!("{}: {}", file.name, refusal.message));
            }
        }
        Outcome::Delivered { missing }
    }
}

#[cfg(test)]
mod webhook_tests {
    use super::*;

    #[test]
    fn action_fields_are_redacted() {
        let redactor = Redactor::new(["hush-hush".to_owned()]);
        let emoji = ":hush-hush:".to_owned();
        for action in [
            Action::React { message_id: "m".into(), seq: 1, emoji, remove: false },
            Action::Poll { options: vec!["yes".into(), "no hush-hush".into()] },
        ] {
            let mut body = json!({});
            add_action(&action, &redactor, &mut body);
            assert_eq!(body["type"], action.kind().as_str());
            assert!(!body.to_string().contains("hush-hush"), "{body}");
        }
    }

    #[test]
    fn responses_map_to_outcomes() {
        let outcome = |status: u16, after: Option<&'static str>| {
            let after = after.map(header::HeaderValue::from_static);
            outcome_of(StatusCode::from_u16(status).unwrap(), after.as_ref(), Vec::new())
        };
        for status in [200, 202, 204] {
            assert_eq!(outcome(status, None), Outcome::Delivered { missing: vec![] });
        }
        assert!(matches!(outcome(410, None), Outcome::Gone { .. }));
        for status in [301, 302, 400, 401, 404, 429, 500, 503] {
            assert!(matches!(outcome(status, None), Outcome::Retry { after: None, .. }), "{status}");
        }
        let retry_after = |text| match outcome(503, Some(text)) {
            Outcome::Retry { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!((retry_after("99999999"), retry_after("soon")), (Some(RETRY_AFTER_MAX), None));
    }
}

#[cfg(test)]
mod signature_tests {
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
