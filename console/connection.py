"""One connection of the console: reads requests, and answers them within time limits. h11 parses HTTP/1.1; only this
file waits.

Loaded with the first connection. Source: management page 20.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

import h11
import trio

from ..engine import Broker
from .api import Api, Call
from .encoding import encoded
from .http_messages import (
    HEADERS,
    JSON_TYPE,
    Answer,
    Peer,
    Refusal,
    Request,
    Stream,
    Work,
    bad_request,
    not_authorised,
    not_found,
    query_of,
)
from .metrics.facts import MetricsFacts
from .options import ConsoleOptions
from .permissions import is_monitor
from .proxies import client_behind
from .response_headers import clean, headers_for, http_date
from .routes import routes_with
from .sampler import Sampler
from .slots import Slot
from .static_pages import StaticPages

if TYPE_CHECKING:
    from .metrics.requests import Metrics, MetricsCall

logger = logging.getLogger("leveret.console")

#: Makes a call from a request at one of the ports. Raises: Refusal.
Opens = Callable[[Request], "Call | MetricsCall"]

READ_SIZE = 64 * 1024
HEAD_MAX = 16 * 1024
#: Seconds for a request's head, including the time between two requests; for a body, and for an answer.
HEAD_S, BODY_S, ANSWER_S = 5.0, 30.0, 30.0
#: Grace period for a body in seconds, then the minimum upload rate in octets per second.
GRACE_S, RATE_MIN = 10.0, 1024
#: Maximum concurrent requests; beside them health checks, pages of metrics, and streams. Seconds between two pieces of
#: a stream.
AT_ONCE_MAX, PROBES_MAX, METRICS_MAX, STREAMS_MAX, PIECE_S = 10, 10, 4, 20, 0.5
#: Limits on further input of a connection that is closed before its peer has sent everything, in seconds and octets.
DRAIN_S, DRAIN_MAX = 1.0, 1024 * 1024
#: Seconds between two interim responses to a client that has closed its sending side and waits for a long answer.
PROBE_S = 0.25
#: Minimum octets of an answer that is compressed.
COMPRESSED_MIN = 1024
#: Octets of a body that are compressed, and sent, in one step.
COMPRESSED_AT_ONCE, SENT_AT_ONCE = 64 * 1024, 256 * 1024


class Runtime(Protocol):
    """The services that the composition root gives to a frontend."""

    broker: Broker
    has_resigned: bool

    def end_turn(self) -> None:
        """Dispatch and flush after a turn; unfinished work continues soon after."""

    async def wait_while_suspended(self) -> None:
        """Return when clients may be read and sent to."""


class ConsoleState:
    """The shared state of all connections of a console: the API, and the counts of concurrent work."""

    def __init__(
        self,
        runtime: Runtime,
        options: Callable[[], ConsoleOptions],
        sampler: Sampler,
        facts: MetricsFacts | None = None,
    ) -> None:
        self.runtime = runtime
        self.options = options
        self.api = Api(lambda: runtime.broker, options, routes_with(options().control.routes()), StaticPages(), sampler)
        self._facts = self.api.facts = facts
        self._metrics: Metrics | None = None
        self._at_once = dict.fromkeys(Work, 0)
        self.streams = 0
        self.unfinished = 0  # octets of incomplete bodies
        self.turn = trio.Lock()  # one connection works at a time, with turns of the broker's other tasks in between

    async def serve(self, stream: trio.abc.Stream, peer: Peer, slot: Slot, *, is_metrics: bool) -> None:
        """Serve one connection to its end. `is_metrics`: it uses the metrics port."""
        await Connection(self, stream, peer, slot, self.open_metrics if is_metrics else self.open).serve()

    # -- what is served -----------------------------------------------------------------------------------------------

    @property
    def metrics(self) -> "Metrics":
        """The metrics, made on first use. Raises: Refusal, if metrics are off."""
        if self._facts is None:
            raise not_found()
        if self._metrics is None:
            from .metrics.requests import Metrics  # loaded only if a broker is scraped

            self._metrics = Metrics(lambda: self.runtime.broker, self.options, self._facts, self._require_monitor)
        return self._metrics

    def _require_monitor(self, request: Request) -> None:
        """Raises: Refusal."""
        if not is_monitor(self.api.logins.log_in(request.headers.get("authorization"), request.peer)):
            raise not_authorised("Not monitor user")

    def open(self, request: Request) -> "Call | MetricsCall":
        """A request at the console's port: the API, and with a login also the metrics. Raises: Refusal."""
        if not request.path.startswith(("/metrics", "/health/")):
            return self.api.open(request)
        call = self.open_metrics(request)
        if request.path.startswith("/metrics"):
            self._require_monitor(request)
        return call

    def open_metrics(self, request: Request) -> "MetricsCall":
        """A request at the metrics port. Raises: Refusal."""
        self.api.check_host(request.headers.get("host", ""), self.options())
        return self.metrics.open(request)

    # -- how much at once ---------------------------------------------------------------------------------------------

    @contextmanager
    def at_work(self, work: Work) -> Iterator[None]:
        """Count a complete request while it is answered. Raises: Refusal, if too many of its kind are answered now."""
        at_once = self._at_once
        if at_once[work] >= {Work.REQUEST: AT_ONCE_MAX, Work.METRICS: METRICS_MAX, Work.PROBE: PROBES_MAX}[work]:
            raise Refusal(503, "busy", "too many requests at once", (("retry-after", "1"),))
        at_once[work] += 1
        try:
            yield
        finally:
            at_once[work] -= 1

    async def wait_for_leadership(self) -> None:
        """Wait while the broker is suspended. Raises: Refusal, if it has ended since another node may lead."""
        await self.runtime.wait_while_suspended()
        if self.runtime.has_resigned:
            raise Refusal(503, "not_leading", "this node does not lead any more", (("retry-after", "1"),))

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Count a stream."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1


