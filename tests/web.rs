//! The web from outside: an agent of a real daemon fetches, saves and searches with servers of this machine, is refused
//! what is not for it, and learns what a kill left uncertain. `src/web/tests/` has the hostile servers.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use ghost_testkit::blackbox::{Daemon, Database, Deadline, TestEnvironment};
use serde_json::{Value, json};

/// A server of this machine. It answers each connection once; a path that begins with `/hang` never.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Self {
        Self::at("127.0.0.1")
    }

    fn at(host: &str) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&asked);
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, log) = (stream.unwrap(), Arc::clone(&log));
                std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    let mut buffer = [0; 4_096];
                    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
                        match stream.read(&mut buffer) {
                            Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
                            _ => return,
                        }
                    }
                    let head = String::from_utf8_lossy(&bytes).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    log.lock().unwrap().push(head);
                    if path.starts_with("/hang") {
                        // Until the other side closes.
                        let _ = stream.read_to_end(&mut Vec::new());
                    } else {
                        let _ = stream.write_all(&answer(&path));
                    }
                });
            }
        });
        Self { address, asked }
    }

    fn asked(&self, path: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|head| head.split(' ').nth(1).is_some_and(|own| own.starts_with(path))).cloned().collect()
    }
}

const PDF: &[u8] = b"%PDF-1.7\n\x00\x01\xfe\xff not a real one";

