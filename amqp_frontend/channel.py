"""A channel: the session it stands for, content that is being assembled, and what it remembers between methods."""

import sys
from typing import TYPE_CHECKING, NamedTuple

from ..engine import ContentError, PropertyFacts, scan_properties
from .peer_errors import (
    ContentBodyExpected,
    ContentBodyTooLong,
    ContentHeaderExpected,
    ContentHeaderOfOtherClass,
    ContentSizeTooLarge,
    PropertiesUndecodable,
    UnknownFrame,
)
from .states import CHANNEL_NEXT, ChannelState, ChannelStep
from .wire import BODY, CONTENT_HEAD, FRAME_OVERHEAD, HEADER, ContentFraming, content_frames, frame

if TYPE_CHECKING:
    from ..engine import Envelope, Route, Session

BASIC_CLASS = 60
#: The most that any content header may announce (behaviour page 1.13).
BODY_SIZE_MAX = 512 * 1024 * 1024
#: Body frames with less than this are put together as they come: each by itself would cost many times its octets.
PIECE_MIN = 1024
#: What the smallest frame takes that peers can agree on.
PIECE_MAX = 4096 - FRAME_OVERHEAD
#: Property lists and routes that a connection remembers before it starts anew: bounded whatever the peer sends.
MEMORY_MAX = 512
#: What a turn does of what costs much, by the measure of `Broker.spread` (about 5 ms); the rest is for the next turns.
SPREAD_MAX = 4_000
#: A run is not cut into parts of less: much of what each costs is the same for one message.
PART_MIN = 4
#: Routes to more queues than this are looked at while they are published to: a read full of messages takes no longer.
FEW_QUEUES = 4


class PublishArguments(NamedTuple):
    """basic.publish, decoded. `address`: the octets of exchange and routing key, as deliveries carry them."""

    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool
    address: bytes


class KnownRoute(NamedTuple):
    """What a connection remembers of (publish frame, property facts). `run_max`: messages published in one go."""

    route: "Route"
    envelope: "Envelope"
    mandatory: bool
    run_max: int


