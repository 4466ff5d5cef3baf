"""The frame reader: octets in, protocol events out. No sockets, no time; of the engine only what octets mean.

`events()` is lazy: the session handles one event before the next is read, so an error that closes a channel takes
effect on the very next frame. Publishes with their content and single acks are read as runs (runs.py); everything
else goes one frame at a time. Source: AMQP 0-9-1 4.2; behaviour page 1.11 to 1.13.
"""

from collections.abc import Iterator

from .channel_reader import Assembly, ChannelReader
from .codec import INDEX_OF, METHODS, encode_method, ids_of, received_method
from .incomplete import IncompleteBodies
from .large_body import EXCESS, OTHER, WHOLE
from .mixed_runs import read_publishes
from .peer_errors import (
    ChannelAlreadyOpen,
    ChannelNotOpen,
    ContentBodyExpected,
    ContentHeaderExpected,
    FrameEndMissing,
    FrameTooLarge,
    MalformedConnectionString,
    MalformedShortString,
    MethodFrameExpected,
    NotLoggedIn,
    PeerError,
    UnexpectedFrame,
    UnexpectedMethod,
    UnimplementedMethod,
    UnknownFrame,
)
from .protocol_events import (
    ChannelMethod,
    ConnectionMethod,
    HeaderReceived,
    HeaderRejected,
    MixedReceived,
    ProtocolEvent,
    PublishReceived,
)
from .publish_memory import PUBLISH, PublishMemory
from .runs import is_cut_short, read_acks
from .states import (
    CHANNEL_METHODS,
    CONNECTION_METHODS,
    CONNECTION_NEXT,
    ChannelState,
    ConnectionState,
    ConnectionStep,
)
from .wire import (
    BODY,
    FRAME_END,
    FRAME_END_OCTET,
    FRAME_HEAD,
    FRAME_HEAD_SIZE,
    FRAME_OVERHEAD,
    HEADER,
    HEADERS_ACCEPTED,
    HEARTBEAT,
    METHOD,
    METHOD_HEAD,
    METHOD_HEAD_SIZE,
)

HEADER_, STARTING, SECURING, TUNING, OPENING, RUNNING, CLOSING, CLOSED, REFUSED = ConnectionState
OPEN = ChannelState.OPEN

ACK = 60 << 16 | 80
CHANNEL_OPEN = 20 << 16 | 10

_CLOSE_OK_FRAME = encode_method(0, METHODS[INDEX_OF["connection.close-ok"]])

#: The largest frame before tuning is done; room for big tokens, not for floods.
FRAME_MAX_UNTUNED = 8192

#: The tables of states.py by class and method id.
_ON_CONNECTION = {state: frozenset(map(INDEX_OF.__getitem__, names)) for state, names in CONNECTION_METHODS.items()}
_ON_CHANNEL = {state: frozenset(map(INDEX_OF.__getitem__, names)) for state, names in CHANNEL_METHODS.items()}
_ON_OPEN_CHANNEL = _ON_CHANNEL[OPEN]


