"""The middlewares: what callers are told, and which events they lead to."""

import json
import logging
import unittest
import unittest.mock
import warnings

from fake import ALLOWED, DENIED, Server
from sending import LONG, USER, Events, Sends, asgi, asgi_app, wsgi, wsgi_app
from tallygate import AsyncClient, Client, TallygateASGI, TallygateWSGI, client_ip, header, named, note, pattern_api
from tallygate._client import Question
from tallygate._denials import Denials


class Middlewares(Sends):
    def test_who_is_let_in(self):
        with Server() as server:
            server.answers["/v1/forward-auth"] = ALLOWED
            for request, events in self.each(server.url, ip=lambda s: "192.0.2.1", attrs={"device": header("X-Device"), "staff": lambda s: True}):
                status, headers, body = request({"status": 201}, headers=[USER, ("X-Device", "d1"), ("Accept-Language", "de")], method="POST", path="/orders/17/items")
                self.assertEqual((status, body, headers["ratelimit"]), (201, b"x", '"searches";r=3;t=22'))
                asked = server.asked[-1][1]
                self.assertEqual([asked[n] for n in ("X-Tallygate-Uid", "X-Tallygate-Ip", "X-Tallygate-Api", "X-Tallygate-Attr-device", "Accept-Language")],
                                 ["42", "192.0.2.1", "post.orders.17", "d1", "de"])
                event = events.pop()
                self.assertEqual({n: event[n] for n in ("api", "uid", "ip", "outcome", "permit")},
                                 {"api": "post.orders.17", "uid": "42", "ip": "192.0.2.1", "outcome": "success", "permit": None})
                self.assertEqual([event["attrs"][n] for n in ("device", "staff", "status")], ["d1", "true", 201])
                self.assertEqual(asked["X-Tallygate-Attr-staff"], "true")
                self.assertGreaterEqual(event["attrs"]["latency_ms"], 0)
                self.assertEqual(events, [])

    def test_outcomes(self):
        with Server() as server:
            server.answers["/v1/forward-auth"] = ALLOWED
            for request, events in self.each(server.url):
                for status, outcome in ((202, "success"), (302, "success"), (401, "denied"), (404, "failure"), (429, "limited"), (500, "failure")):
                    request({"status": status, "chunks": 3})
                    self.assertEqual((events[-1]["outcome"], events[-1]["attrs"]["status"]), (outcome, status))

                def fails():
                    note(cost=2)
                    raise KeyError

                with self.assertRaises(KeyError):
                    request({"does": fails})
                self.assertEqual((events[-1]["outcome"], events[-1]["attrs"]["status"], events[-1]["cost"]), ("failure", 500, 2))
                self.assertEqual(len(events), 7)

    def test_who_is_denied(self):
        with Server() as server:
            server.answers["/v1/forward-auth"] = DENIED
            for emitted in (False, True):
                for request, events in self.each(server.url, emit_denied=emitted):
                    inner = {"does": lambda: self.fail("it is not to be done")}
                    status, headers, body = request(inner)
                    self.assertEqual((status, headers["retry-after"], headers["ratelimit"], headers["content-type"], json.loads(body)["detail"]),
                                     (429, "29", '"searches";r=0;t=29', "application/problem+json", "Too many."))
                    self.assertEqual(headers["content-length"], str(len(body)))
                    self.assertEqual(request(inner, method="HEAD")[2], b"")
                    self.assertEqual([e["outcome"] for e in events], ["limited"] * 2)

    def test_a_larger_plan_is_told_at_once(self):
        with Server() as server, unittest.mock.patch.multiple("tallygate._denials", EVERY=1e9, APART=0):
            server.answers["/v1/forward-auth"] = DENIED
            for middleware, client, inner, send in ((TallygateASGI, AsyncClient, asgi_app, asgi), (TallygateWSGI, Client, wsgi_app, wsgi)):
                asking, events = client(server.url, timeout=LONG), Events()
                self.addCleanup(asking.close)
                app = middleware(inner(), asking, uid=header("X-User"), attrs={"plan": header("X-Plan")}, emitter=events)
                for plan in ("free", "free", "free", "pro", "pro"):
                    self.assertEqual(send(app, headers=[USER, ("X-Plan", plan)])[0], 429)
                self.assertEqual([(e["outcome"], e["attrs"]["plan"]) for e in events], [("limited", "free"), ("limited", "pro")])

    def test_a_flood_of_denials_is_bounded(self):
        now = [0.0]
        denials = Denials(lambda: now[0])
        emitted = 0
        for second in range(20):
            now[0] = second
            emitted += sum(denials.emits(Question("x", "42", "", {})) for _ in range(1000))
        self.assertEqual(emitted, 4)
        self.assertLessEqual(sum(denials.emits(Question("x", str(n), "", {})) for n in range(10_000)), 256)

    def test_several_users_in_one_request(self):
        with Server() as server:
            client, events = AsyncClient(server.url), Events()  # which is not asked
            app = TallygateASGI(asgi_app(), client, uid=header("x-user"), emitter=events)
            status, headers, body = asgi(app, headers=[USER, ("X-User", "43")])
            self.assertEqual((status, headers["content-type"], json.loads(body)["status"], events, server.asked), (400, "application/problem+json", 400, [], []))

    def test_notes(self):
        def does():
            note({"coupon-code": "SPRING", "n": 1}, discounted=True, cost=2, id="o-17")
            note(outcome="failure", n=2)

        note(cost=3)  # outside of a request
        with Server() as server:
            server.answers["/v1/forward-auth"] = ALLOWED
            for request, events in self.each(server.url):
                request({"does": does})
                event = events[-1]
                self.assertEqual((event["cost"], event["id"], event["outcome"]), (2, "o-17", "failure"))
                self.assertEqual({n: event["attrs"][n] for n in ("coupon-code", "discounted", "n", "status")}, {"coupon-code": "SPRING", "discounted": True, "n": 2, "status": 200})
                request()
                self.assertNotIn("cost", events[-1])
        for wrong, error in ((dict(cost=-1), ValueError), (dict(cost="1"), TypeError), (dict(items=[1]), TypeError)):
            with self.assertRaises(error):
                note(**wrong)

    def test_what_is_skipped(self):
        with Server() as server:
            for skip in ({"/healthz"}, lambda scope: True):
                for request, events in self.each(server.url, skip=skip):
                    self.assertEqual((request(path="/healthz")[0], events, server.asked), (200, [], []))

    def test_permits_of_the_server(self):
        with Server() as server:
            server.answers["/v1/forward-auth"] = (204, {"X-Tallygate-Permit": '{"permit":"p1","permit_at":"2026-11-23T06:52:08Z"}'}, b"")
            for request, events in self.each(server.url):
                request()
                self.assertEqual(events[-1]["permit"], {"permit": "p1", "permit_at": "2026-11-23T06:52:08Z"})

    def test_permits_that_are_asked_for(self):
        granted = {"admitted": True, "permit": "p1", "permit_at": "2026-11-23T06:52:08Z", "token": "t1", "limit": 3, "remaining": 2, "reset": 60, "rule": "sms", "public": "sms"}
        with Server() as server:
            server.answers["/v1/done"] = {"ended": True}
            for request, events in self.each(server.url, admit=True, emit_denied=True):
                server.answers["/v1/admit"] = granted
                status, headers, _ = request({"status": 500})
                self.assertEqual((status, headers["ratelimit"], events[-1]["permit"]["permit"]), (500, '"sms";r=2;t=60', "p1"))
                self.assertEqual(server.asked[-1][2], {"token": "t1", "outcome": "failure"})
                server.answers["/v1/admit"] = {"admitted": False, "rule": "sms", "retry_after": 9, "limit": 3, "remaining": 0}
                status, headers, body = request()
                self.assertEqual((status, headers["retry-after"], headers["ratelimit"], events[-1]["outcome"]), (429, "9", '"limit";r=0;t=9', "limited"))
                self.assertEqual(json.loads(body)["detail"], "A limit was exceeded; try again in 9 s.")
                server.answers["/v1/admit"] = {"admitted": False, "in_doubt": True, "retry_after": 1}
                status, headers, body = request()
                self.assertEqual((status, headers["retry-after"]), (503, "1"))

    def test_who_asks_for_permits(self):
        granted = {"admitted": True, "token": "t1"}
        with Server() as server:
            server.answers = {"/v1/admit": granted, "/v1/done": {"ended": True}, "/v1/forward-auth": ALLOWED}
            for admit, want in (
                (True, True), (False, False), (lambda scope: True, True), (lambda scope: False, False), ([], False), (["get.search.query"], True),
                ({"get.search"}, False), (("get.*",), True), (frozenset({"*"}), True), (["post.*", "sms.send"], False),
            ):
                for request, _ in self.each(server.url, admit=admit):
                    server.asked.clear()
                    self.assertEqual(request()[0], 200)
                    self.assertEqual([path for path, _, _ in server.asked], ["/v1/admit", "/v1/done"] if want else ["/v1/forward-auth"])

            async def later(scope):
                return False

            for says in (lambda scope: None, lambda scope: "no", lambda scope: 1, later):
                server.asked.clear()
                app = TallygateWSGI(wsgi_app(), Client(server.url), uid=header("X-User"), admit=says)
                with warnings.catch_warnings(), self.assertRaises(TypeError):
                    warnings.simplefilter("ignore", RuntimeWarning)  # of a coroutine that nobody awaits
                    wsgi(app, headers=[USER])
                self.assertEqual(server.asked, [])

    def test_names(self):
        with Server() as server:
            server.answers["/v1/forward-auth"] = ALLOWED
            for request, events in self.each(server.url, api=named({"get.search.query": "search"})):
                request()
                request(path="/a")
                self.assertEqual([e["api"] for e in events], ["search", "get.a"])
            client = AsyncClient(server.url, timeout=LONG)
            self.addCleanup(client.close)
            app = TallygateASGI(asgi_app(), client, uid=header("x-user"), emitter=(events := Events()))
            asgi(app, path="/a/b", raw_path=b"/%61%2Fb%ff")
            self.assertEqual(events[0]["api"], "get.a.b-")

    def test_clients_behind_proxies(self):
        of = client_ip("10.0.0.0/8", "::1/128")
        for peer, forwarded, want in (
            ("192.0.2.1", "203.0.113.1", "192.0.2.1"), ("10.0.0.1", "203.0.113.1", "203.0.113.1"), ("10.0.0.1", "1.1.1.1, 203.0.113.1, 10.0.0.2", "203.0.113.1"),
            ("10.0.0.1", "203.0.113.1:99", "203.0.113.1"), ("10.0.0.1", "[2001:db8::1]:99", "2001:db8::1"), ("::ffff:10.0.0.1", "203.0.113.1", "203.0.113.1"),
            ("10.0.0.1", "10.0.0.2", None), ("10.0.0.1", "", None),
        ):
            self.assertEqual(of({"headers": [(b"x-forwarded-for", forwarded.encode())], "client": (peer, 1)}), want)
            self.assertEqual(of({"HTTP_X_FORWARDED_FOR": forwarded, "REMOTE_ADDR": peer}), want)
        self.assertEqual(client_ip()({"headers": [], "client": None}), None)

    def test_mistakes_are_told(self):
        client, asking = Client("http://127.0.0.1"), AsyncClient("http://127.0.0.1")
        for kind, given, options, error in (
            (TallygateASGI, asking, {}, ValueError), (TallygateASGI, client, {"uid": str}, TypeError), (TallygateWSGI, asking, {"uid": str}, TypeError),
            (TallygateWSGI, client, {"attrs": {"status": str}}, ValueError), (TallygateWSGI, client, {"user": str}, TypeError),
            *((TallygateWSGI, client, {"uid": str, "admit": no}, TypeError) for no in ("false", "sms.send", 1, 0, None, b"a", 1.5, [1], [True], {"a": True}, object())),
            *((TallygateASGI, asking, {"uid": str, "admit": no}, ValueError) for no in ([""], ["sms.*.send"], ["**"], ["*.send"])),
        ):
            with self.assertRaises(error):
                kind(None, given, **options)

    def test_nobody_says_who_asks(self):
        with Server() as server:
            server.answers["/v1/forward-auth"] = ALLOWED
            client = Client(server.url, timeout=LONG)
            self.addCleanup(client.close)
            app = TallygateWSGI(wsgi_app(), client, uid=header("X-Usr"))
            with self.assertLogs("tallygate", "WARNING") as logs:
                for _ in range(20):
                    wsgi(app, headers=[USER])
            for _ in range(20):
                wsgi(app, headers=[USER])
            self.assertEqual((len(logs.output), client.stats()["unnamed"]), (1, 40))
            self.assertIn("none of the first 20 requests had a uid", logs.output[0])

    def test_a_uid_is_missed_beside_an_address(self):
        with Server() as server:
            server.answers["/v1/forward-auth"] = ALLOWED
            for users, want in ((0, 1), (1, 0)):
                client = AsyncClient(server.url, timeout=LONG)
                self.addCleanup(client.close)
                app = TallygateASGI(asgi_app(), client, uid=header("X-User"), ip=client_ip())
                with self.assertLogs("tallygate", "WARNING") as logs:
                    for i in range(30):
                        asgi(app, headers=[USER] if i < users else [])
                    logging.getLogger("tallygate").warning("the end")
                self.assertEqual((len(logs.output) - 1, client.stats()["unnamed"]), (want, 30 - users))


