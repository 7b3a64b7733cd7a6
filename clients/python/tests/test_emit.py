"""The Emitter on the real librdkafka: with its own mock of Kafka, and without any."""

import json
import os
import socket
import threading
import time
import unittest

from confluent_kafka import Consumer, Producer

from fake import closed_port
from tallygate import Emitter

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOWHERE = closed_port().removeprefix("http://")


def mock():
    """A Kafka that lives as long as the Producer that is returned first, and its address."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    broker = next(iter(producer.list_topics(timeout=30).brokers.values()))
    return producer, f"{broker.host}:{broker.port}"


def eventually(what, ok):
    end = time.monotonic() + 60
    while not ok():
        if time.monotonic() > end:
            raise AssertionError(f"after a minute it is still not so that {what}")
        time.sleep(0.01)


class Emits(unittest.TestCase):
    def test_records(self):
        kafka, address = mock()
        with Emitter([address], "events", name="shop") as emitter:
            self.assertTrue(emitter.emit(api="order.create", uid="42", attrs={"price": 1.5}))
            self.assertTrue(emitter.emit(api="order.create", ip="192.0.2.1", traceparent=TRACE))
            self.assertTrue(emitter.flush(30))
            self.assertEqual(emitter.stats(), (2, 0, {}, {}))
        self.assertFalse(emitter.emit(api="order.create", uid="42"))
        self.assertEqual(emitter.stats().dropped, {"closed": 1})
        consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0})
        consumer.subscribe(["events"])
        got = {}

        def both():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                got[message.key()] = message
            return len(got) == 2

        eventually("both records are there", both)
        consumer.close()
        self.assertEqual(got[b"42"].headers(), [("tg-c", b"shop")])
        self.assertEqual(got[None].headers(), [("tg-c", b"shop"), ("traceparent", TRACE.encode())])
        event = json.loads(got[b"42"].value())
        self.assertEqual((event["uid"], event["api"], event["attrs"]), ("42", "order.create", {"price": 1.5}))
        self.assertEqual(json.loads(got[None].value())["ip"], "192.0.2.1")
        del kafka

    def test_a_full_queue_drops_at_once(self):
        with self.assertLogs("tallygate", "ERROR") as logs:
            emitter = Emitter(NOWHERE, max_events=3)
            began = time.monotonic()
            queued = [emitter.emit(api="a", uid="1") for _ in range(1000)]
            self.assertLess(time.monotonic() - began, 5)
            self.assertEqual(queued.count(True), 3)
            self.assertEqual((emitter.stats().queued, emitter.stats().dropped), (3, {"queue_full": 997}))
            eventually("the log tells of it", lambda: any("events are dropped" in line for line in logs.output))
            emitter.close(0.01)
            self.assertEqual(emitter.stats().dropped, {"queue_full": 997, "undelivered": 3})
        self.assertTrue(any("undelivered" in line for line in logs.output))

    def test_kafka_is_away_and_comes_back(self):
        kafka, address = mock()
        with socket.create_server(("127.0.0.1", 0)) as reserved:
            port = reserved.getsockname()[1]
        emitter = Emitter(f"127.0.0.1:{port}", "events")
        with self.assertLogs("tallygate") as logs:
            self.assertTrue(emitter.emit(api="a", uid="1"))
            eventually("the log tells of it", lambda: logs.output)
            self.assertRegex(logs.output[0], "ERROR.*cannot be sent.*unreachable")
            self.assertGreater(emitter.stats().failed["unreachable"], 0)
            stop = forward(port, address)
            eventually("it is sent", lambda: emitter.stats().sent == 1)
            eventually("the log tells of it", lambda: len(logs.output) == 2)
            self.assertRegex(logs.output[1], "INFO.*reach Kafka again")
        emitter.close()
        stop()
        del kafka

    def test_what_is_no_event_is_dropped_by_middlewares(self):
        with self.assertLogs("tallygate", "ERROR") as logs:
            emitter = Emitter(NOWHERE)
            self.assertFalse(emitter.try_emit(api="a", uid="1", cost=-1))
            eventually("the log tells of it", lambda: logs.output)
        self.assertIn("needs refunds", logs.output[0])
        self.assertEqual(emitter.stats().dropped, {"invalid": 1})
        emitter.close(0.01)

    def test_settings(self):
        for wrong in (dict(brokers=""), dict(topic=""), dict(config={"acks": "1"}), dict(config={"partitioner": "random"})):
            with self.assertRaises(ValueError):
                Emitter(**{"brokers": NOWHERE, **wrong})
        with self.assertRaises(Exception):  # librdkafka's
            Emitter(NOWHERE, config={"no.such.setting": 1})

    def test_a_child_process_has_a_producer_of_its_own(self):
        kafka, address = mock()
        emitter = Emitter(address, "events")
        emitter.emit(api="a", uid="1")
        emitter.flush(30)
        child = os.fork()
        if child == 0:
            ok = emitter.stats().sent == 0 and emitter.emit(api="a", uid="1") and emitter.flush(30) and emitter.stats().sent == 1
            os._exit(0 if ok else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(emitter.stats().sent, 1)
        emitter.close()
        del kafka

    def test_an_emitter_that_nobody_has_ends(self):
        before = threading.active_count()
        emitter = Emitter(NOWHERE)
        self.assertEqual(threading.active_count(), before + 1)
        del emitter
        eventually("its thread ends", lambda: threading.active_count() == before)

    def test_a_producer_that_is_broken_for_good_is_replaced(self):
        kafka, address = mock()
        emitter = Emitter(address, "events")
        broken = emitter._producer
        emitter._on_error(Fatal())
        eventually("there is another one", lambda: emitter._producer is not broken and not emitter._fatal)
        self.assertTrue(emitter.emit(api="a", uid="1"))
        eventually("it sends", lambda: emitter.stats().sent == 1)
        emitter.close()
        del kafka


class Fatal:
    name = str = lambda self: "_FATAL"

    def fatal(self):
        return True


def forward(port, address):
    """Listens on a port, and connects it with an address. What it returns ends that."""
    host, to = address.rsplit(":", 1)
    listening = socket.create_server(("127.0.0.1", port))
    ends = [listening]

    def copy(one, other):
        try:
            while data := one.recv(1 << 16):
                other.sendall(data)
        except OSError:
            pass

    def accept():
        while True:
            try:
                here, _ = listening.accept()
            except OSError:
                return
            there = socket.create_connection((host, int(to)))
            ends.extend((here, there))
            for pair in ((here, there), (there, here)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()

    def stop():
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    return stop


if __name__ == "__main__":
    unittest.main()
