"""What ASGI's and WSGI's middleware have in common: who, what, and the event behind it."""

from __future__ import annotations

import ipaddress
import json
import logging
import re
from collections.abc import Callable, Collection, Container, Mapping
from datetime import datetime, timezone
from time import monotonic
from typing import Any

from ._client import Answer, Question, answer_of, question_of
from ._decision import Denied, Notes, notes
from ._denials import Denials
from ._emit import Emitter
from ._event import Number, Value, attr_value, cost_value, id_text
from ._values import MAX_ATTRS, UNROUTED, decoded_path_api, path_api, status_outcome, template_api

Scope = Mapping[str, Any]  # ASGI's scope, or WSGI's environ
Of = Callable[[Any], Any]  # reads something of it; None is absent
Skip = Callable[[Any], bool] | Container[str] | None
Admit = bool | Callable[[Any], bool] | Collection[str]

WATCHED = 20  # requests
AMBIGUOUS = "\0ambiguous"  # no request can have it
_log = logging.getLogger("tallygate")


def header(name: str) -> Of:
    """Reads who asks from a header that your proxy sets, and removes from clients' requests. With several values
    the request is refused: a client could add one, and choose who it is."""
    field, variable = name.lower().encode(), "HTTP_" + name.upper().replace("-", "_")

    def of(scope: Scope) -> str | None:
        values = _values(scope, field, variable)
        return AMBIGUOUS if len(values) > 1 else values[0].decode("utf-8", "surrogateescape") if values else None

    return of


def _values(scope: Scope, field: bytes, variable: str) -> list[bytes]:
    if "headers" in scope:
        return [v for n, v in scope["headers"] if n.lower() == field]
    return [scope[variable].encode("latin-1")] if variable in scope else []


def client_ip(*proxies: str) -> Of:
    """Reads the client's address: the connection's, or behind these proxies ('10.0.0.0/8') the right-most address of
    X-Forwarded-For that is none of them."""
    networks = [ipaddress.ip_network(p) for p in proxies]

    def is_proxy(hop: str) -> bool:
        try:
            ip = ipaddress.ip_address(hop)
        except ValueError:
            return False
        ip = getattr(ip, "ipv4_mapped", None) or ip
        return any(ip in n for n in networks)

    def of(scope: Scope) -> str | None:
        peer = scope.get("REMOTE_ADDR", "") if "headers" not in scope else (scope.get("client") or ("",))[0]
        if not networks or (peer and not is_proxy(peer)):
            return peer or None
        forwarded = b",".join(_values(scope, b"x-forwarded-for", "HTTP_X_FORWARDED_FOR")).decode("latin-1")
        hops = [re.sub(r"^\[(.*)\](:\d+)?$|^([\d.]+):\d+$", r"\1\3", hop.strip()) for hop in forwarded.split(",")]
        return next((hop for hop in reversed(hops) if not is_proxy(hop)), None) or None

    return of


def route_api(scope: Scope) -> str:
    """Names a request by its method and the first two segments of its path, as Go's httplimit.RouteAPI does."""
    if "headers" not in scope:
        path = (scope.get("SCRIPT_NAME", "") + scope.get("PATH_INFO", "")).encode("latin-1")
        return decoded_path_api(scope["REQUEST_METHOD"], path)
    if scope.get("raw_path"):
        return path_api(scope["method"], scope["raw_path"])
    return decoded_path_api(scope["method"], scope["path"])


def pattern_api(app: Any) -> Of:
    """Names requests by the routes of a FastAPI, Starlette or Flask app: GET /orders/{id} is get.orders.id. What no
    route takes is unrouted: each path that a scanner tries would else be an API of its own."""

    def of(scope: Scope) -> str:
        if "headers" in scope:
            path = _route(app.routes, dict(scope))
            return UNROUTED if path is None else template_api(scope["method"], path)
        try:
            rule, _ = app.url_map.bind_to_environ(scope).match(return_rule=True)
        except Exception:  # werkzeug's NotFound, MethodNotAllowed and redirects
            return UNROUTED
        return template_api(scope["REQUEST_METHOD"], rule.rule)

    return of


