"""Middleware for WSGI: Flask, Django, Bottle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from ._client import Answer, Client
from ._decision import Denied
from ._emit import Emitter
from ._http import run
from ._web import Admit, Gate, Of, Skip, Visit


class TallygateWSGI:
    """TallygateASGI for WSGI, with a Client."""

    def __init__(self, app: Callable[[Any, Any], Iterable[bytes]], client: Client, *, emitter: Emitter | None = None, uid: Of | None = None, ip: Of | None = None,
                 attrs: Mapping[str, Of] | None = None, api: Of | str | None = None, skip: Skip = None,
                 admit: Admit = False, emit_denied: bool = False) -> None:
        if not isinstance(client, Client):
            raise TypeError("TallygateWSGI needs a Client")
        self._app, self._gate = app, Gate(client, emitter, uid, ip, attrs, api, skip, admit, emit_denied)

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        visit = self._gate.enter(environ)
        if visit is None:
            return self._app(environ, start_response)
        answer = run(self._gate.ask(visit))
        if not answer.allowed:
            return _deny(start_response, answer, visit.head)
        visit.status = 0
        response = _Response(self._gate, visit, start_response, answer)
        try:
            body = self._app(environ, response.start)
        except BaseException as error:
            try:
                return response.instead_of(error)
            finally:
                run(self._gate.end(visit))
        if isinstance(body, (list, tuple)) and not response.instead:  # it is whole: servers look at its length
            run(self._gate.end(visit))
            return body
        return _Body(body, response)


def _deny(start_response: Any, answer: Answer, head: bool, *error: Any) -> list[bytes]:
    phrase = HTTPStatus(answer.status).phrase if answer.status in list(HTTPStatus) else "Denied"
    start_response(f"{answer.status} {phrase}", [*answer.headers, ("content-length", str(len(answer.body)))], *error)
    return [] if head else [answer.body]


class _Response:
    """What the app answers, or what is answered instead of that."""

    def __init__(self, gate: Gate, visit: Visit, start_response: Any, answer: Answer) -> None:
        self.gate, self.visit, self._start, self._answer = gate, visit, start_response, answer
        self.instead: list[bytes] | None = None

    def start(self, status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
        if self.instead is None:
            self.visit.status = int(status[:3])
            if denied := self.visit.denied():
                self.instead = _deny(self._start, denied, self.visit.head, *error)
            else:
                return self._start(status, [*headers, *self._answer.headers], *error)
        return lambda data: None

    def instead_of(self, error: BaseException) -> list[bytes]:
        """The answer to a Denied, where none has begun; else it raises the error."""
        self.visit.failed = self.instead is None
        if isinstance(error, Denied):
            if self.instead is not None:
                return self.instead
            if denied := self.visit.denied(error):
                self.instead = _deny(self._start, denied, self.visit.head, (type(error), error, error.__traceback__))
                return self.instead
        raise error


class _Body:
    """A response that is still being made. The server closes it in the end."""

    def __init__(self, body: Iterable[bytes], response: _Response) -> None:
        self._body, self._response = body, response

    def __iter__(self) -> Iterator[bytes]:
        begun = False
        try:
            for part in self._body:
                if self._response.instead is not None:
                    break
                begun = begun or bool(part)
                yield part
        except Exception as error:
            if begun:
                self._response.visit.failed = True
                raise
            self._response.instead_of(error)
        yield from self._response.instead or ()

    def close(self) -> None:
        try:
            if hasattr(self._body, "close"):
                self._body.close()
        finally:
            run(self._response.gate.end(self._response.visit))
