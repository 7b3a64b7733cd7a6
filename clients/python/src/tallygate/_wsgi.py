"""Middleware for WSGI: Flask, Django, Bottle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from ._client import Client
from ._emit import Emitter
from ._http import run
from ._web import Gate, Of, Skip


class TallygateWSGI:
    """TallygateASGI for WSGI, with a Client."""

    def __init__(self, app: Callable[[Any, Any], Iterable[bytes]], client: Client, *, emitter: Emitter | None = None, uid: Of | None = None, ip: Of | None = None,
                 attrs: Mapping[str, Of] | None = None, api: Of | str | None = None, skip: Skip = None,
                 admit: bool = False, emit_denied: bool = False) -> None:
        if not isinstance(client, Client):
            raise TypeError("TallygateWSGI needs a Client")
        self._app, self._gate = app, Gate(client, emitter, uid, ip, attrs, api, skip, admit, emit_denied)

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        visit = self._gate.enter(environ)
        if visit is None:
            return self._app(environ, start_response)
        answer = run(self._gate.ask(visit))
        if not answer.allowed:
            phrase = HTTPStatus(answer.status).phrase if answer.status in list(HTTPStatus) else "Denied"
            start_response(f"{answer.status} {phrase}", [*answer.headers, ("content-length", str(len(answer.body)))])
            return [] if visit.head else [answer.body]
        visit.status = 0

        def starting(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            visit.status = int(status[:3])
            return start_response(status, [*headers, *answer.headers], *error)

        try:
            body = self._app(environ, starting)
        except BaseException:
            run(self._gate.end(visit))
            raise
        if isinstance(body, (list, tuple)):  # it is whole: servers look at its length
            run(self._gate.end(visit))
            return body
        return _Body(body, lambda: run(self._gate.end(visit)))


class _Body:
    """A response that is still being made. The server closes it in the end."""

    def __init__(self, body: Iterable[bytes], end: Callable[[], None]) -> None:
        self._body, self._end = body, end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        try:
            if hasattr(self._body, "close"):
                self._body.close()
        finally:
            self._end()
