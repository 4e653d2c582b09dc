//! The seed's chain in one world: an agent fetches a page, searches the web, writes a file, delegates to a droid, promotes what
//! the droid made, and sends word to another agent. The tests run it undisturbed, with every second call failing, and with a
//! kill of the daemon on the way. The web and the search are servers of this machine.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

/// What goes wrong in a world.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    Nothing,
    /// Each tool fails at its first call and works at the next one, for each agent.
    EverySecondCall,
    /// The web never answers the droid's first request.
    Silence,
}

/// A server of this machine. It answers each connection once.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// `answer` gets the head of a request and its number, from 1. Without an answer, the connection stays open and silent.
    fn start(answer: impl Fn(&str, usize) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&asked);
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let (mut head, mut buffer) = (String::new(), [0; 4_096]);
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    head.push_str(&String::from_utf8_lossy(&buffer[..count]));
                    if head.contains("\r\n\r\n") {
                        break;
                    }
                }
                if head.is_empty() {
                    continue;
                }
                let mut asked = log.lock().unwrap();
                asked.push(head.clone());
                match answer(&head, asked.len()) {
                    // An error means that the other side has gone.
                    Some(answer) => drop(stream.write_all(&answer)),
                    None => held.push(stream),
                }
            }
        });
        Self { address, asked }
    }

    /// The targets of the requests, in order.
    fn targets(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|head| head.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
    }
}

fn http(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}

const RIVERS: &str = "<title>Rivers</title><h1>Rivers</h1><p>The Elbe has 1,094 km.</p>";
const DELTA: &str = "<title>Deltas</title><h1>Deltas</h1><p>The Danube's delta has 5,800 square km.</p>";
const KEY: &str = "heron-at-the-river";

/// The web: two pages.
fn web(trouble: Trouble) -> Server {
    Server::start(move |head, number| {
        let answer = match head.split(' ').nth(1) {
            Some("/rivers") => http("200 OK", "text/html", RIVERS),
            Some("/delta") => http("200 OK", "text/html", DELTA),
            _ => http("404 Not Found", "text/plain", "nothing here"),
        };
        match trouble {
            // It closes the connection before the last byte. An answer with status 500 would be a result and no failure.
            Trouble::EverySecondCall if number % 2 == 1 => Some(answer[..answer.len() - 1].to_vec()),
            Trouble::Silence if number == 2 => None,
            _ => Some(answer),
        }
    })
}

/// The search: Brave's API, with one page of the web.
fn search(trouble: Trouble, web: SocketAddr) -> Server {
    Server::start(move |_, number| {
        let (status, body) = if trouble == Trouble::EverySecondCall && number % 2 == 1 {
            let error = json!({ "id": "1", "status": 429, "code": "RATE_LIMITED", "detail": "Too many requests" });
            ("429 Too Many Requests", json!({ "type": "ErrorResponse", "error": error }))
        } else {
            let (title, url) = ("On <strong>deltas</strong>", format!("http://{web}/delta"));
            let found = json!({ "title": title, "url": url, "description": "Where rivers end" });
            ("200 OK", json!({ "type": "search", "web": { "type": "search", "results": [found] } }))
        };
        Some(http(status, "application/json", &body.to_string()))
    })
}

const WORLD: &str = "\
world: { name: Chain }
agents: [{ id: ada, archetype: lead }, { id: bob, archetype: clerk }]
tool_privileges: { web: ['group:web'], delegator: [syscall.droid.spawn, syscall.artifact.promote] }
write_acls: { ada: [agents/ada/, output/digests/, output/reports/], bob: [agents/bob/, output/briefings/] }
droids: { model: p/droid }
web:
  allow: ['WEB', 'SEARCH']
  timeout: 120s
  idle_timeout: 120s
  search: { provider: brave, base_url: 'http://SEARCH' }
llm: { default_provider: p, default_model: lead, providers: { p: { kind: scripted } } }
";

/// What the scripts share: the codes that a model has seen, and whether its next call is to be wrong. If every second call fails,
/// each call is wrong that does not follow a refusal.
const COMMON: &str = r#"  refused: "results | rejectattr('ok') | map(attribute='value.code') | join(' ')"
  wrong: "FAILS and (not fresh or fresh[0].ok)""#;

/// The lead. It repeats each step until the step has worked, so it tries again after a refusal.
const LEAD: &str = r#"
vars:
  page: '(?m)^page: (\S+)$'
  output: '(?m)^output: (droids/droid-[0-9a-f]{8}/\S+)$'
