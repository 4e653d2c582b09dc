//! Shared support of the conversation tests: a world with two scripted clerks, and clients that talk.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use ghost_testkit::blackbox::{Deadline, Lines, Ran, TestEnvironment};
use serde_json::Value;

pub const SECRET: &str = "a-long-secret-that-both-sides-know";

pub const SCRIPT: &str = r#"about: Talks as it is told.
vars: { story: "Once upon a time there was an agent that told stories to whoever asked, and it told them slowly, word by word, \
so that those who listened had something to listen to. It spoke of files and of turns, of mail that came in the night and of \
daemons that were killed and rose again, of clocks that jumped and of disks that were full, and nobody who listened to it was \
bored, or if they were, they did not say so, because they had asked for the story themselves, and a story has an end." }
rules:
  - name: story
    when: { mail: 'a story', round: 0 }
    do: [{ say: "{{ vars.story }}" }, { wait: 3s }, { say: The end. }]
  - name: plan
    when: { mail: 'think aloud', round: 0 }
    do: [{ say: "{{ vars.story }}" }, { wait: 1s }, { say: "</think>\nThe end." }]
  - name: slow
    when: { mail: 'take your time', round: 0 }
    do: [{ wait: 3s }, { say: Slowly said. }]
  - name: report
    when: { mail: 'report please', round: 0 }
    do: [{ call: workspace.write, with: { path: report.md, content: "Forty-two." } }]
  - name: attach
    when: { tool: workspace.write }
    do: [{ call: channel.file_attach, with: { path: report.md, name: Report.md } }]
  - name: attached
    when: { tool: channel.file_attach }
    do: [{ say: "[[reply_to_current]] Here is the report." }]
  - name: silent
    when: { mail: 'say nothing', round: 0 }
    do: [{ say: "%%NO_REPLY%%" }]
  - name: handoff
    when: { mail: 'give me ben', round: 0 }
    do: [{ call: syscall.channel.handoff, with: { agent_id: ben, reason: Ben knows. } }]
  - name: handed
    when: { tool: syscall.channel.handoff }
    do: [{ say: Ben takes over. }]
  - name: first
    when: { mail: 'a moment', round: 0 }
    do: [{ call: syscall.channel.send, with: { content: One moment. } }]
  - name: then
    when: { tool: syscall.channel.send }
    do: [{ say: There you are. }]
  - name: slip
    when: { mail: 'act please', round: 0 }
    do: [{ call: message, with: { action: send, message: Oops. } }]
  - name: take back
    when: { tool: message, round: 1 }
    do: [{ call: message, with: { action: delete, message_id: "{{ last.message_id }}" } }]
  - name: react
    when: { tool: message, round: 2 }
    do: [{ call: message, with: { action: react, emoji: "👍" } }]
  - name: thread
    when: { tool: message, round: 3 }
    do: [{ call: message, with: { action: thread, message: Over here. } }]
  - name: acted
    when: { tool: message, round: 4 }
    do: [{ say: "Done, and {{ last.code | default('more') }}." }]
  - name: reminded
    when: { mail: 'time for tea', round: 0 }
    do: [{ call: syscall.channel.send, with: { content: Your tea is ready. } }]
  - name: remind
    when: { mail: 'remind me', round: 0 }
    do: [{ call: util.timer, with: { name: tea, duration: 3s, message: It is time for tea. } }]
  - name: broken
    when: { mail: 'fall over', round: 0 }
    do: [{ fail: { kind: bad_request, message: No such thing. } }]
otherwise: [{ say: "Here is {{ agent_id }}." }]
"#;

pub const WORLD: &str = "\
world: { name: The Desk }
agents:
  - { id: ada, archetype: clerk }
  - { id: ben, archetype: clerk }
limits: { message_bytes: 2000, delivery_attempts_max: 3 }
llm: { default_provider: scripted, default_model: desk }
";

pub fn desk(more: &str) -> (TestEnvironment, PathBuf) {
    let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    test_env.set("HOOK_SECRET", SECRET);
    let world = test_env.world("desk");
    world.config(&format!("{WORLD}{more}")).archetype("clerk", "").write("scripts/desk.yaml", SCRIPT);
    let path = world.path().to_owned();
    (test_env, path)
}

/// Runs `ghostctl --json talk ada` with these input lines to its end.
pub fn talk(test_env: &TestEnvironment, args: &[&str], lines: &str) -> Ran {
    let path = test_env.join("lines");
    std::fs::write(&path, lines).unwrap();
    let mut command = test_env.ctl_command(&[&["--json", "--timeout", "60s", "talk"], args].concat());
    let output = command.stdin(Stdio::from(File::open(path).unwrap())).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran {
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
        call: format!("talk {args:?}"),
    }
}

/// A talk in the background with a pipe as its input.
pub struct Talk {
    pub child: Child,
    pub out: Lines,
    pub err: Lines,
}

impl Talk {
    pub fn start(test_env: &TestEnvironment, args: &[&str]) -> Self {
        let mut command = test_env.ctl_command(&[&["--json", "--timeout", "60s", "talk"], args].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Lines::of(child.stdout.take().unwrap()), Lines::of(child.stderr.take().unwrap()));
        Self { child, out, err }
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let wanted = |line: &str| serde_json::from_str(line).is_ok_and(|value| wanted(&value));
        let found = self.out.find(0, Deadline::seconds(60), wanted);
        let (_, line) = found.unwrap_or_else(|| panic!("no {what}\n{}\n{}", self.out.text(), self.err.text()));
        serde_json::from_str(&line).unwrap()
    }

    /// Closes its input and waits for its end. Returns its exit code and its error.
    pub fn fails(mut self) -> (i32, String) {
        drop(self.child.stdin.take());
        assert!(self.err.wait_for_end(Deadline::seconds(90)), "it goes on\n{}", self.out.text());
        (self.child.wait().unwrap().code().unwrap(), self.err.text())
    }

    /// Closes its input and waits for its end. Returns its output.
    pub fn end(mut self) -> Vec<Value> {
        drop(self.child.stdin.take());
        assert!(self.out.wait_for_end(Deadline::seconds(90)), "it goes on\n{}", self.out.text());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.err.text());
        self.out.all().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // The program may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn is_out(value: &Value) -> bool {
    value["type"] == "entry" && value["direction"] == "out"
}

pub fn texts_of(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter(|line| is_out(line)).map(|line| line["content"].as_str().unwrap()).collect()
}
