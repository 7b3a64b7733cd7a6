from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from ._client import Question

SLOTS = 256
EVERY, APART = 5.0, 1.0  # seconds between two events of one caller and API, and of others that share a slot


class Denials:
    """Chooses which denied requests a middleware emits events of. Rules do not count these, but they tell the rules
    which limit the caller has now. What says something new is emitted at once, what repeats it every five seconds, and
    no more than 256 a second."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._slots: list[tuple[int, float]] = [(0, float("-inf"))] * SLOTS

    def emits(self, question: Question) -> bool:
        who, now = hash((question.api, question.uid, question.ip, frozenset(question.attrs.items()))), self._now()
        last, at = self._slots[who % SLOTS]
        if now - at < (EVERY if last == who else APART):
            return False
        self._slots[who % SLOTS] = (who, now)
        return True