let:
  page: "mail | regex_find(vars.page)"
  output: "mail | regex_find(vars.output) if 'status: succeeded' in mail else ''"
  fetched: "(results | of('tool.fetch') | selectattr('ok') | first).value"
  found: "(results | of('tool.web_search') | selectattr('ok') | first).value.results[0]"
COMMON
rules:
  - when: { if: page, tools_ok: { tool.fetch: 0 } }
    do: [{ call: tool.fetch, with: { url: "{{ page }}" } }]
  - when: { if: page, tools_ok: { tool.web_search: 0 } }
    do: [{ call: tool.web_search, with: { query: "{{ fetched.title }}" } }]
  - when: { if: page, tools_ok: { workspace.write: 0 } }
    do:
      - call: workspace.write
        with:
          path: "{{ 'agents/bob/rivers.md' if wrong else 'output/digests/rivers.md' }}"
          scope: world
          content: "{{ fetched.content }}\n\n{{ found.title }}: {{ found.description }}"
  - when: { if: page, tools_ok: { syscall.droid.spawn: 0 } }
    do:
      - call: syscall.droid.spawn
        with:
          output_path: report.md
          tools: "{{ ['tool.crystal_ball'] if wrong else ['tool.fetch', 'workspace.read', 'workspace.write'] }}"
          task: |
            Join the note and the page.
            note: output/digests/rivers.md
            source: {{ found.url }}
  - when: { if: output, tools_ok: { syscall.artifact.promote: 0 } }
    do:
      - call: syscall.artifact.promote
        with: { from: "{{ output }}", to: "{{ 'agents/bob/report.md' if wrong else 'output/reports/rivers.md' }}" }
  - when: { if: output, tools_ok: { syscall.message.send: 0 } }
    do:
      - call: syscall.message.send
        with: { to: "{{ 'rob' if wrong else 'bob' }}", content: "report: output/reports/rivers.md" }
otherwise: [{ say: "refused: {{ refused or 'nothing' }}" }]
"#;

/// The droid: fetches the page, reads the note, and writes both into its output.
const DROID: &str = r#"
vars:
  note: '(?m)^note: (\S+)$'
  source: '(?m)^source: (\S+)$'
  output: '(?m)^Expected output: (\S+)$'
let:
  fetched: "(results | of('tool.fetch') | selectattr('ok') | first).value"
  read: "(results | of('workspace.read') | selectattr('ok') | first).value"
COMMON
rules:
  - when: { tools_ok: { tool.fetch: 0 } }
    do: [{ call: tool.fetch, with: { url: "{{ mail | regex_find(vars.source) }}" } }]
  - when: { tools_ok: { workspace.read: 0 } }
    do:
      - call: workspace.read
        with: { path: "{{ 'output/digests/lakes.md' if wrong else mail | regex_find(vars.note) }}", scope: world }
  - when: { tools_ok: { workspace.write: 0 } }
    do:
      - call: workspace.write
        with:
          path: "{{ 'output/reports/rivers.md' if wrong else mail | regex_find(vars.output) }}"
          scope: world
          content: "{{ read.content }}\n\n{{ fetched.content }}"
otherwise: [{ say: "refused: {{ refused or 'nothing' }}" }]
"#;

/// The receiver: adds a line to its receipts for each report.
const CLERK: &str = r#"
let:
COMMON
rules:
  - when: { mail: '(?m)^report: (?P<path>\S+)$', tools_ok: { workspace.write: 0 } }
    do:
      - call: workspace.write
        with:
          path: "{{ 'output/reports/receipts.md' if wrong else 'output/briefings/receipts.md' }}"
          scope: world
          append: true
          content: "received {{ match.path }}"
otherwise: [{ say: "refused: {{ refused or 'nothing' }}" }]
"#;

struct Chain {
    test_env: TestEnvironment,
    world: PathBuf,
    daemon: Daemon,
    web: Server,
    search: Server,
}

impl Chain {
    /// A world whose lead has just been told to begin.
    fn begin(trouble: Trouble) -> Self {
        let mut test_env = TestEnvironment::new(ghostd_testing());
        test_env.set("BRAVE_API_KEY", KEY);
        let web = web(trouble);
        let search = search(trouble, web.address);
        let world = test_env.world("chain");
        let servers = [("WEB", web.address), ("SEARCH", search.address)];
        world.config(&servers.iter().fold(WORLD.to_owned(), |text, (name, at)| text.replace(name, &at.to_string())));
        for (model, rules) in [("lead", LEAD), ("droid", DROID), ("clerk", CLERK)] {
            let fails = (trouble == Trouble::EverySecondCall).to_string();
            world.write(&format!("scripts/{model}.yaml"), rules.replace("COMMON", COMMON).replace("FAILS", &fails));
        }
        world.archetype("lead", "## Tool Access\nprivilege_groups: delegator, web\n");
        world.archetype("clerk", "## LLM\nmodel: clerk\n");
        let world = world.path().to_owned();
        let daemon = test_env.up(&world, &[]);
        test_env.ctl(&["send", "ada", &format!("page: http://{}/rivers", web.address)]).ok();
        Self { test_env, world, daemon, web, search }
    }

