"""Events to Kafka. Emitting never waits: what does not fit into the queue is dropped, counted and told."""

from __future__ import annotations

import atexit
import ctypes
import logging
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple

from ._event import Number, Value, record
from ._http import own_per_process

_log = logging.getLogger("tallygate")
_OURS = ("acks", "enable.idempotence", "partitioner", "bootstrap.servers")  # counts depend on them
_KINDS = {
    "tls": ("_SSL",),
    "topic": ("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART", "TOPIC_EXCEPTION"),
    "unreachable": ("_TRANSPORT", "_RESOLVE", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT"),
    "replicas": ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "LEADER_NOT_AVAILABLE"),
    "refused": ("MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD", "POLICY_VIOLATION", "INVALID_TIMESTAMP"),
    "undelivered": ("_PURGE_QUEUE", "_PURGE_INFLIGHT"),
}


class Stats(NamedTuple):
    sent: int  # events that Kafka acknowledged
    queued: int  # that wait, or are on their way
    dropped: dict[str, int]  # that will not be sent, by reason: invalid, queue_full, closed, undelivered, refused …
    failed: dict[str, int]  # errors of Kafka, by reason: auth, tls, topic, unreachable, replicas, refused, other


def kind_of(error: Any) -> str:
    """What is the matter with Kafka, of a KafkaError."""
    name = str(error.name())
    if "AUTH" in name or "SASL" in name:
        return "auth"
    return next((kind for kind, names in _KINDS.items() if name in names), "other")


class Emitter:
    """Sends events, from any thread and any event loop. Make one for a program."""

    def __init__(self, brokers: str | Iterable[str], topic: str = "tallygate.events", *, name: str | None = None,
                 max_events: int = 100_000, max_bytes: int = 64 << 20, config: Mapping[str, Any] | None = None) -> None:
        try:
            from confluent_kafka import Producer
        except ImportError as error:
            raise ImportError("an Emitter needs confluent-kafka: pip install 'tallygate[emit]'") from error
        brokers = brokers if isinstance(brokers, str) else ",".join(brokers)
        if not brokers or not topic:
            raise ValueError("brokers and topic: give both, such as Emitter('kafka:9092')")
        if wrong := [key for key in config or () if key in _OURS]:
            raise ValueError(f"config: {', '.join(wrong)} cannot be changed: what is counted depends on it")
        self._config = {
            "client.id": name or "tallygate-python",
            "linger.ms": 5,
            "compression.type": "lz4",
            "message.timeout.ms": 0,  # events wait for Kafka as long as the queue has room
            "topic.metadata.propagation.max.ms": 2_000_000,  # and for a topic that is not there yet; more overflows
            "socket.connection.setup.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 2_000,
            "queue.buffering.max.messages": max_events,
            "queue.buffering.max.kbytes": max(max_bytes >> 10, 1),
            "log_level": 2,  # the rest comes by error_cb, and is told once
            **(config or {}),
            "bootstrap.servers": brokers,
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # where the aggregator looks for a uid: Java's place
            "error_cb": _weak(self),
        }
        self._topic, self._make = topic, Producer
        self._headers = [("tg-c", name[:64].encode())] if name else None
        self._closed = False
        self._reset()
        self._start()  # tells what is wrong with config
        own_per_process(self)
        atexit.register(_close_at_exit, weakref.ref(self))

    def _reset(self) -> None:
        self._producer: Any = None
        self._lock, self._sent, self._error, self._fatal, self._invalid = threading.Lock(), 0, ("", ""), False, ""
        self._dropped: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._thread: threading.Thread | None = None

    def forked(self) -> None:
        """librdkafka's threads do not live in a child process, which gets a producer of its own."""
        if self._producer is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))  # its end would wait for these threads
        self._reset()

    def _start(self) -> Any:
        with self._lock:
            if self._producer is None:
                self._producer = self._make(self._config, logger=logging.getLogger("tallygate.librdkafka"))
                self._thread = threading.Thread(target=_run, args=(weakref.ref(self), self._producer), daemon=True, name="tallygate-emit")
                self._thread.start()
            return self._producer

    def emit(self, *, api: str, uid: str | int | None = None, outcome: str = "", cost: Number = 1, ip: object = None,
             attrs: Mapping[str, Value] | None = None, id: str | int | None = None, time: datetime | None = None,
             permit: Any = None, refunds: str | int | None = None, traceparent: str | None = None) -> bool:
        """Queues an event. It returns whether there was room, and raises only for what is no event. permit is what admit
        returned, or its two fields. traceparent is the W3C trace context of the request."""
        key, value = record(api=api, uid=uid, outcome=outcome, cost=cost, ip=ip, attrs=attrs, id=id, time=time, permit=permit, refunds=refunds)
        if self._closed:
            return self._drop("closed")
        try:
            producer = self._producer or self._start()
            headers = self._headers if traceparent is None else [*(self._headers or ()), ("traceparent", traceparent.encode())]
            producer.produce(self._topic, value, key, headers=headers, on_delivery=self._on_delivery)
            return True
        except BufferError:
            return self._drop("queue_full")
        except Exception as error:  # a KafkaException: what Kafka is like is never the caller's fault
            return self._drop(kind_of(error.args[0]) if hasattr(error.args[0], "name") else "other")

    def try_emit(self, **event: Any) -> bool:
        """emit for middlewares: what is no event is dropped, counted and told, and raises nothing."""
        try:
            return self.emit(**event)
        except (TypeError, ValueError) as error:
            self._invalid = str(error)
            return self._drop("invalid")

    def stats(self) -> Stats:
        with self._lock:
            queued = len(self._producer) if self._producer is not None else 0
            return Stats(self._sent, queued, dict(self._dropped), dict(self._failed))

    def flush(self, timeout: float = 10) -> bool:
        """Waits until all is sent; False: some still waits."""
        return self._producer is None or self._producer.flush(timeout) == 0

    def close(self, timeout: float = 10) -> None:
        """Sends what is queued. What is left when the time is over is dropped. A program's end does this, too."""
        with self._lock:
            closed, self._closed = self._closed, True
        if closed or self._producer is None:
            return
        if not self.flush(timeout):
            self._producer.purge()
            self.flush(1)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2)

    def __enter__(self) -> Emitter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop(self, reason: str) -> bool:
        with self._lock:
            self._dropped[reason] += 1
        return False

    def _on_delivery(self, error: Any, message: Any) -> None:
        with self._lock:
            if error is None:
                self._sent += 1
            else:
                self._dropped[kind_of(error)] += 1

    def _on_error(self, error: Any) -> None:
        with self._lock:
            self._failed[kind_of(error)] += 1
        self._error = kind_of(error), str(error.str())
        self._fatal = self._fatal or error.fatal()

    def _renew(self) -> None:
        """A producer with a fatal error sends nothing more; another one does."""
        with self._lock:
            old, self._producer, self._fatal = self._producer, None, False
        if old is not None:
            old.purge()
            old.flush(1)


