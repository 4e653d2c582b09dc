//! The browser: opens a page in Chromium, and returns its text or saves a picture or a PDF of it.
//!
//! The browser runs in a container of its own, which is thrown away, and reaches pages through the proxy, under the rules
//! of `tool.fetch`. What it says of a page must never be trusted: the page may have taken it over. So the tool itself
//! writes the file, and bounds what comes back.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ghost_domain::json_text::readable;
use ghost_domain::text::shown;
use ghost_domain::text_enum;
use ghost_sandbox::{Alone, End, PROXY, Sandbox};
use ghost_web::{Web, filename};

use super::common::*;
use super::places::{Scope, put, target};
use super::web::{DOWNLOADS, SOURCE, web_of};
use crate::workspace::sha256_hex;

/// What runs in the container.
const DRIVER: &str = include_str!("browser/driver.py");
/// Time for everything, for a page to load, and for what else runs in the container, in seconds.
const SECONDS: u32 = 60;
const LOAD_SECONDS: u32 = 30;
const SPARE_SECONDS: u32 = 15;
/// The longest time of a call: others may be before it.
pub(super) const TIME_MAX: u32 = 330;
/// Characters of a page, by default and at most.
const LENGTH_DEFAULT: u32 = 10_000;
const LENGTH_MAX: u32 = 1_000_000;
/// Pixels of a side of the window.
const SIDE_DEFAULT: [u32; 2] = [1_280, 800];
const SIDE_MAX: u32 = 4_096;
/// Bytes of a picture or a PDF, and of the driver's whole answer.
const FILE_MAX: usize = 12 << 20;
const ANSWER_MAX: usize = 2 * FILE_MAX;

text_enum! {
    /// What to do with a page.
    Action, "action" {
        /// Its text; the default.
        Text = "text",
        /// Its HTML.
        Html = "html",
        /// A picture of it.
        Screenshot = "screenshot",
        /// A PDF of it.
        Pdf = "pdf",
    }
}

params! {
    pub(super) struct BrowserParams {
        /// The whole address, http or https.
        url: String,
        /// `text` of the page (the default), its `html`, or a `screenshot` or `pdf` as a file.
        action: Option<Action>,
        /// Where to save a screenshot or PDF; a name in your own `downloads/` if absent.
        output_path: Option<String>,
        /// Where `output_path` is: `agent`: your own directory (the default); `world`: the shared root.
        #[serde(default)]
        scope: Scope,
        /// A screenshot of the whole page instead of the window.
        #[serde(default)]
        full_page: bool,
        /// How long to wait after the page has loaded, in milliseconds.
        #[schemars(range(max = 20_000))]
        wait_ms: Option<u32>,
        /// Width and height of the window, in pixels.
        viewport: Option<[u32; 2]>,
        /// Most characters of the text or HTML.
        #[schemars(range(min = 1, max = 1_000_000))]
        max_length: Option<u32>,
    }
}

/// Why a world has no browser; `None` if it has one.
pub fn absent_browser(sandbox: &Result<Arc<dyn Sandbox>, String>, web: &Result<Arc<Web>, String>) -> Option<String> {
    let sandbox = match (sandbox, web) {
        (Err(why), _) => return Some(format!("there is no sandbox: {why}")),
        (_, Err(why)) => return Some(why.clone()),
        (Ok(sandbox), Ok(_)) => sandbox,
    };
    match (&sandbox.report().browser, sandbox.report().image.is_empty()) {
        (Some(_), _) => None,
        (None, true) => Some("a browser needs `sandbox: { kind: docker }`".to_owned()),
        (None, false) => Some("the image has no Chromium: build it with `deploy/toolbox/build chromium`".to_owned()),
    }
}

/// What the driver says.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    /// The driver or the browser failed.
    failed: Option<String>,
    /// The page was not reached.
    error: Option<String>,
    /// The code of the proxy's refusal.
    refusal: Option<String>,
    final_url: Option<String>,
    title: Option<String>,
    status: Option<u16>,
    complete: bool,
    content: Option<String>,
    data: Option<String>,
    width: Option<u32>,
    height: Option<u32>,
}