class Routes(unittest.TestCase):
    def names(self, app, send, server):
        """The names of requests to the app, in which a middleware is that takes them from its routes."""
        self.events.clear()
        for method, path in (("GET", "/orders/17"), ("HEAD", "/orders/17"), ("DELETE", "/orders/17"), ("GET", "/nothing"), ("GET", "/admin/users/7")):
            send(app, method=method, path=path, headers=[USER])
        return [e["api"] for e in self.events]

    WANT = ["get.orders.id", "get.orders.id", "unrouted", "unrouted", "get.admin.users.id"]

    def setUp(self):
        self.events = Events()
        self.server = Server().__enter__()
        self.addCleanup(self.server.__exit__)
        self.server.answers["/v1/forward-auth"] = ALLOWED

    def client(self, kind):
        client = kind(self.server.url, timeout=LONG)
        self.addCleanup(client.close)
        return client

    def test_fastapi(self):
        from fastapi import APIRouter, FastAPI

        app, admin = FastAPI(), FastAPI()
        app.add_middleware(TallygateASGI, client=self.client(AsyncClient), emitter=self.events, uid=header("x-user"), api=pattern_api(app))
        app.api_route("/orders/{id}", methods=["GET", "HEAD"])(lambda id: id)
        admin.get("/users/{id:path}")(lambda id: id)
        app.mount("/admin", admin)
        router = APIRouter(prefix="/v2")
        router.get("/things/{thing}")(lambda thing: note(things=1))
        inner = APIRouter(prefix="/inner/{x}")
        inner.get("/{y}")(lambda x, y: x)
        router.include_router(inner)
        app.include_router(router)
        self.assertEqual(self.names(app, asgi, self.server), self.WANT)
        asgi(app, path="/v2/things/1", headers=[USER])
        self.assertEqual((self.events[-1]["api"], self.events[-1]["attrs"]["things"]), ("get.v2.things.thing", 1))
        asgi(app, path="/v2/inner/1/2", headers=[USER])
        self.assertEqual((self.events[-1]["api"], self.events[-1]["attrs"]["status"]), ("get.v2.inner.x.y", 200))

    def test_flask(self):
        from flask import Blueprint, Flask

        app, admin = Flask("shop"), Blueprint("admin", "admin")
        app.wsgi_app = TallygateWSGI(app.wsgi_app, self.client(Client), emitter=self.events, uid=header("x-user"), api=pattern_api(app))
        app.get("/orders/<int:id>")(lambda id: str(id))
        admin.get("/users/<id>")(lambda id: id)
        app.register_blueprint(admin, url_prefix="/admin")
        self.assertEqual(self.names(app, wsgi, self.server), self.WANT)


if __name__ == "__main__":
    unittest.main()
