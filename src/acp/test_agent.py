#!/usr/bin/env python3
"""A coding agent for tests that speaks ACP version 1 on its standard streams. Python 3.6 or later, no dependencies.

It has no model: it does what its prompt says, one line after the other.

    say TEXT              say TEXT (in two pieces)
    read PATH             read a file, and say its first line
    write PATH TEXT       write TEXT and a line end to a file
    delete PATH           delete a file
    run CMD               run a shell command, and say its exit code and first line of output
    ask TITLE             ask for permission, and say `allowed`, `rejected` or `cancelled`
    rpc METHOD JSON       send any request, and say the begin of its result or error; `CWD` is the session's directory
    sleep SECONDS         wait; `session/cancel` ends it
    stubborn SECONDS      wait, and do not care about `session/cancel`
    flood N               send N tool calls that begin and end
    cost USD              report what the session has cost so far, in US dollars
    usage N               report N output tokens (2N input tokens) at the end, and a context of 3N of 100000
    plan                  send a plan
    recall                say how many prompts this session had before this one
    continue              do the lines of the last prompt that were not done, for example after `die`; so does a prompt
                          whose first line begins with `Continue the task`
    stop REASON           end the turn with this stop reason
    fail MESSAGE          answer the prompt with an error
    garbage N             print N lines that are not JSON
    exit CODE             exit
    die                   end itself with SIGKILL

Files and commands go through the client if it offers that, and else the agent works itself. Relative paths are below
the directory of the session, where the session is kept in `.acp-session.json`: a new process can resume it.

Options: --no-resume, --no-load (do not declare it), --ask (ask before every write, delete and run), --own (never use
the client's files and terminals), --auth (a session needs a login), --version N (answer with this version).
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid

SESSION_FILE = ".acp-session.json"


class Rpc:
    """JSON-RPC over lines."""

    def __init__(self):
        self.incoming = queue.Queue()
        self.later = []
        self.number = 0
        self.cancelled = False
        thread = threading.Thread(target=self.read)
        thread.daemon = True
        thread.start()

    def read(self):
        for line in sys.stdin.buffer:
            try:
                self.incoming.put(json.loads(line.decode("utf-8")))
            except ValueError:
                pass
        self.incoming.put(None)

    def send(self, **message):
        message["jsonrpc"] = "2.0"
        sys.stdout.buffer.write(json.dumps(message).encode("utf-8") + b"\n")
        sys.stdout.buffer.flush()

    def take(self, timeout=None):
        """The next message; None after the timeout. Ends the process when the client is gone."""
        try:
            message = self.incoming.get(timeout=timeout)
        except queue.Empty:
            return None
        if message is None:
            os._exit(0)
        if message.get("method") == "session/cancel":
            self.cancelled = True
        return message

    def next(self):
        return self.later.pop(0) if self.later else self.take()

    def call(self, method, **params):
        """Sends a request and waits for its answer. Raises RuntimeError if that is an error."""
        self.number += 1
        self.send(id=self.number, method=method, params=params)
        while True:
            message = self.take()
            if message.get("id") == self.number and "method" not in message:
                if "error" in message:
                    raise RuntimeError(message["error"].get("message", "error"))
                return message.get("result") or {}
            if message.get("method") != "session/cancel":
                self.later.append(message)

    def wait(self, seconds, care=True):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (care and self.cancelled):
            message = self.take(max(0, end - time.monotonic()))
            if message is not None and message.get("method") != "session/cancel":
                self.later.append(message)


class Agent:
    """The agent: at most one session."""

    def __init__(self, options):
        self.options = options
        self.rpc = Rpc()
        self.client = {}
        self.session = None
        self.calls = 0
        self.tokens = 0

    # The session.

    def file(self):
        return os.path.join(self.session["cwd"], SESSION_FILE)

    def save(self):
        new = self.file() + ".new"
        with open(new, "w") as out:
            json.dump(self.session, out)
        os.replace(new, self.file())

    def load(self, params):
        with open(os.path.join(params["cwd"], SESSION_FILE)) as saved:
            session = json.load(saved)
        if session["id"] != params["sessionId"]:
            raise IOError("no such session")
        session["cwd"] = params["cwd"]
        self.session = session

    def update(self, update, **fields):
        fields["sessionUpdate"] = update
        self.rpc.send(method="session/update", params={"sessionId": self.session["id"], "update": fields})

    def piece(self, kind, text):
        self.update(kind, content={"type": "text", "text": text})

    def replay(self):
        for prompt in self.session["prompts"]:
            self.piece("user_message_chunk", "\n".join(prompt["lines"]))
            for at, line in enumerate(prompt["lines"][: prompt["done"]]):
                call = "old-%d" % at
                self.update("tool_call", toolCallId=call, title="replayed " + line, kind="edit",
                            status="completed", locations=[{"path": "/replayed"}])
                self.piece("agent_message_chunk", "replayed " + line)

    # What a prompt can do.

    def say(self, text):
        self.piece("agent_message_chunk", text[: len(text) // 2])
        self.piece("agent_message_chunk", text[len(text) // 2:] + "\n")

    def path(self, name):
        return os.path.join(self.session["cwd"], name)

    def files(self, what):
        return "--own" not in self.options and (self.client.get("fs") or {}).get(what)

    def tool(self, kind, title, raw, work, path=None):
        """Runs `work` as a call of a tool, after a question if it needs one."""
        self.calls += 1
        call = "call-%d" % self.calls
        locations = [{"path": path}] if path else []
        self.update("tool_call", toolCallId=call, title=title, kind=kind, status="pending",
                    locations=locations, rawInput=raw)
        if "--ask" in self.options and kind in ("edit", "delete", "execute"):
            answer = self.permission(call, title, kind)
            if answer != "allowed":
                self.update("tool_call_update", toolCallId=call, status="failed")
                self.say(answer + ": " + title)
                return
        self.update("tool_call_update", toolCallId=call, status="in_progress")
        try:
            text = work()
            self.update("tool_call_update", toolCallId=call, status="completed")
        except (IOError, OSError, RuntimeError) as error:
            text = "error: %s" % error
            self.update("tool_call_update", toolCallId=call, status="failed")
        if text:
            self.say(text)

    def permission(self, call, title, kind):
        options = [
            {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
            {"optionId": "never", "name": "Never", "kind": "reject_always"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        ]
        answer = self.rpc.call("session/request_permission", sessionId=self.session["id"], options=options,
                               toolCall={"toolCallId": call, "title": title, "kind": kind})
        outcome = answer.get("outcome") or {}
        if outcome.get("outcome") != "selected":
            return "cancelled"
        return {"yes": "allowed", "no": "rejected"}.get(outcome.get("optionId"), "remembered")

    def read(self, name):
        path = self.path(name)
        if self.files("readTextFile"):
            text = self.rpc.call("fs/read_text_file", sessionId=self.session["id"], path=path).get("content", "")
        else:
            with open(path) as source:
                text = source.read()
        return "%s: %s" % (name, text.split("\n")[0])

    def write(self, name, text):
        path, text = self.path(name), text + "\n"
        if self.files("writeTextFile"):
            self.rpc.call("fs/write_text_file", sessionId=self.session["id"], path=path, content=text)
        else:
            with open(path, "w") as target:
                target.write(text)

    def run(self, command):
        if self.client.get("terminal") and "--own" not in self.options:
            ids = {"sessionId": self.session["id"]}
            made = self.rpc.call("terminal/create", command="sh", args=["-c", command], cwd=self.session["cwd"], **ids)
            ids["terminalId"] = made["terminalId"]
            code = self.rpc.call("terminal/wait_for_exit", **ids).get("exitCode")
            output = self.rpc.call("terminal/output", **ids).get("output", "")
            self.rpc.call("terminal/release", **ids)
        else:
            done = subprocess.run(["sh", "-c", command], cwd=self.session["cwd"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            code, output = done.returncode, done.stdout.decode("utf-8", "replace")
        return "exit code %s: %s" % (code, output.split("\n")[0])

    def flood(self, count):
        for at in range(count):
            call = "flood-%d" % at
            self.update("tool_call", toolCallId=call, title=call, kind="read", locations=[{"path": self.path(call)}])
            self.update("tool_call_update", toolCallId=call, status="completed")

    def line(self, line):
        """Does one line. Returns the answer to the prompt if it ends the turn."""
        word, _, rest = line.partition(" ")
        if word == "say":
            self.say(rest)
        elif word == "read":
            self.tool("read", "Read " + rest, {"path": rest}, lambda: self.read(rest), self.path(rest))
        elif word == "write":
            name, _, text = rest.partition(" ")
            self.tool("edit", "Write " + name, {"path": name}, lambda: self.write(name, text), self.path(name))
        elif word == "delete":
            self.tool("delete", "Delete " + rest, {"path": rest}, lambda: os.remove(self.path(rest)), self.path(rest))
        elif word == "run":
            self.tool("execute", "`%s`" % rest, {"command": rest}, lambda: self.run(rest))
        elif word == "ask":
            self.calls += 1
            self.say(self.permission("call-%d" % self.calls, rest, "other"))
        elif word == "rpc":
            method, _, params = rest.partition(" ")
            params = json.loads(params.replace("CWD", self.session["cwd"]))
            params.setdefault("sessionId", self.session["id"])
            try:
                answer = "ok " + json.dumps(self.rpc.call(method, **params))
            except RuntimeError as error:
                answer = "error %s" % error
            self.say(" ".join(answer.split())[:80])
        elif word == "sleep":
            self.rpc.wait(float(rest))
        elif word == "stubborn":
            self.rpc.wait(float(rest), care=False)
        elif word == "flood":
            self.flood(int(rest))
        elif word == "usage":
            self.tokens = int(rest)
            self.update("usage_update", used=3 * self.tokens, size=100000)
        elif word == "cost":
            self.update("usage_update", used=1, size=100000, cost={"amount": float(rest), "currency": "USD"})
        elif word == "plan":
            entries = [("read", "completed"), ("write", "in_progress"), ("check", "pending")]
            self.update("plan", entries=[{"content": c, "status": s, "priority": "high"} for c, s in entries])
        elif word == "recall":
            self.say("%d prompts before" % (len(self.session["prompts"]) - 1))
        elif word == "stop":
            return {"stopReason": rest}
        elif word == "fail":
            raise ValueError(rest)
        elif word == "garbage":
            for at in range(int(rest)):
                sys.stdout.write("not a message %d\n" % at)
            sys.stdout.flush()
        elif word == "exit":
            os._exit(int(rest))
        elif word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            self.say("I do not know `%s`" % line)
        return None

    def prompt(self, params):
        text = "\n".join(block.get("text", "") for block in params["prompt"])
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        goes_on = lines == ["continue"] or (lines and lines[0].startswith("Continue the task"))
        if goes_on and self.session["prompts"]:
            last = self.session["prompts"][-1]
            # The line that was not finished is skipped: it may be the one that ended the process.
            lines = last["lines"][last["done"] + 1:]
        current = {"lines": lines, "done": 0}
        self.session["prompts"].append(current)
        self.rpc.cancelled, self.tokens = False, 0
        self.save()
        answer = {"stopReason": "end_turn"}
        for line in lines:
            ended = self.line(line)
            current["done"] += 1
            self.save()
            if self.rpc.cancelled:
                answer = {"stopReason": "cancelled"}
                break
            if ended:
                answer = ended
                break
        if self.tokens:
            answer["usage"] = {"inputTokens": 2 * self.tokens, "outputTokens": self.tokens,
                               "totalTokens": 3 * self.tokens}
        return answer

    # Requests of the client.

    def initialize(self, params):
        self.client = params.get("clientCapabilities") or {}
        version = 1
        if "--version" in self.options:
            version = int(self.options[self.options.index("--version") + 1])
        can = {"loadSession": "--no-load" not in self.options, "sessionCapabilities": {}}
        if "--no-resume" not in self.options:
            can["sessionCapabilities"]["resume"] = {}
        return {"protocolVersion": version, "agentCapabilities": can,
                "agentInfo": {"name": "ghost-test-agent", "version": "1"},
                "authMethods": [{"id": "login", "name": "Log in to nothing"}]}

    def answer(self, method, params):
        if method == "initialize":
            return self.initialize(params)
        if method == "session/new":
            if "--auth" in self.options:
                raise PermissionError()
            self.session = {"id": str(uuid.uuid4()), "cwd": params["cwd"], "prompts": []}
            self.save()
            return {"sessionId": self.session["id"]}
        if method == "session/resume" and "--no-resume" not in self.options:
            self.load(params)
            return {}
        if method == "session/load" and "--no-load" not in self.options:
            self.load(params)
            self.replay()
            return {}
        if method == "session/prompt" and self.session and params.get("sessionId") == self.session["id"]:
            return self.prompt(params)
        raise KeyError(method)

    def serve(self):
        while True:
            message = self.rpc.next()
            if "method" not in message or "id" not in message:
                continue
            try:
                self.rpc.send(id=message["id"], result=self.answer(message["method"], message.get("params") or {}))
            except PermissionError:
                self.error(message, -32000, "Authentication required")
            except KeyError as error:
                self.error(message, -32601, "no method or session for %s" % error)
            except (IOError, OSError, ValueError) as error:
                self.error(message, -32603, str(error))

    def error(self, message, code, text):
        self.rpc.send(id=message["id"], error={"code": code, "message": text})


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
    else:
        try:
            Agent(sys.argv[1:]).serve()
        finally:
            # The thread that reads may hold a lock that the interpreter wants when it ends.
            sys.stderr.flush()
            sys.excepthook(*sys.exc_info())
            os._exit(1)
