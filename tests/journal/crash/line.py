"""One connection under load: publishes, transactions, acknowledgements, rejects, and what came of them.

Every operation is noted in the truth before it is sent; channel 1 has confirms, channel 2 transactions, channel 3
declares and deletes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from pamqp import base, commands, frame

from .content import FANOUT, is_transient, number_of, publish_octets
from .truth import Broken, Fact, Operation
from .wire import Delivery, Wire
from .world import TOPIC, World, count, message

CONFIRMED, TRANSACTED, DECLARING = 1, 2, 3
PREFETCHES = (200, 200, 5000)
#: Publishes in one transaction, at most.
TRANSACTION_SIZES = (8, 8, 8, 8, 8, 8, 8, 400)
#: Counts above `max-redelivery-records` are not written.
COUNT_MAX = 8
#: What a transaction may publish to: queues without a length.
TRANSACTED_TARGETS = (FANOUT, "first", "timed", "work", "lent", TOPIC)


@dataclass(slots=True)
class Mood:
    """What a round is like."""

    targets: list[str]
    consumed: dict[str, int]  # queue -> channel
    burst: int  # publishes a step, at most
    acks: int  # a step, at most
    window: int  # publishes without a confirm, about
    transactions: float = 0.3  # how likely in a step
    declares: float = 0.2
    transacted: tuple[str, ...] = TRANSACTED_TARGETS


@dataclass(slots=True)
class Gathered:
    """What a transaction is to do."""

    publishes: list[tuple[int, str]] = field(default_factory=list)
    settled: dict[int, tuple[str, int, bool]] = field(default_factory=dict)  # tag -> queue, number, rejected


class Line:
    """See the module."""

    def __init__(self, port: int, world: World, number: int, mood: Mood) -> None:
        self.number = number
        self.wire = Wire(port, channels=3)
        self.asked: deque[Operation | None] = deque()  # on channel 3; None: nothing durable
        self.confirmed = 0
        self._world = world
        self._mood = mood
        self._tag = 0  # of the last publish with a confirm
        self._open: dict[int, Operation] = {}  # publishes by tag
        self._held: dict[int, dict[int, tuple[str, int]]] = {CONFIRMED: {}, TRANSACTED: {}}
        self._gathered = Gathered()
        self._commits: deque[Operation | None] = deque()

    def start(self) -> None:
        """Confirms, transactions, consumers."""
        ask = self.wire.ask
        ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
        ask(commands.Tx.Select(), commands.Tx.SelectOk, channel=TRANSACTED)
        for channel in (CONFIRMED, TRANSACTED):
            prefetch = self._world.chance.choice(PREFETCHES)
            ask(commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk, channel=channel)
        for queue, channel in self._mood.consumed.items():
            self.wire.send(commands.Basic.Consume(queue=queue, consumer_tag=queue, nowait=True), channel=channel)

    def step(self, before: bytes = b"") -> None:
        """Publish some, settle some, perhaps a transaction, and read what there is. `before`: to be sent first."""
        chance = self._world.chance
        has_room = len(self._open) < self._mood.window
        octets = before + self._publishes(chance.randrange(self._mood.burst + 1) if has_room else 0)
        octets += self._settlements(chance.randrange(self._mood.acks + 1))
        if chance.random() < self._mood.transactions:
            octets += self._transaction()
        self.wire.write(octets)
        for event in self.wire.what_came() if has_room else self.wire.wait():
            self._take(event)

    def read_to_the_end(self) -> None:
        """The broker is gone, or about to go: what it said before counts. Raises: OSError, Unexpected at the end."""
        while True:
            for event in self.wire.wait():
                self._take(event)

    # -- what is sent -------------------------------------------------------------------------------------------------

    def _publishes(self, how_many: int) -> bytes:
        world = self._world
        octets = []
        for _ in range(how_many):
            target = world.chance.choice(self._mood.targets)
            octets.append(self.publish(world.stream if target == "log" else target))
        return b"".join(octets)

    def publish(self, target: str) -> bytes:
        """One publish with a confirm; nothing to a stream that is not there."""
        world = self._world
        if not target:
            return b""
        number = world.new_number()
        adds, removes = world.effect_of_publish(number, target)
        self._tag += 1
        self._open[self._tag] = world.did(self.number, f"publish {number} to {target}", adds, removes)
        return publish_octets(number, target, CONFIRMED)

    def purge(self, queue: str) -> bytes:
        """All that is ready there, before anybody consumes it."""
        operation = self._world.did(self.number, f"purge {queue}", removes=self._world.messages_in(queue))
        self.asked.append(operation)
        octets: bytes = frame.marshal(commands.Queue.Purge(queue=queue), DECLARING)
        return octets

    def _settlements(self, how_many: int) -> bytes:
        """Acks, also of many at once, rejects that leave dead letters, and some that come back."""
        world, held = self._world, self._held[CONFIRMED]
        chance = world.chance
        octets = []
        for _ in range(min(how_many, len(held))):
            if not held:
                break
            tag = chance.choice(list(islice(held, 64))) if chance.random() < 0.99 else chance.choice(list(held))
            queue, number = held[tag]
            lot = chance.random()
            method: base.Frame
            if queue == "work" and lot < 0.4:
                del held[tag]
                adds, removes = self._rejected(number)
                world.did(self.number, f"reject {number}", adds, removes)
                method = commands.Basic.Reject(delivery_tag=tag, requeue=False)
            elif queue in ("quorum", "b") and lot < 0.1 and world.counts.get((queue, number), 0) < COUNT_MAX:
                del held[tag]
                self._came_back(queue, number)
                method = commands.Basic.Nack(delivery_tag=tag, requeue=True)
            elif lot > 0.998:
                several = [held.pop(one) for one in sorted(held) if one <= tag]
                letters = [message("dead", dead) for of, dead in several if of == "work"]
                gone = [fact for one in several for fact in world.taken(*one)]
                world.did(self.number, f"reject up to {number} from {queue}", letters, gone)
                method = commands.Basic.Nack(delivery_tag=tag, multiple=True, requeue=False)
            elif lot > 0.98:
                several = [held.pop(one) for one in sorted(held) if one <= tag]
                gone = [fact for one in several for fact in world.taken(*one)]
                world.did(self.number, f"ack up to {number} from {queue}", removes=gone)
                method = commands.Basic.Ack(delivery_tag=tag, multiple=True)
            else:
                del held[tag]
                world.did(self.number, f"ack {number} from {queue}", removes=world.taken(queue, number))
                method = commands.Basic.Ack(delivery_tag=tag)
            octets.append(frame.marshal(method, CONFIRMED))
        return b"".join(octets)

    def _rejected(self, number: int) -> tuple[list[Fact], list[Fact]]:
        return [message("dead", number)], self._world.taken("work", number)

    def _came_back(self, queue: str, number: int) -> None:
        counts = self._world.counts
        before = counts.get((queue, number), 0)
        if queue != "quorum" and (before or is_transient(number, FANOUT)):
            return  # nobody will see it
        counts[queue, number] = before + 1
        removes = [count(queue, number, before)] if before else []
        self._world.did(self.number, f"nack {number}", [count(queue, number, before + 1)], removes)

    def _transaction(self) -> bytes:
        """Gather some, and mostly come to an end."""
        world, gathered, held = self._world, self._gathered, self._held[TRANSACTED]
        chance = world.chance
        octets = []
        for _ in range(chance.randrange(chance.choice(TRANSACTION_SIZES))):
            number, target = world.new_number(), chance.choice(self._mood.transacted)
            if target != FANOUT and self.number:
                target = FANOUT  # the others are line 0's
            gathered.publishes.append((number, target))
            octets.append(publish_octets(number, target, TRANSACTED))
        for tag in list(islice(held, chance.randrange(12))):
            queue, number = held.pop(tag)
            is_rejected = queue == "work" and chance.random() < 0.4
            gathered.settled[tag] = (queue, number, is_rejected)
            method: base.Frame = commands.Basic.Ack(delivery_tag=tag)
            if is_rejected:
                method = commands.Basic.Reject(delivery_tag=tag, requeue=False)
            octets.append(frame.marshal(method, TRANSACTED))
        lot = chance.random()
        if lot < 0.7:
            octets.append(frame.marshal(commands.Tx.Commit(), TRANSACTED))
            self._commit()
        elif lot < 0.8:
            octets.append(frame.marshal(commands.Tx.Rollback(), TRANSACTED))
            held.update({tag: (queue, number) for tag, (queue, number, _) in gathered.settled.items()})
            self._gathered = Gathered()
        return b"".join(octets)

    def _commit(self) -> None:
        world, gathered = self._world, self._gathered
        self._gathered = Gathered()
        adds: list[Fact] = []
        removes: list[Fact] = []
        for number, target in gathered.publishes:
            more, fewer = world.effect_of_publish(number, target)
            adds += more
            removes += fewer
        for queue, number, is_rejected in gathered.settled.values():
            if is_rejected:
                more, fewer = self._rejected(number)
                adds += more
                removes += fewer
            else:
                removes += world.taken(queue, number)
        has_facts = bool(adds or removes)
        self._commits.append(world.did(self.number, "commit", adds, removes) if has_facts else None)

    # -- what comes ---------------------------------------------------------------------------------------------------

    def _take(self, event: object) -> None:
        truth = self._world.truth
        if isinstance(event, Delivery):
            number = number_of(event.body)
            if event.consumer == "late":
                self._world.expired(number)
            self._held[event.channel][event.tag] = (event.consumer, number)
            return
        if not isinstance(event, tuple):
            self._confirm(event.tag, multiple=event.multiple)  # type: ignore[attr-defined]
            return
        channel, method = event
        if isinstance(method, commands.Basic.Nack | commands.Basic.Return | commands.Channel.Close):
            raise Broken(f"{method.name} on channel {channel}: {dict(method)}")
        if isinstance(method, commands.Tx.CommitOk):
            operation = self._commits.popleft()
        elif channel == DECLARING:
            operation = self.asked.popleft()
        else:
            return  # rollback-ok; connection.close, with which the next read ends
        if operation is not None:
            truth.answered(operation)

    def _confirm(self, tag: int, *, multiple: bool) -> None:
        done = [tag]
        if multiple:
            done = []
            for one in self._open:
                if one > tag:
                    break
                done.append(one)
        for one in done:
            self._world.truth.answered(self._open.pop(one))
        self.confirmed += len(done)
