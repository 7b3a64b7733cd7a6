"""A decision server that answers what a test says, and keeps what it was asked."""

import contextlib
import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCKED = {
    "allowed": False, "action": "block", "rule": "search-combined", "public": "searches", "until": "2026-11-21T14:44:18.240123456Z", "retry_after": 29,
    "verdicts": [{"rule": "search-combined", "public": "searches", "action": "block", "count": 6, "limit": 5}], "staleness": "1ms",
}
DENIED = (429, {"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Retry-After": "29", "RateLimit": '"searches";r=0;t=29'},
          b'{"status":429,"detail":"Too many."}\n')
ALLOWED = (204, {"RateLimit": '"searches";r=3;t=22'}, b"")


class Server:
    def __init__(self, certificate=None, key=None):
        self._tls = (certificate, key) if certificate else None
        self.answers = {}  # by path: (status, headers, body), or a dict for JSON
        self.asked = []  # (path, headers, body)
        self.connections = 0

    def __enter__(self):
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                fake.connections += 1

            def serve(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fake.asked.append((self.path, self.headers, json.loads(body) if body else None))
                answer = fake.answers.get(self.path, (404, {"Content-Type": "application/problem+json"}, b'{"detail":"nothing here"}'))
                if isinstance(answer, dict):
                    answer = (200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
                status, headers, text = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if headers.get("Transfer-Encoding") == "chunked":
                    text = b"".join(b"%x;x=y\r\n%s\r\n" % (len(text[i:i + 7]), text[i:i + 7]) for i in range(0, len(text), 7)) + b"0\r\nTrailer: 1\r\n\r\n"
                elif status != 204:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = serve

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # clients that leave
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{self._http.server_port}"
        if self._tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._tls)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextlib.contextmanager
def listener(serve):
    """A server that treats each connection as serve does, in a thread. It yields the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def accept():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=_quietly, args=(serve, connection, over), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        over.set()
        listening.shutdown(socket.SHUT_RDWR)


def _quietly(serve, connection, over):
    with connection, contextlib.suppress(OSError):
        serve(connection, over)


def closed_port():
    """A URL at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"
