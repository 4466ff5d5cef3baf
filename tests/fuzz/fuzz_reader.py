"""Fuzzing of the frame reader alone: octets in, events or one error of the protocol out. No broker.

    make fuzz FUZZ_TARGET=reader                         # or: python tests/fuzz/fuzz_reader.py -max_total_time=60

An input is a head (how far the login is done, how reads are cut) and octets for the wire; the same octets are read
whole and cut. Accepted: the same messages and methods both times, and the same error at the same place. Anything else
is a crash: another exception than a `PeerError`, a method that its state does not have, a memory without bound.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    import atheris

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
    with atheris.instrument_imports(include=["leveret"]):
        import leveret.amqp_frontend.wire.frames  # noqa: F401  (first, so that it is the instrumented one)

from leveret.amqp_frontend.wire.channel_reader import ChannelReader
from leveret.amqp_frontend.wire.codec import NAME_OF
from leveret.amqp_frontend.wire.events import (
    AcksReceived,
    ChannelMethod,
    ConnectionMethod,
    HeaderReceived,
    HeaderRejected,
    MixedReceived,
    ProtocolEvent,
    PublishReceived,
)
from leveret.amqp_frontend.wire.frames import Connection
from leveret.amqp_frontend.wire.peer_errors import (
    MalformedShortString,
    PeerError,
    PropertiesUndecodable,
    UndecodableArguments,
)
from leveret.amqp_frontend.wire.publish_cache import KINDS_MAX, PROPERTY_LISTS_MAX, PublishKind
from leveret.amqp_frontend.wire.states import (
    CHANNEL_METHODS,
    CONNECTION_METHODS,
    ChannelState,
    ChannelStep,
    ConnectionState,
    ConnectionStep,
)
from leveret.engine import scan_properties

FRAME_MAX = 4096
MESSAGE_SIZE_MAX = 300
#: How far the conversation is before the input's octets come.
PRELUDES = (
    ConnectionState.HEADER,
    ConnectionState.STARTING,
    ConnectionState.TUNING,
    ConnectionState.OPENING,
    ConnectionState.RUNNING,
    ConnectionState.CLOSING,
)
#: What the reader's owner does about a method of channel 0.
STEPS = {
    "connection.start-ok": ConnectionStep.LOGIN,
    "connection.tune-ok": ConnectionStep.TUNE,
    "connection.open": ConnectionStep.OPEN,
    "connection.close": ConnectionStep.CLOSE,
    "connection.close-ok": ConnectionStep.CLOSE_OK,
}
#: Of a publish in one piece the properties are read first, of one in pieces the arguments.
PUBLISH_FAULTS = (UndecodableArguments, MalformedShortString, PropertiesUndecodable)


class Crash(Exception):
    """An outcome that no document names."""


class Owner:
    """A frame reader with the little around it that opens and closes channels."""

    def __init__(self, state: ConnectionState) -> None:
        self.connection = Connection()
        self.connection.state = state
        self.outcome: list[tuple[Any, ...]] = []
        self.mixed = 0  # messages that came in mixed runs
        if state in (ConnectionState.RUNNING, ConnectionState.CLOSING):
            self.connection.frame_max = FRAME_MAX
            for number in (1, 2):
                self._open(number)
            self.connection.channels[2].step(ChannelStep.CLOSE_SENT)

    def _open(self, number: int) -> None:
        connection = self.connection
        connection.channels[number] = ChannelReader(
            number, connection.publish_cache, frame_max=connection.frame_max, message_size_max=MESSAGE_SIZE_MAX
        )

    def read(self, data: bytes) -> bool:
        """One read. Returns: whether the conversation goes on."""
        self.connection.receive_bytes(data)
        try:
            for event in self.connection.events():
                self._handle(event)
                if isinstance(event, HeaderRejected):
                    return False
        except PUBLISH_FAULTS:
            self.outcome.append(("publish refused",))
            return False
        except PeerError as error:
            if self.connection.state is not ConnectionState.CLOSED:  # then nobody listens any more
                self.outcome.append((type(error).__name__, error.ids))
            return False
        memory = self.connection.publish_cache
        if (
            len(memory.summaries) > PROPERTY_LISTS_MAX
            or max(len(memory.arguments), len(memory.heads), sum(map(len, memory.kinds.values()))) > KINDS_MAX
            or len(self.connection._buffer) > 2 * FRAME_MAX
        ):
            raise Crash("the reader keeps too much")
        return True

    def _handle(self, event: ProtocolEvent) -> None:
        if isinstance(event, PublishReceived):
            self._published(event.channel, event.kind, event.contents, event.oversized)
            # Some kinds nobody remembers.
            event.kind.known_route = len(event.kind.method_frame) % 4 or None
        elif isinstance(event, MixedReceived):
            if len(event.kinds) != len(event.contents) or len(set(event.kinds)) < 2:
                raise Crash(f"a mixed run of {len(event.kinds)} kinds and {len(event.contents)} messages")
            self.mixed += len(event.contents)
            for kind, content in zip(event.kinds, event.contents):
                if kind.known_route is None:
                    raise Crash("a mixed run of a kind that nobody knows")
                self._published(event.channel, kind, [content], 0)
        elif isinstance(event, AcksReceived):
            self.outcome += [("ack", event.channel.number, tag, False) for tag in event.tags]
            self.outcome += [("ack", event.channel.number, tag, True) for tag in event.up_to]
        elif isinstance(event, ConnectionMethod):
            self._connection_method(NAME_OF[event.method.index], event)
        elif isinstance(event, ChannelMethod):
            self._channel_method(NAME_OF[event.method.index], event)
        else:
            self.outcome.append((type(event).__name__,))
            if isinstance(event, HeaderReceived):
                self.connection.step(ConnectionStep.HEADER)

    def _published(self, channel: ChannelReader, kind: PublishKind, contents: list[bytes], oversized: int) -> None:
        self.connection.publish_cache.arguments_of(kind.method_frame)
        for content in contents:
            if not oversized and scan_properties(content[19 : 7 + int.from_bytes(content[3:7], "big")]) != kind.summary:
                raise Crash("other facts than those of the property list")
            self.outcome.append(("publish", channel.number, kind.method_frame, kind.summary, oversized, content))

    def _connection_method(self, name: str, event: ConnectionMethod) -> None:
        if name not in CONNECTION_METHODS[self.connection.state]:
            raise Crash(f"{name} in state {self.connection.state.name}")
        self.outcome.append((name, _fields(event)))
        if name in STEPS:
            self.connection.step(STEPS[name])

    def _channel_method(self, name: str, event: ChannelMethod) -> None:
        channel = event.channel
        if name not in CHANNEL_METHODS[ChannelState.CLOSED if channel is None else channel.state]:
            raise Crash(f"{name} on a channel in state {channel and channel.state.name}")
        if name == "basic.ack":  # not of the form that is read as a run, but an acknowledgement all the same
            method: Any = event.method
            self.outcome.append(("ack", event.number, method.delivery_tag, method.multiple))
            return
        self.outcome.append((name, event.number, _fields(event)))
        if channel is None:
            self._open(event.number)
        elif name in ("channel.close", "channel.close-ok"):
            channel.step(ChannelStep.CLOSE if name == "channel.close" else ChannelStep.CLOSE_OK)
            if channel.state is ChannelState.CLOSED:
                del self.connection.channels[event.number]


def _fields(event: ConnectionMethod | ChannelMethod) -> dict[str, object]:
    """The arguments that were decoded."""
    return {name: getattr(event.method, name, None) for name in event.method.__slots__}


def cuts(octets: bytes, cut: int, seed: int) -> Iterator[bytes]:
    """The reads that bring them: byte by byte, or a few."""
    if cut % 4 == 0:
        yield from (octets[at : at + 1] for at in range(len(octets)))
        return
    places = sorted({0, len(octets), *((seed * 7919 * index * (cut + 1)) % (len(octets) + 1) for index in range(6))})
    yield from (octets[start:stop] for start, stop in zip(places, places[1:]))


def outcome(prelude: ConnectionState, reads: Iterator[bytes]) -> list[tuple[Any, ...]]:
    """What these reads mean, up to the first error."""
    owner = Owner(prelude)
    for data in reads:
        if not owner.read(data):
            break
    return owner.outcome


def one_input(data: bytes) -> list[tuple[Any, ...]]:
    """Read these octets twice. Raises: Crash, or whatever went wrong."""
    if len(data) < 3:
        return []
    prelude = PRELUDES[data[0] % len(PRELUDES)]
    whole = outcome(prelude, iter((data[3:],)))
    in_pieces = outcome(prelude, cuts(data[3:], data[1], data[2]))
    if whole != in_pieces:
        raise Crash(f"whole: {whole}; in pieces: {in_pieces}")
    return whole


def main() -> None:
    """Atheris, with the conversations of fuzz_frames.py as its corpus."""
    from fuzz_frames import seeds

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds()):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        is_replay = any(not argument.startswith("-") for argument in sys.argv[1:])
        arguments = [sys.argv[0], "-max_len=4096", *sys.argv[1:], *([] if is_replay else [corpus])]
        atheris.Setup(arguments, one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
