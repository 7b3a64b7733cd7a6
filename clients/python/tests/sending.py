"""Small apps of ASGI and WSGI, and how requests are sent to them."""

import asyncio
import atexit
import unittest
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

from tallygate import AsyncClient, Client, TallygateASGI, TallygateWSGI, header

LONG = 5
LOOP = asyncio.new_event_loop()


@atexit.register
def end():
    LOOP.run_until_complete(asyncio.sleep(0))
    LOOP.close()


class Events(list):
    def try_emit(self, **event):
        self.append(event)
        return True


def asgi(app, method="GET", path="/search/query", headers=(), client=("192.0.2.7", 1), raw_path=None):
    """Sends one request. It returns the status, the headers and the body."""
    scope = {"type": "http", "method": method, "path": path, "headers": [(n.lower().encode(), v.encode()) for n, v in headers], "client": client, "query_string": b""}
    if raw_path:
        scope["raw_path"] = raw_path
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request"}

    LOOP.run_until_complete(app(scope, receive, send))
    told = {n.decode(): v.decode() for n, v in sent[0]["headers"]}
    return sent[0]["status"], told, b"".join(m.get("body", b"") for m in sent[1:])


def wsgi(app, method="GET", path="/search/query", headers=(), client=("192.0.2.7", 1), raw_path=None):
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "SCRIPT_NAME": "", "QUERY_STRING": "", "REMOTE_ADDR": client[0]}
    environ.update({"HTTP_" + n.upper().replace("-", "_"): v.encode().decode("latin-1") for n, v in headers})
    setup_testing_defaults(environ)
    started = []
    body = validator(app)(environ, lambda status, headers, error=None: started.append((status, headers)) or (lambda data: None))
    text = b"".join(body)
    body.close()
    return int(started[-1][0][:3]), {n.lower(): v for n, v in started[-1][1]}, text


def asgi_app(status=200, does=lambda: None, chunks=1):
    async def app(scope, receive, send):
        does()
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
        for i in range(chunks):
            await send({"type": "http.response.body", "body": b"x", "more_body": i < chunks - 1})

    return app


def wsgi_app(status=200, does=lambda: None, chunks=1):
    def app(environ, start_response):
        does()
        start_response(f"{status} Because", [("content-type", "text/plain")])
        return [b"x"] if chunks == 1 else (b"x" for _ in range(chunks))

    return app


KINDS = ((TallygateASGI, AsyncClient, asgi_app, asgi), (TallygateWSGI, Client, wsgi_app, wsgi))
USER = ("X-User", "42")


class Sends(unittest.TestCase):
    def each(self, url, **options):
        """Yields how a request is sent to a new app, and its events."""
        settings = {k: options.pop(k) for k in ("fail", "failures") if k in options}
        for middleware, client, app, send in KINDS:
            with self.subTest(kind=middleware.__name__):
                asking, events = client(url, timeout=LONG, **settings), Events()
                self.addCleanup(asking.close)

                def request(inner=None, *, app=app, send=send, middleware=middleware, asking=asking, events=events, **what):
                    of = {"uid": header("X-User"), "emitter": events, **options}
                    return send(middleware(app(**(inner or {})), asking, **of), **{"headers": [USER], **what})

                yield request, events