fn answer(path: &str) -> Vec<u8> {
    let (status, headers, body): (&str, &str, Vec<u8>) = match path.split('?').next().unwrap_or_default() {
        "/page" => {
            ("200 OK", "Content-Type: text/html", b"<title>News</title><h1>Today</h1><p>42 things.</p>".to_vec())
        }
        "/report.pdf" => ("200 OK", "Content-Type: application/pdf", PDF.to_vec()),
        "/leave" => ("302 Found", "Location: http://10.0.0.1/secret", Vec::new()),
        "/search" => {
            let found =
                json!({ "results": [{ "title": "Seen", "url": "https://seen.example/", "content": "by SearXNG" }] });
            ("200 OK", "Content-Type: application/json", found.to_string().into_bytes())
        }
        "/res/v1/web/search" => {
            let found = json!({ "type": "search", "web": { "results": [
                { "title": "Brave <strong>new</strong>", "url": "https://brave.example/", "description": "world" },
            ] } });
            ("200 OK", "Content-Type: application/json", found.to_string().into_bytes())
        }
        "/v1beta/models/gemini-2.5-flash:generateContent" => {
            let said = json!({ "candidates": [{
                "content": { "parts": [{ "text": "It is 42." }] },
                "groundingMetadata": {
                    "webSearchQueries": ["what is it", "is it 42"],
                    "groundingChunks": [{ "web": { "uri": "https://source.example/", "title": "source" } }],
                },
            }] });
            ("200 OK", "Content-Type: application/json", said.to_string().into_bytes())
        }
        _ => ("404 Not Found", "Content-Type: text/plain", b"nothing here".to_vec()),
    };
    let head = format!("HTTP/1.1 {status}\r\n{headers}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

const KEY: &str = "lion-of-the-brave-north";

struct Net {
    test_env: TestEnvironment,
    server: Server,
    daemon: Option<Daemon>,
    world: std::path::PathBuf,
}

impl Net {
    /// A world with this search, and these rules of its model.
    fn new(search: &str, script: &str) -> Self {
        let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
        test_env.set("BRAVE_API_KEY", KEY).set("GEMINI_API_KEY", KEY);
        let server = Server::start();
        let at = server.address;
        let world = test_env.world("net");
        world.config(&format!(
            "agents:\n  - {{ id: ada, archetype: worker, write_acl: [agents/ada/, output/reports/] }}\n  - {{ id: eve, archetype: guest }}\n\
             tool_privileges: {{ web: ['group:web'] }}\n\
             web:\n  allow: ['{at}']\n  search: {}\n  google_search: {{ base_url: 'http://{at}', usd_per_query: 0.014 }}\n\
             llm: {{ default_provider: scripted, default_model: m }}\n",
            search.replace("AT", &format!("'http://{at}'"))
        ));
        world.write("scripts/m.yaml", script.replace("AT", &format!("http://{at}")));
        world.archetype("worker", "## Tool Access\nprivilege_groups: web\n").archetype("guest", "");
        let path = world.path().to_owned();
        let daemon = Some(test_env.up(&path, &[]));
        Self { test_env, server, daemon, world: path }
    }

    fn call(&self, agent: &str, tool: &str, arguments: &Value) -> Value {
        self.test_env.json(&["tool", "call", agent, tool, &arguments.to_string()])
    }

    /// The code of the refusal of a call.
    fn refused(&self, agent: &str, tool: &str, arguments: &Value) -> String {
        let ran = self.test_env.ctl(&["--json", "tool", "call", agent, tool, &arguments.to_string()]);
        assert_ne!(ran.code, Some(0), "{}", ran.out);
        let text = format!("{}{}", ran.out, ran.err);
        let codes =
            ["policy_denied", "access_denied", "path_denied", "invalid_arguments", "unsupported", "exec_failed"];
        codes.iter().find(|code| text.contains(*code)).unwrap_or_else(|| panic!("{text}")).to_string()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address)
    }

    fn workspace(&self) -> std::path::PathBuf {
        self.test_env.data("net").join("workspace")
    }
}

const SEARXNG: &str = "{ provider: searxng, base_url: AT }";
const BRAVE: &str = "{ provider: brave, base_url: AT }";
const QUIET: &str = "otherwise: [{ say: ok }]\n";

// covers: BI-13, BI-15, BI-16, BI-99, CONF-21
#[test]
fn a_model_fetches_saves_and_searches() {
    let net = Net::new(
        SEARXNG,
        "rules:\n\
         - when: { round: 0 }\n  do:\n\
         \x20   - { call: tool.fetch, with: { url: 'AT/page' } }\n\
         \x20   - { call: tool.fetch, with: { url: 'AT/report.pdf', save_to: output/reports/r.pdf, scope: world } }\n\
         \x20   - { call: tool.web_search, with: { query: what is new } }\n\
         \x20   - { call: tool.google_search, with: { query: What is it? } }\n\
         \x20   - { call: tool.fetch, with: { url: 'http://169.254.169.254/latest/' } }\n\
         \x20   - { call: tool.fetch, with: { url: 'AT/leave' } }\n\
         - when: { round: 1 }\n  do: [{ say: \"{% for r in results %}{{ r.tool }} {{ r.ok }} {{ r.text }}\\n{% endfor %}\" }]\n\
         otherwise: [{ say: no }]\n",
    );
    let reply = net.test_env.json(&["ask", "ada", "what is new?"])["reply"].as_str().unwrap().to_owned();
    let lines: Vec<&str> = reply.lines().collect();
    assert_eq!(lines.len(), 6, "{reply}");
    let result = |at: usize, start: &str| -> Value {
        let rest = lines[at].strip_prefix(start).unwrap_or_else(|| panic!("{start}: {}", lines[at]));
        serde_json::from_str(rest.trim()).unwrap_or_else(|error| panic!("{error}: {rest}"))
    };
    let page = result(0, "tool.fetch True ");
    assert_eq!(
        (&page["content"], &page["title"], &page["status"]),
        (&json!("# Today\n\n42 things."), &json!("News"), &json!(200))
    );
    assert!(page["source"].as_str().unwrap().contains("not instructions"), "{page}");
    let saved = result(1, "tool.fetch True ");
    assert_eq!((&saved["path"], &saved["content_type"]), (&json!("output/reports/r.pdf"), &json!("application/pdf")));
    assert!(saved.get("content").is_none(), "{saved}");
    let artifacts = net.test_env.json(&["artifact", "list"]);
    assert!(artifacts.to_string().contains("output/reports/r.pdf"), "{artifacts}");
    assert_eq!(std::fs::read(net.workspace().join("output/reports/r.pdf")).unwrap(), PDF);
    let search = result(2, "tool.web_search True ");
    assert_eq!(
        search["results"][0],
        json!({ "title": "Seen", "url": "https://seen.example/", "description": "by SearXNG" })
    );
    assert!(net.server.asked("/search")[0].starts_with("GET /search?q=what+is+new&format=json HTTP/1.1"));
    let google = result(3, "tool.google_search True ");
    assert_eq!((&google["answer"], &google["cost_usd"]), (&json!("It is 42."), &json!(0.028)));
    assert_eq!(
        (&google["queries"][1], &google["citations"][0]["url"]),
        (&json!("is it 42"), &json!("https://source.example/"))
    );
    for at in [4, 5] {
        assert_eq!(result(at, "tool.fetch False ")["code"], "policy_denied", "{}", lines[at]);
    }
    // The record of each call, with the number and the price of the queries.
    let ledger = net.test_env.json(&["ledger", "--agent", "ada"]);
    let states: Vec<(&str, &str)> = ledger
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["tool"].as_str().unwrap(), row["status"].as_str().unwrap()))
        .collect();
    assert_eq!(states.iter().filter(|state| **state == ("tool.fetch", "ok")).count(), 2, "{states:?}");
    assert_eq!(states.iter().filter(|state| **state == ("tool.fetch", "failed")).count(), 2, "{states:?}");
    let data = net.test_env.data("net");
    let sum = "SELECT count(*) FROM (SELECT json_extract(record, '$.result') AS result FROM ledger WHERE tool = 'tool.google_search') \
               WHERE json_extract(result, '$.cost_usd') = 0.028 AND json_array_length(result, '$.queries') = 2";
    assert_eq!(Database::open(&data).number(sum), 1);
    let budgets = net.test_env.json(&["budget", "list"]);
    let world = budgets.as_array().unwrap().iter().find(|budget| budget["scope"] == "world").unwrap();
    assert_eq!(world["spent_usd"], json!(0.028), "what the queries cost is charged");
    // A key is in the requests alone.
    assert!(net.server.asked("/v1beta")[0].contains(KEY));
    let shown = net.test_env.ctl(&["--json", "events"]).out + &ledger.to_string() + &reply;
    assert!(!shown.contains(KEY));
}