class _Reporter:
    """Tells the log that Kafka fails, that it works again, and that events are dropped: each once, then once a minute."""

    def __init__(self) -> None:
        self.sent, self.since, self.outage = 0, monotonic(), ""
        self.told: dict[str, tuple[float, int]] = {}

    def look(self, e: Emitter, last: bool = False) -> None:
        now, stats = monotonic(), e.stats()
        if stats.sent != self.sent:
            if self.outage:
                _log.info("events reach Kafka again")
            self.outage, e._error = "", ("", "")
        if stats.sent != self.sent or stats.queued == 0:
            self.sent, self.since = stats.sent, now
        kind, text = e._error
        if now - self.since >= (1 if kind else 10) and (kind or "other") != self.outage:
            self.outage = kind or "other"
            _log.error("events cannot be sent to Kafka; they wait, and it is tried again: %s: %s", self.outage,
                       text or "nothing was acknowledged for 10 s; check the brokers, and whether the topic is there")
        for reason, number in stats.dropped.items():
            at, before = self.told.get(reason, (-60.0, 0))
            if number > before and (now - at >= 60 or last or not before):
                self.told[reason] = now, number
                _log.error("%d events are dropped, and will not be counted: %s%s", number - before, reason, f": {e._invalid}" if reason == "invalid" else "")


def _run(ref: weakref.ref[Emitter], producer: Any) -> None:
    """Serves what Kafka answered. It keeps no Emitter alive that nobody has any more."""
    reporter = _Reporter()
    while True:
        producer.poll(0.2)
        emitter = ref()
        if emitter is None:
            return
        over = emitter._producer is not producer or emitter._closed and len(producer) == 0
        reporter.look(emitter, last=over)
        if over:
            return
        if emitter._fatal:
            emitter._renew()
        del emitter


def _weak(emitter: Emitter) -> Callable[[Any], None]:
    ref = weakref.ref(emitter)
    return lambda error: e._on_error(error) if (e := ref()) is not None else None


def _close_at_exit(ref: weakref.ref[Emitter]) -> None:
    if (emitter := ref()) is not None:
        emitter.close(5)
