"""What is an event, and what is not."""

import json
import math
import unittest
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from tallygate._event import MAX_BYTES, record


def value(**event):
    return json.loads(record(**{"api": "a", "uid": "1", **event})[1])


class Events(unittest.TestCase):
    def test_ids_and_times_are_made(self):
        first, second = value(), value()
        self.assertNotEqual(first["id"], second["id"])
        self.assertRegex(first["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")

    def test_times_have_a_zone(self):
        noon = datetime(2026, 11, 21, 12, 0, 0, 120000, timezone(timedelta(hours=8)))
        self.assertEqual(value(time=noon)["time"], "2026-11-21T04:00:00.12Z")
        self.assertEqual(value(time=noon.replace(microsecond=0))["time"], "2026-11-21T04:00:00Z")

    def test_users(self):
        self.assertEqual(record(api="a", uid=42)[0], b"42")
        self.assertEqual(record(api="a", uid="", ip="192.0.2.1")[0], None)
        self.assertNotIn("ip", value(ip="no address"))

    def test_ids_that_are_numbers(self):
        for number in (0, 17, -1, 2**53 + 1, 10**30):
            self.assertEqual([value(id=number)["id"], value(uid=number)["uid"], value(cost=-1, refunds=number)["refunds"]], [str(number)] * 3)

    def test_costs(self):
        for cost, want in ((2, 2), (0.5, 0.5), (0.1 + 0.2, 0.3), (Decimal("1.25"), 1.25), (0, 0), (3.0, 3)):
            self.assertEqual(value(cost=cost)["cost"], want)
        self.assertNotIn("cost", value(cost=1.0))
        self.assertEqual(value(cost=-1, refunds="x")["refunds"], "x")

    def test_attributes(self):
        attrs = {"a": "x", "b": 42.0, "c": True, "d": None, "e": "", "f": Decimal("1.50"), "g": 10**400}
        got = value(attrs=attrs)["attrs"]
        self.assertEqual({n: got[n] for n in got if n != "g"}, {"a": "x", "b": 42, "c": True, "f": 1.5})
        self.assertEqual(got["g"], 10**400)

    def test_mistakes_are_told(self):
        now = datetime.now()
        for wrong, error in (
            (dict(uid=None), ValueError), (dict(uid=""), ValueError), (dict(uid=1.0), TypeError), (dict(uid=True), TypeError), (dict(uid=b"1"), TypeError),
            (dict(api=""), ValueError), (dict(api=None), TypeError), (dict(api="a" * 129), ValueError), (dict(api="a\nb"), ValueError),
            (dict(cost="1"), TypeError), (dict(cost=True), TypeError), (dict(cost=math.nan), ValueError), (dict(cost=-1), ValueError),
            (dict(cost=0.0000001), ValueError), (dict(cost=10**13), ValueError), (dict(outcome=200), TypeError),
            (dict(id=1.0), TypeError), (dict(id=True), TypeError), (dict(id=b"1"), TypeError), (dict(refunds=1.0), TypeError),
            (dict(time=now), ValueError), (dict(time=now.timestamp()), TypeError), (dict(attrs={"a": [1]}), TypeError), (dict(attrs={1: "a"}), TypeError),
            (dict(attrs={"a": math.inf}), ValueError), (dict(attrs={str(i): 1 for i in range(33)}), ValueError),
        ):
            with self.assertRaises(error, msg=str(wrong)):
                record(**{"api": "a", "uid": "1", **wrong})

    def test_whatever_clients_send_fits(self):
        wide = "\x01" * 100_000
        _, text = record(api="a", uid=wide, outcome=wide, id=wide, attrs={str(i) + wide: wide for i in range(32)})
        self.assertLess(len(text), MAX_BYTES)

    def test_only_two_fields_of_an_answer_are_the_permits(self):
        answer = {"admitted": True, "permit": "p", "permit_at": {"uid=1": "2026-11-21T04:00:00Z"}, "id": "other", "uid": "other"}
        got = value(id="e", permit=answer)
        self.assertEqual((got["id"], got["uid"], got["permit"], got["permit_at"]), ("e", "1", "p", answer["permit_at"]))


if __name__ == "__main__":
    unittest.main()
