"""Middleware for ASGI: FastAPI, Starlette, Quart, Litestar, Django."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from ._client import AsyncClient
from ._emit import Emitter
from ._web import Gate, Of, Skip

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]


class TallygateASGI:
    """Answers 429 to those who may not use an API now, and emits an event for each request that it lets in. What is no
    HTTP, such as a websocket, passes."""

    def __init__(self, app: App, client: AsyncClient, *, emitter: Emitter | None = None, uid: Of | None = None, ip: Of | None = None,
                 attrs: Mapping[str, Of] | None = None, api: Of | str | None = None, skip: Skip = None,
                 admit: bool = False, emit_denied: bool = False) -> None:
        if not isinstance(client, AsyncClient):
            raise TypeError("TallygateASGI needs an AsyncClient: a Client would hold up all requests")
        self._app, self._gate = app, Gate(client, emitter, uid, ip, attrs, api, skip, admit, emit_denied)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        visit = self._gate.enter(scope) if scope["type"] == "http" else None
        if visit is None:
            return await self._app(scope, receive, send)
        answer = await self._gate.ask(visit)
        told = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        if not answer.allowed:
            told.append((b"content-length", str(len(answer.body)).encode()))
            await send({"type": "http.response.start", "status": answer.status, "headers": told})
            return await send({"type": "http.response.body", "body": b"" if visit.head else answer.body})
        visit.status = 0

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                visit.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *told]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            await self._gate.end(visit)