    /// The files below a directory of the workspace: content by path.
    fn files(&self, dir: &str) -> Value {
        let root = self.test_env.data("chain").join("workspace");
        let (mut left, mut files) = (vec![root.join(dir)], json!({}));
        while let Some(path) = left.pop() {
            if path.is_dir() {
                left.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
                files[name] = json!(std::fs::read_to_string(&path).unwrap());
            }
        }
        files
    }

    /// The calls of an agent, the oldest first: tool, status and code.
    fn calls(&self, agent: &str) -> Vec<String> {
        let rows = self.test_env.json(&["ledger", "--agent", agent]);
        let line = |row: &Value| {
            ["tool", "status", "error_code"].iter().filter_map(|key| row[*key].as_str()).collect::<Vec<_>>().join(" ")
        };
        rows.as_array().unwrap().iter().rev().map(line).collect()
    }

    fn count(&self, status: &str) -> usize {
        self.test_env.json(&["ledger", "--status", status]).as_array().unwrap().len()
    }

    /// The last words of the turns of an agent, the oldest first.
    fn words(&self, agent: &str) -> Vec<String> {
        let turns = self.test_env.json(&["turn", "list", "--agent", agent]);
        let text = |turn: &Value| turn["text"].as_str().unwrap_or_default().to_owned();
        turns.as_array().unwrap().iter().rev().map(text).collect()
    }

    fn events(&self, kind: &str) -> Vec<Value> {
        self.test_env.ctl(&["--json", "events", "--kind", kind]).json_lines()
    }

    /// Waits for the end of the chain. Asserts that each of its effects is there, and each of them once. Returns the droid.
    fn has_each_effect_once(&self) -> Value {
        self.test_env.wait_until_quiet(Deadline::seconds(120));
        // One droid, which worked.
        let droids = self.test_env.json(&["droid", "list"]);
        let droid = droids[0].clone();
        let id = droid["droid_id"].as_str().unwrap_or_else(|| panic!("no droid: {:?}", self.calls("ada")));
        assert_eq!(droids.as_array().unwrap().len(), 1, "{droids}");
        assert_eq!((&droid["parent_id"], &droid["state"]), (&json!("ada"), &json!("succeeded")), "{droid}");
        assert_eq!((self.events("droid.spawned").len(), self.events("droid.ended").len()), (1, 1));
        // What the servers said is in the note, then in the droid's report, and the report is in its place.
        let note = "# Rivers\n\nThe Elbe has 1,094 km.\n\nOn deltas: Where rivers end";
        let report = format!("{note}\n\n# Deltas\n\nThe Danube's delta has 5,800 square km.");
        let output = json!({
            "output/briefings/receipts.md": "received output/reports/rivers.md",
            "output/digests/rivers.md": note,
            "output/reports/rivers.md": report,
        });
        assert_eq!(self.files("output"), output);
        let made = self.files("droids");
        assert_eq!(made[format!("droids/{id}/report.md")], json!(report));
        assert!(made[format!("droids/{id}/task.md")].is_string() && made.as_object().unwrap().len() == 2, "{made}");
        assert_eq!(self.files("agents"), json!({}), "nobody wrote there");
        // Each file was written once, and the report is the droid's.
        let mut written = self.events("artifact.created");
        written.sort_by_key(|event| event["payload"]["path"].to_string());
        let written: Vec<Value> =
            written.iter().map(|event| json!([event["agent_id"], event["payload"]["droid_id"]])).collect();
        assert_eq!(json!(written), json!([["bob", null], ["ada", null], ["ada", id]]));
        // Each message arrived once, and the receiver dealt with its own in one turn.
        let mail = self.events("message.delivered");
        let mail: Vec<Value> = mail.iter().map(|event| json!([event["agent_id"], event["payload"]["kind"]])).collect();
        let wanted = json!([["ada", "message"], [id, "system"], ["ada", "droid_done"], ["bob", "message"]]);
        assert_eq!(json!(mail), wanted);
        assert_eq!((self.words("ada").len(), self.words("bob").len()), (2, 1));
        assert_eq!(self.test_env.json(&["status"])["dead_letters_held"], json!(0));
        droid
    }
}

