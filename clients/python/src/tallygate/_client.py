"""Checks and permits: questions to the decision server, which are never slower than their time-out."""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections import Counter
from collections.abc import Generator, Mapping
from time import monotonic
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from ._decision import Decision, Denied, decision_of
from ._event import Number, Value, api_text, attr_values, cost_value, id_text, ip_text, uid_text
from ._http import AsyncPool, Pool, Reply, own_per_process, run
from ._log import Seldom

Fail = Literal["open", "closed"]
Uid = str | int | None
Attrs = Mapping[str, Value] | None

_log = logging.getLogger("tallygate")
_HEADER_NAMES = {"uid": "X-Tallygate-Uid", "ip": "X-Tallygate-Ip", "api": "X-Tallygate-Api", "attr": "X-Tallygate-Attr-"}
_PASSED_ON = {"cache-control", "content-language", "content-type", "retry-after"}
_JSON = "Content-Type: application/json\r\n"
_MAX_HEAD = 8 << 10  # bytes of a question in headers; servers and proxies refuse longer ones, each at another length
_MAX_LANGUAGE = 256  # of what a client says it reads: more names no language that is looked for


class Question(NamedTuple):
    """Who asks, and for what: canonical, and empty where absent."""

    api: str
    uid: str
    ip: str
    attrs: Mapping[str, Any]

    def body(self, **more: Any) -> dict[str, Any]:
        return {name: value for name, value in {**self._asdict(), **more}.items() if value}


class Answer(NamedTuple):
    """What a middleware does with a request."""

    allowed: bool
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    permit: Any = None  # for the event


def question_of(api: str, uid: Uid, ip: object, attrs: Attrs) -> Question:
    return Question(api_text(api), "" if uid is None else uid_text(uid), "" if ip is None else ip_text(ip), attr_values(attrs or {}))


def answer_of(d: Decision, permit: Any = None) -> Answer:
    headers = [(name.lower(), value) for name, value in d.headers().items()]
    if d.allowed:
        return Answer(True, d.status, headers, b"", permit)
    return Answer(False, d.status, [*headers, ("content-type", "application/problem+json")], json.dumps(d.problem(), ensure_ascii=False).encode() + b"\n")


