"""HTTP/1.1 with the decision server, on connections that are kept. The time-outs of http.client are those of single
reads, and it cannot be used by asyncio: here one deadline holds for the whole question, and both share the code."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import threading
import weakref
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from time import monotonic
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_LINE, _REST = 0, -1  # what read_reply yields: a line, or all that comes; else so many bytes
_MAX_BODY = 4 << 20
_MAX_IDLE = 64  # connections


class Broken(OSError):
    """The other side speaks no HTTP, or stopped in the middle."""


class Reply(NamedTuple):
    status: int
    headers: list[tuple[str, str]]  # names in lower case
    body: bytes
    keep: bool  # the connection may be used again

    def header(self, name: str) -> str:
        return next((v for n, v in self.headers if n == name), "")

    @property
    def refuses(self) -> bool:
        """The server is there, and says that the question is wrong. It, or a proxy before it, says so to each like it."""
        return 300 <= self.status < 500

    def detail(self) -> str:
        """What the answer says in words, for logs."""
        try:
            text = json.loads(self.body).get("detail", "")
        except (ValueError, AttributeError, RecursionError):
            text = self.body[:200].decode("utf-8", "replace")
        return " ".join(str(text)[:200].split())


def read_reply(head: list[Reply]) -> Generator[int, bytes, Reply]:
    """The parser, which reads nothing itself. head gets the reply as soon as all but its body is there."""
    status, version, headers = 0, b"", [("", "")]
    while status < 200:  # answers below 200 come before the real one
        parts = (yield _LINE).split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise Broken("the answer is no HTTP/1.1")
        version, status, headers = parts[0], int(parts[1]), []
        while (line := (yield _LINE)) not in (b"\r\n", b"\n"):
            name, colon, value = line.partition(b":")
            if not colon or len(headers) > 100:
                raise Broken("the answer's headers are none, or too many")
            headers.append((name.strip().lower().decode("latin-1"), value.strip().decode("latin-1")))
    fields, body = dict(headers), b""
    keep = version == b"HTTP/1.1" and fields.get("connection", "").lower() != "close"
    head.append(Reply(status, headers, b"", False))
    if status in (204, 304):
        pass
    elif "chunked" in fields.get("transfer-encoding", ""):
        while size := int((yield _LINE).partition(b";")[0], 16):
            body += yield _bounded(len(body) + size) - len(body)
            yield _LINE
        while (yield _LINE) not in (b"\r\n", b"\n"):
            pass
    elif "content-length" not in fields:
        body, keep = (yield _REST), False
    elif size := _bounded(int(fields["content-length"])):
        body = yield size
    return Reply(status, headers, body, keep)


def _bounded(size: int) -> int:
    if not 0 <= size <= _MAX_BODY:
        raise Broken(f"the answer has {size} bytes")
    return size


def left(deadline: float) -> float:
    """The seconds that are left until the deadline."""
    if (seconds := deadline - monotonic()) <= 0:
        raise TimeoutError("no answer in time")
    return seconds


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs code that is written for asyncio on a Pool of sockets, which never has it wait."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("it waits for an event loop")


class Connection:
    """A connection on which one question after the other is asked, each until its own deadline."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._got = sock, b""
        self.silent = True  # nothing has come since the latest question

    async def ask(self, request: bytes, deadline: float) -> Reply:
        self._got, self.silent = b"", True
        await self._write(request, deadline)
        head: list[Reply] = []
        steps = read_reply(head)
        want = next(steps)
        while True:
            try:
                want = steps.send(await self._take(want, deadline))
            except StopIteration as end:
                reply: Reply = end.value
                return reply
            except (OSError, ValueError):
                if head and head[0].refuses:  # the status says all; its body may end late, or not at all
                    return head[0]
                raise

    async def _take(self, want: int, deadline: float) -> bytes:
        while True:
            size = self._got.find(b"\n") + 1 if want == _LINE else want
            if 0 < size <= len(self._got):
                taken, self._got = self._got[:size], self._got[size:]
                return taken
            _bounded(len(self._got))
            if not (more := await self._read(deadline)):
                if want == _REST:
                    return self._got
                raise Broken("the connection was closed before the answer's end")
            self._got, self.silent = self._got + more, False

    async def _write(self, data: bytes, deadline: float) -> None:
        self._sock.settimeout(left(deadline))
        self._sock.sendall(data)

    async def _read(self, deadline: float) -> bytes:
        self._sock.settimeout(left(deadline))
        return self._sock.recv(64 << 10)

    def close(self) -> None:
        self._sock.close()