def _route(routes: Any, scope: Scope) -> str | None:
    """The template of the route that takes a request. What is mounted or included is looked into."""
    for route in routes:
        if hasattr(route, "effective_route_contexts"):  # a router that FastAPI has included
            if (path := _route(route.effective_route_contexts(), scope)) is not None:
                return path
            continue
        route = getattr(route, "starlette_route", None) or route
        match, inner = route.matches(scope)
        if match.name == "FULL":
            path, below = str(getattr(route, "path", "")), getattr(route, "routes", None)
            rest = _route(below, {**scope, **inner}) if below else ""
            return None if rest is None else path + rest
    return None


def named(names: Mapping[str, str], of: Of = route_api) -> Of:
    """Renames APIs: get.orders.id to order.read, say. Others keep their names."""
    return lambda scope: names.get(api := of(scope), api)


def note(attrs: Mapping[str, Value] | None = None, /, *, cost: Number | None = None, outcome: str | None = None, id: str | int | None = None, **more: Value) -> None:
    """Adds to the event that the middleware emits for this request: what only the handler knows. Of two that say the
    same, the later holds. Where no middleware emits the event, it does nothing."""
    values = {name: attr_value(name, value) for name, value in {**(attrs or {}), **more}.items() if value is not None}
    if cost is not None and cost_value(cost, "any") < 0:
        raise ValueError(f"cost is {cost}: a request's is not below zero")
    if id is not None:
        id = id_text("id", id)
    if (noted := notes.get()) is not None:
        noted.attrs.update(values)
        noted.fields.update({k: v for k, v in (("cost", cost), ("outcome", outcome), ("id", id)) if v is not None})


class Visit:
    """A request, until its response has ended."""

    def __init__(self, question: Question | None, language: str, head: bool) -> None:
        self.question, self.language, self.head, self.admits = question, language, head, False  # question is None where it is not clear who asks
        self.began, self.clock, self.status = datetime.now(timezone.utc), monotonic(), 0
        self.notes, self.token, self.permit, self.failed = Notes(), "", None, False
        notes.set(self.notes)

    def denied(self, error: BaseException | None = None) -> Answer | None:
        """The answer to a Denied that the app has not answered: it comes out of the app, or as the 500 by which
        frameworks answer what nobody catches."""
        if isinstance(error, Denied):
            self.notes.denied = error.decision
        elif error is not None or self.status != 500:
            return None
        if self.notes.denied is None:
            return None
        answer = answer_of(self.notes.denied)
        self.status, self.failed = answer.status, False
        return answer


REFUSED = Answer(False, 400, [("cache-control", "no-store"), ("content-type", "application/problem+json")], json.dumps({
    "type": "about:blank", "title": "Bad Request", "status": 400,
    "detail": "It is not clear who sends this request: a header that says so has several values.",
}).encode() + b"\n")


def _admitting(admit: Admit) -> Callable[[Scope, str], bool]:
    """Tells which requests ask for permits, by the scope and the API's name."""
    if isinstance(admit, bool):
        return lambda scope, api: admit
    if callable(admit):
        return lambda scope, api: _bool(admit(scope))
    if not isinstance(admit, Collection) or isinstance(admit, (str, bytes, Mapping)) or not all(isinstance(name, str) for name in admit):
        raise TypeError(f"admit is {admit!r:.80}: give True or False, a function of the request, or names of APIs such as ['coupon.redeem', 'sms.*']")
    for name in admit:
        if not name or "*" in name[:-1]:
            raise ValueError(f"admit: {name!r:.80} is no API: give a name, or the beginning of names and one star, such as 'sms.*'")
    names = frozenset(admit)
    beginnings = tuple(name[:-1] for name in names if name.endswith("*"))
    return lambda scope, api: api in names or api.startswith(beginnings)


def _bool(value: object) -> bool:
    if not isinstance(value, bool):  # a coroutine would be true
        raise TypeError(f"admit returns a {type(value).__name__}: a function that says which requests ask for permits returns True or False")
    return value


