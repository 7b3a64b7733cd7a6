"""Middleware for ASGI: FastAPI, Starlette, Quart, Litestar, Django."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from ._client import Answer, AsyncClient
from ._decision import Denied
from ._emit import Emitter
from ._web import Admit, Gate, Of, Skip

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]


class TallygateASGI:
    """Answers 429 to those who may not use an API now, and emits an event for each request that it lets in. What is no
    HTTP, such as a websocket, passes."""

    def __init__(self, app: App, client: AsyncClient, *, emitter: Emitter | None = None, uid: Of | None = None, ip: Of | None = None,
                 attrs: Mapping[str, Of] | None = None, api: Of | str | None = None, skip: Skip = None,
                 admit: Admit = False, emit_denied: bool = False) -> None:
        if not isinstance(client, AsyncClient):
            raise TypeError("TallygateASGI needs an AsyncClient: a Client would hold up all requests")
        self._app, self._gate = app, Gate(client, emitter, uid, ip, attrs, api, skip, admit, emit_denied)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        visit = self._gate.enter(scope) if scope["type"] == "http" else None
        if visit is None:
            return await self._app(scope, receive, send)
        answer = await self._gate.ask(visit)
        if not answer.allowed:
            return await _deny(send, answer, visit.head)
        told, instead = _fields(answer), False  # instead: the app's own answer is not sent
        visit.status = 0

        async def sending(message: Message) -> None:
            nonlocal instead
            if message["type"] == "http.response.start":
                visit.status = message["status"]
                if denied := visit.denied():
                    instead = True
                    return await _deny(send, denied, visit.head)
                message["headers"] = [*message.get("headers", ()), *told]
            if not instead:
                await send(message)

        try:
            await self._app(scope, receive, sending)
        except BaseException as error:
            if visit.status:
                visit.failed = not instead and isinstance(error, Exception)  # whatever status was sent; else the caller has left
                if not (instead and isinstance(error, Denied)):
                    raise
            elif denied := visit.denied(error):
                await _deny(send, denied, visit.head)
            else:
                raise
        finally:
            await self._gate.end(visit)


def _fields(answer: Answer) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]


async def _deny(send: Send, answer: Answer, head: bool) -> None:
    fields = [*_fields(answer), (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    await send({"type": "http.response.body", "body": b"" if head else answer.body})
