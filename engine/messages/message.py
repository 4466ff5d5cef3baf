"""A message in a queue, and what a run of messages has in common.

`Message` objects are per (message, queue): the content is shared, since the blob is one bytes object however many
queues hold it. Their ids rise in the order of publishing, so an id is also the place in the queue.
"""

from collections.abc import Mapping
from typing import ClassVar

from .content import NO_FACTS, PLAIN, Framing, PropertySummary, headers_of, opened_headers, splice_header
from .field_table import Field, FieldTable


class Envelope:
    """Where a run of messages was published and how to read its blobs.

    The facts' expiration must be valid (`arguments.check_expiration`). `opaque` belongs to the frontend that published:
    what it needs to pass the blobs on unread.
    """

    __slots__ = (
        "_persisted",
        "_plain",
        "_stored",
        "cause_id",  # of the message of which this is a dead letter; 0: none
        "copies",  # more routing keys, of CC and BCC
        "exchange",
        "expiration_ms",  # that counts: the property's, or what the address made of it
        "expiry_is_settled",  # the message's address had a word in it, so that the queue's has none
        "facts",
        "first_id",  # under which the message was first published; 0: the one that it has
        "framing",
        "is_plain",  # whether a queue without rules has nothing to look at
        "opaque",
        "routing_key",
    )

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        facts: PropertySummary = NO_FACTS,
        framing: Framing = PLAIN,
        opaque: bytes | None = None,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.facts = facts
        self.expiration_ms = None if facts.expiration is None else int(facts.expiration)
        self.expiry_is_settled = False
        self.is_plain = facts.expiration is None and not facts.is_marked
        self.framing = framing
        self.opaque = opaque
        self.copies: tuple[str, ...] = ()
        self.cause_id = 0
        self.first_id = 0
        self._plain: Envelope | None = None
        self._persisted: Envelope | None = None
        self._stored: Envelope | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """All routing keys: the first, then those of CC and BCC."""
        return (self.routing_key, *self.copies)

    def with_expiration(self, expiration_ms: int | None) -> "Envelope":
        """The same, but expiring as its address has settled. The property itself stays as published."""
        settled = self._like(self.facts, self.framing)
        settled.expiration_ms = expiration_ms
        settled.expiry_is_settled = True
        settled.is_plain = expiration_ms is None and not self.facts.is_marked
        return settled

    def published_first_as(self, id_: int) -> "Envelope":
        """The same for one message that comes to a queue again, under another id."""
        again = self._like(self.facts, self.framing)
        again.first_id = id_
        return again

    def persisted(self) -> "Envelope":
        """The same for a queue that stores whatever comes; always the same object. The property stays as published."""
        if self.facts.persistent:
            return self
        if self._persisted is None:
            self._persisted = self._like(self.facts._replace(persistent=True), self.framing)
        return self._persisted

    def stored(self) -> "Envelope":
        """The same for blobs of the engine's own framing, as the journal gives them back; always the same object."""
        if self.framing is PLAIN:
            return self
        if self._stored is None:
            self._stored = self._like(self.facts, PLAIN)
        return self._stored

    def plain(self) -> "Envelope":
        """The same for blobs of the engine's own framing that have a headers table now; always the same object."""
        if self.framing is PLAIN and self.facts.has_headers:
            return self
        if self._plain is None:
            self._plain = self._like(self.facts._replace(has_headers=True), PLAIN)
        return self._plain

    def _like(self, facts: PropertySummary, framing: Framing) -> "Envelope":
        changed = Envelope(self.exchange, self.routing_key, facts, framing, self.opaque)
        changed.expiration_ms = self.expiration_ms
        changed.expiry_is_settled = self.expiry_is_settled
        changed.is_plain = self.is_plain
        changed.copies = self.copies
        changed.cause_id = self.cause_id
        changed.first_id = self.first_id
        return changed

    def spliced(self, blob: bytes, added: FieldTable) -> bytes:
        """A blob (of the engine's own framing; see `plain`) with these headers added or replaced."""
        header, body = self.framing.split(blob)
        return PLAIN.join(splice_header(header, added, set()), body)

    def headers(self, blob: bytes) -> FieldTable:
        """The headers table of one blob of this run."""
        return headers_of(self.framing.split(blob)[0]) if self.facts.has_headers else {}

    def opened_headers(self, blob: bytes) -> Mapping[str, Field]:
        """The same, each decoded when it is asked for."""
        return opened_headers(self.framing.split(blob)[0]) if self.facts.has_headers else {}


class Message:
    """One message in one queue. Slots only: there are millions of these."""

    #: Whether a deep queue may not page it out: memory knows more of it than the journal does.
    stays_in_memory: ClassVar[bool] = False

    __slots__ = ("blob", "deliveries", "envelope", "expires_ns", "holder", "id", "uncounted")

    def __init__(
        self, id_: int, blob: bytes, envelope: Envelope, holder: object | None = None, deliveries: int = 0
    ) -> None:
        self.id = id_
        self.blob = blob
        self.envelope = envelope
        self.holder = holder  # who has it unacknowledged (`consumer.holder_of`); None while it is ready
        self.expires_ns = 0  # by the clock's monotonic reading; 0: never
        self.uncounted = 0  # of the deliveries, those that were no attempt (clean closes, recovers)
        self.deliveries = deliveries  # how often it was handed out; > 0 means redelivered from now on

    @property
    def header(self) -> bytes:
        """The content header payload as published."""
        return self.envelope.framing.split(self.blob)[0]

    @property
    def body(self) -> bytes:
        """The body as published."""
        return self.envelope.framing.split(self.blob)[1]

    @property
    def first_id(self) -> int:
        """The id under which it was first published: dead letters, and what an operator moves, get others later."""
        return self.envelope.first_id or self.id

    def __repr__(self) -> str:
        return f"<Message {self.id} {self.envelope.exchange!r} {self.envelope.routing_key!r} x{self.deliveries}>"
