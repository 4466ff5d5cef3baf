"""A channel for the frame reader: its state, and the content that is being assembled.

Most contents arrive in one piece and are not assembled: see runs.py. Source: AMQP 0-9-1 4.2.6; behaviour page 1.13.
"""

from ...engine import PropertySummary
from . import peer_errors as peer
from .large_body import LARGE_MIN, PIECE_MIN, LargeBody, can_keep_frame
from .layout import BODY, CONTENT_HEAD, FRAME_OVERHEAD, HEADER, ContentFraming, content_frames, frame
from .publish_cache import PublishCache
from .states import CHANNEL_NEXT, ChannelState, ChannelStep

BASIC_CLASS = 60
#: Maximum octets of body that a content header may announce (behaviour page 1.13).
BODY_SIZE_MAX = 512 * 1024 * 1024
#: Octets of payload in a frame of the smallest frame-max.
PIECE_MAX = 4096 - FRAME_OVERHEAD
#: Replaces the head of a header frame: `CONTENT_HEAD` unpacks whole frames, but only the payload is at hand.
_NO_HEAD = bytes(7)


class Assembly:
    """A content that did not arrive in one piece: after its publish, header or body frames are missing.

    The body is in `large`, or in `body` and `pieces`. Payloads below `PIECE_MIN` octets are joined in `pieces`, because
    a separate object for each would cost many times its octets.
    """

    __slots__ = ("body", "body_size", "header", "is_oversized", "large", "method_frame", "pieces", "remaining")

    def __init__(self, method_frame: bytes) -> None:
        self.method_frame = method_frame
        self.header: bytes | None = None
        self.body: list[bytes] = []
        self.pieces = bytearray()  # small payloads, not yet a part of `body`
        self.large: LargeBody | None = None
        self.body_size = 0
        self.remaining = 0
        self.is_oversized = False

    def add(self, payload: bytes) -> None:
        pieces = self.pieces
        if len(payload) >= PIECE_MIN:
            self.join_pieces()
            self.body.append(payload)
            return
        if len(pieces) + len(payload) > PIECE_MAX:
            self.join_pieces()
        pieces += payload

    def join_pieces(self) -> None:
        """Append the joined small payloads to `body`."""
        if self.pieces:
            self.body.append(bytes(self.pieces))
            self.pieces.clear()

    def continue_in_parts(self) -> None:
        """Keep the body as parts: a frame arrived that the large buffer cannot keep."""
        if self.large is not None:
            self.body, self.large = self.large.payloads(), None

    @property
    def octets(self) -> int:
        """Octets of the body that are in memory."""
        return 0 if self.is_oversized else self.body_size - self.remaining


class ChannelReader:
    """One open (or closing) channel of a connection. The subclass `Channel` gives it a session."""

    __slots__ = ("assembly", "framing", "is_mixed", "message_size_max", "number", "publish_cache", "state")

    def __init__(self, number: int, cache: PublishCache, *, frame_max: int, message_size_max: int) -> None:
        self.number = number
        self.publish_cache = cache  # the connection's caches of publishes
        self.framing = ContentFraming(number, frame_max)
        self.message_size_max = message_size_max
        self.state = ChannelState.OPEN
        self.assembly: Assembly | None = None
        self.is_mixed = False  # kinds of messages alternate: see runs.py

    def step(self, step: ChannelStep) -> None:
        """Change the state by the table; a step that is not in it is a broker error."""
        self.state = CHANNEL_NEXT[self.state][step]

    def add_content(self, frame_type: int, payload: bytes) -> tuple[bytes, PropertySummary, bytes, int] | None:
        """Add a header or body frame to the content being assembled.

        Returns: (publish frame, summary, content, oversized body size) when the content is whole, else None.
        Raises: ContentHeaderExpected, ContentHeaderOfOtherClass, ContentSizeTooLarge, ContentBodyExpected,
            ContentBodyTooLong, PropertiesUndecodable.
        """
        assembly = self.assembly
        assert assembly is not None
        if assembly.header is None:
            self._add_header(assembly, frame_type, payload)
        else:
            self._add_body(assembly, frame_type, payload)
        return None if assembly.remaining else self.take_content(assembly)

    def take_content(self, assembly: Assembly) -> tuple[bytes, PropertySummary, bytes, int]:
        """Remove and return a whole content, as `add_content`. Raises: PropertiesUndecodable."""
        self.assembly = None
        header = assembly.header
        assert header is not None
        summary = self.publish_cache.summary_of(header[12:])
        if assembly.is_oversized:
            return assembly.method_frame, summary, b"", assembly.body_size
        if assembly.large is not None:
            return assembly.method_frame, summary, assembly.large.content(), 0
        assembly.join_pieces()
        return assembly.method_frame, summary, self._content(header, assembly.body), 0

    def large_body(self, payload_size: int, capacity_max: int) -> LargeBody | None:
        """The buffer for the body that follows, if the body is large and its frames can be kept as they arrive.

        payload_size: octets in the next frame. capacity_max: octets that may be reserved.
        """
        assembly = self.assembly
        if assembly is None or assembly.header is None:
            return None
        size, payload_max = assembly.body_size, self.framing.frame_max - FRAME_OVERHEAD
        if not can_keep_frame(payload_size, assembly.remaining, payload_max):
            return None
        if (
            assembly.large is None
            and LARGE_MIN <= size == assembly.remaining
            and size <= capacity_max
            and not assembly.is_oversized
        ):
            try:
                assembly.large = LargeBody(self.number, assembly.header, size, payload_size, payload_max)
            except MemoryError:
                pass  # it is read in parts
        return assembly.large

    def _add_header(self, assembly: Assembly, frame_type: int, payload: bytes) -> None:
        if frame_type != HEADER:
            raise peer.ContentHeaderExpected
        _, _, _, class_id, weight, size = CONTENT_HEAD.unpack_from(_NO_HEAD + payload[:12])
        if class_id != BASIC_CLASS:
            raise peer.ContentHeaderOfOtherClass(found=class_id)
        if weight:
            raise peer.ContentHeaderExpected
        if size > BODY_SIZE_MAX:
            raise peer.ContentSizeTooLarge(size=size, limit=BODY_SIZE_MAX)
        assembly.header = payload
        assembly.body_size = assembly.remaining = size
        assembly.is_oversized = size > self.message_size_max

    def _add_body(self, assembly: Assembly, frame_type: int, payload: bytes) -> None:
        if frame_type != BODY:
            raise peer.ContentBodyExpected
        assembly.remaining -= len(payload)
        if assembly.remaining < 0:
            raise peer.ContentBodyTooLong
        if payload and not assembly.is_oversized:
            assembly.continue_in_parts()
            assembly.add(payload)

    def _content(self, header: bytes, body: list[bytes]) -> bytes:
        payload_max = self.framing.frame_max - FRAME_OVERHEAD
        if all(len(part) <= payload_max for part in body):
            frames = [frame(BODY, self.number, part) for part in body]
            return frame(HEADER, self.number, header) + b"".join(frames)
        # A frame larger than agreed is tolerated, but consumers get frames of the right size.
        return content_frames(self.number, header, b"".join(body), self.framing.frame_max)
