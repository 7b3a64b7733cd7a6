"""Checks and permits: Client and AsyncClient do the same."""

import asyncio
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import unittest
from dataclasses import replace
from datetime import datetime, timezone

from fake import BLOCKED, Server, closed_port, listener
from tallygate import AsyncClient, Client, Denied

LONG = 5  # seconds, for servers that answer


class Sync:
    """AsyncClient, as if it were Client: each test runs with both."""

    def __init__(self, url, **settings):
        self._loop, self._client = asyncio.new_event_loop(), AsyncClient(url, **settings)

    def __getattr__(self, name):
        of = getattr(self._client, name)
        if name in ("stats", "close"):
            return of

        async def call(*args, **kw):
            return await of(*args, **kw)

        def now(*args, **kw):
            result = self._loop.run_until_complete(call(*args, **kw))
            return _Permit(self, result) if name == "admit" else result

        return now

    def closed(self):
        self._client.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


class _Permit:
    def __init__(self, client, permit):
        self._client, self._permit = client, permit

    def __getattr__(self, name):
        of = getattr(self._permit, name)
        return (lambda *a: self._client._loop.run_until_complete(of(*a))) if name in ("done", "cancel") else of

    def __bool__(self):
        return bool(self._permit)


class Clients(unittest.TestCase):
    def each(self, url, **settings):
        for kind in (Client, Sync):
            with self.subTest(kind=kind.__name__):
                client = kind(url, **{"timeout": LONG, **settings})
                self.addCleanup(client.close if kind is Client else client.closed)
                yield client

    def test_checks(self):
        with Server() as server:
            for client in self.each(server.url + "/"):
                server.answers["/v1/check"] = BLOCKED
                server.asked.clear()
                d = client.check("search.query", uid=42, ip="::ffff:192.0.2.1", attrs={"device": "d1", "none": None})
                self.assertEqual(server.asked[0][2], {"api": "search.query", "uid": "42", "ip": "192.0.2.1", "attrs": {"device": "d1"}})
                self.assertFalse(d)
                self.assertEqual((d.allowed, d.rule, d.public, d.action, d.retry_after, d.limit, d.in_doubt), (False, "search-combined", "searches", "block", 29, 5, False))
                self.assertEqual(d.until, datetime(2026, 11, 21, 14, 44, 18, 240123, timezone.utc))
                for micros, text in ((240123, ".240123Z"), (240000, ".24Z"), (0, ":18Z")):  # as the server writes it
                    told = replace(d, until=d.until.replace(microsecond=micros)).problem()
                    self.assertTrue(told["until"].endswith(text), told)
                    self.assertEqual(list(told)[-3:], ["until", "retry_after", "violated-policies"])
                self.assertEqual(d.headers(), {"Cache-Control": "no-store", "Retry-After": "29", "RateLimit": '"searches";r=0;t=29', "RateLimit-Policy": '"searches";q=5'})
                server.answers["/v1/check"] = {"allowed": True, "verdicts": [], "staleness": "1ms"}
                self.assertTrue(client.check("search.query", uid="1", wait=0.5))
                self.assertEqual(server.asked[-1][2]["wait"], 0.5)
                server.answers["/v1/check"] = {"allowed": False, "in_doubt": True, "verdicts": []}
                d = client.check("search.query", uid="1")
                self.assertEqual((d.allowed, d.in_doubt, d.status, d.headers()), (False, True, 503, {"Cache-Control": "no-store"}))
                self.assertEqual(client.stats(), {"answered": 3, "failed": 0, "skipped": 0, "refused": 0, "unnamed": 0})

    def test_connections_are_kept(self):
        with Server() as server:
            server.answers["/v1/check"] = {"allowed": True, "verdicts": []}
            for client in self.each(server.url):
                before = server.connections
                for _ in range(20):
                    client.check("a", uid="1")
                self.assertEqual(server.connections - before, 1)

    def test_chunked_answers_and_those_until_the_end(self):
        text = b'{"allowed":false,"rule":"' + b"r" * 10_000 + b'","verdicts":[{"limit":3}]}'

        def old(connection, over):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\n" + text)

        with Server() as server, listener(old) as until_end:
            server.answers["/v1/check"] = (200, {"Transfer-Encoding": "chunked"}, text)
            for url in (server.url, until_end):
                for client in self.each(url):
                    for _ in range(2):
                        self.assertEqual(client.check("a", uid="1").limit, 3)

    def test_a_connection_that_the_server_has_closed(self):
        """Servers close what is idle. The next question is asked on another one, and nobody notices."""

        def one_answer(connection, over):
            connection.recv(1 << 16)
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"allowed": true}')

        with listener(one_answer) as url:
            for client in self.each(url):
                for _ in range(5):
                    self.assertFalse(client.check("a", uid="1").in_doubt)
                self.assertEqual(client.stats()["failed"], 0)

    def test_never_slower_than_the_timeout(self):
        def silent(connection, over):
            over.wait()

        def trickle(connection, over):
            while not over.wait(0.01):
                connection.sendall(b"x")

        for serve in (silent, trickle):
            with listener(serve) as url:
                for client in self.each(url, timeout=0.1, failures=100):
                    began = time.monotonic()
                    d = client.check("a", uid="1")
                    took = time.monotonic() - began
                    self.assertTrue(d.allowed and d.in_doubt)
                    self.assertLess(took, 0.1 + 2)  # a busy machine
                    self.assertGreater(took, 0.05)

    def test_while_the_server_is_away(self):
        for fail, allowed in (("open", True), ("closed", False)):
            url = closed_port()
            for client in self.each(url, fail=fail, failures=3, pause=60):
                with self.assertLogs("tallygate", "ERROR") as logs:
                    got = [client.check("a", uid="1") for _ in range(10)]
                self.assertEqual([d.allowed for d in got], [allowed] * 10)
                self.assertTrue(all(d.in_doubt for d in got))
                self.assertEqual(got[0].status, 200 if allowed else 503)
                self.assertEqual(client.stats(), {"answered": 0, "failed": 3, "skipped": 7, "refused": 0, "unnamed": 0})
                self.assertEqual(len(logs.output), 1)
                self.assertEqual(client.check("a", uid="1", fail="closed").allowed, False)
                self.assertFalse(client.admit("a", uid="1"))  # a strict limit stays one
                self.assertTrue(client.admit("a", uid="1", fail="open"))

    def test_it_is_asked_again_after_a_pause(self):
        with Server() as server:
            for client in self.each(server.url, failures=1, pause=0.05):
                server.answers["/v1/check"] = (502, {}, b"<html>")
                with self.assertLogs("tallygate") as logs:
                    self.assertTrue(client.check("a", uid="1").in_doubt)
                    server.answers["/v1/check"] = {"allowed": True, "verdicts": []}
                    end = time.monotonic() + 60
                    while client.check("a", uid="1").in_doubt and time.monotonic() < end:
                        time.sleep(0.01)
                self.assertEqual([r.levelname for r in logs.records], ["ERROR", "INFO"])

    def test_what_the_server_refuses_is_denied(self):
        """Whoever finds out what makes a question wrong would else be let in, and with fail "open" everybody for a second."""
        problem = {"Content-Type": "application/problem+json"}
        with Server() as server:
            for status in (301, 400, 401, 403, 404, 405, 408, 413, 414, 422, 429, 431, 451, 499):
                all_bodies = ((problem, b'{"detail":"it has no dimension"}', "it has no dimension"), ({}, b"<html>\xff", "<html>"), ({}, b"[" * 9999, "[[["))
                for headers, body, detail in all_bodies if status == 413 else [all_bodies[status % 3]]:
                    server.answers["/v1/check"] = server.answers["/v1/admit"] = (status, headers, body)
                    with self.assertLogs("tallygate", "WARNING") as logs:
                        for client in self.each(server.url, fail="open", failures=1, pause=60):
                            d = client.check("a", uid="1")
                            self.assertEqual((d.allowed, d.in_doubt, d.status), (False, True, 503))
                            self.assertIn(f"HTTP {status}: {detail}", d.reason)
                            self.assertFalse(client.check("a", uid="1", fail="open"))
                            self.assertFalse(client.admit("a", uid="1", fail="open"))
                            self.assertEqual(client.stats(), {"answered": 3, "failed": 0, "skipped": 0, "refused": 3, "unnamed": 0})
                    self.assertEqual(len(logs.output), 2, "one line for each client")

    def test_a_refusal_without_an_end(self):
        """Of servers that refuse a whole request: no length, a body that ends late or not at all, or a connection that breaks."""

        def silent(connection, over):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n431 ")
            over.wait()

        def late(connection, over):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 99\r\n\r\n")
            over.wait()

        def broken(connection, over):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 99\r\n\r\n{")

        def chunks(connection, over):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 429 Too Many\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")

        for serve in (silent, late, broken, chunks):
            with listener(serve) as url, self.assertLogs("tallygate", "WARNING"):
                for client in self.each(url, timeout=0.2, failures=1):
                    self.assertEqual([bool(client.check("a", uid="1")) for _ in range(2)], [False, False])
                    self.assertEqual(client.stats(), {"answered": 2, "failed": 0, "skipped": 0, "refused": 2, "unnamed": 0})

    def test_wrong_arguments_are_told(self):
        for client in self.each("http://127.0.0.1:1"):
            for wrong in (dict(uid=1.5), dict(attrs={"a": [1]}), dict(uid=["1"])):
                with self.assertRaises(TypeError):
                    client.check("a", **wrong)
        for wrong in ("127.0.0.1:8080", "ftp://x", "http://user:secret@x", "http://x\r\nA: b/"):
            for kind in (Client, AsyncClient):
                with self.assertRaises(ValueError) as raised:
                    kind(wrong)
                self.assertNotIn("secret", str(raised.exception))
        with self.assertRaises(ValueError):
            Client("http://x", token="secret\n")
        with self.assertRaises(ValueError):
            Client("http://x", fail="ajar")

    def test_permits(self):
        granted = {"admitted": True, "limited": False, "permit": "p1", "permit_at": "2026-11-23T06:52:08Z", "id": "i1", "token": "t1", "limit": 3,
                   "remaining": 2, "reset": 3600, "rule": "sms-daily", "public": "messages"}
        with Server() as server:
            server.answers = {"/v1/admit": granted, "/v1/done": {"ended": True}, "/v1/cancel": {"ended": True}}
            for client in self.each(server.url, token="secret"):
                server.asked.clear()
                permit = client.admit("sms.send", uid="42", cost=2, id="mine")
                self.assertTrue(permit)
                self.assertEqual(permit.fields, {"permit": "p1", "permit_at": "2026-11-23T06:52:08Z"})
                self.assertEqual(permit.decision.headers(), {"RateLimit": '"messages";r=2;t=3600', "RateLimit-Policy": '"messages";q=3'})
                self.assertTrue(permit.done("failure") and permit.done() and permit.cancel())  # the first one ends it
                self.assertTrue(client.admit("sms.send", uid="42").cancel())
                self.assertEqual([(path, body) for path, _, body in server.asked], [
                    ("/v1/admit", {"api": "sms.send", "uid": "42", "cost": 2, "id": "mine"}), ("/v1/done", {"token": "t1", "outcome": "failure"}),
                    ("/v1/admit", {"api": "sms.send", "uid": "42", "cost": 1}), ("/v1/cancel", {"token": "t1"})])
                self.assertEqual({headers["Authorization"] for _, headers, _ in server.asked}, {"Bearer secret"})

    def test_permits_in_a_with_block(self):
        granted, denied = {"admitted": True, "token": "t"}, {"admitted": False, "rule": "r", "retry_after": 9, "limit": 3, "remaining": 0}
        with Server() as server:
            server.answers = {"/v1/admit": granted, "/v1/done": {"ended": True}}
            client = Client(server.url, timeout=LONG)
            self.addCleanup(client.close)

            async def ends():
                asking = AsyncClient(server.url, timeout=LONG)
                async with asking.admit("a", uid="1"):
                    pass
                with self.assertRaises(KeyError):
                    async with asking.admit("a", uid="1"):
                        raise KeyError
                server.answers["/v1/admit"] = denied
                with self.assertRaises(Denied):
                    async with asking.admit("a", uid="1"):
                        self.fail("it is not to be done")
                asking.close()

            with client.admit("a", uid="1"):
                pass
            with self.assertRaises(KeyError):
                with client.admit("a", uid="1"):
                    raise KeyError
            asyncio.run(ends())
            with self.assertRaises(Denied) as raised:
                with client.admit("a", uid="1"):
                    self.fail("it is not to be done")
            self.assertEqual(raised.exception.decision.retry_after, 9)
            self.assertEqual([body["outcome"] for path, _, body in server.asked if path == "/v1/done"], ["success", "failure"] * 2)

    def test_a_server_with_tls(self):
        certificate, key = self.certificate()
        with Server(certificate, key) as server:
            server.answers["/v1/check"] = {"allowed": True, "verdicts": []}
            tls = ssl.create_default_context(cafile=certificate)
            for client in self.each(server.url.replace("127.0.0.1", "localhost"), tls=tls):
                for _ in range(3):
                    self.assertFalse(client.check("a", uid="1").in_doubt)
            with self.assertLogs("tallygate", "ERROR") as logs:  # which no CA of the system has signed
                for client in self.each(server.url.replace("127.0.0.1", "localhost"), failures=1):
                    self.assertTrue(client.check("a", uid="1").in_doubt)
            self.assertIn("CERTIFICATE_VERIFY_FAILED", logs.output[0])

    def certificate(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        certificate, key = folder + "/cert.pem", folder + "/key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-out", certificate, "-keyout", key], check=True, capture_output=True)
        return certificate, key

    def test_a_child_process_has_connections_of_its_own(self):
        with Server() as server:
            server.answers["/v1/check"] = {"allowed": True, "verdicts": []}
            client = Client(server.url, timeout=LONG)
            self.addCleanup(client.close)
            client.check("a", uid="1")
            child = os.fork()
            if child == 0:
                os._exit(0 if not client._pool._idle and not client.check("a", uid="1").in_doubt else 1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(server.connections, 2)
            self.assertFalse(client.check("a", uid="1").in_doubt)
            self.assertEqual(server.connections, 2)


if __name__ == "__main__":
    unittest.main()
