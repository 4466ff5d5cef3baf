"""The frame reader: octets in, protocol events out. No sockets, no time, and of the engine only its codecs.

`events()` is lazy: the session handles one event before the next is read, so an error that closes a channel takes
effect on the very next frame. Publishes with their content and acks are read as runs (runs.py); all other input is read
one frame at a time. Source: AMQP 0-9-1 4.2; behaviour page 1.11 to 1.13.
"""

from collections.abc import Iterator, Mapping

from . import peer_errors as peer
from .channel_reader import Assembly, ChannelReader
from .codec import INDEX_OF, METHODS, encode_method, ids_of, received_method
from .events import (
    ChannelMethod,
    ConnectionMethod,
    HeaderReceived,
    HeaderRejected,
    MixedReceived,
    ProtocolEvent,
    PublishReceived,
)
from .large_body import EXCESS, MORE, OTHER, WHOLE, LargeBody, Progress
from .layout import (
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
from .publish_cache import PUBLISH, PublishCache
from .runs import is_cut_short, read_acks, read_publishes
from .states import CHANNEL_METHODS, CONNECTION_METHODS, CONNECTION_NEXT, ChannelState, ConnectionState, ConnectionStep

OPEN = ChannelState.OPEN


class IncompleteBodies:
    """The incomplete bodies of a connection. `octets`: of all, at most `octets_max`. `reserved`: of the large buffers.

    `direct`: the large body to which the next octets belong; they may also be read into `direct.room`.
    """

    __slots__ = ("_channels", "direct", "octets", "octets_max", "reserved")

    def __init__(self, channels: Mapping[int, ChannelReader], octets_max: int) -> None:
        self._channels = channels
        self.octets_max = octets_max
        self.octets = 0
        self.reserved = 0
        self.direct: LargeBody | None = None

    def drop(self, channel: ChannelReader) -> bytes:
        """Drop the incomplete content of a channel. Returns: the beginning of a frame that had arrived for it."""
        assembly, rest = channel.assembly, b""
        if assembly is not None:
            self.octets -= assembly.octets
            if assembly.large is not None:
                self.reserved -= assembly.large.capacity
                if self.direct is assembly.large:
                    rest = self._leave_direct()
            channel.assembly = None
        return rest

    def put(self, data: bytes) -> bytes:
        """Copy octets to `direct`, up to its room. Returns: the rest."""
        assert self.direct is not None
        return data[self.direct.put(memoryview(data)) :] if data else data

    def add(self, channel: ChannelReader, kind: int, payload: bytes) -> PublishReceived | None:
        """Add a header or body frame with all checks. Returns: the publish, if it is whole.

        Raises: as `ChannelReader.add_content`; IncompleteTooLarge.
        """
        assembly = channel.assembly
        assert assembly is not None
        before, large = assembly.octets, assembly.large
        try:
            whole = channel.add_content(kind, payload)
        finally:  # a content that is whole and invalid is dropped, too
            self.octets += (assembly.octets if channel.assembly is assembly else 0) - before
            if large is not None and (channel.assembly is not assembly or assembly.large is None):
                self.reserved -= large.capacity
        if whole is None:
            if self.octets > self.octets_max:
                raise peer.IncompleteTooLarge(limit=self.octets_max)
            return None
        method_frame, summary, content, oversized = whole
        return PublishReceived(channel, channel.publish_cache.kind_of(method_frame, summary), [content], oversized)

    # -- large bodies -----------------------------------------------------------------------------------------------

    def large_body(self, number: int, payload_size: int) -> LargeBody | None:
        """The large body to which a body frame of a channel belongs; None: add the frame with `add`."""
        channel = self._channels.get(number)
        if channel is None or channel.assembly is None or channel.state is not OPEN:
            return None
        is_new = channel.assembly.large is None
        large = channel.large_body(payload_size, self.octets_max - self.reserved)
        if large is not None and is_new:
            self.reserved += large.capacity
        return large

    def take(self, large: LargeBody, octets: memoryview) -> Progress:
        """Add a frame of a large body. If only its beginning has arrived, the next octets belong to `direct`."""
        large.put(octets)
        progress = self._check(large)
        if progress is OTHER:
            large.filled = large.checked
        elif progress is MORE and large.filled > large.checked:
            self.direct = large
        return progress

    def check_direct(self, data: bytes, *, is_running: bool) -> tuple[Progress, bytes]:
        """Check the octets that arrived for `direct`, then `data`. Returns: progress, and octets of other frames."""
        large = self.direct
        assert large is not None
        channel = self._channels.get(large.number)
        progress = self._check(large) if is_running and channel is not None and channel.state is OPEN else OTHER
        while progress is MORE and data:
            data = self.put(data)
            progress = self._check(large)
        return progress, data if progress is MORE else self._leave_direct() + data

    def received(self, large: LargeBody, progress: Progress) -> PublishReceived:
        """The publish whose body is whole. Raises: PropertiesUndecodable; IncompleteTooLarge, for EXCESS."""
        if progress is EXCESS:
            raise peer.IncompleteTooLarge(ids=PublishReceived.ids, limit=self.octets_max)
        channel = self._channels[large.number]
        assembly = channel.assembly
        assert assembly is not None
        self.octets -= assembly.body_size
        self.reserved -= large.capacity
        try:
            method_frame, summary, content, _ = channel.take_content(assembly)
        except peer.PeerError as error:
            error.ids = PublishReceived.ids
            raise
        return PublishReceived(channel, channel.publish_cache.kind_of(method_frame, summary), [content])

    def _check(self, large: LargeBody) -> Progress:
        assembly = self._channels[large.number].assembly
        assert assembly is not None
        before = assembly.remaining
        progress, assembly.remaining = large.check(before, self.octets_max - self.octets)
        self.octets += before - assembly.remaining
        return progress

    def _leave_direct(self) -> bytes:
        """Stop adding octets to `direct`. Returns: the octets after its whole frames."""
        large, self.direct = self.direct, None
        assert large is not None
        return large.take_tail()


S = ConnectionState
RUNNING = S.RUNNING  # used for each frame: 13 ns instead of 78

ACK = 60 << 16 | 80
CHANNEL_OPEN = 20 << 16 | 10

_CLOSE_OK_FRAME = encode_method(0, METHODS[INDEX_OF["connection.close-ok"]])

#: Maximum octets of a frame before tune-ok: enough for big tokens, too few for floods.
FRAME_MAX_UNTUNED = 8192

#: The tables of states.py by class and method id.
_ON_CONNECTION = {state: frozenset(map(INDEX_OF.__getitem__, names)) for state, names in CONNECTION_METHODS.items()}
_ON_CHANNEL = {state: frozenset(map(INDEX_OF.__getitem__, names)) for state, names in CHANNEL_METHODS.items()}
_ON_OPEN_CHANNEL = _ON_CHANNEL[OPEN]


class Connection:
    """The protocol state of one connection, from the server's side."""

    __slots__ = ("_buffer", "_skipped", "_to_skip", "channels", "frame_max", "incomplete", "publish_cache", "state")

    def __init__(self, incomplete_max: int = 1 << 62) -> None:
        self.state = S.HEADER
        self.frame_max = FRAME_MAX_UNTUNED
        self.channels: dict[int, ChannelReader] = {}
        self.incomplete = IncompleteBodies(self.channels, incomplete_max)
        self.publish_cache = PublishCache()
        self._buffer = b""
        self._to_skip = 0  # octets of a frame that was refused
        self._skipped = b""  # the last ones: the peer's close-ok may be divided over several reads

    def drop_content(self, channel: ChannelReader) -> None:
        """Drop the incomplete content of a channel."""
        self._buffer = self.incomplete.drop(channel) + self._buffer

    def skip_everything(self) -> None:
        """Drop all later input, because it cannot be read."""
        self._buffer = b""
        self.incomplete.direct = None
        self._to_skip = 1 << 62

    def step(self, step: ConnectionStep) -> None:
        """Change the state by the table; a step that is not in it is a broker error."""
        self.state = CONNECTION_NEXT[self.state][step]

    def receive_bytes(self, data: bytes) -> None:
        """Add the octets of one read of the socket."""
        if self.state is not RUNNING and self.state in (S.CLOSED, S.REFUSED):
            return  # later input is neither read nor stored
        if self._buffer:
            self._buffer += data
        else:
            self._buffer = data if self.incomplete.direct is None else self.incomplete.put(data)
        if self._to_skip:
            self._skip()

    def _skip(self) -> None:
        octets = self._skipped + self._buffer
        if octets.endswith(_CLOSE_OK_FRAME):
            # The refused frame never arrived whole, and the peer knows of the close: this is its close-ok.
            self._to_skip, self._skipped, self._buffer = 0, b"", _CLOSE_OK_FRAME
            return
        skipped = min(self._to_skip, len(self._buffer))
        self._to_skip -= skipped
        before, self._buffer = octets[: len(self._skipped) + skipped], self._buffer[skipped:]
        if not self._to_skip and not before.endswith(FRAME_END_OCTET):
            # It ends inside another frame, which the peer began when it knew of the close: only close-ok is looked for.
            self._to_skip, before, self._buffer = 1 << 62, octets, b""
        self._skipped = before[1 - len(_CLOSE_OK_FRAME) :] if self._to_skip else b""

    def events(self) -> Iterator[ProtocolEvent]:
        """The events of the octets so far. Raises: PeerError, at the wrong octet; call it again for later events."""
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
                progress, data = incomplete.check_direct(data, is_running=self.state is RUNNING)
                size = len(data)
                if progress is WHOLE or progress is EXCESS:
                    yield incomplete.received(direct, progress)
            if self.state is not RUNNING and self.state is S.HEADER:
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
                                    return  # the message begins the run of the next read
                            else:
                                acks, position = read_acks(channel, data, position)
                                if acks is not None:
                                    yield acks
                                    continue
                kind, number, length = FRAME_HEAD.unpack_from(data, position)
                if length > self.frame_max:
                    position += FRAME_HEAD_SIZE
                    self._to_skip = length + 1  # its payload is never read
                    if self.state is S.CLOSING:
                        return
                    raise peer.FrameTooLarge(type=kind, size=length, limit=self.frame_max - FRAME_OVERHEAD)
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
                    raise peer.FrameEndMissing(type=kind, payload=payload, end=data[end - 1])
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
            _check_form(kind, payload)
            if kind != HEARTBEAT:
                return self._content_frame(kind, number, payload)
            if number:
                raise peer.UnexpectedFrame(type=kind, payload=payload)
            return None
        if state is S.OPENING:
            if number == 0:
                _check_form(kind, payload)
                if kind == METHOD:
                    return self._connection_method(int.from_bytes(payload[:4], "big"), payload[4:])
                if kind == HEARTBEAT:
                    return None
            raise peer.UnexpectedFrame(type=kind, payload=payload)
        if state is S.CLOSED or state is S.REFUSED:
            return None
        index = int.from_bytes(payload[:4], "big") if kind == METHOD and number == 0 and len(payload) >= 4 else -1
        is_legal = index in _ON_CONNECTION[state]
        if state is S.CLOSING:
            # Only close and close-ok matter; the peer sent all else before it knew of the close.
            return ConnectionMethod(METHODS[index].__new__(METHODS[index])) if is_legal else None
        if not is_legal:
            raise peer.NotLoggedIn(why=f"frame type {kind} on channel {number} in state {state.name.lower()}")
        return self._connection_method(index, payload[4:])

    def _connection_method(self, index: int, arguments: bytes) -> ProtocolEvent:
        if index not in METHODS:
            raise peer.UnimplementedMethod(ids=ids_of(index))
        try:
            method = received_method(index, arguments)  # errors of the arguments come first
        except peer.MalformedShortString:
            raise peer.MalformedConnectionString(ids=ids_of(index)) from None
        if index not in _ON_CONNECTION[self.state]:
            raise peer.UnexpectedMethod(ids=ids_of(index), state=self.state.name.lower())
        return ConnectionMethod(method)

    def _channel_method(self, number: int, index: int, arguments: bytes) -> ProtocolEvent | None:
        channel = self.channels.get(number)
        if channel is None:
            method = received_method(index, arguments) if index in METHODS else None  # errors of the arguments first
            if method is None or index not in _ON_CHANNEL[ChannelState.CLOSED]:
                raise peer.ChannelNotOpen(ids=ids_of(index))
            return ChannelMethod(number, None, method)
        if channel.state is not OPEN:
            if index not in _ON_CHANNEL[channel.state]:
                return None
            if index == CHANNEL_OPEN:
                del self.channels[number]
                return ChannelMethod(number, None, received_method(index, arguments))
            return ChannelMethod(number, channel, METHODS[index].__new__(METHODS[index]))
        if channel.assembly is not None:
            if channel.assembly.header is None:
                raise peer.ContentHeaderExpected(ids=PublishReceived.ids)
            raise peer.ContentBodyExpected(ids=PublishReceived.ids)
        if index == PUBLISH:
            method_frame = METHOD_HEAD.pack(METHOD, number, len(arguments) + 4, index) + arguments + FRAME_END_OCTET
            try:
                self.publish_cache.arguments_of(method_frame)
            except peer.PeerError as error:
                error.ids = PublishReceived.ids
                raise
            channel.assembly = Assembly(method_frame)
            return None
        if index not in METHODS:
            raise peer.UnimplementedMethod(ids=ids_of(index))
        method = received_method(index, arguments)  # errors of the arguments come first
        if index in _ON_OPEN_CHANNEL:
            return ChannelMethod(number, channel, method)
        raise (peer.ChannelAlreadyOpen if index == CHANNEL_OPEN else peer.UnimplementedMethod)(ids=ids_of(index))

    def _content_frame(self, kind: int, number: int, payload: bytes) -> ProtocolEvent | None:
        if number == 0:
            raise peer.UnexpectedFrame(type=kind, payload=payload)
        channel = self.channels.get(number)
        if channel is not None and channel.state is not OPEN:
            return None
        if channel is None or channel.assembly is None:
            raise peer.MethodFrameExpected
        try:
            return self.incomplete.add(channel, kind, payload)
        except peer.PeerError as error:
            error.ids = PublishReceived.ids
            raise


def _read_protocol_header(data: bytes) -> tuple[HeaderReceived | HeaderRejected | None, int]:
    """The event of the first eight octets (None: some are missing), and the number of octets that it used."""
    if len(data) < 8 and b"AMQP".startswith(data[:4]):
        return None, 0
    if data[:8] in HEADERS_ACCEPTED:
        return HeaderReceived(), 8
    return HeaderRejected(data[:8]), len(data)


#: Minimum octets of the payload of each type of frame. A heartbeat has none.
_PAYLOAD_MIN = {METHOD: 4, HEADER: 12, BODY: 0, HEARTBEAT: 0}


def _check_form(kind: int, payload: bytes) -> None:
    """Raises: UnknownFrame: the type does not exist, or the payload is too short or too long for it."""
    if len(payload) < _PAYLOAD_MIN.get(kind, len(payload) + 1) or (kind == HEARTBEAT and payload):
        raise peer.UnknownFrame(type=kind, payload=payload)
