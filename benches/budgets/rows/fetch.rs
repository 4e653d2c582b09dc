//! 1,000 fetches of a page of this machine, one after another: `tool.fetch` without its records. The page as it is stands
//! beside bare reqwest, which returns it as text; the page as Markdown beside bare reqwest with bare html5gum, which only
//! counts the page's tokens.

use std::net::SocketAddr;
use std::sync::Arc;

use ghost_config::plan::WebPlan;
use ghost_config::plan::web::WebTarget;
use ghost_daemon::ports::SystemClock;
use ghost_web::{Extract, FetchRequest, Web};
use html5gum::Tokenizer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};

const FETCHES: usize = 1_000;
const ROUNDS: usize = 9;
/// Paragraphs of the page: some 4 KB, like an article without its frame.
const PARAGRAPHS: usize = 40;

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    // The server has a thread of its own, so that it costs both sides the same.
    std::thread::spawn(move || -> Outcome<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { serve(TcpListener::from_std(listener)?).await })
    });
    runtime()?.block_on(async {
        let raw = compare(address, Extract::Raw, "1,000 fetches of a local page", |page| page.len()).await?;
        let markdown =
            compare(address, Extract::Markdown, "the same, as Markdown", |page| Tokenizer::new(page).count());
        Ok(vec![raw, markdown.await?])
    })
}

/// Measures fetches beside bare requests whose pages `bare_work` looks at.
async fn compare(
    address: SocketAddr,
    extract: Extract,
    what: &'static str,
    bare_work: impl Fn(&str) -> usize,
) -> Outcome<Line> {
    let url = format!("http://{address}/page");
    let allow = WebTarget::parse(&address.to_string()).ok_or("the address is no target")?;
    let plan = WebPlan { allow: vec![allow], ..WebPlan::default() };
    let ours = Web::open(Some(&plan), &|_| None, Arc::new(SystemClock))?;
    // reqwest needs the process's crypto provider. If one is installed already, this changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let bare = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
    let (mut our_rates, mut floor_rates) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let began = now();
        for _ in 0..FETCHES {
            let request = FetchRequest { url: url.clone(), max_length: 10_000, extract, ..FetchRequest::default() };
            let fetched = ours.fetcher.fetch(request).await?;
            assert!(fetched.status == 200 && fetched.bytes > 3_000);
        }
        let our_rate = FETCHES as f64 / began.elapsed().as_secs_f64();
        let began = now();
        for _ in 0..FETCHES {
            let page = bare.get(&url).send().await?.text().await?;
            assert!(bare_work(&page) > 100);
        }
        let floor_rate = FETCHES as f64 / began.elapsed().as_secs_f64();
        // The first round warms up both.
        if round > 0 {
            our_rates.push(our_rate);
            floor_rates.push(floor_rate);
        }
    }
    let (ours, floor) = (median(our_rates), median(floor_rates));
    Ok(Line {
        what,
        floor: format!("{floor:.0}/s"),
        ours: format!("{ours:.0}/s"),
        ratio: ours / floor,
        bar: 0.7,
        aim: 0.9,
        sense: Sense::AtLeast,
    })
}

/// Serves the page on connections that stay open.
async fn serve(listener: TcpListener) -> Outcome<()> {
    let paragraph =
        "<p>The report of the day has <b>42</b> figures, and <a href=\"/more\">more</a> of them come.</p>\n";
    let page = format!("<!doctype html><title>Page</title><h1>Page</h1>\n{}", paragraph.repeat(PARAGRAPHS));
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n", page.len());
    let answer: Arc<[u8]> = [head.into_bytes(), page.into_bytes()].concat().into();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(answer_all(stream, Arc::clone(&answer)));
    }
}

async fn answer_all(mut stream: TcpStream, answer: Arc<[u8]>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await? > 0 {
        if bytes.ends_with(b"\r\n\r\n") {
            bytes.clear();
            stream.write_all(&answer).await?;
        }
    }
    Ok(())
}
