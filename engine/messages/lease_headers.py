"""What a delivery of a leased queue says beside what was published: headers that only that delivery has.

They are spliced into each delivery, the stored message stays as it was. Source: queues page A.2 (message delivered).
"""

from collections.abc import Sequence
from struct import Struct

from .content import OFFSET, PLAIN, PROPERTIES, ContentError
from .field_table import FieldTableError, table_spans
from .message import Envelope

BOOKMARK, TOPIC, LEASE_UNTIL = "x-bookmark", "x-topic", "x-lease-until"
DELIVERY_COUNT, CANCEL_COUNT, BARRIER, BROWSE = "x-delivery-count", "x-cancel-count", "x-barrier", "x-browse"
#: What stands for this broker in bookmarks: message ids are its sequence.
ORIGIN = 1
#: Of a message that is replayed: when it was published (ms since 1970 UTC).
PUBLISHED_AT = "x-ts"
#: Why a message expired, in a dead letter: `time_limit`, `forced_expire`, `max_cancels`, `max_deliveries`.
REASON = "x-amps-reason"
_OURS = frozenset({BOOKMARK, TOPIC, LEASE_UNTIL, DELIVERY_COUNT, CANCEL_COUNT, BARRIER, BROWSE})

_LENGTH = Struct(">I")
_FLAGS = Struct(">H")
_HEADERS = 0x2000
_TRUE = b"t\x01"
#: Headers of messages that look alike are cut once; so many are known.
_KNOWN_MAX = 1000
_known: dict[bytes, tuple[bytes, bytes, bytes]] = {}


def key_of(name: str) -> bytes:
    """The name of an entry in a table."""
    octets = name.encode()
    return bytes((len(octets),)) + octets


_BOOKMARK, _TOPIC = key_of(BOOKMARK) + b"S", key_of(TOPIC) + b"S"
_UNTIL, _DELIVERIES = key_of(LEASE_UNTIL) + b"l", key_of(DELIVERY_COUNT) + b"l"
_CANCELS, _BARRIER, _BROWSE = key_of(CANCEL_COUNT) + b"l", key_of(BARRIER) + _TRUE, key_of(BROWSE) + _TRUE
#: Both counts, and when the lease ends, in one go: half of the time.
_COUNTS = Struct(f">{len(_DELIVERIES)}sq{len(_CANCELS)}sq").pack
_OFFSET, _TIME = key_of(OFFSET) + b"l", key_of(PUBLISHED_AT) + b"l"
_PLACE = Struct(f">{len(_OFFSET)}sq{len(_TIME)}sq").pack
_COUNTS_AND_END = Struct(f">{len(_DELIVERIES)}sq{len(_CANCELS)}sq{len(_UNTIL)}sq").pack


def text_entry(prefix: bytes, value: str) -> bytes:
    """An entry whose value is a text."""
    octets = value.encode()
    return prefix + _LENGTH.pack(len(octets)) + octets


def topic_entry(topic: str) -> bytes:
    """The entry that all messages of a topic share."""
    return text_entry(_TOPIC, topic)


def lease_entries(
    topic: bytes, bookmark: str, deliveries: int, cancels: int, until_ms: int | None, *, is_barrier: bool = False
) -> bytes:
    """The entries of one delivery. `topic`: by `topic_entry`; `until_ms`: wall time at which the lease ends."""
    end = _BARRIER if is_barrier else b""
    return topic + text_entry(_BOOKMARK, bookmark) + _counts(deliveries, cancels, until_ms) + end


def _counts(deliveries: int, cancels: int, until_ms: int | None) -> bytes:
    if until_ms is None:
        return _COUNTS(_DELIVERIES, deliveries, _CANCELS, cancels)
    return _COUNTS_AND_END(_DELIVERIES, deliveries, _CANCELS, cancels, _UNTIL, until_ms)


