"""A journal driven by steps, and the ten-line model of what it must then hold. Used by the journal's tests."""

from dataclasses import dataclass, field

from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.engine.events import EventKind
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.journal import Bound, Declared, Journal, JournalOptions, MessageState, Recovered, RecoveredMessage
from leveret.journal.format.heap import IS_DURABLE
from leveret.journal.format.record import EXCHANGE, QUEUE, VHOST
from leveret.journal.recovery.recovered import FRESH

PATH = "journal"
SMALL = JournalOptions(segment_size=6000, preallocate_size=0)
ID = bytes(range(16))


def opened(files: SimulatedFiles, options: JournalOptions = SMALL, clock: ManualClock | None = None) -> Journal:
    """A journal on simulated files that writes when it is told to."""
    return Journal.open(PATH, clock or ManualClock(), options, files=files, threaded=False, new_id=ID)


#: queue name -> message id -> (body, state)
Model = dict[str, dict[int, tuple[bytes, MessageState]]]


def make_content(body: bytes) -> bytes:
    """A content with that body."""
    return NATIVE.join(encode_header(len(body), {"delivery_mode": 2}), body)


@dataclass
class Driver:
    """Does to the journal what a broker would, and to the model what it means."""

    journal: Journal
    clock: ManualClock = field(default_factory=ManualClock)
    model: Model = field(default_factory=dict)
    queue_ids: dict[str, int] = field(default_factory=dict)
    lsns: dict[int, int] = field(default_factory=dict)

    def declare(self, *names: str) -> None:
        """Queues, with a binding each from an exchange."""
        journal = self.journal
        vhost = journal.objects.define(VHOST, 0, "/")
        exchange = journal.objects.define(EXCHANGE, vhost, "amq.direct")
        for name in names:
            id_ = self.queue_ids[name] = journal.objects.define(QUEUE, vhost, name)
            journal.objects.declared(id_, Declared(QUEUE, IS_DURABLE, "", b"\0\0\0\0"))
            journal.objects.bound(exchange, Bound(QUEUE, id_, name.encode(), b""))
            self.model[name] = {}
        self.exchange = exchange

    def publish(self, bodies: list[bytes], *names: str, expires_ms: int = 0) -> list[int]:
        """A run of messages into queues; returns their ids."""
        journal = self.journal
        first = journal.next_message_id
        ids = list(range(first, first + len(bodies)))
        targets = [self.queue_ids[name] for name in names]
        lsn = journal.messages.published(
            ids,
            self.exchange,
            b"key",
            NATIVE.columns([make_content(body) for body in bodies]),
            queue_ids=targets,
            expires_ms=expires_ms,
        )
        for name in names:
            journal.messages.enqueued(
                self.queue_ids[name], ids, lsn, [len(body) for body in bodies], expires_ms=expires_ms
            )
            self.model[name].update({id_: (body, FRESH) for id_, body in zip(ids, bodies)})
        self.lsns.update(zip(ids, range(lsn, lsn + len(ids))))
        return ids

    def settle(self, name: str, ids: list[int], kind: EventKind = EventKind.ACKED) -> None:
        """Messages leave a queue."""
        self.journal.messages.happened(kind, self.queue_ids[name], ids)
        for id_ in ids:
            del self.model[name][id_]

    def purge(self, name: str) -> None:
        """All leave."""
        ids = sorted(self.model[name])
        if ids:
            self.journal.messages.settled_range(EventKind.PURGED, self.queue_ids[name], ids)
        self.model[name] = {}

    def requeue(self, name: str, id_: int, deliveries: int, due_ms: int = 0) -> None:
        """A message comes back."""
        self.journal.messages.happened(
            EventKind.REQUEUED, self.queue_ids[name], [id_], reason="nack", deliveries=deliveries, due_ms=due_ms
        )
        body, _ = self.model[name][id_]
        self.model[name][id_] = (body, MessageState(deliveries, 0, due_ms, 0))

    def delete(self, name: str) -> None:
        """The queue goes, with what is in it."""
        ids = sorted(self.model.pop(name))
        if ids:
            self.journal.messages.settled_range(EventKind.DELETED, self.queue_ids[name], ids)
        self.journal.objects.undeclared(self.queue_ids.pop(name), QUEUE)

    def messages(self, name: str) -> list[RecoveredMessage]:
        """What a broker would say is in the queue."""
        return [
            RecoveredMessage(id_, self.lsns[id_], len(body), 0, state)
            for id_, (body, state) in sorted(self.model[name].items())
        ]

    def checkpoint(self) -> None:
        """All in one turn."""
        journal = self.journal
        journal.checkpoints.begin()
        for name, id_ in self.queue_ids.items():
            journal.objects.declared(id_, Declared(QUEUE, IS_DURABLE, "", b"\0\0\0\0"), restated=True)
            journal.objects.bound(self.exchange, Bound(QUEUE, id_, name.encode(), b""), restated=True)
            for _ in journal.checkpoints.snapshot(id_, iter(self.messages(name))):
                pass
        journal.checkpoints.end()

    def reclaim(self) -> list[int]:
        """Empty what pays, then delete what may go."""
        base = self.journal.usage.worth_emptying()
        if base is not None:
            holders = lambda id_: [self.queue_ids[name] for name in self.model if id_ in self.model[name]]  # noqa: E731
            for _ in self.journal.old_segments.move_forward(base, holders, self.lsns.__setitem__):
                pass
            self.journal.wait(self.journal.commit())
            self.checkpoint()
            self.journal.wait(self.journal.commit())
        return self.journal.old_segments.reclaim()


def model_of(recovered: Recovered, journal: Journal) -> Model:
    """What was recovered, in the model's terms; contents are read."""
    found: Model = {}
    for id_, declared in recovered.objects.items():
        assert declared.object_type == QUEUE
        queue = recovered.queues.get(id_)
        found[recovered.names.text(id_)] = {
            message.id: (NATIVE.split(journal.contents.read(message.content_lsn))[1], message.state)
            for message in (() if queue is None else queue.messages())
        }
    return found


def run_workload(driver: Driver) -> None:
    """A bit of everything, a turn a line; committed as it goes."""
    turn = lambda: driver.journal.wait(driver.journal.commit())  # noqa: E731
    driver.declare("a", "b")
    turn()
    first = driver.publish([b"one", b"two", b"three"], "a", "b")
    turn()
    driver.settle("a", first[:1])
    driver.requeue("a", first[1], 2, 1_700_000_099_000)
    turn()
    second = driver.publish([b"x" * 700], "a")
    driver.settle("b", first)
    turn()
    driver.checkpoint()
    turn()
    driver.publish([b"y" * 900, b""], "b")
    driver.settle("a", second, EventKind.EXPIRED)
    turn()
    driver.purge("b")
    driver.publish([b"last"], "a", "b")
    turn()
