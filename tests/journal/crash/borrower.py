"""A consumer of leased queues: it settles late, cancels, gets, and discards what it holds by `amps.control`.

What a client can know of them: a message of at-least-once is there until somebody acknowledged it, whoever has the
lease, and a tag whose lease has ended is never an error; one of at-most-once is gone when it is sent, so that what was
received once never comes again. Source: queues page A.5, A.6, C.5.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import NamedTuple

from pamqp import base, body, commands, frame, header
from raw_client import Unexpected

from .content import number_of, properties_in
from .truth import Broken
from .wire import Delivery, Wire
from .world import LEASED, ONCE, ONCE_BACKLOG, World, message

LINE = "borrower"
PREFETCHES = (1, 20, 500)
CHANNEL, GETTING = 1, 2
#: None, and one that takes an eighth of all.
FILTERS: tuple[dict[str, str], ...] = ({}, {}, {"x-filter": "n IS NOT NULL"})
BOOKMARKS_MAX = 5


class Held(NamedTuple):
    """What came under a tag. `consumer`: its tag; "": it was asked for by basic.get."""

    queue: str
    number: int
    bookmark: str
    consumer: str


class Borrower:
    """One connection. `figures`: what it did."""

    def __init__(self, port: int, world: World, acks: int) -> None:
        """`acks`: at most so many in a step."""
        self.wire = Wire(port, channels=2)
        self.figures: Counter[str] = Counter()
        self._world = world
        self._acks = acks
        self._held: dict[tuple[int, int], Held] = {}  # by channel and tag, also those whose leases have ended
        self._past: set[tuple[int, int]] = set()  # of those, the ones whose consumer is gone
        self._consumers: dict[str, str] = {}  # tag -> queue
        self._next_tag = 1
        world.is_borrowed = True
        self.wire.ask(commands.Basic.Qos(prefetch_count=world.chance.choice(PREFETCHES)), commands.Basic.QosOk)
        for queue in LEASED:
            for _ in range(world.chance.randrange(3)):
                self.wire.write(self._consume(queue))

    def step(self) -> None:
        """Settle some, perhaps end a subscription and begin another, and read what there is."""
        chance = self._world.chance
        octets = [self._settle() for _ in range(chance.randrange(self._acks + 1))]
        if chance.random() < 0.1:
            octets.append(self._cancel())
        if chance.random() < 0.1:
            octets.append(self._discard())
        if chance.random() < 0.2:
            octets.append(frame.marshal(commands.Basic.Get(queue="lent"), GETTING))
        self.wire.write(b"".join(octets))
        for event in self.wire.what_came():
            self._take(event)

    def hear_out(self) -> None:
        """The broker is gone, or about to go: what it said before counts."""
        try:
            while True:
                for event in self.wire.wait():
                    self._take(event)
        except (OSError, Unexpected):
            pass
        self.wire.finish()

    # -- what is sent -------------------------------------------------------------------------------------------------

    def _consume(self, queue: str) -> bytes:
        tag = f"{queue}/{self._next_tag}"
        self._next_tag += 1
        self._consumers[tag] = queue
        arguments = self._world.chance.choice(FILTERS)
        return frame.marshal(
            commands.Basic.Consume(queue=queue, consumer_tag=tag, nowait=True, arguments=arguments), CHANNEL
        )

    def _cancel(self) -> bytes:
        """Its leases end, and what is still on its way to this client is not leased any more either."""
        if not self._consumers:
            return b""
        tag = self._world.chance.choice(list(self._consumers))
        queue = self._consumers.pop(tag)
        self._past.update(key for key, held in self._held.items() if held.consumer == tag)
        self.figures["subscriptions of leased queues ended"] += 1
        octets: bytes = frame.marshal(commands.Basic.Cancel(consumer_tag=tag, nowait=True), CHANNEL)
        return octets + self._consume(queue)

    def _settle(self) -> bytes:
        """An acknowledgement, late or not, of one or many; one that comes back; one that expires."""
        world, chance = self._world, self._world.chance
        if not self._held:
            return b""
        key = chance.choice(list(islice(self._held, 64)))
        channel, tag = key
        queue, number = self._held[key][:2]
        lot = chance.random()
        method: base.Frame = commands.Basic.Ack(delivery_tag=tag)
        if lot < 0.03:
            method = commands.Basic.Ack(delivery_tag=tag, multiple=True)
            self._acked([one for one in self._held if one[0] == channel and one[1] <= tag])
        elif lot < 0.15:
            method = commands.Basic.Nack(delivery_tag=tag, requeue=True)
            self._forget(key)
        elif lot < 0.25 and queue == "lent":
            method = commands.Basic.Reject(delivery_tag=tag, requeue=False)
            if key not in self._past and message(queue, number) in world.truth.now:
                world.did(LINE, f"reject {number}", [message("ended", number)], [message(queue, number)])
            self._forget(key)
        else:
            self._acked([key])
        octets: bytes = frame.marshal(method, channel)
        return octets

    def _acked(self, keys: list[tuple[int, int]]) -> None:
        gone = [message(held.queue, held.number) for held in map(self._held.__getitem__, keys)]
        for key in keys:
            self.figures["acknowledgements of leases that had ended"] += key in self._past
            self._forget(key)
        self._remove("ack", gone)

    def _remove(self, what: str, gone: list[tuple[object, ...]]) -> None:
        there = [fact for fact in dict.fromkeys(gone) if fact in self._world.truth.now and fact[1] != ONCE]
        if there:
            self._world.did(LINE, f"{what} {there[0][2]} from {there[0][1]} and others", removes=there)

    def _forget(self, key: tuple[int, int]) -> None:
        del self._held[key]
        self._past.discard(key)

    def _discard(self) -> bytes:
        """By bookmark, with tags that stay."""
        queue = self._world.chance.choice(list(LEASED))
        held = [one for one in self._held.values() if one.queue == queue and queue != ONCE][:BOOKMARKS_MAX]
        if not held:
            return b""
        self.figures["leased messages discarded by bookmark"] += len(held)
        self._remove("discard", [message(queue, one.number) for one in held])
        headers = {"queue": queue, "bookmark": ",".join(one.bookmark for one in held)}
        properties = commands.Basic.Properties(headers=headers)
        parts = (
            commands.Basic.Publish(exchange="amps.control", routing_key="sow_delete"),
            header.ContentHeader(body_size=1, properties=properties),
            body.ContentBody(b" "),
        )
        return b"".join(frame.marshal(part, CHANNEL) for part in parts)

    # -- what comes ---------------------------------------------------------------------------------------------------

    def _take(self, event: object) -> None:
        if isinstance(event, tuple):
            channel, method = event
            if not isinstance(method, commands.Basic.GetEmpty | commands.Connection.Close):
                raise Broken(f"{method.name} on channel {channel}: {dict(method)}")
        if not isinstance(event, Delivery):
            return
        queue = event.consumer.split("/")[0] or "lent"
        number, key = number_of(event.body), (event.channel, event.tag)
        headers = properties_in(event.header)["headers"]
        self._held[key] = Held(queue, number, headers["x-bookmark"], event.consumer)
        self.figures["deliveries of leased queues"] += 1
        self.figures["leases that came again"] += event.redelivered
        if event.consumer and event.consumer not in self._consumers:
            self._past.add(key)
        if queue == ONCE:
            received_once(self._world, number)


def received_once(world: World, number: int) -> None:
    """A message of at-most-once came: it is gone for good. Raises: Broken, when it had come before."""
    fact = message(ONCE, number)
    if fact not in world.truth.now:
        raise Broken(f"message {number} of {ONCE} came a second time")
    world.truth.answered(world.did((ONCE, number), f"delivery of {number}", removes=[fact]))


def check_once(world: World, there: set[int]) -> int:
    """What was sent and did not arrive is lost: at most one backlog, and none where nobody consumed. Returns how much.

    Raises: Broken.
    """
    lost = 0
    for fact in world.messages_in(ONCE):
        number = int(str(fact[2]))
        if number not in there:
            lost += world.truth.is_sure(fact)
            world.did((ONCE, number), f"delivery of {number}, which was lost", removes=[fact])
    if lost > (ONCE_BACKLOG if world.is_borrowed else 0):
        raise Broken(f"{lost} messages of {ONCE} are lost, and no more than {ONCE_BACKLOG} were on their way")
    world.is_borrowed = False
    return lost