// covers: BI-13, BI-13b, BI-15, BI-15a, PROMPT-09, TOOL-23
#[test]
fn rules_of_access_writing_and_addresses_hold() {
    let net = Net::new(BRAVE, QUIET);
    let tools = net.test_env.json(&["tool", "list", "ada"]);
    for (name, fact) in [
        ("tool.web_search", "Brave"),
        ("tool.google_search", "gemini-2.5-flash, $0.014 a query"),
        ("tool.fetch", "public addresses and one more"),
    ] {
        let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
        assert!(tool["description"].as_str().unwrap().contains(fact), "{tool}");
    }
    let found = net.call(
        "ada",
        "tool.web_search",
        &json!({ "query": "brave", "count": 3, "country": "DE", "freshness": "pw" }),
    );
    assert_eq!(found["result"]["results"][0]["title"], "Brave new", "{found}");
    let asked = &net.server.asked("/res/")[0];
    assert!(
        asked.starts_with(
            "GET /res/v1/web/search?q=brave&count=3&country=DE&freshness=pw&text_decorations=false HTTP/1.1"
        )
    );
    assert!(asked.to_lowercase().contains(&format!("x-subscription-token: {KEY}")), "{asked}");
    // What is no text gets a file of its own without being asked for, and nothing is saved where the agent may not write.
    let saved = net.call("ada", "web_fetch", &json!({ "url": net.url("/report.pdf") }));
    let path = saved["result"]["path"].as_str().unwrap();
    assert!(path.starts_with("agents/ada/downloads/") && path.ends_with("-report.pdf"), "{saved}");
    assert_eq!(std::fs::read(net.workspace().join(path)).unwrap(), PDF);
    let before = net.server.asked("/report.pdf").len();
    for path in ["/workspace/agents/eve/x.pdf", "../eve/x.pdf", "/workspace/output/x.pdf", "/etc/x", "a/../../x"] {
        let arguments = json!({ "url": net.url("/report.pdf"), "save_to": path });
        assert_eq!(net.refused("ada", "tool.fetch", &arguments), "path_denied", "{path}");
    }
    assert_eq!(net.server.asked("/report.pdf").len(), before, "nothing was fetched in vain");
    std::os::unix::fs::symlink("../eve", net.workspace().join("agents/ada/friend")).unwrap();
    let through = json!({ "url": net.url("/report.pdf"), "save_to": "friend/x.pdf" });
    assert_eq!(net.refused("ada", "tool.fetch", &through), "path_denied");
    assert!(!net.workspace().join("agents/eve/x.pdf").exists());
    let port = net.server.address.port();
    for (url, code) in [
        (format!("http://127.0.0.1:{}/", if port == 1 { 2 } else { 1 }), "policy_denied"),
        ("http://10.0.0.1/".into(), "policy_denied"),
        ("http://2130706433/".into(), "policy_denied"),
        ("http://[::ffff:10.0.0.1]/".into(), "policy_denied"),
        ("file:///etc/passwd".into(), "invalid_arguments"),
        (format!("http://u:p@127.0.0.1:{port}/"), "invalid_arguments"),
    ] {
        assert_eq!(net.refused("ada", "tool.fetch", &json!({ "url": url })), code, "{url}");
    }
    let broken = json!({ "url": net.url("/page"), "headers": { "X-A": "1\r\nHost: evil" } });
    assert_eq!(net.refused("ada", "tool.fetch", &broken), "invalid_arguments");
    assert_eq!(
        net.refused("ada", "tool.fetch", &json!({ "url": net.url("/page"), "max_length": 0 })),
        "invalid_arguments"
    );
    let short = net.call("ada", "tool.fetch", &json!({ "url": net.url("/page"), "max_length": 5, "extract": "text" }));
    assert_eq!((&short["result"]["content"], &short["result"]["truncated"]), (&json!("Today"), &json!(true)));
    assert_eq!(net.refused("eve", "tool.fetch", &json!({ "url": net.url("/page") })), "access_denied");
}

