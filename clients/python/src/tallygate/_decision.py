"""What the decision server answers, and what callers are told of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
_UNKNOWN = "It is not known at the moment whether this is allowed."


@dataclass(frozen=True)
class Decision:
    """May it be done? A Decision is true where it may."""

    allowed: bool
    action: str = ""  # of the verdict or the limit that decides: block, challenge, throttle, log
    rule: str = ""  # for your logs: tell callers public, or nothing
    public: str = ""
    retry_after: int | None = None  # whole seconds; None: allowed, or nobody knows
    until: datetime | None = None
    in_doubt: bool = False  # nobody knows: the server's or the client's setting decided
    reason: str = ""  # in words, where there is more to say
    limit: int | float | None = None
    remaining: int | float | None = None  # of a permit
    reset: int | None = None  # whole seconds until the whole limit is there again

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def status(self) -> int:
        """The HTTP status for a caller: 429, or 503 in doubt."""
        return 200 if self.allowed else 503 if self.in_doubt else 429

    def headers(self) -> dict[str, str]:
        """The headers for a caller, as Go's middleware writes them."""
        out = {} if self.allowed else {"Cache-Control": "no-store"}
        if self.retry_after is not None and not self.allowed:
            out["Retry-After"] = str(self.retry_after)
        name = '"' + "".join("?" if not " " <= c <= "~" else "\\" + c if c in '"\\' else c for c in self.public or "limit") + '"'
        room, after = (self.remaining, self.reset) if self.allowed else (0, self.retry_after)
        if room is not None and not self.in_doubt and (self.rule or self.limit):
            out["RateLimit"] = f"{name};r={int(room)}" + ("" if after is None else f";t={after}")
            if self.limit:
                out["RateLimit-Policy"] = f"{name};q={int(self.limit)}"
        return out

    def problem(self) -> dict[str, Any]:
        """The body for a caller who is denied: application/problem+json."""
        if self.in_doubt:
            return {"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": _UNKNOWN}
        detail = f"The limit of {json.dumps(self.public, ensure_ascii=False)} was exceeded" if self.public else "A limit was exceeded"
        detail += "" if self.retry_after is None else f"; try again in {self.retry_after} s"
        told: dict[str, Any] = {
            "type": _QUOTA_EXCEEDED, "title": "Request cannot be satisfied as assigned quota has been exceeded", "status": 429,
            "detail": detail + ".", "rule": self.public, "action": self.action,
            "until": self.until and _time_text(self.until), "retry_after": self.retry_after,
        }
        return {name: value for name, value in told.items() if value} | {"violated-policies": [self.public or "limit"]}


class Notes:
    """What is noted for one request's event."""

    def __init__(self) -> None:
        self.attrs: dict[str, Any] = {}
        self.fields: dict[str, Any] = {}
        self.denied: Decision | None = None  # of the latest Denied: frameworks answer 500 to what nobody catches


notes: ContextVar[Notes | None] = ContextVar("tallygate_notes", default=None)


class Denied(Exception):
    """A permit was not granted, and its with block is not entered. Middleware answers as the decision says, with 429 or
    503, unless somebody catches it before."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(f"denied by {decision.rule}" if decision.rule else decision.reason or "denied")
        self.decision = decision
        if (noted := notes.get()) is not None:
            noted.denied = decision


def decision_of(answer: Mapping[str, Any]) -> Decision:
    """The Decision in an answer of /v1/check, /v1/admit, /v1/done or /v1/cancel."""
    allowed = [bool(answer[name]) for name in ("allowed", "admitted", "ended") if name in answer][0]
    verdicts, limit = answer.get("verdicts") or [], answer.get("limit")
    if not allowed and verdicts and answer.get("rule"):
        limit = verdicts[0].get("limit")
    return Decision(
        allowed, action=answer.get("action", ""), rule=answer.get("rule", ""), public=answer.get("public", ""),
        retry_after=answer.get("retry_after"), until=_time(answer["until"]) if answer.get("until") else None, in_doubt=bool(answer.get("in_doubt")),
        reason=answer.get("reason", ""), limit=limit, remaining=answer.get("remaining"), reset=answer.get("reset"),
    )


def _time(text: str) -> datetime:
    """RFC 3339 with any fraction, which Python 3.10 does not read."""
    whole, point, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}+00:00" if point else f"{whole}+00:00")


def _time_text(time: datetime) -> str:
    """RFC 3339, as short as it is exact: as the decision server writes it."""
    whole, point, fraction = time.isoformat().removesuffix("+00:00").partition(".")
    return whole + (point + fraction.rstrip("0") if point else "") + "Z"
