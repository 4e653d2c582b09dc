//! Fetches a page: follows redirects by hand, within bounds, and turns the answer into text.
//!
//! Every step is judged like the first: the address, the scheme, the host after it was resolved.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ghost_config::plan::WebPlan;
use ghost_config::plan::web::Robots;
use ghost_domain::text::shown;
use ghost_domain::{Clock, Code, Refusal, Timestamp};
use hyper::Method;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use serde_json::json;
use url::Url;

use crate::body::{ACCEPTED, Media, decode, text_of};
use crate::client::{Bounds, Client, Outgoing, Reply, unknown};
use crate::dial::within;
use crate::html;
use crate::requests::{self, ROBOTS_MAX, SiteRules, shown_url};

/// The name by which sites know us, also in `robots.txt`.
const PRODUCT: &str = "ghostd";
/// What requests accept if the agent does not say so.
const ACCEPTS: &str = "text/html,application/xhtml+xml,application/json;q=0.9,text/*;q=0.9,*/*;q=0.5";
/// Methods of requests.
const METHODS: [Method; 6] = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// Bytes of a request's body.
const BODY_MAX: usize = 1 << 20;
/// Pages above this are converted beside the runtime's own threads.
const INLINE_MAX: usize = 256 * 1_024;
/// How long the rules of a site are kept, and of how many sites.
const ROBOTS_KEPT: Duration = Duration::from_secs(3_600);
const SITES_MAX: usize = 1_000;

/// What becomes of an HTML page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extract {
    /// Its text with Markdown's marks.
    #[default]
    Markdown,
    /// Its text alone.
    Text,
    /// The page as it is.
    Raw,
}

/// A request of an agent, not checked yet.
#[derive(Clone, Debug, Default)]
pub struct FetchRequest {
    /// The address.
    pub url: String,
    /// The method, in capital letters; empty for GET.
    pub method: String,
    /// Headers by name.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Option<String>,
    /// What becomes of an HTML page.
    pub extract: Extract,
    /// Characters of the text.
    pub max_length: usize,
    /// Whether the answer is to be saved: then it is not turned into text.
    pub save: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The address that the agent gave.
    pub url: String,
    /// The address that answered, after all redirects.
    pub final_url: Url,
    /// The status.
    pub status: u16,
    /// The type of the content in lower case, without parameters; empty if the server gave none.
    pub content_type: String,
    /// The title of an HTML page; empty if it has none.
    pub title: String,
    /// The header that may name a file.
    pub disposition: Option<String>,
    /// Bytes of the body, decompressed.
    pub bytes: usize,
    /// The content.
    pub content: Content,
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text, cut at the length that was asked for.
    Text {
        /// The text.
        text: String,
        /// Characters of the whole text.
        length: usize,
        /// Whether it was cut.
        truncated: bool,
    },
    /// Bytes to save.
    File(Vec<u8>),
}

/// Fetches pages.
pub struct Fetcher {
    client: Client,
    clock: Arc<dyn Clock>,
    user_agent: HeaderValue,
    plan: WebPlan,
    /// The rules of sites, with the time at which they were read.
    sites: Mutex<BTreeMap<String, (Timestamp, SiteRules)>>,
}

impl Fetcher {
    /// A fetcher with the bounds of a world.
    ///
    /// # Errors
    /// If the plan's user agent cannot be a header.
    pub fn new(plan: &WebPlan, client: Client, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let own = concat!("ghostd/", env!("CARGO_PKG_VERSION"));
        let user_agent = HeaderValue::from_str(plan.user_agent.as_deref().unwrap_or(own))
            .map_err(|error| format!("web.user_agent is no header: {error}"))?;
        Ok(Self { client, clock, user_agent, plan: plan.clone(), sites: Mutex::default() })
    }

    /// Fetches a page.
    ///
    /// # Errors
    /// `InvalidArguments` and `PolicyDenied` before anything is sent, the latter also at a redirect; `TooLarge`,
    /// `Timeout`, `Unavailable` and `ExecFailed` for answers that cannot be had; `OutcomeUnknown` if a request that may
    /// have an effect was perhaps sent.
    pub async fn fetch(&self, request: FetchRequest) -> Result<Fetched, Refusal> {
        let url = requests::parse(&request.url)?;
        let method = method_of(&request.method)?;
        let (headers, body) = self.outgoing(&request, &method)?;
        let fetching = self.follow(url.clone(), method.clone(), headers, body);
        let Some(answered) = within(&*self.clock, self.plan.timeout, fetching).await else {
            let seconds = self.plan.timeout.as_secs();
            let slow =
                Refusal::new(Code::Timeout, format!("{} took more than {seconds} s (web.timeout)", shown_url(&url)))
                    .hint("try again later, or another source");
            return Err(if is_safe(&method) { slow } else { unknown(&url, &slow) });
        };
        let (final_url, reply) = answered?;
        self.fetched(request, &method, final_url, reply).await
    }