// covers: BI-15a, TOOL-05
#[test]
fn what_a_world_lacks_is_absent_with_the_reason() {
    let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("net");
    let config = |web: &str| {
        format!(
            "agents: [{{ id: ada, archetype: worker }}]\n{web}llm: {{ default_provider: scripted, default_model: m }}\n"
        )
    };
    world.archetype("worker", "").write("scripts/m.yaml", QUIET);
    let why = |test_env: &TestEnvironment, name: &str| -> Option<String> {
        let tools = test_env.json(&["tool", "list", "ada", "--all"]);
        let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap().clone();
        tool["absent"].as_str().filter(|why| !why.is_empty()).map(str::to_owned)
    };
    world.config(&config(""));
    let daemon = test_env.up(world.path(), &[]);
    for name in ["tool.fetch", "tool.web_search", "tool.google_search"] {
        assert!(why(&test_env, name).unwrap().contains("`web`"), "{name}");
    }
    let called = test_env.ctl(&["--json", "tool", "call", "ada", "tool.fetch", "{\"url\":\"http://10.0.0.1/\"}"]);
    assert!(called.code != Some(0) && format!("{}{}", called.out, called.err).contains("unsupported"), "{called:?}");
    daemon.stop();
    world.config(&config("web: { search: { provider: brave }, google_search: { api_key_env: G_KEY } }\n"));
    let checked = test_env.ghostd(&["check", world.path().to_str().unwrap()]);
    assert!(format!("{}{}", checked.out, checked.err).contains("BRAVE_API_KEY"), "{checked:?}");
    test_env.set("G_KEY", "x-key-of-google");
    let daemon = test_env.up(world.path(), &[]);
    assert_eq!((why(&test_env, "tool.fetch"), why(&test_env, "tool.google_search")), (None, None));
    assert!(why(&test_env, "tool.web_search").unwrap().contains("BRAVE_API_KEY"));
    daemon.stop();
}

