"""A receiver of tallygate notify's webhooks: it drops what is not genuine, and what it has seen.

TALLYGATE_HOOK_SECRET=... python3 notify_webhook.py 8099
"""

import hmac, time
import http.server
import json
import os
import sys


def genuine(secret, header, body, now=None, within=300):
    """Whether body comes from who has the secret, not long ago."""
    parts = [part.split("=", 1) for part in header.split(",")]
    at = [value for name, value in parts if name == "t"][0]
    good = hmac.new(secret, at.encode() + b"." + body, "sha256").hexdigest()
    fresh = abs((now or time.time()) - int(at)) <= within
    return fresh and any(name == "v1" and hmac.compare_digest(value, good) for name, value in parts)


class Handler(http.server.BaseHTTPRequestHandler):
    secret = os.environ.get("TALLYGATE_HOOK_SECRET", "").encode()
    seen = set()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not genuine(self.secret, self.headers.get("Tallygate-Signature", "t=0"), body):
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