class Gate:
    """TallygateASGI and TallygateWSGI, but for their protocols. emitter gets an event for each request that is let in,
    with emit_denied for all others, too, and without it for some: see Denials. skip has paths, or tells which requests
    are none of ours. admit tells which ask for permits, too: all, those of some APIs, or those of which a function says
    so."""

    def __init__(self, client: Any, emitter: Emitter | None, uid: Of | None, ip: Of | None, attrs: Mapping[str, Of] | None,
                 api: Of | str | None, skip: Skip, admit: Admit, emit_denied: bool) -> None:
        if uid is None and ip is None and not attrs:
            raise ValueError("who asks? Give at least one of uid, ip and attrs")
        if wrong := {"status", "latency_ms"} & set(attrs or ()):
            raise ValueError(f"attrs: {sorted(wrong)} are the event's already: choose other names")
        self._client, self._uid, self._ip, self._attrs, self._emitter = client, uid, ip, attrs or {}, emitter
        self._api, self._skip, self._admits, self._emit_denied = api or route_api, skip, _admitting(admit), emit_denied
        self._what = "a uid" if uid else "an address" if ip else "one of the attributes"
        self._denials = Denials()
        self._seen = 0  # requests, none of which said who asks; -1: one did

    def enter(self, scope: Scope) -> Visit | None:
        """None: the request is none of ours."""
        asgi = "headers" in scope
        path = scope["path"] if asgi else scope.get("SCRIPT_NAME", "") + scope.get("PATH_INFO", "")
        if self._skip is not None and (self._skip(scope) if callable(self._skip) else path in self._skip):
            return None
        attrs = {name: value for name, of in self._attrs.items() if (value := of(scope)) is not None}
        uid, ip = self._uid and self._uid(scope), self._ip and self._ip(scope)
        api = self._api if isinstance(self._api, str) else self._api(scope)
        question = None if AMBIGUOUS in (uid, ip, *attrs.values()) else question_of(api, uid, ip, {n: str(v).lower() if isinstance(v, bool) else str(v) for n, v in attrs.items()})
        if question is not None:
            self._watch(bool(question.uid if self._uid else question.ip if self._ip else question.attrs))
        language = b",".join(_values(scope, b"accept-language", "HTTP_ACCEPT_LANGUAGE")).decode("latin-1")
        visit = Visit(question, language, scope["method" if asgi else "REQUEST_METHOD"] == "HEAD")
        if question is not None:
            visit.admits = self._admits(scope, question.api)
        return visit

    def _watch(self, known: bool) -> None:
        """Counts requests of which nobody knows who sends them, and tells once of options by which nobody ever is known."""
        if not known:
            self._client._unnamed()
        if self._seen < 0:
            return
        self._seen = -1 if known else self._seen + 1
        if self._seen == WATCHED:
            _log.warning("none of the first %d requests had %s, so no limit on that holds: check uid, ip and attrs of the middleware", WATCHED, self._what)
            self._seen = -1

    async def ask(self, visit: Visit) -> Answer:
        """The answer for the caller. A request that is denied has ended."""
        if visit.question is None:
            return REFUSED
        if visit.admits:
            decision, told = await self._client._admit(visit.question, 1, None, 0, self._client._fail, None)
            visit.token, answer = told.get("token", ""), answer_of(decision, told)
        else:
            answer = await self._client._forward(visit.question, visit.language)
        visit.permit, visit.status = answer.permit, answer.status
        if not answer.allowed and answer.status != 400 and (self._emit_denied or self._denials.emits(visit.question)):
            self._emit(visit, "limited")
        return answer

    async def end(self, visit: Visit) -> None:
        """The response has ended, or there is none."""
        outcome = self._emit(visit, "failure" if visit.failed else status_outcome(visit.status or 500))
        await self._client._end("/v1/done", visit.token, outcome=outcome)

    def _emit(self, visit: Visit, outcome: str) -> str:
        fields = {"outcome": outcome, **visit.notes.fields}
        if self._emitter is not None and (q := visit.question) is not None:
            attrs = {**q.attrs, "status": visit.status or 500, "latency_ms": round((monotonic() - visit.clock) * 1000, 3)}
            for name, value in visit.notes.attrs.items():
                if name in attrs or len(attrs) < MAX_ATTRS:
                    attrs[name] = value
            self._emitter.try_emit(api=q.api, uid=q.uid, ip=q.ip or None, time=visit.began, permit=visit.permit, attrs=attrs, **fields)
        return str(fields["outcome"])