/// A fetch may have an effect at the other end, so a kill in the middle leaves it uncertain: it is not sent again by
/// itself, and the model learns it.
// covers: BI-13
#[test]
fn a_fetch_that_a_kill_cut_off_is_not_sent_again() {
    let mut net = Net::new(
        SEARXNG,
        "rules:\n\
         - when: { round: 0 }\n  do: [{ call: tool.fetch, with: { url: 'AT/hang', save_to: h.txt } }]\n\
         - when: { round: 1, failed: true }\n  do: [{ call: tool.fetch, with: { url: 'AT/page' } }]\n\
         - when: { round: 2 }\n  do: [{ say: \"{{ results[0].text }} {{ last.content }}\" }]\n\
         otherwise: [{ say: no }]\n",
    );
    net.test_env.ctl(&["send", "ada", "fetch it"]).ok();
    let sent = || if net.server.asked("/hang").len() == 1 { Ok(()) } else { Err("not sent".to_owned()) };
    Deadline::seconds(60).until("the request", sent);
    net.daemon.take().unwrap().kill();
    net.daemon = Some(net.test_env.up(&net.world, &[]));
    net.test_env.wait_until_quiet(Deadline::seconds(60));
    let turns = net.test_env.json(&["turn", "list", "--agent", "ada"]);
    let text = turns[0]["text"].as_str().unwrap();
    assert!(text.contains("outcome_unknown") && text.contains("42 things."), "{turns}");
    assert_eq!((net.server.asked("/hang").len(), net.server.asked("/page").len()), (1, 1));
    assert!(!net.workspace().join("agents/ada/h.txt").exists());
    let ledger = net.test_env.json(&["ledger", "--agent", "ada"]);
    let states: Vec<&str> = ledger.as_array().unwrap().iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["ok", "unknown"], "{ledger}");
}

/// A world whose agent runs Python with `network: proxy`. `None` if this machine has no such sandbox.
fn with_proxy(test_env: &mut TestEnvironment, listed: SocketAddr, allowed: &[SocketAddr]) -> Option<Daemon> {
    // If the tests run as root, commands are another user, who must reach the workspace.
    for dir in [test_env.path().to_owned(), test_env.join("state")] {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let world = test_env.world("net");
    world.config(&format!(
        "agents: [{{ id: ada, archetype: worker }}]\ntool_privileges: {{ shell: [tool.python] }}\n\
         web: {{ allow: {} }}\nsandbox: {{ kind: local, network: proxy, hosts: ['{listed}', unlisted.invalid] }}\n\
         llm: {{ default_provider: scripted, default_model: m }}\n",
        json!(allowed.iter().map(SocketAddr::to_string).collect::<Vec<_>>())
    ));
    world.write("scripts/m.yaml", QUIET).archetype("worker", "## Tool Access\nprivilege_groups: shell\n");
    let path = world.path().to_owned();
    let daemon = test_env.up(&path, &[]);
    let Some(why) = test_env.json(&["status"])["sandbox"]["absent"].as_str().map(str::to_owned) else {
        return Some(daemon);
    };
    assert!(std::env::var("GHOST_SANDBOX").is_err(), "GHOST_SANDBOX=required: {why}");
    #[allow(clippy::print_stderr, reason = "a skipped test says so")]
    {
        eprintln!("skipped: {why}");
    }
    None
}

// covers: SBX-07, BI-13b
#[test]
fn commands_reach_listed_hosts_through_the_proxy_and_no_others() {
    // Programs do not ask a proxy for loopback addresses, unless the world lists one: inside they are their own.
    let (listed, other, denied) = (Server::start(), Server::at("127.0.0.2"), Server::start());
    let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let Some(daemon) = with_proxy(&mut test_env, listed.address, &[listed.address, other.address]) else { return };
    let code = format!(
        "import urllib.request, urllib.error\n\
         for url in ['http://{}/page', 'http://{}/page', 'http://{}/page', 'http://169.254.169.254/latest']:\n\
         \x20   try: print(urllib.request.urlopen(url).read().decode())\n\
         \x20   except urllib.error.HTTPError as error: print(error.code, error.headers['x-ghost-refusal'])\n",
        listed.address, other.address, denied.address
    );
    let done = test_env.json(&["tool", "call", "ada", "tool.python", &json!({ "code": code }).to_string()]);
    let lines: Vec<&str> = done["result"]["stdout"].as_str().unwrap().lines().collect();
    assert_eq!(lines.len(), 4, "{done}");
    assert!(lines[0].contains("42 things"), "{done}");
    assert_eq!(lines[1..], ["403 policy_denied"; 3], "{done}");
    assert_eq!((listed.asked("/page").len(), other.asked("/").len(), denied.asked("/").len()), (1, 0, 0));
    daemon.stop();
}