pub(super) async fn browser(call: &CallContext, params: BrowserParams) -> Result<Output> {
    let web = web_of(call)?;
    let sandbox = call
        .services
        .sandbox()
        .ok_or_else(|| refusal!(Unavailable, "this world has no sandbox").hint("do it without a browser"))?;
    let (viewport, action) = (viewport(params.viewport)?, params.action.unwrap_or(Action::Text));
    let is_file = matches!(action, Action::Screenshot | Action::Pdf);
    // What cannot be saved is not opened.
    let given = match params.output_path.as_deref().filter(|_| is_file) {
        Some(path) => Some(target(call, path, params.scope).await?),
        None => None,
    };
    let url = web.reach(&params.url).await?;
    let length = params.max_length.unwrap_or(LENGTH_DEFAULT).clamp(1, LENGTH_MAX) as usize;
    let wait_ms = params.wait_ms.unwrap_or(0).min(20_000);
    let want = json!({
        "url": url.as_str(), "action": action, "proxy": PROXY, "viewport": viewport, "full_page": params.full_page,
        "wait_ms": wait_ms, "load_seconds": LOAD_SECONDS, "seconds": SECONDS, "text_max": LENGTH_MAX,
    });
    let command = Alone {
        agent_id: call.caller.agent_id.clone(),
        argv: vec!["python3".into(), "-I".into(), "-".into(), want.to_string()],
        stdin: DRIVER.as_bytes().to_vec(),
        timeout: Duration::from_secs((SECONDS + SPARE_SECONDS).into()),
        stdout_limit: ANSWER_MAX,
    };
    let done = sandbox.run_alone(command).await?;
    if done.end != End::Exited(0) || done.stdout.truncated {
        let why = if done.stdout.truncated { "its answer is too large" } else { done.end.status() };
        return Err(failed(&url_shown(&url), &format!("{why} {}", clip(done.stderr.text.trim(), 300))));
    }
    let answer: Answer = serde_json::from_str(&readable(done.stdout.text.trim()))
        .map_err(|error| failed(&url_shown(&url), &format!("its answer cannot be read: {error}")))?;
    let answer = opened(answer, &url_shown(&url))?;
    let final_url = answer.final_url.as_deref().map(|text| clip(text, 2_000));
    let mut facts = json!({
        "url": params.url, "final_url": final_url, "status": answer.status,
        "title": answer.title.as_deref().map(|title| clip(title, 300)),
        "complete": (!answer.complete).then_some(false), "source": SOURCE,
    });
    // A page that has taken over the browser answers what it likes.
    if is_file && answer.data.is_none() {
        return Err(failed(&url_shown(&url), "it made no file"));
    }
    let Some(data) = answer.data.filter(|_| is_file) else {
        let text = answer.content.unwrap_or_default();
        let whole = text.chars().count();
        let (text, truncated) = (text.chars().take(length).collect::<String>(), whole > length);
        extend(&mut facts, json!({ "length": whole, "truncated": truncated, "content": text }));
        return Ok(Output::cut(without_nulls(facts), truncated));
    };
    let bytes = STANDARD.decode(data).map_err(|error| failed(&url_shown(&url), &error.to_string()))?;
    let (kind, start): (&str, &[u8]) = match action {
        Action::Pdf => ("application/pdf", b"%PDF-"),
        _ => ("image/png", b"\x89PNG\r\n\x1a\n"),
    };
    if bytes.len() > FILE_MAX || !bytes.starts_with(start) {
        return Err(failed(&url_shown(&url), "it made no such file, or one that is too large"));
    }
    let sha256 = sha256_hex(&bytes);
    let path = match given {
        Some(path) => path,
        None => {
            let host = url.host_str().unwrap_or("page").to_owned();
            let ending = if action == Action::Pdf { "pdf" } else { "png" };
            let name = filename::of(&url, Some(&format!("filename=\"{host}.{ending}\"")), kind, &sha256);
            target(call, &format!("{DOWNLOADS}/{name}"), Scope::Agent).await?
        }
    };
    let file = json!({
        "path": path.path.as_str(), "bytes": bytes.len(), "sha256": sha256, "width": answer.width, "height": answer.height,
    });
    extend(&mut facts, file);
    let saved = path.path.clone();
    let mut output = put(call, path, sha256, &bytes, Output::from(without_nulls(facts))).await?;
    match call.image(&saved).await {
        Ok(image) => output.images.extend(image),
        // The file is there; only the model does not see it.
        Err(refusal) => output.content["note"] = format!("not shown: {}", refusal.message).into(),
    }
    Ok(output)
}

fn url_shown(url: &url::Url) -> String {
    shown(url.as_str(), 200)
}

fn viewport(given: Option<[u32; 2]>) -> Result<[u32; 2]> {
    let sides = given.unwrap_or(SIDE_DEFAULT);
    if sides.iter().all(|side| (16..=SIDE_MAX).contains(side)) {
        return Ok(sides);
    }
    Err(refusal!(InvalidArguments, "a window has no sides of {} and {} pixels", sides[0], sides[1])
        .hint(format!("give two numbers from 16 to {SIDE_MAX}"))
        .details(json!({ "field": "viewport" })))
}

/// The browser did not do it.
fn failed(url: &str, why: &str) -> Refusal {
    refusal!(ExecFailed, "the browser could not show {url}: {}", shown(why.trim(), 300))
        .hint("try tool.fetch, or again later")
}

/// The answer, if the page was opened.
fn opened(answer: Answer, url: &str) -> Result<Answer> {
    if let Some(why) = &answer.failed {
        return Err(failed(url, why));
    }
    if let Some(code) = &answer.refusal {
        return Err(refusal!(PolicyDenied, "{url} led to a page that may not be opened ({})", shown(code, 40))
            .hint("use another source"));
    }
    if let Some(error) = &answer.error {
        // A tunnel that the proxy refuses has no page that says why.
        let may_be_refused = error.contains("ERR_TUNNEL_CONNECTION_FAILED");
        let more = if may_be_refused { "; it cannot be reached, or may not" } else { "" };
        return Err(refusal!(Unavailable, "{url} failed: {}{more}", shown(error, 120))
            .hint("check the address, or try again later"));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use ghost_domain::Code;
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_a_browser_says_becomes_a_page_or_a_refusal() {
        let answer = |value: Value| opened(serde_json::from_value(value).unwrap(), "http://a/");
        let code = |value: Value| answer(value).map(|_| ()).unwrap_err().code;
        assert_eq!(code(json!({ "failed": "the browser ended" })), Code::ExecFailed);
        assert_eq!(code(json!({ "error": "net::ERR_TUNNEL_CONNECTION_FAILED" })), Code::Unavailable);
        assert_eq!(code(json!({ "refusal": "policy_denied", "status": 403 })), Code::PolicyDenied);
        assert_eq!(answer(json!({ "title": "a", "status": 200 })).unwrap().status, Some(200));
    }

    #[test]
    fn windows_have_bounds() {
        assert_eq!(viewport(None).unwrap(), SIDE_DEFAULT);
        assert_eq!(viewport(Some([800, 600])).unwrap(), [800, 600]);
        for sides in [[0, 600], [800, 5_000]] {
            assert_eq!(viewport(Some(sides)).unwrap_err().code, Code::InvalidArguments);
        }
    }
}
