"""A connection to the console: reads requests and sends answers, within time limits. h11 parses HTTP/1.1.

Loaded with the first connection. Source: management page 20.
"""

import logging
import re
from dataclasses import replace
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
import trio

from .api import Call
from .encoding import encoded
from .http_messages import HEADERS, JSON_TYPE, Answer, Peer, Refusal, Request, Stream, Work, bad_request, query_of
from .origins import cors_headers
from .proxies import client_behind
from .slots import Slot
from .state import ConsoleState, in_turns

if TYPE_CHECKING:
    from .metrics.requests import MetricsCall

logger = logging.getLogger("leveret.console")

READ_SIZE = 64 * 1024
HEAD_MAX = 16 * 1024
#: Maximum seconds for a request's head, with the time between two requests; for a body; and until the peer has taken
#: the next SENT_IN_TIME octets of an answer, however long that is: a client on a slow line gets all of it.
HEAD_S, BODY_S, ANSWER_S = 5.0, 30.0, 30.0
SENT_IN_TIME = 32 * 1024
#: Seconds of a body without a limit on its rate, and then the minimum octets per second.
GRACE_S, RATE_MIN = 10.0, 1024
#: Maximum concurrent streams, and the seconds after which a stream that has sent all is asked for a further piece.
STREAMS_MAX, PIECE_S = 20, 0.5
#: Maximum seconds and octets of input that is read and dropped after the answer, before the connection is closed.
DRAIN_S, DRAIN_MAX = 1.0, 1024 * 1024
#: Seconds between two interim responses to a client that has closed its sending side, see `_watch_peer`.
PROBE_S = 0.25
#: Minimum octets of an answer that is compressed.
COMPRESSED_MIN = 1024
#: Octets of a body that are compressed, and sent, in one step.
COMPRESSED_AT_ONCE, SENT_AT_ONCE = 64 * 1024, 256 * 1024
#: A target with its scheme, as for a proxy. Groups: host and port; path and query, perhaps without the first /.
_ABSOLUTE = re.compile("https?://([^/?#@]+)(.*)", re.IGNORECASE)
#: Makes browsers use only TLS for this host, for a year.
HSTS = ("strict-transport-security", "max-age=31536000")


