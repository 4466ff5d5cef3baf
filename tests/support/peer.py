"""A client that speaks octets: they go in by hand, and what comes out is parsed by pamqp.

    pair = Pair()
    peer = pair.open(channels=1)                        # handshake done, channel 1 open
    peer.send(method(1, commands.Queue.Declare, queue="q"))
    assert peer.expect(commands.Queue.DeclareOk).queue == "q"

Each `send` is one read of a socket, the broker's turn ends after it, and every connection's output is delivered, as
the server would do it. `cut` says how a burst is split into reads, so that any conversation can be fed byte by byte.
pamqp is the second opinion here: nothing that the broker wrote is read by the broker's own codec.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pamqp import base, body, commands, constants, frame, header, heartbeat

from leveret.amqp_frontend.options import FrontendOptions
from leveret.amqp_frontend.peer.login import Peer as PeerFacts
from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.amqp_frontend.session.session import AmqpSession
from leveret.interop.wire.raw_codec import frame as raw_frame

if TYPE_CHECKING:
    from pair import Pair

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
LOGIN = b"\x00guest\x00guest"
#: No waiting before a refused login is dropped, so that tests see the end at once.
OPTIONS = FrontendOptions(refused_login_delay_ms=0)

M = TypeVar("M", bound=base.Frame)
#: The octet that ends frames, by pamqp.
FRAME_END = bytes((constants.FRAME_END,))
#: A burst of octets -> the reads that bring it.
Cut = Callable[[bytes], Iterable[bytes]]


def whole(data: bytes) -> Iterable[bytes]:
    """One read brings all of it."""
    return (data,)


def byte_by_byte(data: bytes) -> Iterable[bytes]:
    """A read for every octet."""
    return (data[index : index + 1] for index in range(len(data)))


def cut_at(places: Sequence[int]) -> Cut:
    """Reads that end at these places of a burst (modulo its size), and at its end."""

    def cut(data: bytes) -> Iterable[bytes]:
        marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
        return (data[start:stop] for start, stop in zip(marks, marks[1:]))

    return cut


# -- what a client sends --------------------------------------------------------------------------------------------


def unvalidated(kind: type[base.Frame]) -> base.Frame:
    """An empty method that encodes what it is given: brokers accept names that pamqp refuses."""
    made: base.Frame = object.__new__(_unvalidated(kind))  # type: ignore[arg-type]
    return made


@cache
def _unvalidated(kind: Any) -> Any:
    return type(kind.__name__, (kind,), {"__slots__": kind.__slots__, "validate": lambda self: None})


def method(channel: int, kind: type[base.Frame], **fields: Any) -> bytes:
    """A method frame, encoded by pamqp."""
    made: base.Frame = _unvalidated(kind)(**fields)  # type: ignore[arg-type]
    return frame.marshal(made, channel)


def raw_method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    """A method frame with arguments as octets."""
    return raw_frame(1, channel, class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + arguments)


def content(channel: int, payload: bytes, *, body_max: int = 131064, **properties: Any) -> bytes:
    """Header and body frames, encoded by pamqp; body frames carry at most `body_max` octets."""
    head = header.ContentHeader(body_size=len(payload), properties=commands.Basic.Properties(**properties))
    parts = [payload[start : start + body_max] for start in range(0, len(payload), body_max)]
    return frame.marshal(head, channel) + b"".join(frame.marshal(body.ContentBody(part), channel) for part in parts)


def publish(
    channel: int,
    routing_key: str,
    payload: bytes,
    *,
    exchange: str = "",
    mandatory: bool = False,
    body_max: int = 131064,
    **properties: Any,
) -> bytes:
    """basic.publish with its content."""
    return method(
        channel, commands.Basic.Publish, exchange=exchange, routing_key=routing_key, mandatory=mandatory
    ) + content(channel, payload, body_max=body_max, **properties)


def handshake(
    *, frame_max: int = 131072, channel_max: int = 2047, heartbeat_s: int = 0, hears_blocked: bool = False
) -> list[bytes]:
    """The four bursts of a login as guest into "/". `hears_blocked`: with the capability connection.blocked."""
    more = {"connection.blocked": True} if hears_blocked else {}
    return [
        PROTOCOL_HEADER,
        method(
            0,
            commands.Connection.StartOk,
            client_properties={
                "capabilities": {"authentication_failure_close": True, "consumer_cancel_notify": True, **more},
            },
            mechanism="PLAIN",
            response=LOGIN.decode(),
        ),
        method(0, commands.Connection.TuneOk, channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat_s),
        method(0, commands.Connection.Open, virtual_host="/"),
    ]


# -- what a client gets ---------------------------------------------------------------------------------------------


class AccessRequestOk:
    """access.request-ok, the one answer that pamqp does not know."""

    name = "Access.RequestOk"


@dataclass(slots=True)
class Received:
    """One frame from the broker; a method that carries content has its properties and its joined body."""

    channel: int
    frame: Any
    properties: commands.Basic.Properties | None = None
    body: bytes | None = None


class Incoming:
    """The client's side of the wire: octets -> frames with whole contents, strictly."""

    def __init__(self) -> None:
        self.octets = bytearray()  # everything that ever came
        self.frame_max = 131072
        self._position = 0
        self._open: dict[int, tuple[Received, int]] = {}  # channel -> content being received, octets missing

    def feed(self, data: bytes) -> list[Received]:
        """What became whole with these octets."""
        self.octets += data
        done: list[Received] = []
        while True:
            rest = bytes(self.octets[self._position : self._position + 7])
            if rest[:4] == b"AMQP":
                assert len(self.octets) - self._position == 8, "a protocol header is the last word"
                size = 8
            elif len(rest) < 7:
                return done
            else:
                size = int.from_bytes(rest[3:7], "big") + 8
            if self._position + size > len(self.octets):
                return done
            assert size <= self.frame_max, f"frame of {size} octets, agreed were {self.frame_max}"
            one: Any
            octets = bytes(self.octets[self._position : self._position + size])
            if octets[:1] == b"\x01" and octets[7:11] == b"\x00\x1e\x00\x0b":
                assert octets[3:7] == b"\x00\x00\x00\x06" and octets[13:] == FRAME_END
                consumed, channel, one = size, int.from_bytes(octets[1:3], "big"), AccessRequestOk()
            else:
                consumed, channel, one = frame.unmarshal(octets)
            assert consumed == size
            self._position += size
            received = self._take(channel, one)
            if received is not None:
                done.append(received)

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing is half received."""
        return self._position == len(self.octets) and not self._open

    def _take(self, channel: int, one: Any) -> Received | None:
        if isinstance(one, header.ContentHeader):
            received, _ = self._open.pop(channel)
            assert received.properties is None, "two headers"
            received.properties, received.body = one.properties, b""
            return self._continued(received, one.body_size)
        if isinstance(one, body.ContentBody):
            received, missing = self._open.pop(channel)
            assert received.body is not None, "a body before its header"
            received.body += one.value
            return self._continued(received, missing - len(one.value))
        assert channel not in self._open, "a method inside a content"
        received = Received(channel, one)
        if isinstance(one, commands.Basic.Deliver | commands.Basic.GetOk | commands.Basic.Return):
            self._open[channel] = (received, 0)
            return None
        return received

    def _continued(self, received: Received, missing: int) -> Received | None:
        assert missing >= 0
        if missing:
            self._open[received.channel] = (received, missing)
            return None
        return received


class Peer:
    """One connection: a client that says what the test says, and the broker's session for it."""

    def __init__(self, pair: Pair, facts: PeerFacts, options: FrontendOptions, cut: Cut) -> None:
        self.pair = pair
        self.cut = cut
        self.session = AmqpSession(pair.broker, options, facts, self._flush)
        self.incoming = Incoming()
        self.received: deque[Received] = deque()
        #: A client that does not read: nothing is taken from the session, nothing counts as sent.
        self.is_reading = True
        self.is_closed = False
        self.has_reset = False  # the end came without the rest of the output being waited for
        self.buffered_max = 0  # the most that the broker kept of what this client sent

    def send(self, *bursts: bytes) -> None:
        """Each burst arrives in as many reads as `cut` makes of it."""
        for burst in bursts:
            for data in self.cut(burst):
                self._read(data)

    def _read(self, data: bytes) -> None:
        if self.is_closed:
            return
        session = self.session
        output, backlog = session.output, session.backlog
        handle_bytes(session, data)
        self.pair.end_turn()
        while (
            (output.is_stalled and self.is_reading) or (backlog.has_more and not output.is_stalled)
        ) and not session.closing.finished:
            self._flush()
            handle_bytes(session, b"")
            self.pair.end_turn()
        self._flush()
        self.buffered_max = max(self.buffered_max, len(self.session.connection._buffer))

    def _flush(self) -> None:
        if self.is_closed:
            return
        if self.is_reading:
            while output := b"".join(self.session.take_output()):
                self.received += self.incoming.feed(output)
            self.session.output_sent()
        if self.session.closing.finished:
            self._end()

    def _end(self) -> None:
        self.is_closed = True
        self.has_reset = self.session.closing.abort
        self.session.handle_end()
        self.pair.end_turn()

    def resume(self) -> None:
        """Read again what was left unread."""
        self.is_reading = True
        self._flush()
        self.pair.end_turn()

    def go_on(self) -> None:
        """What waited may be handled now, although nothing came."""
        if not self.is_closed:
            self._read(b"")

    def hang_up(self) -> None:
        """The TCP connection is gone."""
        if not self.is_closed:
            self._end()

    def take(self) -> list[Received]:
        """Everything that came and was not looked at yet."""
        taken = list(self.received)
        self.received.clear()
        return taken

    def expect(self, kind: type[M], *, channel: int | None = None) -> M:
        """The next frame, which must be this method."""
        found = self.expect_content(kind, channel=channel)
        return found.frame  # type: ignore[no-any-return]

    def expect_content(self, kind: type[base.Frame], *, channel: int | None = None) -> Received:
        """The next frame with its content, which must be this method."""
        assert self.received, f"nothing came, expected {kind.name}"
        found = self.received.popleft()
        assert isinstance(found.frame, kind), f"expected {kind.name}, got {found}"
        assert channel is None or found.channel == channel, found
        return found

    def expect_nothing(self) -> None:
        """Nothing came that was not looked at."""
        assert not self.received, list(self.received)
        assert self.incoming.is_between_frames

    def call(self, channel: int, kind: type[base.Frame], **fields: Any) -> Any:
        """Send a method and return what came: exactly one frame."""
        self.send(method(channel, kind, **fields))
        assert len(self.received) == 1, list(self.received)
        return self.received.popleft().frame

    def log_in(self, channels: int = 1, **agreed: Any) -> None:
        """The handshake as guest, and channels 1 to this one; `agreed`: see `handshake`."""
        self.send(*handshake(**agreed))
        for kind in (commands.Connection.Start, commands.Connection.Tune, commands.Connection.OpenOk):
            self.expect(kind)
        self.incoming.frame_max = agreed.get("frame_max", self.incoming.frame_max)
        self.open_channels(channels)

    def get(self, queue: str = "q", channel: int = 1) -> Received | None:
        """basic.get without acknowledgement, whose answer is the only thing that came."""
        self.send(method(channel, commands.Basic.Get, queue=queue, no_ack=True))
        (got,) = self.take()
        return None if isinstance(got.frame, commands.Basic.GetEmpty) else got

    def bodies(self, queue: str = "q") -> list[bytes]:
        """What is in a queue, which is empty then."""
        found = []
        while (got := self.get(queue)) is not None:
            found.append(got.body or b"")
        return found

    def open_channels(self, count: int) -> None:
        """Channels 1 to `count`."""
        for channel in range(1, count + 1):
            assert isinstance(self.call(channel, commands.Channel.Open), commands.Channel.OpenOk)


def is_heartbeat(received: Received) -> bool:
    """Whether it is a heartbeat frame."""
    return isinstance(received.frame, heartbeat.Heartbeat)