class RunHeaders:
    """The entries of a run of deliveries of one topic: they differ in the number within the bookmark alone.

    `numbers`: those, each of so many `digits`. `deliveries`: how often each was delivered now.
    """

    __slots__ = ("_after", "_before", "deliveries", "digits", "numbers")

    def __init__(
        self, topic: bytes, origin: int, numbers: Sequence[int], deliveries: int, until_ms: int | None
    ) -> None:
        """`origin`: what stands before the number in a bookmark."""
        self.numbers = numbers
        self.deliveries = deliveries
        self.digits = len(str(numbers[0]))
        start = f"{origin}|".encode()
        self._before = topic + _BOOKMARK + _LENGTH.pack(len(start) + self.digits + 1) + start
        self._after = b"|" + _counts(deliveries, 0, until_ms)

    @property
    def size(self) -> int:
        """Octets that each message has more."""
        return len(self._before) + self.digits + len(self._after)

    def around(self, header: bytes) -> tuple[bytes, bytes]:
        """The header payload of a delivery: what stands before the number, and behind it."""
        before, kept, after = _known_cut(header)
        length = _LENGTH.pack(len(kept) + self.size)
        return b"".join((header[:12], before, length, kept, self._before)), self._after + after

    def dressed(self, envelope: Envelope, blobs: Sequence[bytes]) -> list[bytes]:
        """The contents of the deliveries, as `with_entries`."""
        return [
            with_entries(envelope, blob, b"%b%d%b" % (self._before, number, self._after))
            for number, blob in zip(self.numbers, blobs)
        ]


def run_headers(
    topic: bytes, origin: int, numbers: Sequence[int], deliveries: int, until_ms: int | None
) -> RunHeaders | None:
    """Those of a run; None: its numbers are not of one length."""
    if len(numbers) > 1 and len(str(min(numbers))) != len(str(max(numbers))):
        return None
    return RunHeaders(topic, origin, numbers, deliveries, until_ms)


def browse_entries(topic: bytes, bookmark: str) -> bytes:
    """The entries of a message that is only shown."""
    return topic + text_entry(_BOOKMARK, bookmark) + _BROWSE


def replay_entries(topic: bytes, bookmark: str, offset: int, wall_ms: int) -> bytes:
    """The entries of a message that is replayed: also its place in the log, and when it was published."""
    return topic + text_entry(_BOOKMARK, bookmark) + _PLACE(_OFFSET, offset, _TIME, wall_ms)


def with_entries(envelope: Envelope, blob: bytes, entries: bytes) -> bytes:
    """A blob (of the engine's own framing; see `Envelope.plain`) whose headers have these entries at their end."""
    header, body = envelope.framing.split(blob)
    before, kept, after = _known_cut(header)
    return PLAIN.join(
        b"".join((header[:12], before, _LENGTH.pack(len(kept) + len(entries)), kept, entries, after)), body
    )


def _known_cut(header: bytes) -> tuple[bytes, bytes, bytes]:
    """As `_cut`, remembered."""
    properties = header[12:]
    cut = _known.get(properties)
    if cut is None:
        cut = _cut(header)
        if len(properties) <= 512:
            if len(_known) >= _KNOWN_MAX:
                _known.clear()
            _known[properties] = cut
    return cut


def _cut(header: bytes) -> tuple[bytes, bytes, bytes]:
    """Flags and what stands before the headers; the entries that stay; what stands behind them."""
    flags = _FLAGS.unpack_from(header, 12)[0]
    position = 14
    try:
        for name, bit, kind in PROPERTIES:
            if name == "headers":
                break
            if flags & bit:
                assert kind == "shortstr"
                position += 1 + header[position]
        before = _FLAGS.pack(flags | _HEADERS) + header[14:position]
        if not flags & _HEADERS:
            return before, b"", header[position:]
        end = position + 4 + _LENGTH.unpack_from(header, position)[0]
        kept = [header[first:last] for key, first, last in table_spans(header, position) if key not in _OURS]
    except (IndexError, FieldTableError) as error:
        raise ContentError("a property is cut short") from error
    return before, b"".join(kept), header[end:]