class AsyncConnection(Connection):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer.get_extra_info("socket"))
        self._reader, self._writer = reader, writer

    async def ask(self, request: bytes, deadline: float) -> Reply:
        late = asyncio.get_running_loop().call_later(left(deadline), self.close)  # wait_for would take turns of the loop
        try:
            return await super().ask(request, deadline)
        except OSError:
            left(deadline - 0.001)  # the loop's clock is not exact
            raise
        finally:
            late.cancel()

    async def _write(self, data: bytes, deadline: float) -> None:
        self._writer.write(data)

    async def _read(self, deadline: float) -> bytes:
        return await self._reader.read(64 << 10)

    def close(self) -> None:
        self._writer.transport.abort()


class Pool:
    """Connections that are kept. A question never waits longer than its deadline, neither for a name to be looked up
    nor for a connection: threads of their own make these."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._idle: list[Connection] = []

    def forked(self) -> None:
        self.close()  # they are the parent's: two processes on one connection would read each other's answers

    async def ask(self, request: bytes, deadline: float) -> Reply:
        while True:
            try:
                connection, kept = self._idle.pop(), True
            except IndexError:
                connection, kept = await self._new(deadline), False
            try:
                reply = await connection.ask(request, deadline)
            except BaseException as error:
                connection.close()
                if kept and connection.silent and isinstance(error, OSError) and not isinstance(error, TimeoutError):
                    continue  # the server had closed it meanwhile: it has not seen the question
                raise
            self._keep(connection) if reply.keep else connection.close()
            return reply

    async def _new(self, deadline: float) -> Connection:
        future: Future[Connection] = Future()
        threading.Thread(target=self._connect, args=(future,), daemon=True, name="tallygate-connect").start()
        try:
            return future.result(left(deadline))
        except FutureTimeout:
            if future.cancel():
                raise TimeoutError("no connection in time") from None
            return future.result()

    def _connect(self, future: Future[Connection]) -> None:
        try:
            sock = socket.create_connection((self._host, self._port), 5)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self._tls.wrap_socket(sock, server_hostname=self._host) if self._tls else sock)
        except Exception as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
            return
        if future.set_running_or_notify_cancel():
            future.set_result(connection)
        else:  # it comes too late for this question; the next one finds it
            self._keep(connection)

    def _keep(self, connection: Connection) -> None:
        self._idle.append(connection) if len(self._idle) < _MAX_IDLE else connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class AsyncPool(Pool):
    """Pool for asyncio: the connections of one event loop."""

    _loop: asyncio.AbstractEventLoop | None = None

    def forked(self) -> None:
        self._idle = []  # not closed: the parent's event loop would hear of it

    async def ask(self, request: bytes, deadline: float) -> Reply:
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._loop, self._idle = loop, []
        try:
            return await super().ask(request, deadline)
        except asyncio.TimeoutError as error:  # no OSError before Python 3.11
            raise TimeoutError("no answer in time") from error

    async def _new(self, deadline: float) -> Connection:
        opening = asyncio.open_connection(self._host, self._port, ssl=self._tls)
        return AsyncConnection(*await asyncio.wait_for(opening, left(deadline)))


_per_process: weakref.WeakSet[Any] = weakref.WeakSet()


def own_per_process(owner: Any) -> None:
    """Calls owner.forked() in each child process: servers such as gunicorn fork after an app is made."""
    _per_process.add(owner)


def _forked() -> None:
    for owner in list(_per_process):
        owner.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
