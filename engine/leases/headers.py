"""The headers that a leased queue adds to a delivery, and the effect of a delivery with them.

The headers are spliced into the content of the delivery; the stored message does not change.
Source: queues page A.2 (message delivered).
"""

from collections.abc import Iterator, Sequence
from struct import Struct

from ..delivery.consumer import Consumer
from ..delivery.effects import DELIVERY_OVERHEAD, Delivered
from ..messages.content import NATIVE, OFFSET, PROPERTIES, ContentError
from ..messages.field_table import FieldTableError, table_spans
from ..messages.message import Envelope

BOOKMARK, TOPIC, LEASE_UNTIL = "x-bookmark", "x-topic", "x-lease-until"
DELIVERY_COUNT, CANCEL_COUNT, BARRIER, BROWSE = "x-delivery-count", "x-cancel-count", "x-barrier", "x-browse"
#: This broker's number in bookmarks; the sequence number in a bookmark is the message id.
ORIGIN = 1
#: Header of a replayed message: the time of its publish (ms since 1970 UTC).
PUBLISHED_AT = "x-ts"
#: Header of a dead letter, the cause of its expiry: `time_limit`, `forced_expire`, `max_cancels`, `max_deliveries`.
REASON = "x-amps-reason"
_OURS = frozenset({BOOKMARK, TOPIC, LEASE_UNTIL, DELIVERY_COUNT, CANCEL_COUNT, BARRIER, BROWSE})

_LENGTH = Struct(">I")
_FLAGS = Struct(">H")
_HEADERS = 0x2000
_TRUE = b"t\x01"
#: Number of property lists whose split is cached: equal lists are split once.
_KNOWN_MAX = 1000
_known: dict[bytes, tuple[bytes, bytes, bytes]] = {}


def _named(name: str) -> bytes:
    """The name of a table entry on the wire: a length octet and the name."""
    octets = name.encode()
    return bytes((len(octets),)) + octets


_BOOKMARK, _TOPIC = _named(BOOKMARK) + b"S", _named(TOPIC) + b"S"
_UNTIL, _DELIVERIES = _named(LEASE_UNTIL) + b"l", _named(DELIVERY_COUNT) + b"l"
_CANCELS, _BARRIER, _BROWSE = (_named(CANCEL_COUNT) + b"l", _named(BARRIER) + _TRUE, _named(BROWSE) + _TRUE)
#: Packs both counts in one call, `_COUNTS_AND_END` also the lease's end: half the time of one call each.
_COUNTS = Struct(f">{len(_DELIVERIES)}sq{len(_CANCELS)}sq").pack
_OFFSET, _TIME = _named(OFFSET) + b"l", _named(PUBLISHED_AT) + b"l"
_PLACE = Struct(f">{len(_OFFSET)}sq{len(_TIME)}sq").pack
_COUNTS_AND_END = Struct(f">{len(_DELIVERIES)}sq{len(_CANCELS)}sq{len(_UNTIL)}sq").pack


def text_entry(prefix: bytes, value: str) -> bytes:
    """A table entry with a string value. `prefix`: its name and type tag."""
    octets = value.encode()
    return prefix + _LENGTH.pack(len(octets)) + octets


def topic_entry(topic: str) -> bytes:
    """The entry that all messages of a topic share."""
    return text_entry(_TOPIC, topic)


def lease_entries(
    topic: bytes, bookmark: str, deliveries: int, cancels: int, until_ms: int | None, *, is_barrier: bool = False
) -> bytes:
    """The entries of one delivery. `topic`: made by `topic_entry`; `until_ms`: wall time of the lease's end."""
    end = _BARRIER if is_barrier else b""
    return topic + text_entry(_BOOKMARK, bookmark) + _counts(deliveries, cancels, until_ms) + end


def _counts(deliveries: int, cancels: int, until_ms: int | None) -> bytes:
    if until_ms is None:
        return _COUNTS(_DELIVERIES, deliveries, _CANCELS, cancels)
    return _COUNTS_AND_END(_DELIVERIES, deliveries, _CANCELS, cancels, _UNTIL, until_ms)


