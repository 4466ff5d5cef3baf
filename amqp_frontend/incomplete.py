"""Bodies that are not whole yet, on all channels of a connection: how much of them is in memory, and where more goes.

Source: AMQP 0-9-1 4.2.6; behaviour page 1.13.
"""

from collections.abc import Mapping

from .channel_reader import ChannelReader
from .large_body import EXCESS, MORE, OTHER, LargeBody, Progress
from .peer_errors import IncompleteTooLarge, PeerError
from .protocol_events import PublishReceived
from .states import ChannelState

OPEN = ChannelState.OPEN


class IncompleteBodies:
    """`octets`: of all bodies that are not whole, at most `octets_max`. `reserved`: of the buffers of large ones.

    `direct`: the large body that what comes next belongs to. It may be read to `direct.room`, too.
    """

    __slots__ = ("_channels", "direct", "octets", "octets_max", "reserved")

    def __init__(self, channels: Mapping[int, ChannelReader], octets_max: int) -> None:
        self._channels = channels
        self.octets_max = octets_max
        self.octets = 0
        self.reserved = 0
        self.direct: LargeBody | None = None

    def drop(self, channel: ChannelReader) -> bytes:
        """Forget the content of a channel. Returns: the beginning of a frame that had come for it."""
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
        """Take what `direct` has room for. Returns: the rest."""
        assert self.direct is not None
        return data[self.direct.put(memoryview(data)) :] if data else data

    def add(self, channel: ChannelReader, kind: int, payload: bytes) -> PublishReceived | None:
        """A header or body frame, the careful way. Returns: the publish, if it is whole.

        Raises: as `ChannelReader.add_content`; IncompleteTooLarge.
        """
        assembly = channel.assembly
        assert assembly is not None
        before, large = assembly.octets, assembly.large
        try:
            whole = channel.add_content(kind, payload)
        finally:  # also of a content that is whole and wrong: nobody has it any more
            self.octets += (assembly.octets if channel.assembly is assembly else 0) - before
            if large is not None and (channel.assembly is not assembly or assembly.large is None):
                self.reserved -= large.capacity
        if whole is None:
            if self.octets > self.octets_max:
                raise IncompleteTooLarge(limit=self.octets_max)
            return None
        method_frame, facts, blob, oversized = whole
        return PublishReceived(channel, channel.memory.kind_of(method_frame, facts), [blob], oversized)

    # -- large ones -------------------------------------------------------------------------------------------------

    def large_body(self, number: int, payload: int) -> LargeBody | None:
        """What a body frame on a channel belongs to; None: it is taken the careful way."""
        channel = self._channels.get(number)
        if channel is None or channel.assembly is None or channel.state is not OPEN:
            return None
        is_new = channel.assembly.large is None
        large = channel.large_body(payload, self.octets_max - self.reserved)
        if large is not None and is_new:
            self.reserved += large.capacity
        return large

    def take(self, large: LargeBody, octets: memoryview) -> Progress:
        """Take a frame of a large body, or its beginning: what follows then belongs to `direct`."""
        large.put(octets)
        progress = self._look(large)
        if progress is OTHER:
            large.filled = large.checked
        elif progress is MORE and large.filled > large.checked:
            self.direct = large
        return progress

    def go_on(self, data: bytes, *, is_running: bool) -> tuple[Progress, bytes]:
        """Look at what came for `direct`; `data` came behind that. Returns: with what is to be read as ever."""
        large = self.direct
        assert large is not None
        channel = self._channels.get(large.number)
        progress = self._look(large) if is_running and channel is not None and channel.state is OPEN else OTHER
        while progress is MORE and data:
            data = self.put(data)
            progress = self._look(large)
        return progress, data if progress is MORE else self._leave_direct() + data

    def received(self, large: LargeBody, progress: Progress) -> PublishReceived:
        """The publish whose body is whole. Raises: PropertiesUndecodable; IncompleteTooLarge, for EXCESS."""
        if progress is EXCESS:
            raise IncompleteTooLarge(ids=PublishReceived.ids, limit=self.octets_max)
        channel = self._channels[large.number]
        assembly = channel.assembly
        assert assembly is not None
        self.octets -= assembly.body_size
        self.reserved -= large.capacity
        try:
            method_frame, facts, blob, _ = channel.take_content(assembly)
        except PeerError as error:
            error.ids = PublishReceived.ids
            raise
        return PublishReceived(channel, channel.memory.kind_of(method_frame, facts), [blob])

    def _look(self, large: LargeBody) -> Progress:
        assembly = self._channels[large.number].assembly
        assert assembly is not None
        before = assembly.remaining
        progress, assembly.remaining = large.look(before, self.octets_max - self.octets)
        self.octets += before - assembly.remaining
        return progress

    def _leave_direct(self) -> bytes:
        """What is no part of the frames of `direct` that are whole."""
        large, self.direct = self.direct, None
        assert large is not None
        return large.take_tail()