const LEADS: [&str; 6] = [
    "tool.fetch",
    "tool.web_search",
    "workspace.write",
    "syscall.droid.spawn",
    "syscall.artifact.promote",
    "syscall.message.send",
];

// covers: BI-13, BI-15, BI-99, DROID-01, DROID-14, ART-05
#[test]
fn an_agent_composes_its_tools_into_a_chain_of_work() {
    let chain = Chain::begin(Trouble::Nothing);
    let droid = chain.has_each_effect_once();
    assert_eq!(chain.calls("ada"), LEADS.map(|tool| format!("{tool} ok")));
    let own = chain.calls(droid["droid_id"].as_str().unwrap());
    assert_eq!(own, ["tool.fetch ok", "workspace.read ok", "workspace.write ok"]);
    assert_eq!(chain.calls("bob"), ["workspace.write ok"]);
    assert_eq!((chain.count("ok"), chain.count("failed"), chain.count("unknown")), (10, 0, 0));
    // The servers got nothing but the requests of these calls.
    assert_eq!(chain.web.targets(), ["/rivers", "/delta"]);
    assert_eq!(chain.search.targets(), ["/res/v1/web/search?q=Rivers&count=5&text_decorations=false"]);
    assert!(chain.search.asked.lock().unwrap()[0].to_lowercase().contains(&format!("x-subscription-token: {KEY}")));
}

// covers: BI-99, TOOL-07, DROID-14, ART-05
#[test]
fn a_chain_in_which_every_second_call_fails_reaches_its_end_and_does_nothing_twice() {
    let chain = Chain::begin(Trouble::EverySecondCall);
    let droid = chain.has_each_effect_once();
    let tried = |steps: &[(&str, &str)]| -> Vec<String> {
        steps.iter().flat_map(|(tool, code)| [format!("{tool} failed {code}"), format!("{tool} ok")]).collect()
    };
    let codes = ["unavailable", "rate_limited", "path_denied", "invalid_arguments", "path_denied", "not_found"];
    let steps: Vec<(&str, &str)> = LEADS.into_iter().zip(codes).collect();
    assert_eq!(chain.calls("ada"), tried(&steps));
    let steps = [("tool.fetch", "unavailable"), ("workspace.read", "not_found"), ("workspace.write", "path_denied")];
    assert_eq!(chain.calls(droid["droid_id"].as_str().unwrap()), tried(&steps));
    assert_eq!(chain.calls("bob"), tried(&[("workspace.write", "path_denied")]));
    assert_eq!((chain.count("ok"), chain.count("failed"), chain.count("unknown")), (10, 10, 0));
    // The models saw each code.
    let said = |codes: &[&str]| format!("refused: {}", codes.join(" "));
    assert_eq!(chain.words("ada"), [said(&codes[..4]), said(&codes[4..])]);
    assert_eq!(droid["result"], json!(said(&["unavailable", "not_found", "path_denied"])));
    assert_eq!(chain.words("bob"), [said(&["path_denied"])]);
    // The six calls and the last words: a droid has eight rounds.
    assert_eq!((&droid["rounds"], &droid["calls"]), (&json!(7), &json!(6)));
    // No request was repeated but by a call.
    assert_eq!(chain.web.targets(), ["/rivers", "/rivers", "/delta", "/delta"]);
    assert_eq!(chain.search.targets().len(), 2);
}

// covers: BI-99, DROID-10, DROID-14
#[test]
fn a_chain_whose_daemon_is_killed_while_the_droid_works_reaches_its_end_and_does_nothing_twice() {
    let mut chain = Chain::begin(Trouble::Silence);
    let asked = || if chain.web.targets().len() == 2 { Ok(()) } else { Err(format!("{:?}", chain.web.targets())) };
    Deadline::seconds(120).until("the droid's request", asked);
    chain.daemon.kill();
    chain.daemon = chain.test_env.up(&chain.world, &[]);
    let droid = chain.has_each_effect_once();
    assert_eq!(chain.calls("ada"), LEADS.map(|tool| format!("{tool} ok")));
    // What the kill left open is reported to the droid, which decides to fetch again.
    let own = chain.calls(droid["droid_id"].as_str().unwrap());
    assert_eq!(own, ["tool.fetch unknown outcome_unknown", "tool.fetch ok", "workspace.read ok", "workspace.write ok"]);
    assert_eq!(droid["result"], "refused: outcome_unknown");
    assert_eq!((chain.count("ok"), chain.count("failed"), chain.count("unknown")), (10, 0, 1));
    assert_eq!(chain.web.targets(), ["/rivers", "/delta", "/delta"]);
    assert_eq!(chain.search.targets().len(), 1);
}