class _Client:
    """All that Client and AsyncClient have in common."""

    _pool_type: type[Pool]

    def __init__(self, url: str, *, fail: Fail = "open", timeout: float = 0.05, token: str | None = None, tls: ssl.SSLContext | None = None,
                 failures: int = 5, pause: float = 1.0, header_names: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("url: give the decision server's, such as 'http://127.0.0.1:8080', without user and password")
        if unknown := set(header_names or ()) - set(_HEADER_NAMES):
            raise ValueError(f"header_names: there is no {sorted(unknown)}; there are uid, ip, api and attr")
        if timeout <= 0 or failures < 1 or pause <= 0 or fail not in ("open", "closed"):
            raise ValueError("timeout, failures and pause have to be above 0, and fail 'open' or 'closed'")
        self._fail, self._timeout, self._failures, self._pause = fail, timeout, failures, pause
        self._names, self._path = {**_HEADER_NAMES, **(header_names or {})}, parts.path.rstrip("/")
        self._common = f"Host: {parts.netloc}\r\nUser-Agent: tallygate-python\r\n" + (f"Authorization: Bearer {token}\r\n" if token else "")
        if any(c < " " for c in (token or "") + url):
            raise ValueError("url or token has a control character, such as the end of a file's line")
        if parts.scheme == "https":
            tls = tls or ssl.create_default_context()
        self._where = parts.netloc
        self._pool = self._pool_type(parts.hostname, parts.port or (443 if tls else 80), tls)
        self._refusals = Seldom(_log)
        self._counts, self._in_row, self._asleep, self._told, self._lock = Counter[str](), 0, 0.0, False, threading.Lock()
        own_per_process(self)

    def forked(self) -> None:
        self._lock, self._counts = threading.Lock(), Counter()  # another thread may have held it
        self._pool.forked()

    def stats(self) -> dict[str, int]:
        """answered, failed (no answer, a late or a wrong one), skipped (not asked: the server is away), refused (of those
        that were answered: the question is wrong, and denied), unnamed (requests of middleware that nobody is known to send)."""
        with self._lock:
            return {name: self._counts[name] for name in ("answered", "failed", "skipped", "refused", "unnamed")}

    def _unnamed(self) -> None:
        with self._lock:
            self._counts["unnamed"] += 1

    # A server that does not answer is asked once a pause; other questions are answered at once.

    def _may_ask(self) -> bool:
        with self._lock:
            if self._in_row >= self._failures:
                if (now := monotonic()) < self._asleep:
                    self._counts["skipped"] += 1
                    return False
                self._asleep = now + self._pause
            return True

    def _answered(self) -> None:
        with self._lock:
            self._counts["answered"] += 1
            self._in_row, told, self._told = 0, self._told, False
        if told:
            _log.info("the decision server at %s answers again", self._where)

    def _refused(self, status: int, why: str) -> Decision:
        """The answer to a question that was refused. It denies, whatever fail says: somebody who finds out what makes a
        question wrong would else be let in. It is no failure either, as others ask what is right."""
        self._answered()
        with self._lock:
            self._counts["refused"] += 1
        reason = f"the decision server refuses the question: HTTP {status}: {why or 'without a reason'}"
        self._refusals.warning("%s; it is denied", reason)
        return Decision(False, in_doubt=True, reason=reason)

    def _failed(self, why: BaseException | str) -> None:
        with self._lock:
            self._counts["failed"] += 1
            self._in_row, self._asleep = self._in_row + 1, monotonic() + self._pause
            tell = self._in_row >= self._failures and not self._told
            self._told = self._told or tell
        if tell:
            _log.error("the decision server at %s does not answer; fail is %s meanwhile: %r", self._where, self._fail, why)

    async def _ask(self, request: bytes, timeout: float) -> Reply | None:
        if not self._may_ask():
            return None
        try:
            return await self._pool.ask(request, monotonic() + timeout)
        except (OSError, ValueError) as error:
            self._failed(error)
            return None

    async def _post(self, path: str, body: Mapping[str, Any], timeout: float, fail: Fail) -> tuple[Decision, Mapping[str, Any]]:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        head = f"POST {self._path}{path} HTTP/1.1\r\n{self._common}{_JSON}Content-Length: {len(text)}\r\n\r\n"
        reply = await self._ask(head.encode() + text, timeout)
        if reply is not None:
            if reply.refuses:
                return self._refused(reply.status, reply.detail()), {}
            try:
                answer = json.loads(reply.body)
                if reply.status == 200:
                    decision = decision_of(answer)
                    self._answered()
                    return decision, answer
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                pass
            self._failed(f"HTTP {reply.status}, and no decision: {reply.detail()}")
        return Decision(fail == "open", in_doubt=True, reason="the decision server does not answer"), {}

    async def _check(self, q: Question, wait: float, fail: Fail | None, timeout: float | None) -> Decision:
        return (await self._post("/v1/check", q.body(wait=wait), (timeout or self._timeout) + wait, fail or self._fail))[0]

    async def _admit(self, q: Question, cost: Number, id: str | int | None, wait: float, fail: Fail, timeout: float | None) -> tuple[Decision, Mapping[str, Any]]:
        body = q.body(cost=cost_value(cost, None), id=None if id is None else id_text("id", id), wait=wait)
        return await self._post("/v1/admit", body, (timeout or self._timeout) + wait, fail)

    async def _end(self, path: str, token: str, **more: str) -> bool:
        return not token or (await self._post(path, {"token": token, **more}, self._timeout, "closed"))[0].allowed

    async def _forward(self, q: Question, language: str) -> Answer:
        """For middlewares: the decision server writes the answer for the caller."""
        request = self._in_headers(q, language)
        if request is None:
            return answer_of(await self._check(q, 0, None, None))
        reply = await self._ask(request, self._timeout)
        if reply is not None:
            problem = reply.header("content-type") == "application/problem+json" and "no-store" in reply.header("cache-control")
            if reply.status in (200, 204) or reply.status >= 400 and problem:
                self._answered()
                allowed, permit = reply.status < 300, reply.header("x-tallygate-permit")
                headers = [(n, v) for n, v in reply.headers if "ratelimit" in n or not allowed and n in _PASSED_ON]
                return Answer(allowed, reply.status, headers, reply.body, _object(permit))
            if reply.refuses:
                return answer_of(self._refused(reply.status, reply.detail()))
            self._failed(f"HTTP {reply.status}, and no answer of a decision server")
        return answer_of(Decision(self._fail == "open", in_doubt=True))

    def _in_headers(self, q: Question, language: str) -> bytes | None:
        """A question for /v1/forward-auth; None where headers cannot have a value, or not all of them together. All that
        a client controls is bounded: names and values are canonical, and of its languages the first are kept."""
        attrs = {self._names["attr"] + name: str(value) for name, value in q.attrs.items()}
        fields = {self._names["api"]: q.api, self._names["uid"]: q.uid, self._names["ip"]: q.ip, **attrs}
        if any(v != v.strip() or any(c < " " or c == "\x7f" for c in v) for v in fields.values()):
            return None
        if any(name != name.lower() or not name.isascii() or not name.replace("-", "").isalnum() for name in q.attrs):
            return None
        fields["Accept-Language"] = _languages(language)
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
        request = f"GET {self._path}/v1/forward-auth HTTP/1.1\r\n{self._common}{lines}\r\n".encode()
        return request if len(request) <= _MAX_HEAD else None

    def close(self) -> None:
        self._pool.close()


def _languages(header: str) -> str:
    """What is asked for of a client's Accept-Language: whole languages, up to a length."""
    text = "".join(c for c in header[: 4 * _MAX_LANGUAGE] if " " <= c <= "~").strip()
    return text if len(text) <= _MAX_LANGUAGE else text[:_MAX_LANGUAGE].rpartition(",")[0].strip()


def _object(text: str) -> Any:
    """A permit of a header; None where it is no JSON object."""
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class _Permit:
    def __init__(self, client: Any, decision: Decision, answer: Mapping[str, Any]) -> None:
        self._client, self.decision = client, decision
        self.id: str = answer.get("id", "")  # ask again with it, for the same permit
        self.fields = {name: answer[name] for name in ("permit", "permit_at") if answer.get(name)}  # of the action's event
        self._token: str = answer.get("token", "")

    def __bool__(self) -> bool:
        return self.decision.allowed

    def _once(self) -> str:
        token, self._token = self._token, ""
        return token


class Permit(_Permit):
    """An answer to admit. It is true where the action may be done. End it once: by done behind the action, by cancel
    where it did not happen. Both tell whether the server heard of it. What is not ended ends by its rule's hold."""

    def done(self, outcome: str = "success") -> bool:
        """The action has ended. Emit its event first."""
        return bool(run(self._client._end("/v1/done", self._once(), outcome=outcome)))

    def cancel(self) -> bool:
        """The action did not happen: emit no event."""
        return bool(run(self._client._end("/v1/cancel", self._once())))

    def __enter__(self) -> Permit:
        if not self:
            raise Denied(self.decision)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.done("success" if error is None else "failure")  # nobody knows what was done: it is not given back


class AsyncPermit(_Permit):
    """Permit for asyncio."""

    async def done(self, outcome: str = "success") -> bool:
        """The action has ended. Emit its event first."""
        return bool(await self._client._end("/v1/done", self._once(), outcome=outcome))

    async def cancel(self) -> bool:
        """The action did not happen: emit no event."""
        return bool(await self._client._end("/v1/cancel", self._once()))


class _Admitting:
    """permit = await client.admit(…), or async with client.admit(…) as permit."""

    def __init__(self, client: AsyncClient, *question: Any) -> None:
        self._client, self._question = client, question

    async def _admit(self) -> AsyncPermit:
        return AsyncPermit(self._client, *await self._client._admit(*self._question))

    def __await__(self) -> Generator[Any, None, AsyncPermit]:
        return self._admit().__await__()

    async def __aenter__(self) -> AsyncPermit:
        self._permit = await self._admit()
        if not self._permit:
            raise Denied(self._permit.decision)
        return self._permit

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self._permit.done("success" if error is None else "failure")


class Client(_Client):
    """Asks the decision server, from any thread."""

    _pool_type = Pool

    def check(self, api: str, *, uid: Uid = None, ip: object = None, attrs: Attrs = None,
              wait: float = 0, fail: Fail | None = None, timeout: float | None = None) -> Decision:
        """May they do this now? wait is how many seconds a throttled check may wait for its turn."""
        return run(self._check(question_of(api, uid, ip, attrs), wait, fail, timeout))

    def admit(self, api: str, *, uid: Uid = None, ip: object = None, attrs: Attrs = None, cost: Number = 1, id: str | int | None = None,
              wait: float = 0, fail: Fail = "closed", timeout: float | None = None) -> Permit:
        """Asks for a permit, for rules with strict or scope: instance. In doubt it is denied, unless fail is 'open'."""
        return Permit(self, *run(self._admit(question_of(api, uid, ip, attrs), cost, id, wait, fail, timeout)))


class AsyncClient(_Client):
    """Client for asyncio."""

    _pool_type = AsyncPool

    async def check(self, api: str, *, uid: Uid = None, ip: object = None, attrs: Attrs = None,
                    wait: float = 0, fail: Fail | None = None, timeout: float | None = None) -> Decision:
        """May they do this now? wait is how many seconds a throttled check may wait for its turn."""
        return await self._check(question_of(api, uid, ip, attrs), wait, fail, timeout)

    def admit(self, api: str, *, uid: Uid = None, ip: object = None, attrs: Attrs = None, cost: Number = 1, id: str | int | None = None,
              wait: float = 0, fail: Fail = "closed", timeout: float | None = None) -> _Admitting:
        """Asks for a permit, for rules with strict or scope: instance. In doubt it is denied, unless fail is 'open'."""
        return _Admitting(self, question_of(api, uid, ip, attrs), cost, id, wait, fail, timeout)