class Connection:
    """Serves the requests of an accepted connection, one after the other."""

    def __init__(
        self, state: ConsoleState, stream: trio.abc.Stream, peer: Peer, slot: Slot, *, is_metrics: bool
    ) -> None:
        """`is_metrics`: the connection came to the metrics port."""
        self._state = state
        self._open = state.open_metrics if is_metrics else state.open
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
                if not isinstance(event, h11.Request):
                    return
                with self._state.answering():
                    if not await self._answer(event):
                        return
                if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                    await self._drain()
                    return
                http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                return
            if await self._send(Answer(error.error_status_hint), is_head=False, is_gzip=False):
                await self._drain()

    async def _drain(self) -> None:
        """Read and drop what the peer still sends: closing before that could make the peer lose the answer."""
        if isinstance(self._stream, trio.abc.HalfCloseableStream):  # TLS streams are not
            await self._stream.send_eof()
        with trio.move_on_after(DRAIN_S):
            left = DRAIN_MAX
            while left > 0 and (data := await self._stream.receive_some(READ_SIZE)):
                left -= len(data)

    async def _next(self) -> object:
        """The next event of HTTP. Parsing takes turns with the work of other connections."""
        while True:
            async with self._state.turn:
                event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(bytes(await self._stream.receive_some(READ_SIZE)))

    async def _answer(self, event: h11.Request) -> bool:
        """Answer a request. Returns whether all of the answer was sent in time."""
        is_gzip = False
        request: Request | None = None
        try:
            request = self._request_of(event)
            is_gzip = "gzip" in request.headers.get("accept-encoding", "")
            answer = await self._answer_to(request)
        except Refusal as refusal:
            answer = refusal.answer()
        if request is not None:
            allow = dict(answer.headers).get("allow")
            more = cors_headers(request, allow, self._state.options())
            more = (*more, HSTS) if request.peer.is_secure else more
            answer = replace(answer, headers=(*answer.headers, *more))
        is_head = event.method == b"HEAD"
        if answer.stream is not None and not is_head:
            return await self._stream_answer(answer, answer.stream)
        return await self._send(answer, is_head=is_head, is_gzip=is_gzip)

    async def _stream_answer(self, answer: Answer, stream: Stream) -> bool:
        """Send a stream piece by piece until either side ends it. Returns whether all of it was sent in time."""
        http, state = self._http, self._state
        headers = _complete([*HEADERS, *answer.headers])
        raw = http.send(h11.Response(status_code=answer.status, headers=headers)) or b""
        with state.streaming(), self._slot.at_work():
            while not state.runtime.has_resigned and (piece := stream.piece()) is not None:
                state.runtime.end_turn()
                raw += http.send(h11.Data(data=piece)) or b"" if piece else b""
                if raw and not await self._send_octets(raw):
                    return False
                raw = b""
                await trio.sleep(0 if stream.has_piece else PIECE_S)
                await state.runtime.wait_while_suspended()
        return await self._send_octets(raw + (http.send(h11.EndOfMessage()) or b""))

    async def _send_octets(self, octets: bytes) -> bool:
        """Send octets. Returns whether the peer took each part of them in time."""
        for start in range(0, len(octets), SENT_IN_TIME):
            with trio.move_on_after(ANSWER_S) as scope:
                await self._stream.send_all(octets[start : start + SENT_IN_TIME])
            if scope.cancelled_caught:
                return False
        return True

    def _request_of(self, event: h11.Request) -> Request:
        """The request whose head was read. Raises: Refusal."""
        try:
            target = event.target.decode("ascii")
            headers = {name.decode("ascii"): value.decode("utf-8", "replace") for name, value in event.headers}
        except UnicodeDecodeError:
            raise bad_request("the request is not text") from None
        if len(target) + sum(len(name) + len(value) for name, value in headers.items()) > HEAD_MAX:
            raise Refusal(431, "head_too_large", f"the head of a request is at most {HEAD_MAX} octets")
        if {"content-length", "transfer-encoding"} <= headers.keys():  # a proxy may disagree about the end of the body
            raise Refusal(400, "bad_request", "content-length beside transfer-encoding", (("connection", "close"),))
        if (absolute := _ABSOLUTE.match(target)) is not None:  # instead of the header; RFC 9112, 3.2.2
            headers["host"], target = absolute[1], absolute[2] if absolute[2][:1] == "/" else f"/{absolute[2]}"
        path, _, query = target.partition("?")
        peer, proxies = self._peer, self._state.options().proxies
        if proxies:
            named = [value.decode("latin-1") for name, value in event.headers if name == b"x-forwarded-for"]
            peer = client_behind(peer, ",".join(named), headers.get("x-forwarded-proto", ""), proxies)
        return Request(event.method.decode("ascii"), path, query_of(query), headers, peer, raw_query=query)

    async def _answer_to(self, request: Request) -> Answer:
        state = self._state
        call = self._open(request)
        body = await self._body(request, call.body_max) if call.body_max else b""
        with state.at_work(call.work), self._slot.at_work():
            answer = await self._run(call, body)
        if answer.stream is not None and state.streams >= STREAMS_MAX:
            raise Refusal(503, "busy", "too many streams at once", (("retry-after", "5"),))
        return answer

    async def _run(self, call: "Call | MetricsCall", body: bytes) -> Answer:
        state = self._state
        try:
            if call.work is Work.REQUEST:
                await state.wait_for_leadership()
            answer = await self._take_steps(call, body)
            if call.work is Work.REQUEST:
                await state.wait_for_leadership()  # do not tell of changes that another leader may not have
            return answer
        except Refusal as refusal:
            return refusal.answer()
        except Exception:
            logger.exception("%s %s failed", call.request.method, call.request.path[:200])
            return Answer(500)

    async def _take_steps(self, call: "Call | MetricsCall", body: bytes) -> Answer:
        state = self._state
        if not call.reads:  # a change must not be cancelled between two steps
            return await in_turns(call.steps(body), state.turn, state.runtime.end_turn)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_peer)
            answer = await in_turns(call.steps(body), state.turn, state.runtime.end_turn)
            nursery.cancel_scope.cancel()
        return answer

    async def _watch_peer(self) -> None:
        """End the connection if the peer has gone. Requests that it sends meanwhile are answered later.

        When its input ends, the peer may have closed the connection, or only its sending side, to wait for the answer.
        So interim responses 100 are sent: a client that waits ignores them, and a closed connection is reset.
        Source: RFC 9110, 15.2.1.
        """
        http, left = self._http, HEAD_MAX
        try:
            while data := await self._stream.receive_some(READ_SIZE):
                http.receive_data(bytes(data))
                left -= len(data)
                if left <= 0:
                    return
            if http.their_http_version == b"1.0":  # HTTP/1.0 has no interim responses
                return
            while True:
                await trio.sleep(PROBE_S)
                raw = http.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
                with trio.move_on_after(PROBE_S, shield=True) as sending:  # half a response would corrupt the answer
                    await self._stream.send_all(raw or b"")
                if sending.cancelled_caught:
                    break
        except trio.BrokenResourceError:
            pass
        self._slot.end()

    async def _body(self, request: Request, limit: int) -> bytes:
        """Read the body of a request. Raises: Refusal, if it is too long or too slow."""
        state = self._state
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > limit:
            raise bad_request(f"the body is larger than {limit} octets")
        if self._http.they_are_waiting_for_100_continue:
            await self._stream.send_all(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        body = bytearray()  # each of many tiny chunks would take 40 octets more as an object
        size, began = 0, trio.current_time()
        try:
            with trio.move_on_after(BODY_S):
                while True:
                    event = await self._next()
                    if isinstance(event, h11.EndOfMessage):
                        return bytes(body)
                    if not isinstance(event, h11.Data):
                        break
                    body += event.data
                    size += len(event.data)
                    state.add_unfinished(len(event.data))
                    if size > limit:
                        raise bad_request(f"the body is larger than {limit} octets")
                    seconds = trio.current_time() - began
                    if seconds > GRACE_S and size < seconds * RATE_MIN:
                        break
        finally:
            state.add_unfinished(-size)
        raise Refusal(408, "timeout", "the body did not come in time")

    async def _send(self, answer: Answer, *, is_head: bool, is_gzip: bool) -> bool:
        """Send an answer. Returns whether all of it was sent in time."""
        http = self._http
        body, headers = answer.body, [*HEADERS, *answer.headers]
        if body is None and answer.value is not None:
            body = encoded(answer.value)
            headers.append(JSON_TYPE)
        parts = body if isinstance(body, list) else [body or b""]
        is_plain = all(name != "content-encoding" for name, _ in headers)
        if is_gzip and is_plain and answer.status == 200 and sum(map(len, parts)) >= COMPRESSED_MIN:
            parts = await _compressed(parts)
            headers.append(("content-encoding", "gzip"))
        if answer.status not in (204, 304) and answer.stream is None:  # to HEAD, a stream's length is not told
            headers.append(("content-length", str(sum(map(len, parts)))))
        if self._must_close() and ("connection", "close") not in headers:
            headers.append(("connection", "close"))
        reason = HTTPStatus(answer.status).phrase.encode()
        raw = http.send(h11.Response(status_code=answer.status, headers=_complete(headers), reason=reason)) or b""
        for part in [] if is_head else parts:
            for start in range(0, len(part), SENT_AT_ONCE):
                raw += http.send(h11.Data(data=part[start : start + SENT_AT_ONCE])) or b""
                if len(raw) >= SENT_AT_ONCE // 2:
                    if not await self._send_octets(raw):
                        return False
                    raw = b""
        return await self._send_octets(raw + (http.send(h11.EndOfMessage()) or b""))

    def _must_close(self) -> bool:
        """Whether a part of the request is unread, so that the connection cannot be used again."""
        http = self._http
        if http.their_state is not h11.SEND_BODY:
            return False
        if http.they_are_waiting_for_100_continue:
            return True
        event = http.next_event()
        while isinstance(event, h11.Data):
            event = http.next_event()
        return not isinstance(event, h11.EndOfMessage)


def _complete(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers with ours, and with control characters replaced, since names of objects may contain these."""
    complete = [*headers, ("server", "Leveret"), ("date", formatdate(usegmt=True))]
    return [(name, value if value.isascii() and value.isprintable() else _printable(value)) for name, value in complete]


def _printable(value: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in value)


async def _compressed(parts: list[bytes]) -> list[bytes]:
    import zlib

    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    packed = []
    for part in parts:
        for start in range(0, len(part), COMPRESSED_AT_ONCE):
            packed.append(packer.compress(part[start : start + COMPRESSED_AT_ONCE]))
            await trio.lowlevel.checkpoint()
    return [*filter(None, packed), packer.flush()]
