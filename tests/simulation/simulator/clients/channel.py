"""A channel of a client, which does one thing: publish, consume, get. Kinds override what they need."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from leveret.interop.wire.raw_codec import Method

from ..ledger import Broken, QueueName
from ..plan import ExchangePlan, QueuePlan
from ..sites import called
from .client import Answered, Client, Question


class Channel:
    """`is_open`: the broker has said so. `options`: what the plan says of it."""

    #: Queues that it takes all messages out of when the world ends; none for most.
    drains: tuple[str, ...] = ()
    #: The queue of which it settles deliveries.
    consumed: str | None = None
    #: Whether its connection need not be there when everything rests, and by which replies it may end.
    comes_and_goes = False
    connection_ends: tuple[int, ...] = ()
    #: Whether it publishes what may be held, so that later methods wait.
    may_be_held = False

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        self.client = client
        self.world = client.world
        self.number = number
        self.options = options
        self.chance = Random(seed)
        self.is_open = False
        self.leaves = bool(options.get("leaves"))  # it is closed by its client now and then

    # -- what kinds do ------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """It is there."""

    def act(self) -> None:
        """It is its turn to do something."""

    def finish(self) -> None:
        """The world comes to its end: begin nothing new, settle what is left."""

    def lost(self) -> None:
        """It is gone, or its connection."""

    def ended(self) -> None:
        """Its client closed it, and was answered; `lost` comes next."""

    def unanswered(self) -> Question | None:
        """What it waits for, beside the answers to methods."""
        return None

    def held(self) -> Counter[QueueName]:
        """How many deliveries of each queue it has and did not settle."""
        return Counter()

    def lost_publishes(self) -> list[bytes]:
        """Keys of publishes that were neither taken nor refused, though all that was sent is read."""
        return []

    def credit(self) -> str | None:
        """The queue of which it would take one more message right now."""
        return None

    def takes(self, id_: int) -> bool:
        """Whether it would, of what is ready there, this message."""
        return True

    def closed(self, code: int, text: str) -> None:
        """The broker closed it, and says why."""
        raise Broken(f"client {self.client.number}, channel {self.number} was closed: {code} {text}")

    def connection_closed(self, code: int, text: str) -> None:
        """The broker closed its connection by one of `connection_ends`."""

    def said_goodbye(self) -> None:
        """The end of the connection, which the client asked for, was answered."""

    def confirmed(self, tag: int, multiple: bool, *, is_ack: bool) -> None:
        """A confirm of publishes."""
        raise Broken(f"client {self.client.number} got a confirm and asked for none")

    def delivered(self, consumer: str, tag: int, redelivered: bool, body: bytes) -> None:
        """A delivery."""
        raise Broken(f"client {self.client.number} got a delivery and consumes nothing")

    def returned(self, method: Method, body: bytes) -> None:
        """A message that could not be routed."""
        raise Broken(f"client {self.client.number} got a message back")

    def cancelled(self, consumer: str) -> None:
        """The broker cancelled a consumer."""

    # -- what kinds use -----------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Octets to the broker."""
        self.client.send(data)

    def ask(self, name: str, answer: str, then: Answered, **arguments: Any) -> None:
        """A method that is answered."""
        self.client.ask(self.number, name, answer, then, **arguments)

    def declare(self, queue: QueuePlan, then: Answered) -> None:
        """Declare a queue as the plan has it.

        First the one that gets its dead letters: a dead letter would make it, without its arguments.
        """
        letters = queue.features.get("dead_letter_address")
        for other in self.world.plan.queues:
            if other.name == letters and other is not queue:
                self.declare(other, _nothing)
        self.ask(
            "queue.declare", "queue.declare-ok", then,
            queue=called(queue), durable=queue.durable, arguments=tagged(queue.arguments),
        )  # fmt: skip

    def declare_exchange(self, exchange: ExchangePlan, then: Answered) -> None:
        """Declare an exchange as the plan has it, with the queues that are bound to it, and its bindings."""
        plan = self.world.plan
        for destination, is_queue, _, _ in exchange.bindings:
            if is_queue:
                self.declare(plan.queue(destination), _nothing)
            else:
                self.declare_exchange(plan.exchange(destination), _nothing)
        self.ask(
            "exchange.declare", "exchange.declare-ok", _nothing,
            exchange=exchange.name, type=exchange.kind, durable=True, arguments=tagged(exchange.arguments),
        )  # fmt: skip
        for destination, is_queue, key, arguments in exchange.bindings:
            if is_queue:
                self.ask(
                    "queue.bind", "queue.bind-ok", _nothing,
                    queue=destination, exchange=exchange.name, routing_key=key, arguments=tagged(arguments),
                )  # fmt: skip
            else:
                self.ask(
                    "exchange.bind", "exchange.bind-ok", _nothing,
                    destination=destination, source=exchange.name, routing_key=key, arguments=tagged(arguments),
                )  # fmt: skip
        self.ask(
            "exchange.declare", "exchange.declare-ok", then,
            exchange=exchange.name, type=exchange.kind, passive=True, arguments={},
        )  # fmt: skip


def tagged(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a plan, where pairs are lists once they were JSON."""
    return {name: tuple(value) for name, value in arguments.items()}


def _nothing(_: Method) -> None:
    pass