def run_max_of(route: "Route") -> int:
    """How many messages to publish by a route before looking at what that cost: one where only that tells."""
    if route.queues is None:
        return 1
    return max(PART_MIN, SPREAD_MAX // len(route.queues)) if len(route.queues) > FEW_QUEUES else sys.maxsize


class Assembly:
    """A content that did not come in one piece: publish seen, header or body frames still to come."""

    __slots__ = ("body", "body_size", "header", "is_oversized", "method_frame", "pieces", "remaining")

    def __init__(self, method_frame: bytes) -> None:
        self.method_frame = method_frame
        self.header: bytes | None = None
        self.body: list[bytes] = []
        self.pieces = bytearray()  # small ones, not yet a part of `body`
        self.body_size = 0
        self.remaining = 0
        self.is_oversized = False

    def add(self, payload: bytes) -> None:
        """Keep a piece of the body."""
        pieces = self.pieces
        if len(payload) >= PIECE_MIN:
            self.join_pieces()
            self.body.append(payload)
            return
        if len(pieces) + len(payload) > PIECE_MAX:
            self.join_pieces()
        pieces += payload

    def join_pieces(self) -> None:
        """Make one part of the small ones."""
        if self.pieces:
            self.body.append(bytes(self.pieces))
            self.pieces.clear()

    @property
    def kept(self) -> int:
        """Octets of the body that are here."""
        return 0 if self.is_oversized else self.body_size - self.remaining


class Channel:
    """One open (or closing) channel of a connection."""

    __slots__ = (
        "assembly",
        "facts",
        "framing",
        "last_queue",
        "message_size_max",
        "number",
        "routes",
        "session",
        "state",
    )

    def __init__(
        self,
        number: int,
        session: "Session",
        *,
        frame_max: int,
        message_size_max: int,
        routes: "dict[tuple[bytes, PropertyFacts], KnownRoute]",
        facts: dict[bytes, PropertyFacts],
    ) -> None:
        self.number = number
        self.session = session
        self.framing = ContentFraming(number, frame_max)
        self.message_size_max = message_size_max
        self.state = ChannelState.OPEN
        self.assembly: Assembly | None = None
        self.last_queue = ""
        self.routes = routes  # both are the connection's: publish frames name their channel
        self.facts = facts

    def step(self, step: ChannelStep) -> None:
        """Move on by the table; a step that is not in it is our own mistake."""
        self.state = CHANNEL_NEXT[self.state][step]

    def facts_of(self, properties: bytes) -> PropertyFacts:
        """The facts of a property list, scanned once for each list that keeps coming back.

        Raises: PropertiesUndecodable (541).
        """
        facts = self.facts.get(properties)
        if facts is None:
            try:
                facts = scan_properties(properties)
            except ContentError:
                raise PropertiesUndecodable from None
            if len(self.facts) >= MEMORY_MAX:
                self.facts.clear()
            facts = _INTERNED.setdefault(facts, facts)
            if len(_INTERNED) > 4 * MEMORY_MAX:
                _INTERNED.clear()
            if len(properties) <= 256:
                self.facts[properties] = facts
        return facts

    # -- content in pieces ------------------------------------------------------------------------------------------

    def add_content(self, kind: int, payload: bytes) -> tuple[bytes, PropertyFacts, bytes, int] | None:
        """Add a header or body frame to the content being assembled.

        Returns: (publish frame, facts, blob, oversized body size) when the content is whole, else None.
        Raises: ContentHeaderExpected, ContentHeaderOfOtherClass, ContentSizeTooLarge, UnknownFrame,
            ContentBodyExpected, ContentBodyTooLong, PropertiesUndecodable.
        """
        assembly = self.assembly
        assert assembly is not None
        if assembly.header is None:
            self._add_header(assembly, kind, payload)
        else:
            self._add_body(assembly, kind, payload)
        if assembly.remaining:
            return None
        self.assembly = None
        header = assembly.header
        assert header is not None
        facts = self.facts_of(header[12:])
        if assembly.is_oversized:
            return assembly.method_frame, facts, b"", assembly.body_size
        assembly.join_pieces()
        return assembly.method_frame, facts, self._blob(header, assembly.body), 0

    def _add_header(self, assembly: Assembly, kind: int, payload: bytes) -> None:
        if kind != HEADER:
            raise ContentHeaderExpected
        if len(payload) < 14:
            raise UnknownFrame(type=kind, payload=payload)
        _, _, _, class_id, weight, size = CONTENT_HEAD.unpack_from(b"\x02\x00\x00\x00\x00\x00\x00" + payload[:12])
        if class_id != BASIC_CLASS:
            raise ContentHeaderOfOtherClass(found=class_id)
        if weight:
            raise ContentHeaderExpected
        if size > BODY_SIZE_MAX:
            raise ContentSizeTooLarge(size=size, limit=BODY_SIZE_MAX)
        assembly.header = payload
        assembly.body_size = assembly.remaining = size
        assembly.is_oversized = size > self.message_size_max

    def _add_body(self, assembly: Assembly, kind: int, payload: bytes) -> None:
        if kind != BODY:
            raise ContentBodyExpected
        assembly.remaining -= len(payload)
        if assembly.remaining < 0:
            raise ContentBodyTooLong
        if payload and not assembly.is_oversized:
            assembly.add(payload)

    def _blob(self, header: bytes, body: list[bytes]) -> bytes:
        limit = self.framing.frame_max - FRAME_OVERHEAD
        if all(len(part) <= limit for part in body):
            frames = [frame(BODY, self.number, part) for part in body]
            return frame(HEADER, self.number, header) + b"".join(frames)
        # Larger than was agreed, and tolerated: but other peers get frames of the right size.
        return content_frames(self.number, header, b"".join(body), self.framing.frame_max)


#: Equal facts are one object, so that runs are compared by identity.
_INTERNED: dict[PropertyFacts, PropertyFacts] = {}