async def in_turns(steps: Generator[None, None, Answer], turn: trio.Lock, end_turn: Callable[[], None]) -> Answer:
    """Take the steps to an answer, taking turns with other answers, and end the broker's turn after each.

    However many requests are served, other tasks of the broker wait for one step at most. Cancelled, it ends between
    two steps. Raises: as the steps do.
    """
    with closing(steps):
        while True:
            async with turn:
                try:
                    next(steps)
                except StopIteration as end:
                    answer: Answer = end.value
                    return answer
                finally:
                    end_turn()


class Connection:
    """One accepted connection, which serves request after request."""

    def __init__(self, server: ConsoleState, stream: trio.abc.Stream, peer: Peer, slot: Slot, open_: "Opens") -> None:
        self._server = server
        self._open = open_
        self._stream = stream
        self._peer = peer
        self._slot = slot
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)

    async def serve(self) -> None:
        """Serve until either side ends the connection."""
        http = self._http
        try:
            while True:
                event: object = None
                with trio.move_on_after(HEAD_S):
                    event = await self._next()
                if not isinstance(event, h11.Request) or not await self._answer(event):
                    return
                if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                    await self._drain()
                    return
                http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await self._send_in_time(Answer(error.error_status_hint), head=False, is_packed=False)

    async def _drain(self) -> None:
        """Close so that the peer receives the answer, even if it is still sending."""
        if isinstance(self._stream, trio.abc.HalfCloseableStream):  # TLS streams are not
            await self._stream.send_eof()
        with trio.move_on_after(DRAIN_S):
            unread = DRAIN_MAX
            while unread > 0 and (data := await self._stream.receive_some(READ_SIZE)):
                unread -= len(data)

    async def _next(self) -> object:
        while True:
            async with self._server.turn:
                event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(bytes(await self._stream.receive_some(READ_SIZE)))

    async def _answer(self, event: h11.Request) -> bool:
        """Send an answer. Returns whether the peer took it in time."""
        is_packed = False
        request: Request | None = None
        try:
            request = self._request_of(event)
            is_packed = "gzip" in request.headers.get("accept-encoding", "")
            answer = await self._answer_to(request)
        except Refusal as refusal:
            answer = refusal.answer()
        if request is not None:
            answer = replace(answer, headers=(*answer.headers, *headers_for(request, answer, self._server.options())))
        is_head = event.method == b"HEAD"
        if answer.stream is not None and not is_head:
            return await self._stream_answer(answer, answer.stream)
        return await self._send_in_time(answer, head=is_head, is_packed=is_packed)

    async def _stream_answer(self, answer: Answer, stream: Stream) -> bool:
        """Send a stream piece by piece, until either side ends it. Returns False if the peer no longer reads."""
        http, server = self._http, self._server
        headers = [*HEADERS, *answer.headers, ("server", "Leveret"), ("date", http_date(time.time()))]
        raw = http.send(h11.Response(status_code=answer.status, headers=clean(headers))) or b""
        with server.streaming(), self._slot.at_work():
            while not server.runtime.has_resigned and (piece := stream.piece()) is not None:
                server.runtime.end_turn()
                raw += http.send(h11.Data(data=piece)) or b"" if piece else b""
                if raw:
                    with trio.move_on_after(ANSWER_S) as scope:
                        await self._stream.send_all(raw)
                    if scope.cancelled_caught:
                        return False
                raw = b""
                await trio.sleep(0 if stream.has_piece else PIECE_S)
                await server.runtime.wait_while_suspended()
        await self._stream.send_all(http.send(h11.EndOfMessage()) or b"")
        return True

    async def _send_in_time(self, answer: Answer, *, head: bool, is_packed: bool) -> bool:
        with trio.move_on_after(ANSWER_S) as scope:
            await self._send(answer, head=head, is_packed=is_packed)
        return not scope.cancelled_caught

    def _request_of(self, event: h11.Request) -> Request:
        try:
            target = event.target.decode("ascii")
            headers = {name.decode("ascii"): value.decode("utf-8", "replace") for name, value in event.headers}
        except UnicodeDecodeError:
            raise bad_request("the request is not text") from None
        if len(target) + sum(len(name) + len(value) for name, value in headers.items()) > HEAD_MAX:
            raise Refusal(431, "head_too_large", f"the head of a request is at most {HEAD_MAX} octets")
        if {"content-length", "transfer-encoding"} <= headers.keys():  # a proxy may disagree about the end of the body
            raise Refusal(400, "bad_request", "content-length beside transfer-encoding", (("connection", "close"),))
        path, _, query = target.partition("?")
        peer, proxies = self._peer, self._server.options().proxies
        if proxies:
            named = [value.decode("latin-1") for name, value in event.headers if name == b"x-forwarded-for"]
            peer = client_behind(peer, ",".join(named), headers.get("x-forwarded-proto", ""), proxies)
        return Request(event.method.decode("ascii"), path, query_of(query), headers, peer, raw_query=query)

    async def _answer_to(self, request: Request) -> Answer:
        server = self._server
        call = self._open(request)
        body = await self._body(request, call.body_max) if call.body_max else b""
        with server.at_work(call.work), self._slot.at_work():
            answer = await self._run(call, body)
        if answer.stream is not None and server.streams >= STREAMS_MAX:
            raise Refusal(503, "busy", "too many streams at once", (("retry-after", "5"),))
        return answer

    async def _run(self, call: "Call | MetricsCall", body: bytes) -> Answer:
        server = self._server
        try:
            if call.work is Work.REQUEST:
                await server.wait_for_leadership()
            answer = await self._take_steps(call, body)
            if call.work is Work.REQUEST:
                await server.wait_for_leadership()  # its changes may not be recorded
            return answer
        except Refusal as refusal:
            return refusal.answer()
        except Exception:
            logger.exception("%s %s failed", call.request.method, call.request.path[:200])
            return Answer(500)

    async def _take_steps(self, call: "Call | MetricsCall", body: bytes) -> Answer:
        server = self._server
        if not call.reads:  # what changes something is never left half done
            return await in_turns(call.steps(body), server.turn, server.runtime.end_turn)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_peer)
            answer = await in_turns(call.steps(body), server.turn, server.runtime.end_turn)
            nursery.cancel_scope.cancel()
        return answer

    async def _watch_peer(self) -> None:
        """End the connection if the peer has gone. Its further requests are kept for later.

        A peer that has closed its sending side may still wait for the answer, or may have closed the connection: only
        what is sent to it tells, because a closed connection is reset. Clients discard an interim response 100, also
        one that they have not asked for. Source: RFC 9110, 15.2.1.
        """
        http, unread = self._http, HEAD_MAX
        try:
            while data := await self._stream.receive_some(READ_SIZE):
                http.receive_data(bytes(data))
                unread -= len(data)
                if unread <= 0:
                    return
            if http.their_http_version == b"1.0":  # it does not know interim responses
                return
            while True:
                await trio.sleep(PROBE_S)
                raw = http.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
                with trio.move_on_after(PROBE_S, shield=True) as sending:  # half of one would spoil the answer
                    await self._stream.send_all(raw or b"")
                if sending.cancelled_caught:
                    break
        except trio.BrokenResourceError:
            pass
        self._slot.end()

    async def _body(self, request: Request, limit: int) -> bytes:
        server = self._server
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > limit:
            raise bad_request(f"the body is larger than {limit} octets")
        if self._http.they_are_waiting_for_100_continue:
            await self._stream.send_all(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        parts: list[bytes] = []
        size, began = 0, trio.current_time()
        try:
            with trio.move_on_after(BODY_S):
                while True:
                    event = await self._next()
                    if isinstance(event, h11.EndOfMessage):
                        return b"".join(parts)
                    if not isinstance(event, h11.Data):
                        break
                    parts.append(bytes(event.data))
                    size += len(event.data)
                    server.unfinished += len(event.data)
                    if size > limit:
                        raise bad_request(f"the body is larger than {limit} octets")
                    if server.unfinished > AT_ONCE_MAX * server.options().body_max:
                        raise Refusal(503, "busy", "too many long bodies at once", (("retry-after", "5"),))
                    passed = trio.current_time() - began
                    if passed > GRACE_S and size < passed * RATE_MIN:
                        break
        finally:
            server.unfinished -= size
        raise Refusal(408, "timeout", "the body did not come in time")

    async def _send(self, answer: Answer, *, head: bool, is_packed: bool) -> None:
        http = self._http
        body, headers = answer.body, [*HEADERS, *answer.headers]
        if body is None and answer.value is not None:
            body = encoded(answer.value)
            headers.append(JSON_TYPE)
        parts = body if isinstance(body, list) else [body or b""]
        is_open = all(name != "content-encoding" for name, _ in headers)
        if is_packed and is_open and answer.status == 200 and sum(map(len, parts)) >= COMPRESSED_MIN:
            parts = await _compressed(parts)
            headers.append(("content-encoding", "gzip"))
        if answer.status not in (204, 304):
            headers.append(("content-length", str(sum(map(len, parts)))))
        headers += [("server", "Leveret"), ("date", http_date(time.time()))]
        if self._must_close() and ("connection", "close") not in headers:
            headers.append(("connection", "close"))
        reason = HTTPStatus(answer.status).phrase.encode()
        raw = http.send(h11.Response(status_code=answer.status, headers=clean(headers), reason=reason)) or b""
        for part in [] if head else parts:
            for start in range(0, len(part), SENT_AT_ONCE):
                raw += http.send(h11.Data(data=part[start : start + SENT_AT_ONCE])) or b""
                if len(raw) >= SENT_AT_ONCE // 2:
                    await self._stream.send_all(raw)
                    raw = b""
        raw += http.send(h11.EndOfMessage()) or b""
        await self._stream.send_all(raw)

    def _must_close(self) -> bool:
        """Whether an unread part of the request follows, so that the connection cannot be reused."""
        http = self._http
        if http.their_state is not h11.SEND_BODY:
            return False
        if http.they_are_waiting_for_100_continue:
            return True
        event = http.next_event()
        while isinstance(event, h11.Data):
            event = http.next_event()
        return not isinstance(event, h11.EndOfMessage)


async def _compressed(parts: list[bytes]) -> list[bytes]:
    import zlib

    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    packed = []
    for part in parts:
        for start in range(0, len(part), COMPRESSED_AT_ONCE):
            packed.append(packer.compress(part[start : start + COMPRESSED_AT_ONCE]))
            await trio.lowlevel.checkpoint()
    return [*filter(None, packed), packer.flush()]