class RunHeaders:
    """The entries of a run of deliveries of one topic, which differ only in the bookmarks' sequence numbers.

    `numbers`: the sequence numbers, each of `digits` digits. `deliveries`: the delivery count of each message. None of
    the messages was given back.
    """

    __slots__ = ("_after", "_before", "deliveries", "digits", "numbers")

    def __init__(self, topic: bytes, numbers: Sequence[int], deliveries: int, until_ms: int | None) -> None:
        self.numbers = numbers
        self.deliveries = deliveries
        self.digits = len(str(numbers[0]))
        start = f"{ORIGIN}|".encode()
        self._before = topic + _BOOKMARK + _LENGTH.pack(len(start) + self.digits + 1) + start
        self._after = b"|" + _counts(deliveries, 0, until_ms)

    @property
    def size(self) -> int:
        """Octets added to each message."""
        return len(self._before) + self.digits + len(self._after)

    def around(self, header: bytes) -> tuple[bytes, bytes]:
        """The header payload of a delivery, split at the sequence number: (octets before it, octets after it)."""
        before, kept, after = _known_split(header)
        length = _LENGTH.pack(len(kept) + self.size)
        return b"".join((header[:12], before, length, kept, self._before)), self._after + after

    def with_headers(self, envelope: Envelope, contents: Sequence[bytes]) -> list[bytes]:
        """The contents of the deliveries, as `with_entries` makes them."""
        return [
            with_entries(envelope, content, b"%b%d%b" % (self._before, number, self._after))
            for number, content in zip(self.numbers, contents)
        ]


def run_headers(topic: bytes, numbers: Sequence[int], deliveries: int, until_ms: int | None) -> RunHeaders | None:
    """The entries of a run; None: its sequence numbers differ in length."""
    if len(numbers) > 1 and len(str(min(numbers))) != len(str(max(numbers))):
        return None
    return RunHeaders(topic, numbers, deliveries, until_ms)


def browse_entries(topic: bytes, bookmark: str) -> bytes:
    """The entries of a browsed message, which is not leased."""
    return topic + text_entry(_BOOKMARK, bookmark) + _BROWSE


def replay_entries(topic: bytes, bookmark: str, offset: int, wall_ms: int) -> bytes:
    """The entries of a replayed message. `offset`: its offset in the log; `wall_ms`: the time of its publish."""
    return topic + text_entry(_BOOKMARK, bookmark) + _PLACE(_OFFSET, offset, _TIME, wall_ms)


def with_entries(envelope: Envelope, content: bytes, entries: bytes) -> bytes:
    """The content with these entries appended to its headers. Its envelope is `for_added_headers`."""
    header, body = envelope.framing.split(content)
    before, kept, after = _known_split(header)
    return NATIVE.join(
        b"".join((header[:12], before, _LENGTH.pack(len(kept) + len(entries)), kept, entries, after)), body
    )


def _known_split(header: bytes) -> tuple[bytes, bytes, bytes]:
    properties = header[12:]
    split = _known.get(properties)
    if split is None:
        split = _split(header)
        if len(properties) <= 512:
            if len(_known) >= _KNOWN_MAX:
                _known.clear()
            _known[properties] = split
    return split


def _split(header: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a property list: (flags and octets before the headers, entries that stay, octets after the headers)."""
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


class DeliveredLeases(Delivered):
    """An effect: a run of leased messages with one envelope, each with its lease's headers.

    `contents`: as published; `headers`: the headers that each delivery adds.
    """

    __slots__ = ("headers",)

    def __init__(
        self, consumer: Consumer, first_tag: int, envelope: Envelope, contents: Sequence[bytes], headers: RunHeaders
    ) -> None:
        self.consumer, self.first_tag, self.envelopes, self.contents = consumer, first_tag, envelope, contents
        self.redelivered = headers.deliveries > 1
        self.headers = headers

    @property
    def overhead(self) -> int:
        return DELIVERY_OVERHEAD + self.headers.size

    def as_delivered(self) -> Delivered:
        """The same run with the headers put into the contents."""
        assert isinstance(self.envelopes, Envelope)
        contents = self.headers.with_headers(self.envelopes, self.contents)
        return Delivered(self.consumer, self.first_tag, self.envelopes.for_added_headers(), self.redelivered, contents)

    def runs(self) -> Iterator[tuple[int, Envelope, Sequence[bytes]]]:
        return self.as_delivered().runs()