    fn outgoing(&self, request: &FetchRequest, method: &Method) -> Result<(HeaderMap, Bytes), Refusal> {
        let mut headers = requests::headers_of_agent(&request.headers)?;
        headers.entry(USER_AGENT).or_insert_with(|| self.user_agent.clone());
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static(ACCEPTS));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
        let Some(body) = &request.body else { return Ok((headers, Bytes::new())) };
        let wrong = |why: String| {
            Refusal::new(Code::InvalidArguments, why)
                .hint("send it with POST, PUT, PATCH or DELETE, in parts if it is long")
                .details(json!({ "field": "body" }))
        };
        if is_safe(method) {
            return Err(wrong(format!("a {method} has no body")));
        }
        if body.len() > BODY_MAX {
            return Err(wrong(format!("the body has {} bytes; at most {BODY_MAX} are sent", body.len())));
        }
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(body).is_ok();
        let kind = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        Ok((headers, Bytes::from(body.clone().into_bytes())))
    }

    /// Sends the request, and follows redirects.
    async fn follow(
        &self,
        mut url: Url,
        mut method: Method,
        mut headers: HeaderMap,
        mut body: Bytes,
    ) -> Result<(Url, Reply), Refusal> {
        let bounds = Bounds { max_bytes: self.plan.max_bytes, idle: self.plan.idle_timeout };
        let mut visited = vec![(method.clone(), url.clone())];
        loop {
            self.check_robots(&url).await?;
            let outgoing = Outgoing { url: &url, method: method.clone(), headers: headers.clone(), body: body.clone() };
            let reply = self.client.exchange(outgoing, bounds).await?;
            let Some(next) = requests::next(&url, &method, reply.status, reply.header("location"))? else {
                return Ok((url, reply));
            };
            if next.elsewhere {
                requests::for_another_site(&mut headers);
                headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
            }
            if !next.keeps_body {
                body = Bytes::new();
                headers.remove(CONTENT_TYPE);
            }
            (url, method) = (next.url, next.method);
            let step = (method.clone(), url.clone());
            let is_loop = visited.contains(&step);
            visited.push(step);
            if is_loop || visited.len() > self.plan.redirects_max as usize + 1 {
                return Err(astray(&visited, is_loop, self.plan.redirects_max));
            }
        }
    }

    /// Refuses a page that its site wants left alone, if this world respects that.
    pub(crate) async fn check_robots(&self, url: &Url) -> Result<(), Refusal> {
        if self.plan.robots == Robots::Ignore {
            return Ok(());
        }
        let site = url.origin().ascii_serialization();
        let now = self.clock.steady();
        let known = self.sites.lock().unwrap_or_else(PoisonError::into_inner).get(&site).cloned();
        let rules = match known.filter(|(at, _)| now.since(*at) < ROBOTS_KEPT) {
            Some((_, rules)) => rules,
            None => {
                let rules = self.robots_of(url).await?;
                let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
                if sites.len() >= SITES_MAX {
                    sites.clear();
                }
                sites.insert(site, (now, rules.clone()));
                rules
            }
        };
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        if rules.allow(path) {
            return Ok(());
        }
        let what = format!("{} may not be fetched: robots.txt of its site forbids it", shown_url(url));
        Err(Refusal::new(Code::PolicyDenied, what).hint("use another source; this world has `web.robots: respect`"))
    }

    /// Reads the rules of a site. A site without a file allows everything; one that cannot give it, nothing.
    async fn robots_of(&self, of: &Url) -> Result<SiteRules, Refusal> {
        let nothing = || Ok(SiteRules::nothing_allowed());
        let Ok(mut url) = of.join("/robots.txt") else { return nothing() };
        let headers = HeaderMap::from_iter([
            (USER_AGENT, self.user_agent.clone()),
            (ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED)),
        ]);
        let bounds = Bounds { max_bytes: ROBOTS_MAX, idle: self.plan.idle_timeout };
        for _ in 0..=self.plan.redirects_max {
            let outgoing = Outgoing { url: &url, method: Method::GET, headers: headers.clone(), body: Bytes::new() };
            let reply = match self.client.exchange(outgoing, bounds).await {
                Ok(reply) => reply,
                // The page itself would be refused alike.
                Err(refusal) if refusal.code == Code::PolicyDenied => return Err(refusal),
                Err(_) => return nothing(),
            };
            match requests::next(&url, &Method::GET, reply.status, reply.header("location")) {
                Ok(Some(next)) => url = next.url,
                Ok(None) if (200..300).contains(&reply.status) => {
                    let coding = reply.header("content-encoding").unwrap_or_default().to_owned();
                    let Ok(body) = decode(reply.body, &coding, ROBOTS_MAX) else { return nothing() };
                    return Ok(SiteRules::parse(&String::from_utf8_lossy(&body), PRODUCT));
                }
                Ok(None) if reply.status >= 500 => return nothing(),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(SiteRules::default())
    }

    async fn fetched(
        &self,
        request: FetchRequest,
        method: &Method,
        final_url: Url,
        reply: Reply,
    ) -> Result<Fetched, Refusal> {
        let after = |refusal: Refusal| if is_safe(method) { refusal } else { unknown(&final_url, &refusal) };
        let codings: Vec<&str> =
            reply.headers.get_all("content-encoding").iter().filter_map(|value| value.to_str().ok()).collect();
        let media = Media::parse(reply.header("content-type").unwrap_or_default());
        let disposition = reply.header("content-disposition").map(str::to_owned);
        let (status, codings) = (reply.status, codings.join(","));
        let max_bytes = self.plan.max_bytes;
        let (body, save, extract, max_length) = (reply.body, request.save, request.extract, request.max_length);
        let (base, kind) = (final_url.clone(), media.clone());
        // A few compressed bytes can become a large page.
        let is_large = body.len() > INLINE_MAX || !codings.is_empty();
        let render = move || {
            let body = decode(body, &codings, max_bytes)?;
            let bytes = body.len();
            let (title, content) = content_of(body, &kind, &base, (save, extract, max_length));
            Ok::<_, Refusal>((bytes, title, content))
        };
        let rendered = if is_large {
            tokio::task::spawn_blocking(render).await.map_err(|error| {
                Refusal::new(Code::Internal, format!("the page could not be converted: {error}"))
                    .hint("use extract: raw, or save_to")
            })?
        } else {
            render()
        };
        let (bytes, title, content) = rendered.map_err(after)?;
        let is_empty = match &content {
            Content::Text { text, .. } => text.trim().is_empty(),
            Content::File(bytes) => bytes.is_empty(),
        };
        // An answer without content is what was asked for, unless it is the page that was to be read.
        if is_empty && *method == Method::GET && (200..300).contains(&status) && !matches!(status, 204 | 205) {
            let what = format!("{} has no content", shown_url(&final_url));
            return Err(Refusal::new(Code::ExecFailed, what)
                .hint("it may need a browser; try extract: raw, or another source")
                .details(json!({ "status": status, "bytes": bytes })));
        }
        Ok(Fetched {
            url: request.url,
            final_url,
            status,
            content_type: media.essence,
            title,
            disposition,
            bytes,
            content,
        })
    }
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn method_of(text: &str) -> Result<Method, Refusal> {
    if text.is_empty() {
        return Ok(Method::GET);
    }
    METHODS.into_iter().find(|method| method.as_str() == text).ok_or_else(|| {
        let known = METHODS.map(|method| method.to_string()).join(", ");
        Refusal::new(Code::InvalidArguments, format!("`{}` is no method", shown(text, 40)))
            .hint(format!("use one of {known}"))
            .details(json!({ "field": "method" }))
    })
}

/// The refusal of redirects that lead nowhere, with the way that they took.
fn astray(visited: &[(Method, Url)], is_loop: bool, max: u32) -> Refusal {
    let way: Vec<String> = visited.iter().map(|(_, url)| shown_url(url)).collect();
    let what = if is_loop {
        "the redirects go in a circle".to_owned()
    } else {
        format!("there are more than {max} redirects")
    };
    Refusal::new(Code::ExecFailed, format!("{what}: {}", way.join(" -> ")))
        .hint("the server is at fault; try another source")
        .details(json!({ "redirects": way }))
}

fn content_of(
    body: Vec<u8>,
    media: &Media,
    base: &Url,
    (save, extract, max_length): (bool, Extract, usize),
) -> (String, Content) {
    if save || !media.is_text() {
        return (String::new(), Content::File(body));
    }
    let is_html = media.is_html();
    let Some(text) = text_of(&body, media.charset.as_deref(), is_html) else {
        return (String::new(), Content::File(body));
    };
    let page = match extract {
        Extract::Markdown if is_html => html::markdown(&text, base),
        Extract::Text if is_html => html::text(&text),
        _ => html::Page { title: String::new(), text },
    };
    let length = page.text.chars().count();
    let (mut text, truncated) = (page.text, length > max_length);
    if let Some((end, _)) = text.char_indices().nth(max_length).filter(|_| truncated) {
        text.truncate(end);
    }
    (page.title, Content::Text { text, length, truncated })
}
