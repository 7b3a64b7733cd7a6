"""One event as a record of the topic has it: docs/reference/events.md, "Events"."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Union

from ._values import MAX_API, MAX_ATTRS, MAX_NAME, MAX_TEXT, canonical_id, canonical_ip, canonical_text, canonical_uid, valid_text

Number = Union[int, float, Decimal]
Value = Union[str, int, float, Decimal, None]  # of an attribute; a bool is an int

MAX_BYTES = 64 << 10  # of an event's JSON
_MAX_COST = Decimal("9223372036854.775807")
_MICRO = Decimal("0.000001")


def uid_text(uid: str | int) -> str:
    if isinstance(uid, bool) or not isinstance(uid, (str, int)):
        raise TypeError(f"uid is a {type(uid).__name__}: give a string or an integer")
    return canonical_uid(str(uid))


def id_text(name: str, id: str | int) -> str:
    if isinstance(id, bool) or not isinstance(id, (str, int)):
        raise TypeError(f"{name} is a {type(id).__name__}: give a string or an integer")
    return canonical_id(str(id))


def api_text(api: str) -> str:
    if not isinstance(api, str):
        raise TypeError(f"api is a {type(api).__name__}: name the action, such as 'order.create'")
    api = valid_text(api)
    if not api or len(api.encode()) > MAX_API or any(c < " " or c == "\x7f" for c in api):
        raise ValueError(f"api {api[:40]!r}: 1 to {MAX_API} bytes without control characters, such as 'order.create'")
    return api


def ip_text(ip: object) -> str:
    """The address; "" for what does not parse: the event counts without it, as it does in Go."""
    return canonical_ip(str(ip))


def attr_values(attrs: Mapping[str, Value]) -> dict[str, Any]:
    """The attributes for JSON. Those that are None or "" are absent."""
    out: dict[str, Any] = {}
    for name, value in attrs.items():
        if not isinstance(name, str) or name == "":
            raise TypeError(f"attrs: {name!r} is no name of an attribute: give a string")
        if value is None or value == "":
            continue
        out[canonical_text(name, MAX_NAME)] = attr_value(name, value)
    if len(out) > MAX_ATTRS:
        raise ValueError(f"attrs: {len(out)} attributes, at most {MAX_ATTRS} are allowed")
    return out


def attr_value(name: str, value: Value) -> Any:
    if isinstance(value, str):
        return canonical_text(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float, Decimal)):
        number = _json_number(f"attrs: {name[:80]}", value)
        return number if len(str(number)) <= MAX_TEXT else canonical_text(str(number))
    raise TypeError(f"attrs: {name[:80]} is a {type(value).__name__}: give a string, a number or a boolean; flatten what is nested, such as 'a.b'")


def _json_number(what: str, value: Number) -> int | float:
    if isinstance(value, int):
        return value
    if not Decimal(value).is_finite():
        raise ValueError(f"{what} is {value}: give a finite number")
    return int(value) if value == int(value) else float(value)


def cost_value(cost: Number, refunds: str | None) -> int | float:
    if isinstance(cost, bool) or not isinstance(cost, (int, float, Decimal)):
        raise TypeError(f"cost is a {type(cost).__name__}: give a number")
    exact = Decimal(repr(cost)) if isinstance(cost, float) else Decimal(cost)
    if not exact.is_finite() or abs(exact) > _MAX_COST:
        raise ValueError(f"cost is {cost}: give a number of at most {_MAX_COST}")
    rounded = exact.quantize(_MICRO)
    if abs(exact - rounded) >= Decimal("1e-9"):
        raise ValueError(f"cost is {cost}: at most six digits behind the point count")
    if rounded < 0 and not refunds:
        raise ValueError(f"cost is {cost}: below zero it needs refunds, the id of the event that it takes back")
    return _json_number("cost", rounded)


def time_text(time: datetime | None) -> str:
    """RFC 3339, as short as it is exact. None is now."""
    if time is None:
        time = datetime.now(timezone.utc)
    elif not isinstance(time, datetime):
        raise TypeError(f"time is a {type(time).__name__}: give a datetime with a time zone")
    elif time.tzinfo is None:
        raise ValueError("time has no time zone: use datetime.now(timezone.utc)")
    text = time.astimezone(timezone.utc).isoformat(timespec="microseconds")
    return text[:-6].rstrip("0").rstrip(".") + "Z"


def record(*, api: str, uid: str | int | None = None, outcome: str = "", cost: Number = 1, ip: object = None,
           attrs: Mapping[str, Value] | None = None, id: str | int | None = None, time: datetime | None = None,
           permit: Any = None, refunds: str | int | None = None) -> tuple[bytes | None, bytes]:
    """The record's key and value. What no event can be raises TypeError or ValueError."""
    event: dict[str, Any] = {"id": os.urandom(16).hex() if id is None or id == "" else id_text("id", id), "time": time_text(time)}
    user = "" if uid is None else uid_text(uid)
    if user:
        event["uid"] = user
    event["api"] = api_text(api)
    if not isinstance(outcome, str):
        raise TypeError(f"outcome is a {type(outcome).__name__}: give a string, such as 'success'")
    if outcome:
        event["outcome"] = canonical_text(outcome)
    refunded = "" if refunds is None or refunds == "" else id_text("refunds", refunds)
    if cost != 1 or isinstance(cost, bool):
        event["cost"] = cost_value(cost, refunded)
    if refunded:
        event["refunds"] = refunded
    if ip is not None and (address := ip_text(ip)):
        event["ip"] = address
    if attrs and (values := attr_values(attrs)):
        event["attrs"] = values
    if not user and ip is None and "attrs" not in event:
        raise ValueError("nobody did this: give uid, ip or attrs")
    if permit is not None:
        fields = getattr(permit, "fields", permit)
        if fields.get("permit"):
            event["permit"] = canonical_id(fields["permit"])
            event.update({"permit_at": fields["permit_at"]} if fields.get("permit_at") else {})
    value = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(value) > MAX_BYTES:
        raise ValueError(f"the event has {len(value)} bytes of JSON, at most {MAX_BYTES} are allowed")
    return user.encode() or None, value