class Connection:
    """The protocol state of one connection, from the server's side."""

    __slots__ = (
        "_buffer",
        "_to_skip",
        "channels",
        "frame_max",
        "incomplete",
        "memory",
        "state",
    )

    def __init__(self, incomplete_max: int = 1 << 62) -> None:
        self.state = HEADER_
        self.frame_max = FRAME_MAX_UNTUNED
        self.channels: dict[int, ChannelReader] = {}
        self.incomplete = IncompleteBodies(self.channels, incomplete_max)
        self.memory = PublishMemory()
        self._buffer = b""
        self._to_skip = 0  # octets that belong to a frame that was refused

    def drop_content(self, channel: ChannelReader) -> None:
        """Forget the part of a message that came on a channel."""
        self._buffer = self.incomplete.drop(channel) + self._buffer

    def skip_everything(self) -> None:
        """The rest of what the peer sends cannot be read: throw it away."""
        self._buffer = b""
        self.incomplete.direct = None
        self._to_skip = 1 << 62

    def step(self, step: ConnectionStep) -> None:
        """Move on by the table; a step that is not in it is our own mistake."""
        self.state = CONNECTION_NEXT[self.state][step]

    def receive_bytes(self, data: bytes) -> None:
        """Take what one read of the socket brought."""
        if self.state is CLOSED or self.state is REFUSED:
            return  # whatever still comes is neither read nor stored
        if self._buffer:
            self._buffer += data
        else:
            self._buffer = data if self.incomplete.direct is None else self.incomplete.put(data)
        if self._to_skip:
            self._skip()

    def _skip(self) -> None:
        if self._buffer.endswith(_CLOSE_OK_FRAME):
            # The refused frame never came whole, and the peer has heard of its end: this is its goodbye.
            self._to_skip = len(self._buffer) - len(_CLOSE_OK_FRAME)
        skipped = min(self._to_skip, len(self._buffer))
        self._to_skip -= skipped
        self._buffer = self._buffer[skipped:]

    def events(self) -> Iterator[ProtocolEvent]:
        """What the octets so far mean. Raises PeerError at the octet that is wrong; call again for what follows."""
        if self._to_skip:
            self._skip()
        data = self._buffer
        self._buffer = b""
        size = len(data)
        position = 0
        incomplete = self.incomplete
        last: PublishReceived | MixedReceived | None = None  # in this read
        try:
            if (direct := incomplete.direct) is not None:
                progress, data = incomplete.go_on(data, is_running=self.state is RUNNING)
                size = len(data)
                if progress is WHOLE or progress is EXCESS:
                    yield incomplete.received(direct, progress)
            if self.state is HEADER_:
                header, position = _read_protocol_header(data)
                if header is not None:
                    yield header
                if type(header) is not HeaderReceived:
                    return
            while size - position >= FRAME_HEAD_SIZE:
                if self.state is RUNNING and size - position >= METHOD_HEAD_SIZE:
                    kind, number, length, index = METHOD_HEAD.unpack_from(data, position)
                    if kind == METHOD and (index == PUBLISH or (index == ACK and length == 13)):
                        channel = self.channels.get(number)
                        if channel is not None and channel.state is OPEN and channel.assembly is None:
                            if index == PUBLISH:
                                event, position = read_publishes(channel, data, position, length, self.frame_max, last)
                                if event is not None:
                                    yield event
                                    last = event
                                    continue
                                if last is not None and is_cut_short(channel, data, position, length, self.frame_max):
                                    return  # it begins the run of the next read
                            else:
                                acks, position = read_acks(channel, data, position)
                                if acks is not None:
                                    yield acks
                                    continue
                kind, number, length = FRAME_HEAD.unpack_from(data, position)
                if length > self.frame_max:
                    position += FRAME_HEAD_SIZE
                    self._to_skip = length + 1  # what follows its head is never looked at
                    if self.state is CLOSING:
                        return
                    raise FrameTooLarge(type=kind, size=length, limit=self.frame_max - FRAME_OVERHEAD)
                end = position + length + FRAME_OVERHEAD
                if kind == BODY and self.state is RUNNING:
                    large = incomplete.large_body(number, length)
                    if large is not None:
                        progress = incomplete.take(large, memoryview(data)[position:end])
                        if progress is not OTHER:
                            position = min(end, size)
                            if progress is WHOLE or progress is EXCESS:
                                yield incomplete.received(large, progress)
                            continue
                if end > size:
                    return
                payload = data[position + 7 : end - 1]
                position = end
                if data[end - 1] != FRAME_END:
                    raise FrameEndMissing(type=kind, payload=payload, end=data[end - 1])
                other = self._read_frame(kind, number, payload)
                if other is not None:
                    yield other
        finally:
            if position < size:
                self._buffer = data[position:] if position else data

    # -- one frame --------------------------------------------------------------------------------------------------

    def _read_frame(self, kind: int, number: int, payload: bytes) -> ProtocolEvent | None:
        state = self.state
        if state is RUNNING:
            if kind == METHOD and len(payload) >= 4:
                index = int.from_bytes(payload[:4], "big")
                if number == 0:
                    return self._connection_method(index, payload[4:])
                return self._channel_method(number, index, payload[4:])
            if kind in (HEADER, BODY):
                return self._content_frame(kind, number, payload)
            _check_heartbeat(kind, number, payload)
            return None
        if state is OPENING:
            if kind == METHOD and number == 0 and len(payload) >= 4:
                return self._connection_method(int.from_bytes(payload[:4], "big"), payload[4:])
            if kind != HEARTBEAT or number or payload:
                raise UnexpectedFrame(type=kind, payload=payload)
            return None
        if state is CLOSED or state is REFUSED:
            return None
        index = int.from_bytes(payload[:4], "big") if kind == METHOD and number == 0 and len(payload) >= 4 else -1
        is_legal = index in _ON_CONNECTION[state]
        if state is CLOSING:
            # Only the goodbye matters now; anything else was sent before the peer knew.
            return ConnectionMethod(METHODS[index].__new__(METHODS[index])) if is_legal else None
        if not is_legal:
            raise NotLoggedIn(why=f"frame type {kind} on channel {number} in state {state.name.lower()}")
        return self._connection_method(index, payload[4:])

    def _connection_method(self, index: int, arguments: bytes) -> ProtocolEvent:
        if index not in METHODS:
            raise UnimplementedMethod(ids=ids_of(index))
        if index not in _ON_CONNECTION[self.state]:
            raise UnexpectedMethod(ids=ids_of(index), state=self.state.name.lower())
        try:
            return ConnectionMethod(received_method(index, arguments))
        except MalformedShortString:
            raise MalformedConnectionString(ids=ids_of(index)) from None

    def _channel_method(self, number: int, index: int, arguments: bytes) -> ProtocolEvent | None:
        channel = self.channels.get(number)
        if channel is None:
            if index not in _ON_CHANNEL[ChannelState.CLOSED]:
                raise ChannelNotOpen(ids=ids_of(index))
            return ChannelMethod(number, None, received_method(index, arguments))
        if channel.state is not OPEN:
            if index not in _ON_CHANNEL[channel.state]:
                return None
            if index == CHANNEL_OPEN:
                del self.channels[number]
                return ChannelMethod(number, None, received_method(index, arguments))
            return ChannelMethod(number, channel, METHODS[index].__new__(METHODS[index]))
        if channel.assembly is not None:
            if channel.assembly.header is None:
                raise ContentHeaderExpected(ids=PublishReceived.ids)
            raise ContentBodyExpected(ids=PublishReceived.ids)
        if index == PUBLISH:
            method_frame = METHOD_HEAD.pack(METHOD, number, len(arguments) + 4, index) + arguments + FRAME_END_OCTET
            try:
                self.memory.arguments_of(method_frame)
            except PeerError as error:
                error.ids = PublishReceived.ids
                raise
            channel.assembly = Assembly(method_frame)
            return None
        if index in _ON_OPEN_CHANNEL:
            return ChannelMethod(number, channel, received_method(index, arguments))
        if index != CHANNEL_OPEN:
            raise UnimplementedMethod(ids=ids_of(index))
        received_method(index, arguments)  # what is wrong with these comes first
        raise ChannelAlreadyOpen(ids=ids_of(index))

    def _content_frame(self, kind: int, number: int, payload: bytes) -> ProtocolEvent | None:
        if number == 0:
            raise UnexpectedFrame(type=kind, payload=payload)
        channel = self.channels.get(number)
        if channel is not None and channel.state is not OPEN:
            return None
        if channel is None or channel.assembly is None:
            raise MethodFrameExpected
        try:
            return self.incomplete.add(channel, kind, payload)
        except PeerError as error:
            error.ids = PublishReceived.ids
            raise


def _read_protocol_header(data: bytes) -> tuple[HeaderReceived | HeaderRejected | None, int]:
    """The event of the first eight octets, None while they are not all there, and how many octets are done with."""
    if len(data) < 8 and b"AMQP".startswith(data[:4]):
        return None, 0
    if data[:8] in HEADERS_ACCEPTED:
        return HeaderReceived(), 8
    return HeaderRejected(data[:8]), len(data)


def _check_heartbeat(kind: int, number: int, payload: bytes) -> None:
    """A heartbeat on channel 0 is fine; everything else is wrong."""
    if kind != HEARTBEAT or payload:
        raise UnknownFrame(type=kind, payload=payload)
    if number:
        raise UnexpectedFrame(type=kind, payload=payload)
