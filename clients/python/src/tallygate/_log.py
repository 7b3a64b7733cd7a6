"""Lines of the log that could come with each request."""

from __future__ import annotations

import logging
import threading
from time import monotonic

_EVERY = 60.0  # seconds


class Seldom:
    """A line that is told the first time, and then at most once a minute, with how often it was left out."""

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._lock, self._next, self._left_out = log, threading.Lock(), 0.0, 0

    def warning(self, text: str, *values: object) -> None:
        with self._lock:
            if (now := monotonic()) < self._next:
                self._left_out += 1
                return
            self._next, left_out, self._left_out = now + _EVERY, self._left_out, 0
        if left_out:
            text, values = text + " (left out since the last line: %d)", (*values, left_out)
        self._log.warning(text, *values)
