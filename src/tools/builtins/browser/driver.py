# Opens one page in Chromium and says what it shows, as one JSON object on standard output. Runs in a container that is
# thrown away. The browser is driven over a pipe: a port could be reached by pages and by other programs.
import fcntl, json, os, select, subprocess, sys, time

want = json.loads(sys.argv[1])
end = time.monotonic() + want["seconds"]
PROFILE = "/tmp/profile"
# Pixels of the longest screenshot. Longer ones come out blank.
HEIGHT_MAX = 16384


class Failed(Exception):
    pass


def pipe():
    # Away from 3 and 4, where the browser expects its ends.
    return [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in os.pipe()]


to_browser, from_browser = pipe(), pipe()


def wire():
    os.dup2(to_browser[0], 3)
    os.dup2(from_browser[1], 4)


browser = subprocess.Popen(
    ["chromium", "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--user-data-dir=" + PROFILE,
     "--proxy-server=" + want["proxy"], "--proxy-bypass-list=<-loopback>", "--disable-quic", "--disable-gpu",
     "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
     "--disable-extensions", "--disable-breakpad", "--no-first-run", "--no-default-browser-check", "--mute-audio",
     "--hide-scrollbars", "--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "about:blank"],
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=sys.stderr, close_fds=False, preexec_fn=wire)
os.close(to_browser[0])
os.close(from_browser[1])

buffer, last, seen = b"", 0, {"loaded": False, "status": None, "refusal": None, "frame": None}


def receive(until):
    """The next message, or None when the time is up."""
    global buffer
    while b"\0" not in buffer:
        left = until - time.monotonic()
        if left <= 0:
            return None
        if not select.select([from_browser[0]], [], [], min(left, 0.5))[0]:
            # Helpers of the browser may hold the pipe after its end.
            if browser.poll() is not None:
                raise Failed("the browser ended")
            continue
        piece = os.read(from_browser[0], 1 << 16)
        if not piece:
            raise Failed("the browser ended")
        buffer += piece
    message, buffer = buffer.split(b"\0", 1)
    return json.loads(message)


def send(method, params=None, session=None):
    global last
    last += 1
    message = {"id": last, "method": method, "params": params or {}}
    if session:
        message["sessionId"] = session
    data = json.dumps(message).encode() + b"\0"
    while data:
        data = data[os.write(to_browser[1], data):]
    return last


def heard(message):
    """Takes an event."""
    method, params = message.get("method"), message.get("params", {})
    if method == "Page.loadEventFired":
        seen["loaded"] = True
    elif method == "Page.javascriptDialogOpening":
        # A page that waits for an answer would wait without end.
        send("Page.handleJavaScriptDialog", {"accept": False}, message.get("sessionId"))
    elif method == "Network.responseReceived" and params.get("type") == "Document":
        if params.get("frameId") == seen["frame"]:
            response = params["response"]
            headers = {name.lower(): value for name, value in response.get("headers", {}).items()}
            seen["status"], seen["refusal"] = response.get("status"), headers.get("x-ghost-refusal")
    elif method == "Inspector.targetCrashed":
        raise Failed("the page crashed")


def call(method, params=None, session=None):
    number = send(method, params, session)
    while True:
        message = receive(end)
        if message is None:
            raise Failed("the page took too long")
        if message.get("id") == number:
            if "error" in message:
                raise Failed(method + ": " + message["error"].get("message", "it failed"))
            return message["result"]
        heard(message)


def listen(until, done=lambda: False):
    while not done():
        message = receive(min(until, end))
        if message is None:
            return
        heard(message)


def evaluated(page, expression):
    return call("Runtime.evaluate", {"expression": expression, "returnByValue": True}, page)["result"].get("value")


def visit():
    target = call("Target.createTarget", {"url": "about:blank"})["targetId"]
    page = call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
    call("Browser.setDownloadBehavior", {"behavior": "deny"})
    for domain in ("Page", "Network", "Runtime", "Inspector"):
        call(domain + ".enable", None, page)
    width, height = want["viewport"]
    call("Emulation.setDeviceMetricsOverride",
         {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}, page)
    seen["frame"] = call("Page.getFrameTree", None, page)["frameTree"]["frame"]["id"]
    seen["loaded"] = False
    went = call("Page.navigate", {"url": want["url"]}, page)
    if went.get("errorText"):
        return {"error": went["errorText"], "refusal": seen["refusal"], "status": seen["status"]}
    listen(time.monotonic() + want["load_seconds"], lambda: seen["loaded"])
    if want["wait_ms"]:
        listen(time.monotonic() + want["wait_ms"] / 1000)
    found = {"final_url": evaluated(page, "location.href"), "title": evaluated(page, "document.title"),
             "status": seen["status"], "refusal": seen["refusal"], "complete": seen["loaded"]}
    action = want["action"]
    if action == "text":
        text = evaluated(page, "document.body ? document.body.innerText : ''")
        found["content"] = (text or "")[:want["text_max"]]
    elif action == "html":
        text = evaluated(page, "document.documentElement ? document.documentElement.outerHTML : ''")
        found["content"] = (text or "")[:want["text_max"]]
    elif action == "screenshot":
        if want["full_page"]:
            size = call("Page.getLayoutMetrics", None, page)["cssContentSize"]
            height = min(max(int(size["height"]), 1), HEIGHT_MAX)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = {"format": "png", "clip": clip, "captureBeyondViewport": want["full_page"]}
        found.update(data=call("Page.captureScreenshot", shot, page)["data"], width=width, height=height)
    else:
        found["data"] = call("Page.printToPDF", {"printBackground": True}, page)["data"]
    return found


try:
    found = visit()
except Failed as failed:
    found = {"failed": str(failed)}
except (OSError, ValueError, KeyError) as error:
    found = {"failed": type(error).__name__ + ": " + str(error)}
# Half a character, as pages that cut an emoji have it, is no text outside the browser.
found = {name: value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value
         for name, value in found.items()}
print(json.dumps(found))
sys.stdout.flush()
# The rest of the tree dies with this program.
os._exit(0)
