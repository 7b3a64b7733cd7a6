"""The tables that clients in all languages have in common."""

import json
import unittest
from datetime import datetime
from pathlib import Path

from tallygate import normalize_key, path_api, status_outcome, template_api
from tallygate._event import record
from tallygate._values import canonical_ip, canonical_text, canonical_uid, decoded_path_api

TESTDATA = Path(__file__).resolve().parents[3] / "testdata"


def table(name):
    return json.loads((TESTDATA / name).read_text(encoding="utf-8"))


class Vectors(unittest.TestCase):
    def test_outcomes(self):
        for status, outcome in table("outcomes.json")["http"].items():
            self.assertEqual(status_outcome(int(status)), outcome, status)

    def test_names(self):
        for row in table("vectors/names.json"):
            self.assertEqual(path_api(row["method"], row["target"]), row["name"], row)

    def test_names_of_paths_that_a_server_has_decoded(self):
        for row in table("vectors/names.json"):
            if row["target"].startswith("/") and not any(c in row["target"] for c in "%?#"):
                self.assertEqual(decoded_path_api(row["method"], row["target"]), row["name"], row)

    def test_templates(self):
        for row in table("vectors/templates.json"):
            self.assertEqual(template_api(row["method"], row["template"]), row["name"], row)
        self.assertEqual(template_api("GET", "/orders/<int:id>/<string(length=2):lang>/<x>"), "get.orders.id.lang.x")

    def test_canonical_values(self):
        of = {"uid": canonical_uid, "text": canonical_text, "ip": canonical_ip}
        for row in table("vectors/canonical.json"):
            given = bytes.fromhex(row["in_hex"]) if "in_hex" in row else row.get("in", "")
            self.assertEqual(of[row["kind"]](given), row["out"], row)
            if isinstance(given, bytes):  # as a WSGI server, or os.environ, has them
                self.assertEqual(of[row["kind"]](given.decode("utf-8", "surrogateescape")), row["out"], row)

    def test_keys_that_people_type(self):
        for row in table("vectors/keys.json"):
            self.assertEqual(normalize_key(row["in"]), row["out"], row)

    def test_events(self):
        for row in table("vectors/events.json"):
            given = dict(row["event"])
            given["time"] = datetime.fromisoformat(given["time"].replace("Z", "+00:00"))
            if "permit" in given:
                given["permit"] = {"permit": given["permit"]}
            key, value = record(**given)
            self.assertEqual((key or b"").decode(), row["key"])
            self.assertEqual(json.loads(value), row["value"])


if __name__ == "__main__":
    unittest.main()
