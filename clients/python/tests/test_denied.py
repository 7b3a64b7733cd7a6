"""Handlers that ask for permits themselves, and those that fail behind their status."""

import json
import unittest

from fake import ALLOWED, Server
from sending import LONG, USER, Events, asgi, asgi_app, wsgi, wsgi_app
from tallygate import AsyncClient, Client, Denied, TallygateASGI, TallygateWSGI, header


class DeniedInside(unittest.TestCase):
    """A permit that a handler asks for, and does not get, is the answer."""

    NO = {"admitted": False, "rule": "sms-secret", "public": "messages", "retry_after": 9, "limit": 3, "remaining": 0, "action": "block"}

    def setUp(self):
        self.server, self.events = Server().__enter__(), Events()
        self.addCleanup(self.server.__exit__)
        self.server.answers = {"/v1/forward-auth": ALLOWED, "/v1/admit": self.NO}
        self.client, self.asking = Client(self.server.url, timeout=LONG), AsyncClient(self.server.url, timeout=LONG)
        self.addCleanup(self.client.close)
        self.addCleanup(self.asking.close)

    def send_sms(self):
        with self.client.admit("sms.send", uid="42"):
            self.fail("it is not to be done")

    def looks_denied(self, answer, status=429):
        got, headers, body = answer
        self.assertEqual((got, headers["content-type"], headers["content-length"]), (status, "application/problem+json", str(len(body))))
        if status == 429:
            self.assertEqual((headers["retry-after"], headers["ratelimit"], headers["ratelimit-policy"], headers["cache-control"]), ("9", '"messages";r=0;t=9', '"messages";q=3', "no-store"))
            self.assertEqual(json.loads(body)["detail"], 'The limit of "messages" was exceeded; try again in 9 s.')
        self.assertEqual([(e["outcome"], e["attrs"]["status"]) for e in self.events], [("limited" if status == 429 else "failure", status)])
        self.events.clear()

    def asgi(self, app):
        return TallygateASGI(app, self.asking, uid=header("x-user"), emitter=self.events)

    def wsgi(self, app):
        return TallygateWSGI(app, self.client, uid=header("x-user"), emitter=self.events)

    def test_plain_apps(self):
        def lazy(environ, start_response):
            start_response("200 OK", [("content-type", "text/plain")])
            self.send_sms()
            yield b"x"

        def answers_500(environ, start_response):
            try:
                self.send_sms()
            except Denied:
                start_response("500 Oh", [("content-type", "text/plain")])([b"no"])
                return [b"no"]

        def catches(environ, start_response):
            try:
                self.send_sms()
            except Denied:
                start_response("202 Later", [("content-type", "text/plain")])
                return [b"later"]

        for app in (wsgi_app(does=self.send_sms), lazy, answers_500):
            self.looks_denied(wsgi(self.wsgi(app), headers=[USER]))
        self.assertEqual(wsgi(self.wsgi(catches), headers=[USER])[::2], (202, b"later"))
        self.events.clear()
        self.looks_denied(asgi(self.asgi(asgi_app(does=self.send_sms)), headers=[USER]))

        async def asks(scope, receive, send):
            async with self.asking.admit("sms.send", uid="42"):
                self.fail("it is not to be done")

        self.looks_denied(asgi(self.asgi(asks), headers=[USER]))
        self.server.answers["/v1/admit"] = {"admitted": False, "in_doubt": True, "retry_after": 1}
        self.looks_denied(asgi(self.asgi(asks), headers=[USER]), 503)
        self.looks_denied(wsgi(self.wsgi(wsgi_app(does=self.send_sms)), headers=[USER]), 503)

    def test_others_keep_their_500(self):
        async def fails(scope, receive, send):
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b"x"})

        self.assertEqual(asgi(self.asgi(fails), headers=[USER])[::2], (500, b"x"))
        self.assertEqual(wsgi(self.wsgi(wsgi_app(500)), headers=[USER])[::2], (500, b"x"))

    def test_frameworks(self):
        from fastapi import FastAPI
        from flask import Flask

        for outside in (False, True):
            app = FastAPI()

            @app.get("/search/query")
            def blocking():
                self.send_sms()

            @app.get("/async/query")
            async def waiting():
                async with self.asking.admit("sms.send", uid="42"):
                    self.fail("it is not to be done")

            if outside:
                whole = self.asgi(app)
            else:
                app.add_middleware(TallygateASGI, client=self.asking, uid=header("x-user"), emitter=self.events)
                whole = app
            for path in ("/search/query", "/async/query"):
                self.looks_denied(asgi(whole, path=path, headers=[USER]))
        flask = Flask("shop")
        flask.get("/search/query")(self.send_sms)
        flask.logger.disabled = True  # it tells what no handler has caught
        flask.wsgi_app = self.wsgi(flask.wsgi_app)
        self.looks_denied(wsgi(flask, headers=[USER]))

    def test_a_failure_behind_a_status_is_a_failure(self):
        def begins(environ, start_response):
            start_response("200 OK", [])
            yield b"x"
            raise KeyError

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise KeyError

        async def denied(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            async with self.asking.admit("sms.send", uid="42"):
                pass

        for broken, error in ((app, KeyError), (denied, Denied)):
            with self.assertRaises(error):
                asgi(self.asgi(broken), headers=[USER])
        with self.assertRaises(KeyError):
            body = self.wsgi(begins)({"REQUEST_METHOD": "GET", "PATH_INFO": "/", "HTTP_X_USER": "42"}, lambda *a: None)
            try:
                list(body)
            finally:
                body.close()
        self.assertEqual([(e["outcome"], e["attrs"]["status"]) for e in self.events], [("failure", 200)] * 3)


if __name__ == "__main__":
    unittest.main()
