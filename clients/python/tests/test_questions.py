"""What the middlewares ask, and what holds where they get no answer."""

import json
import unittest

from fake import ALLOWED, BLOCKED, DENIED, Server, closed_port
from sending import USER, Sends
from tallygate import header


class Questions(Sends):
    def test_while_the_server_is_away(self):
        for fail, want in (("open", 200), ("closed", 503)):
            with self.assertLogs("tallygate"):
                for request, events in self.each(closed_port(), fail=fail, failures=1):
                    for _ in range(2):
                        status, headers, body = request()
                        self.assertEqual(status, want)
                        self.assertEqual("retry-after" in headers, False)
                    if fail == "closed":
                        self.assertEqual((json.loads(body)["title"], headers["content-type"]), ("Service Unavailable", "application/problem+json"))
                        self.assertEqual([e["outcome"] for e in events], ["limited"] * 2)
                    else:
                        self.assertEqual(len(events), 2)

    def test_what_is_refused_is_denied(self):
        """A proxy's page, or a bare 431, says nothing of a limit: but whoever can bring it about must not be let in by it."""
        with Server() as server:
            for admit, path in ((False, "/v1/forward-auth"), (True, "/v1/admit")):
                for status in (400, 403, 413, 429, 431):
                    server.answers[path] = (status, {"Content-Type": "text/html"}, b"<html>")
                    with self.assertLogs("tallygate", "WARNING"):
                        for request, events in self.each(server.url, failures=1, fail="open", admit=admit):
                            for _ in range(2):
                                got, headers, _ = request({"does": lambda: self.fail("it is not to be done")})
                                self.assertEqual((got, headers["content-type"]), (503, "application/problem+json"))
                            self.assertEqual([e["outcome"] for e in events], ["limited"] * 2)

    def test_a_server_that_is_none(self):
        with Server() as server, self.assertLogs("tallygate", "ERROR"):
            for status in (200, 502):
                server.answers["/v1/check"] = server.answers["/v1/admit"] = (status, {"Content-Type": "text/html"}, b"<html>")
                for request, _ in self.each(server.url, failures=1, uid=lambda s: "4\n2"):
                    self.assertEqual(request()[0], 200)

    def test_questions_are_bounded(self):
        """Servers refuse long headers: a client must not make the question long."""
        long = "a" * 50_000
        with Server() as server:
            server.answers["/v1/forward-auth"], server.answers["/v1/check"] = DENIED, BLOCKED
            for languages, want in (("de-CH, de;q=0.9, en", "de-CH, de;q=0.9, en"), (long, None), ("de, en;q=0.5, " + long, "de, en;q=0.5"), ("de," * 9999, ("de," * 85).strip(","))):
                for request, _ in self.each(server.url, attrs={"device": header("X-Device")}):
                    status, _, _ = request(headers=[USER, ("Accept-Language", languages), ("X-Device", long), ("X-Other", long)], path="/" + long)
                    _, asked, _ = server.asked[-1]
                    self.assertEqual((status, asked["Accept-Language"]), (429, want))
                    self.assertLess(sum(len(n) + len(v) for n, v in asked.items()), 2048)
            many = {f"a{i}": header("X-Device") for i in range(30)}
            for request, _ in self.each(server.url, attrs=many):
                self.assertEqual(request(headers=[USER, ("X-Device", long)])[0], 429)
                self.assertEqual((server.asked[-1][0], len(server.asked[-1][2]["attrs"])), ("/v1/check", 30))

    def test_what_no_header_can_have_is_asked_otherwise(self):
        """A user could otherwise go unlimited, by a name with a line break."""
        with Server() as server:
            server.answers["/v1/check"] = BLOCKED
            for request, _ in self.each(server.url, uid=lambda s: "4\n2"):
                status, headers, body = request()
                self.assertEqual(server.asked[-1][2], {"api": "get.search.query", "uid": "4\n2"})
                self.assertEqual((status, headers["retry-after"], headers["ratelimit"], headers["ratelimit-policy"], headers["cache-control"]),
                                 (429, "29", '"searches";r=0;t=29', '"searches";q=5', "no-store"))
                self.assertEqual(json.loads(body), {
                    "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
                    "title": "Request cannot be satisfied as assigned quota has been exceeded", "status": 429,
                    "detail": 'The limit of "searches" was exceeded; try again in 29 s.', "rule": "searches", "action": "block",
                    "until": "2026-11-21T14:44:18.240123Z", "retry_after": 29, "violated-policies": ["searches"]})

    def test_users_beyond_ascii(self):
        with Server() as server:
            server.answers["/v1/forward-auth"] = ALLOWED
            for request, events in self.each(server.url):
                request(headers=[("X-User", "漢字")])
                self.assertEqual((server.asked[-1][1]["X-Tallygate-Uid"].encode("latin-1").decode(), events[-1]["uid"]), ("漢字", "漢字"))


if __name__ == "__main__":
    unittest.main()
