"""Each published message reaches each queue that it was routed to once, or is refused there, before the turn ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from leveret.engine import Broker, EnqueuedEvent, LeftEvent, PublishedEvent
from leveret.interop.wire.raw_codec import shortstr

from ..ledger import Broken, QueueName, keys_of
from .book import Book, Handlers

#: The firehose publishes copies there as soon as a publish is read, also of one that is rolled back later.
TRACED = "amq.rabbitmq.trace"


class Routing(Book):
    """`keys`: message id -> key, of every message. `seen`: keys that clients' publishes brought to the broker.

    `refused`: those that a queue refused; `unroutable`: that no queue took; `never`: of which none may come, as their
    publisher rolled them back.
    """

    def __init__(self, dropping: Collection[str] = (), reviewing: Collection[str] = ()) -> None:
        """`dropping`: queues that drop what they have no room for, of which its publisher hears nothing.

        `reviewing`: leased queues, which begin with what was logged of their topics before they were declared.
        """
        self._dropping = dropping
        self._reviewing = reviewing
        self._reviewed: set[tuple[QueueName, int]] = set()
        self.keys: dict[int, bytes] = {}
        self.headers: dict[int, bytes] = {}  # message id -> header of its content
        self.addresses: dict[int, bytes] = {}  # message id -> exchange and routing key, as two short strings
        self.seen: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.unroutable: set[bytes] = set()
        self.never: set[bytes] = set()
        self.again: set[bytes] = set()  # their publishers sent them once more, not knowing
        self._owed: dict[QueueName, list[Sequence[int]]] = {}
        self._newest: dict[tuple[bytes, str], bytes] = {}  # publisher (of a key) and queue -> its newest key
        self._broker: Broker | None = None

    def handlers(self) -> Handlers:
        return {PublishedEvent: self._published, EnqueuedEvent: self._enqueued, LeftEvent: self._left}

    def attach(self, broker: Broker) -> None:
        self._owed.clear()
        self._reviewed.clear()  # ids that were lost come again
        self._broker = broker

    def _published(self, event: PublishedEvent) -> None:
        ids = event.messages
        keys = keys_of(event)
        self.keys.update(zip(ids, keys))
        self.addresses.update(dict.fromkeys(ids, shortstr(event.run.exchange) + shortstr(event.run.routing_key)))
        split = event.run.framing.split
        self.headers.update((id_, bytes(split(content)[0])) for id_, content in zip(ids, event.contents))
        if event.cause is None and event.subject != TRACED:
            self.seen.update(keys)
            if self.never and not self.never.isdisjoint(keys):
                raise Broken(f"a message came although it was rolled back: {keys}")
            for queue in event.queues:
                self._came(keys, queue.name)
            if not event.queues:
                self.unroutable.update(keys)
        for queue in event.queues:
            self._owed.setdefault((event.vhost, queue.name), []).append(ids)

    def _came(self, keys: list[bytes], queue: str) -> None:
        newest, again = self._newest, self.again
        for key in keys:
            publisher = key[:4], queue
            before = newest.get(publisher, b"")
            if key <= before and key not in again:
                raise Broken(f"message {key.hex()} was published to {queue} after {before.hex()}, or twice")
            newest[publisher] = key

    def _enqueued(self, event: EnqueuedEvent) -> None:
        name = event.vhost, event.subject
        if event.subject in self._reviewing and name not in self._owed:
            for id_ in event.messages:
                if id_ not in self.keys or (name, id_) in self._reviewed:
                    raise Broken(f"message {id_} came into {name} and was not published, or twice")
                self._reviewed.add((name, id_))
            return
        self._paid(name, event.messages)

    def _left(self, event: LeftEvent) -> None:
        if not event.came_in:
            self._paid((event.vhost, event.subject), event.messages)
            is_refusal = event.kind.value == "dropped" or event.reason == "maxlen"
            if is_refusal and event.subject not in self._dropping:
                self.refused.update(self.keys[id_] for id_ in event.messages)

    def _paid(self, name: QueueName, ids: Sequence[int]) -> None:
        owed = self._owed.get(name)
        if owed is not None and len(owed) == 1 and owed[0] == ids:
            del self._owed[name]
            return
        left = {id_ for run in owed or () for id_ in run}
        for id_ in ids:
            if id_ not in left:
                raise Broken(f"message {id_} came into {name} and was not routed there, or twice")
            left.discard(id_)
        if left:
            self._owed[name] = [sorted(left)]
        else:
            del self._owed[name]

    def turn_ended(self) -> None:
        if not self._owed:
            return
        assert self._broker is not None
        durability = self._broker.context.storage.durability
        if durability is not None and durability.has_failed:  # what is refused then is not announced
            self.refused.update(self.keys[id_] for runs in self._owed.values() for run in runs for id_ in run)
            self._owed.clear()
            return
        raise Broken(f"messages did not come to where they were routed: {dict(list(self._owed.items())[:5])}")
