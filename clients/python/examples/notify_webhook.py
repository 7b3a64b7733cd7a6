"""A receiver of tallygate notify's webhooks: it drops what is not genuine, and what it has seen.

TALLYGATE_HOOK_SECRET=... python3 notify_webhook.py 8099
"""

import hmac
import http.server
import json
import os
import sys
import time


def genuine(secret: bytes, header: str, body: bytes, now: float | None = None, within: float = 300) -> bool:
    """Whether body comes from who has the secret, not long ago."""
    parts = [part.partition("=") for part in header.split(",")]
    at = next((value for name, _, value in parts if name == "t"), "")
    if not at.isdecimal() or not at.isascii() or abs((now or time.time()) - int(at[:20])) > within:
        return False
    good = hmac.new(secret, at.encode() + b"." + body, "sha256").hexdigest()
    return any(name == "v1" and hmac.compare_digest(value.encode(), good.encode()) for name, _, value in parts)


class Handler(http.server.BaseHTTPRequestHandler):
    secret = os.environ.get("TALLYGATE_HOOK_SECRET", "").encode()
    seen: set[str] = set()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if not genuine(self.secret, self.headers.get("Tallygate-Signature", ""), body):
            self.send_error(401)
            return
        delivery = self.headers["Tallygate-Delivery"]
        if delivery not in self.seen:
            print(json.loads(body)["title"], flush=True)
            self.seen.add(delivery)
        self.send_response(204)
        self.end_headers()


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
