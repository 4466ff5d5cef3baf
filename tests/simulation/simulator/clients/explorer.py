"""A client that publishes, binds, consumes and settles on one channel, with whatever features there are.

Its world's books have few rules for its queues. What it is answered, refused and sent must be what the protocol has.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from leveret.interop.wire.raw_codec import Method, method_frame

from ..explored import CONFIGURED, CONSUMERS_MAX, EXCHANGES, EXPLORED, FAULT, KEYS, LEASED, PATTERNS, QUEUES
from ..ledger import Broken, QueueName
from ..parts import Plan
from ..swarm import TROUBLING
from .channel import Channel
from .client import Client, Question
from .knowledge import body_of, key_of, publisher_of
from .wire import content, properties, publish_method, settle

ACK, REJECT, NACK = 80, 90, 120
#: Why a channel of its may be closed: refused, not found, in use or exclusive, other arguments.
EXPECTED = (403, 404, 405, 406)
#: Methods that may say that they want none.
WITHOUT_ANSWER = frozenset(
    {
        *("queue.declare", "queue.bind", "queue.purge", "queue.delete", "basic.consume"),
        *("exchange.declare", "exchange.delete", "exchange.bind", "exchange.unbind"),
    }
)
#: A quorum queue is deleted without conditions.
WITHOUT_CONDITION = (f"{EXPLORED}quorum",)
#: Its connection is closed if it is slow, where an operator says so.
FORCED = 320
#: It has at most so many deliveries and unconfirmed publishes.
HELD_MAX, WINDOW = 30, 100
#: An exchange that is there from the start. Nobody publishes to it in worlds.
PREDEFINED = "amq.direct"
#: Transient queues, and those that go with their last consumer.
TRANSIENT, AUTO_DELETED = ("other", "chosen", "listener"), ("single", "listener")


def may_hold(plan: Plan) -> bool:
    """Whether publishes of explorers may be held: for a limit, which operators may bring, or for trouble."""
    has_limits = "[flow]" in plan.configuration or "address-full-policy" in plan.configuration
    return has_limits or any(fault.kind in TROUBLING or fault.kind == FAULT for fault in plan.faults)


class Explorer(Channel):
    """`options`: queues, exchanges: the ends of names that it uses; confirms; keeps: it settles late."""

    connection_ends = (FORCED,)

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(client, number, options, seed)
        self._queues: list[str] = options["queues"]
        self._exchanges: list[str] = options["exchanges"]
        self.may_be_held = may_hold(client.world.plan)
        self._published = 0
        self._tag = 0
        self._unconfirmed: dict[int, tuple[bytes, bool]] = {}
        self._since_ns = 0
        self._held: dict[int, QueueName] = {}
        self._consumers: dict[str, str] = {}  # tag -> queue
        self._consumed = 0
        self._expects: set[str] = set()  # tags of consumers for which deliveries may come
        self._automatic: set[str] = set()  # tags of consumers that do not acknowledge
        self._newest = 0  # delivery tag
        self._is_ready = False
        self._declared_in = 0  # in which connection it declared all

    # -- life ---------------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        if self._declared_in != self.client.life:  # what is refused would be refused again, without an end
            self._declared_in = self.client.life
            for end in self._exchanges:
                self._declare_exchange(end)
            for end in self._queues:
                self._declare(end)
        self.ask("basic.qos", "basic.qos-ok", _nothing, prefetch_count=self.chance.choice((0, 1, 10)))
        if self.options["confirms"]:
            self.ask("confirm.select", "confirm.select-ok", self._begin)
        else:
            self._is_ready = True

    def _begin(self, _: Method) -> None:
        self._is_ready = True

    def lost(self) -> None:
        self._is_ready = False
        self._tag = 0
        self._unconfirmed.clear()
        self._held.clear()
        self._consumers.clear()
        self._expects.clear()
        self._automatic.clear()
        self._newest = 0

    def closed(self, code: int, text: str) -> None:
        if code not in EXPECTED:
            super().closed(code, text)
        self.world.knowledge.happened[f"explorer's channel closed: {code}"] += 1
        self.world.books.deliveries.closed(self.client.product, self.number)

    def unanswered(self) -> Question | None:
        return Question(self.number, "confirm", _nothing, self._since_ns) if self._unconfirmed else None

    def held(self) -> Counter[QueueName]:
        return Counter(self._held.values())

    def finish(self) -> None:
        if self._held and not self.client.waiting:
            tag = max(self._held)
            self._held.clear()
            self.send(settle(ACK, self.number, tag, 1))

    # -- what comes ---------------------------------------------------------------------------------------------------

    def confirmed(self, tag: int, multiple: bool, *, is_ack: bool) -> None:
        self._since_ns = self.world.schedule.now_ns
        for one in [one for one in self._unconfirmed if one <= tag] if multiple else [tag]:
            key, persistent = self._unconfirmed.pop(one)
            if is_ack and persistent:
                self.world.knowledge.confirm(key)

    def delivered(self, consumer: str, tag: int, redelivered: bool, body: bytes) -> None:
        if consumer not in self._expects:
            raise Broken(f"client {self.client.number} got a delivery for {consumer}, which it ended")
        self._arrived(consumer, tag, redelivered, body)

    def _arrived(self, consumer: str | None, tag: int, redelivered: bool, body: bytes) -> None:
        if tag != self._newest + 1:
            raise Broken(f"client {self.client.number} got delivery tag {tag} after {self._newest}")
        self._newest = tag
        self.world.knowledge.check(body)
        books = self.world.books.deliveries
        name, _ = books.arrived(self.client.product, self.number, consumer, tag, redelivered, body, self.client)
        if consumer not in self._automatic:
            self._held[tag] = name
        if len(self._held) > HELD_MAX or not self.options["keeps"]:
            self._settle()

    def returned(self, method: Method, body: bytes) -> None:
        self.world.knowledge.check(body)

    def cancelled(self, consumer: str) -> None:
        self._consumers.pop(consumer, None)
        self._expects.discard(consumer)

    # -- what it does -------------------------------------------------------------------------------------------------

    def _do(self, name: str, **arguments: Any) -> None:
        """A method, which is answered, or not if it says so."""
        if name in WITHOUT_ANSWER and self._luck(0.3):
            self.world.knowledge.operations += 1
            self.send(method_frame(self.number, name, nowait=True, **arguments))
        else:
            self.ask(name, f"{name}-ok", _nothing, **arguments)

    def act(self) -> None:
        """One thing, or several that the broker reads at once."""
        if not self._is_ready or self.client.waiting:
            return
        for _ in range(self.chance.choice((1, 1, 4))):
            what = self.chance.random()
            if what < 0.35:
                self._publish()
            elif what < 0.5:
                self._settle()
            else:
                self.chance.choice(_ACTS)(self)

    def _queue(self) -> str:
        if self.chance.random() < 0.1:
            return f"{CONFIGURED}{self.chance.choice('12')}"
        return f"{EXPLORED}{self.chance.choice(self._queues)}"

    def _exchange(self) -> str:
        return f"{EXPLORED}{self.chance.choice(self._exchanges)}"

    def _declare_again(self) -> None:
        if self._luck(0.5):
            self._declare(self.chance.choice(self._queues))
        else:
            self._declare_exchange(self.chance.choice(self._exchanges))

    def _declare(self, end: str) -> None:
        self._do(
            "queue.declare",
            queue=f"{EXPLORED}{end}", durable=end not in TRANSIENT, auto_delete=end in AUTO_DELETED,
            arguments=QUEUES[end],
        )  # fmt: skip

    def _declare_exchange(self, end: str) -> None:
        kind, arguments = EXCHANGES[end]
        self._do(
            "exchange.declare",
            exchange=f"{EXPLORED}{end}", type=kind, durable=end != "random", internal=end == "inner",
            auto_delete=end == "hash", arguments=arguments,
        )  # fmt: skip

    def _bind(self) -> None:
        self._bind_or_not("bind")

    def _unbind(self) -> None:
        self._bind_or_not("unbind")

    def _bind_or_not(self, what: str) -> None:
        chance, end = self.chance, self.chance.choice(self._exchanges)
        arguments = {"x-match": ("S", "all"), "of": ("S", chance.choice("ab"))} if end == "headers" else {}
        key = "1" if end == "hash" else chance.choice(PATTERNS)
        more = {"routing_key": key, "arguments": arguments}
        source = f"{EXPLORED}{end}" if chance.random() < 0.8 else PREDEFINED
        if chance.random() < 0.7:
            self._do(f"queue.{what}", queue=self._queue(), exchange=source, **more)
            return
        destination = self._exchange()
        self._do(f"exchange.{what}", destination=destination, source=source, **more)

    def _delete(self) -> None:
        if self.chance.random() < 0.6:
            queue = self._queue()
            self._do("queue.delete", queue=queue, if_unused=queue not in WITHOUT_CONDITION and self._luck(0.3))
        else:
            self._do("exchange.delete", exchange=self._exchange(), if_unused=self._luck(0.5))

    def _luck(self, share: float) -> bool:
        return self.chance.random() < share

    def _purge(self) -> None:
        self._do("queue.purge", queue=self._queue())

    def _consume(self) -> None:
        if len(self._consumers) >= CONSUMERS_MAX:
            self._replace() if LEASED in self._consumers.values() and self._luck(0.5) else self._cancel()
            return
        chance = self.chance
        self._consumed += 1
        tag, queue = f"explorer-{self.client.number}-{self._consumed}", self._queue()
        arguments: dict[str, Any] = {"x-priority": ("I", chance.choice((-1, 5)))} if self._luck(0.3) else {}
        self._consumers[tag] = queue
        self._expects.add(tag)
        if no_ack := queue != LEASED and self._luck(0.3):
            self._automatic.add(tag)
        self._do(
            "basic.consume",
            queue=queue, consumer_tag=tag, no_ack=no_ack, exclusive=queue != LEASED and self._luck(0.1),
            arguments=arguments,
        )  # fmt: skip

    def _replace(self) -> None:
        """A consumer of a leased queue by another one, for which its limits have room."""
        tag = self.chance.choice([tag for tag, queue in self._consumers.items() if queue == LEASED])

        def replaced(_: Method) -> None:
            self._consumers[tag] = LEASED
            self._expects.add(tag)  # it may have been cancelled before

        arguments = {"x-replace": ("t", True), "x-priority": ("I", self.chance.choice((-1, 5)))}
        self.ask("basic.consume", "basic.consume-ok", replaced, queue=LEASED, consumer_tag=tag, arguments=arguments)

    def _cancel(self) -> None:
        if self._consumers:
            tag = self.chance.choice(list(self._consumers))
            del self._consumers[tag]
            self.ask("basic.cancel", "basic.cancel-ok", lambda _: self._expects.discard(tag), consumer_tag=tag)

    def _flow(self) -> None:
        """What comes for its consumers waits meanwhile, or no longer."""
        self.ask("channel.flow", "channel.flow-ok", _nothing, active=self._luck(0.6))

    def _get(self) -> None:
        self.ask("basic.get", "basic.get-ok|basic.get-empty", self._got, queue=self._queue())

    def _got(self, method: Method) -> None:
        if method.name == "basic.get-ok":
            self._arrived(None, method["delivery_tag"], method["redelivered"], method["body"])

    def _settle(self) -> None:
        """One or several of what it has, in some way."""
        if not self._held:
            return
        chance = self.chance
        tag, what = chance.choice(list(self._held)), chance.random()
        if what < 0.4:
            for one in [one for one in self._held if one <= tag]:
                del self._held[one]
            self.send(settle(ACK, self.number, tag, 1))
            return
        del self._held[tag]
        if what < 0.7:
            self.send(settle(ACK, self.number, tag, 0))
        elif what < 0.85:
            self.send(settle(NACK, self.number, tag, chance.choice((0, 2))))
        else:
            self.send(settle(REJECT, self.number, tag, chance.choice((0, 1))))

    def _publish(self) -> None:
        chance, knowledge = self.chance, self.world.knowledge
        if self.client.blocked or len(self._unconfirmed) > WINDOW:
            return
        publisher = publisher_of(self.client.number, self.number, self.client.life)
        exchange, key = self._exchange(), chance.choice(KEYS)
        if chance.random() < 0.4:
            exchange, key = "", chance.choice((self._queue(), f"{EXPLORED}shared", f"{CONFIGURED}place"))
        parts = []
        for _ in range(chance.choice((1, 3, 10))):
            self._published += 1
            name = key_of(publisher, self._published)
            size = chance.choice((0, 10, 100, 1000))
            knowledge.publish(name, size)
            knowledge.operations += 1
            self.world.books.routing.again.add(name)  # diverts make copies, which come to other queues or the same
            persistent = self._luck(0.8)
            if self.options["confirms"]:
                if not self._unconfirmed:
                    self._since_ns = self.world.schedule.now_ns
                self._tag += 1
                self._unconfirmed[self._tag] = name, persistent
            parts.append(publish_method(self.number, exchange, key, mandatory=self._luck(0.2)))
            head = properties(persistent=persistent, **self._properties())
            parts.append(content(self.number, head, body_of(name, size), self.client.frame_max))
        self.send(b"".join(parts))

    def _properties(self) -> dict[str, Any]:
        chance, more, headers = self.chance, dict[str, Any](), dict[str, Any]()
        if self._luck(0.2):
            more["priority"] = chance.randrange(5)
        if self._luck(0.1):
            more["expiration"] = chance.choice(("0", "100"))
        if self._luck(0.4):
            headers["of"] = chance.choice("ab")
        if self._luck(0.1):
            headers["x-delay"] = chance.choice((20, 200))
        if self._luck(0.1):
            headers[chance.choice(("CC", "BCC"))] = [chance.choice((*KEYS, "e.plain", "e.ranked"))]
        return more | ({"headers": headers} if headers else {})


def _nothing(_: Method) -> None:
    """Any answer will do."""


_ACTS = (
    *[Explorer._declare_again] * 3,
    *[Explorer._bind] * 4,
    *[Explorer._unbind] * 2,
    *[Explorer._consume] * 3,
    *[Explorer._delete] * 2,
    Explorer._purge,
    Explorer._cancel,
    *[Explorer._flow] * 2,
    *[Explorer._get] * 4,
)
