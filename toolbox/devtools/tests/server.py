"""A git server over HTTPS for the tests: it asks for credentials and writes down what it gets.

/real/…  serves a bare repository through `git http-backend` to whoever knows the password
/moved/… redirects to the other port, /stall/… never answers. It must never listen on more than the loopback device.
"""
import base64, http.server, os, ssl, subprocess, sys, threading, time

root, password, cert, key, log = sys.argv[1:6]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_one(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        given = self.headers.get("Authorization", "")
        with open(log, "a") as out:
            out.write(f"{self.server.server_port} {self.command} {self.path} {base64.b64decode(given[6:]).decode() or '-'}\n")
        if self.path.startswith("/stall/"):
            time.sleep(30)
            return
        if self.path.startswith("/moved/"):
            port = other[self.server.server_port]
            return self.answer(301, [("Location", f"https://localhost:{port}{self.path.replace('/moved/', '/real/')}")])
        if given != "Basic " + base64.b64encode(b"x-access-token:" + password.encode()).decode():
            return self.answer(401, [("WWW-Authenticate", 'Basic realm="t"')])
        path, _, query = self.path.partition("?")
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": root, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
               "REQUEST_METHOD": self.command, "REMOTE_USER": "t", "CONTENT_TYPE": self.headers.get("Content-Type", ""),
               "CONTENT_LENGTH": str(len(body)), "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
               "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
        answer = subprocess.run(["git", "http-backend"], input=body, env=env, stdout=subprocess.PIPE).stdout
        head, _, rest = answer.partition(b"\r\n\r\n")
        lines = [line.partition(b": ") for line in head.split(b"\r\n")]
        status = next((int(value.split()[0]) for name, _, value in lines if name == b"Status"), 200)
        self.answer(status, [(name.decode(), value.decode()) for name, _, value in lines if name != b"Status"], rest)

    do_GET = do_POST = handle_one


servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
ports = [server.server_port for server in servers]
other = {ports[0]: ports[1], ports[1]: ports[0]}
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
for server in servers:
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(*ports, flush=True)
threading.Event().wait()
