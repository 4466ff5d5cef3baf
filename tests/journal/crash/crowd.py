"""Publishers of queues that are full: their publishes are held, in memory and in the temp store, when the broker dies.

What is held was not confirmed; what was confirmed is there. Each channel is a line of its own in the truth, since what
is held on one does not hold up another, nor acknowledgements.
"""

from __future__ import annotations

import os
from collections import Counter, deque

from pamqp import commands, frame
from raw_client import Unexpected

from .broker import LIMITED, Setup
from .content import number_of, publish_octets
from .look import Control
from .truth import Broken, Operation
from .wire import Confirmed, Delivery, Wire
from .world import World

CONFIRMED, TRANSACTED = 1, 2
PUSHERS = 2
#: Octets and transactions of one channel that are not answered: more than the broker holds, and less than sockets do.
WINDOW_OCTETS, COMMITS_MAX = 250_000, 3
BURST, TRANSACTION_SIZE = 80, 20
PREFETCH = 10
#: How likely the broker is asked in a step who waits.
ASKS = 0.3


class Pusher:
    """One connection that publishes more than there is room for."""

    def __init__(self, port: int, world: World, number: int) -> None:
        self.wire = Wire(port, channels=2)
        self.wire.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
        self.wire.ask(commands.Tx.Select(), commands.Tx.SelectOk, channel=TRANSACTED)
        self.confirmed = 0
        self._world = world
        self._number = number
        self._tag = 0
        self._open: dict[int, tuple[Operation, int]] = {}  # by tag, with its octets
        self._octets = 0  # of those
        self._commits: deque[Operation] = deque()

    def step(self) -> None:
        """Publish some, perhaps in a transaction, and read what there is."""
        chance = self._world.chance
        octets = b"".join(self._publish() for _ in range(chance.randrange(BURST)))
        if chance.random() < 0.2 and len(self._commits) < COMMITS_MAX:
            octets += self._transaction()
        if octets:
            self.wire.write(octets)
        for event in self.wire.what_came():
            self.take(event)

    def _publish(self) -> bytes:
        if self._octets > WINDOW_OCTETS:
            return b""
        world = self._world
        number, target = world.new_number(), world.chance.choice(LIMITED)
        octets = publish_octets(number, target, CONFIRMED)
        adds, _ = world.effect_of_publish(number, target)
        self._tag += 1
        operation = world.did(("pusher", self._number, CONFIRMED), f"publish {number} to {target}", adds)
        self._open[self._tag] = (operation, len(octets))
        self._octets += len(octets)
        return octets

    def _transaction(self) -> bytes:
        world = self._world
        octets, adds = [], []
        for _ in range(world.chance.randrange(1, TRANSACTION_SIZE)):
            number, target = world.new_number(), world.chance.choice(LIMITED)
            octets.append(publish_octets(number, target, TRANSACTED))
            adds += world.effect_of_publish(number, target)[0]
        octets.append(frame.marshal(commands.Tx.Commit(), TRANSACTED))
        self._commits.append(world.did(("pusher", self._number, TRANSACTED), "commit", adds))
        return b"".join(octets)

    def take(self, event: object) -> None:
        """What the broker said. Raises: Broken, when a publish is refused."""
        truth = self._world.truth
        if isinstance(event, Confirmed):
            for tag in [tag for tag in self._open if tag == event.tag or (event.multiple and tag < event.tag)]:
                operation, octets = self._open.pop(tag)
                self._octets -= octets
                self.confirmed += 1
                truth.answered(operation)
        elif isinstance(event, tuple):
            channel, method = event
            if isinstance(method, commands.Tx.CommitOk):
                truth.answered(self._commits.popleft())
            elif not isinstance(method, commands.Connection.Close):
                raise Broken(f"{method.name} on channel {channel}: {dict(method)}")


class Taker:
    """One connection that makes room, little by little."""

    def __init__(self, port: int, world: World) -> None:
        self.wire = Wire(port)
        self._world = world
        self._held: deque[tuple[int, str, int]] = deque()  # tag, queue, number
        self.wire.ask(commands.Basic.Qos(prefetch_count=PREFETCH), commands.Basic.QosOk)
        for queue in LIMITED:
            self.wire.send(commands.Basic.Consume(queue=queue, consumer_tag=queue, nowait=True))

    def step(self) -> None:
        """Acknowledge some, and read what there is."""
        world = self._world
        octets = []
        for _ in range(world.chance.randrange(len(self._held) + 1)):
            tag, queue, number = self._held.popleft()
            world.did(("taker",), f"ack {number} from {queue}", removes=world.taken(queue, number))
            octets.append(frame.marshal(commands.Basic.Ack(delivery_tag=tag), 1))
        if octets:
            self.wire.write(b"".join(octets))
        for event in self.wire.what_came():
            self.take(event)

    def take(self, event: object) -> None:
        """A delivery."""
        if isinstance(event, Delivery):
            self._held.append((event.tag, event.consumer, number_of(event.body)))


class Crowd:
    """Both, for one round. `figures`: what the broker said of them meanwhile."""

    def __init__(self, port: int, world: World, *, takes: bool) -> None:
        self._members: list[Pusher | Taker] = [Pusher(port, world, number) for number in range(PUSHERS)]
        if takes:
            self._members.append(Taker(port, world))
        self._chance = world.chance
        self._control = Control(port)
        self.figures: Counter[str] = Counter()

    def step(self) -> None:
        """One of each. Raises: OSError, Unexpected, ControlFailed when the broker is gone."""
        for member in self._members:
            member.step()
        if self._chance.random() < ASKS:
            status = self._control.ask("status")
            self.figures["times that somebody was held"] += bool(status["blocked"])
            spooled = [limit for limit in status["usage"] if limit["limit"] == "temp" and limit["used"]]
            self.figures["times that something was spooled"] += bool(spooled)

    def hear_out(self) -> None:
        """The broker is gone, or about to go: what it said before counts."""
        for member in self._members:
            try:
                while True:
                    for event in member.wire.wait():
                        member.take(event)
            except (OSError, Unexpected):
                pass
            member.wire.finish()
            if isinstance(member, Pusher):
                self.figures["confirmed by full queues"] += member.confirmed
                self.figures["open at full queues at the end"] += len(member._open)


def check_spool(setup: Setup) -> None:
    """What the last broker spooled is gone once the next one has started. Raises: Broken."""
    if left := [name for name in os.listdir(setup.journal) if name.startswith("tmp")]:
        raise Broken(f"files of the temp store outlived the broker: {left}")
