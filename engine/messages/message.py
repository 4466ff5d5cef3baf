"""A message in a queue, and the envelope of a run of messages. A mixed run has an envelope for each message.

Each queue has a `Message` object for a message; these share the content, which is one bytes object. Ids rise in the
order of publishing, so they also order the messages of one priority in a queue.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import ClassVar, TypeAlias

from .content import NATIVE, NO_PROPERTIES, Framing, PropertySummary, headers_of, opened_headers, splice_header
from .field_table import Field, FieldTable

#: Above every number of messages, octets, or nanoseconds.
UNLIMITED = 1 << 62


class Envelope:
    """Exchange, routing keys and property summary of a run of messages, and the framing of their contents.

    The expiration in `summary` must be valid (`arguments.check_expiration`). `opaque`: data by which the frontend sends
    contents without decoding them.
    """

    __slots__ = ("_for_added_headers", "_persisted", "_stored", "cause_id", "copies", "exchange", "expiration_ms",
                 "expiry_is_settled", "first_id", "framing", "is_plain", "opaque", "routing_key",
                 "summary")  # fmt: skip

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        summary: PropertySummary = NO_PROPERTIES,
        framing: Framing = NATIVE,
        opaque: bytes | None = None,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.summary = summary
        # The effective time to live: that of the property, or that of the expiry policy of the message's address.
        self.expiration_ms = None if summary.expiration is None else int(summary.expiration)
        self.expiry_is_settled = False  # the message's address has an expiry policy: the queue's does not apply
        # Whether a queue without rules need not read its properties.
        self.is_plain = summary.expiration is None and not summary.is_marked
        self.framing = framing
        self.opaque = opaque
        self.copies: tuple[str, ...] = ()  # further routing keys, from CC and BCC
        self.cause_id = 0  # the id of the dead message, if this is its dead letter
        self.first_id = 0  # the id of the first publish; 0: the message's id
        self._for_added_headers: Envelope | None = None
        self._persisted: Envelope | None = None
        self._stored: Envelope | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """All routing keys: the first, then those of CC and BCC."""
        return (self.routing_key, *self.copies)

    def with_expiration(self, expiration_ms: int | None) -> "Envelope":
        """A copy with the time to live by the policy of its address (None: no expiry). The property does not change."""
        settled = self._like(self.summary, self.framing)
        settled.expiration_ms = expiration_ms
        settled.expiry_is_settled = True
        settled.is_plain = expiration_ms is None and not self.summary.is_marked
        return settled

    def published_first_as(self, id_: int) -> "Envelope":
        """A copy for a message that is published again with another id."""
        copy = self._like(self.summary, self.framing)
        copy.first_id = id_
        return copy

    def persisted(self) -> "Envelope":
        """A persistent copy, for a queue that stores every message. Cached. The property does not change."""
        if self.summary.persistent:
            return self
        if self._persisted is None:
            self._persisted = self._like(self.summary._replace(persistent=True), self.framing)
        return self._persisted

    def stored(self) -> "Envelope":
        """A copy for contents that are read from the journal, in the engine's framing. Cached."""
        if self.framing is NATIVE:
            return self
        if self._stored is None:
            self._stored = self._like(self.summary, NATIVE)
        return self._stored

    def for_added_headers(self) -> "Envelope":
        """A copy for contents to which `spliced` has added headers. Cached."""
        if self.framing is NATIVE and self.summary.has_headers:
            return self
        if self._for_added_headers is None:
            self._for_added_headers = self._like(self.summary._replace(has_headers=True), NATIVE)
        return self._for_added_headers

    def _like(self, summary: PropertySummary, framing: Framing) -> "Envelope":
        changed = Envelope(self.exchange, self.routing_key, summary, framing, self.opaque)
        changed.expiration_ms = self.expiration_ms
        changed.expiry_is_settled = self.expiry_is_settled
        changed.is_plain = self.is_plain
        changed.copies = self.copies
        changed.cause_id = self.cause_id
        changed.first_id = self.first_id
        return changed

    def spliced(self, content: bytes, added: FieldTable) -> bytes:
        """The content with these headers added or replaced. Its envelope is `for_added_headers`."""
        header, body = self.framing.split(content)
        return NATIVE.join(splice_header(header, added, set()), body)

    def headers(self, content: bytes) -> FieldTable:
        """The headers table of one content of this run."""
        return headers_of(self.framing.split(content)[0]) if self.summary.has_headers else {}

    def opened_headers(self, content: bytes) -> Mapping[str, Field]:
        """The headers table of one content of this run; each entry is decoded on access."""
        return opened_headers(self.framing.split(content)[0]) if self.summary.has_headers else {}


class Message:
    """One message in one queue."""

    #: Whether the message cannot be paged out, because the journal lacks some of its state.
    stays_in_memory: ClassVar[bool] = False

    __slots__ = ("content", "deliveries", "envelope", "expires_ns", "holder", "id", "uncounted")

    def __init__(
        self, id_: int, content: bytes, envelope: Envelope, holder: object | None = None, deliveries: int = 0
    ) -> None:
        self.id = id_
        self.content = content
        self.envelope = envelope
        self.holder = holder  # the holder of the unacknowledged delivery (`consumer.holder_of`); None while ready
        self.expires_ns = 0  # monotonic time; 0: never
        self.uncounted = 0  # deliveries that do not count as attempts (clean closes, recovers)
        self.deliveries = deliveries  # number of deliveries; the next one is a redelivery if it is above 0

    @property
    def header(self) -> bytes:
        """The content header payload as published."""
        return self.envelope.framing.split(self.content)[0]

    @property
    def body(self) -> bytes:
        """The body as published."""
        return self.envelope.framing.split(self.content)[1]

    @property
    def octets(self) -> int:
        """Octets of the content, for limits. Reads no file."""
        return len(self.content)

    @property
    def body_octets(self) -> int:
        """Octets of the body, for limits. Reads no file."""
        return self.envelope.framing.body_size(self.content)

    @property
    def first_id(self) -> int:
        """The id of the first publish. Dead letters and moved messages get new ids."""
        return self.envelope.first_id or self.id

    def __repr__(self) -> str:
        return f"<Message {self.id} {self.envelope.exchange!r} {self.envelope.routing_key!r} x{self.deliveries}>"


#: Attributes of messages, for `map` and `sort`.
id_of: Callable[[Message], int] = attrgetter("id")
deliveries_of: Callable[[Message], int] = attrgetter("deliveries")
content_of: Callable[[Message], bytes] = attrgetter("content")
envelope_of: Callable[[Message], Envelope] = attrgetter("envelope")
octets_of: Callable[[Message], int] = attrgetter("octets")
body_octets_of: Callable[[Message], int] = attrgetter("body_octets")


#: The envelopes of a run: the common one, or one for each message.
Envelopes: TypeAlias = Envelope | Sequence[Envelope]


def each_of(envelopes: Envelopes) -> Iterable[Envelope]:
    """An envelope for each message; an endless iterator of a common one."""
    return repeat(envelopes) if isinstance(envelopes, Envelope) else envelopes


def stretches_alike(envelopes: Sequence[Envelope]) -> Iterator[tuple[int, int, Envelope]]:
    """The stretches with a common envelope: offset of the first message, offset after the last, envelope."""
    start = 0
    last = envelopes[0]
    for offset, envelope in enumerate(envelopes):
        if envelope is not last:
            yield start, offset, last
            start, last = offset, envelope
    yield start, len(envelopes), last
