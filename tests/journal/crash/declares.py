"""Queues, exchanges and bindings that come and go under load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pamqp import base, commands, frame

from .content import FANOUT
from .line import DECLARING, Line
from .truth import Fact
from .world import (
    FANOUT_QUEUES,
    QUEUES,
    STREAM,
    World,
    binding_fact,
    exchange_fact,
    queue_fact,
)

#: Names are used again.
NAMES = 6
STREAM_LENGTH_MAX = 1500
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"x-queue-type": "quorum"},
    {"x-max-priority": 5},
    {"x-message-ttl": 86_400_000},
    {"x-ring-size": 100_000},
]


def declare_all(line: Line, world: World) -> None:
    """What is always there, if it is not yet; waits for the answers."""

    def make(fact: Fact, method: base.Frame, kind: type[base.Frame]) -> None:
        if fact not in world.truth.now:
            operation = world.did(line.number, f"declare {fact}", adds=(fact,))
            line.wire.ask(method, kind, channel=DECLARING)
            world.truth.answered(operation)

    fanout = commands.Exchange.Declare(exchange=FANOUT, exchange_type="fanout", durable=True)
    make(exchange_fact(FANOUT, "fanout", {}), fanout, commands.Exchange.DeclareOk)
    for name, arguments in QUEUES.items():
        declare = commands.Queue.Declare(queue=name, durable=True, arguments=arguments)
        make(queue_fact(name, arguments), declare, commands.Queue.DeclareOk)
    for name in FANOUT_QUEUES:
        bind = commands.Queue.Bind(queue=name, exchange=FANOUT, routing_key="")
        make(binding_fact(FANOUT, "queue", name, ""), bind, commands.Queue.BindOk)


class Declares:
    """Line 0's, on its channel for that."""

    def __init__(self, line: Line, world: World, unconsumed: set[str]) -> None:
        self._line = line
        self._world = world
        self._purgeable = sorted(unconsumed & {"first", "timed", "later"})
        self._soft: list[str] = []

    def some(self) -> bytes:
        """The frames of one operation, or of none."""
        actions: list[Callable[[], bytes]] = [
            self._declare_queue,
            self._delete_queue,
            self._declare_exchange,
            self._delete_exchange,
            self._bind,
            self._bind,
            self._unbind,
            self._fill_queue,
            self._transient,
            self._stream,
        ]
        if self._purgeable:
            actions.append(self._purge)
        return self._world.chance.choice(actions)()

    def _there(self, what: str, prefix: str = "") -> list[Fact]:
        now = self._world.truth.now
        return sorted(fact for fact in now if fact[0] == what and str(fact[1]).startswith(prefix))

    def _send(self, method: base.Frame, what: str, adds: list[Fact], removes: list[Fact]) -> bytes:
        self._line.asked.append(self._world.did(self._line.number, what, adds, removes))
        return frame.marshal(method, DECLARING)

    def _free_name(self, what: str, prefix: str) -> str:
        known = {fact[1] for fact in self._there(what)}
        return next((f"{prefix}{at}" for at in range(NAMES) if f"{prefix}{at}" not in known), "")

    def _declare_queue(self) -> bytes:
        world = self._world
        name = self._free_name("queue", "t")
        if not name:
            return b""
        # A queue that comes back under its name is another one: the argument tells them apart.
        arguments = {**world.chance.choice(ARGUMENTS), "x-expires": 10_000_000 + world.next_name}
        world.new_name("t")
        declare = commands.Queue.Declare(queue=name, durable=True, arguments=arguments)
        return self._send(declare, f"declare {name}", [queue_fact(name, arguments)], [])

    def _delete_queue(self) -> bytes:
        there = [fact for fact in self._there("queue", "t") if fact[1] not in QUEUES]
        if not there:
            return b""
        return self._delete(self._world.chance.choice(there))

    def _delete(self, queue: Fact) -> bytes:
        name = str(queue[1])
        bound = [fact for fact in self._there("binding") if fact[2:4] == ("queue", name)]
        removes = [queue, *bound, *self._world.messages_in(name)]
        return self._send(commands.Queue.Delete(queue=name), f"delete {name}", [], removes)

    def _fill_queue(self) -> bytes:
        chance = self._world.chance
        there = [str(fact[1]) for fact in self._there("queue", "t") if fact[1] not in QUEUES]
        if not there:
            return b""
        name = chance.choice(there)
        return b"".join(self._line.publish(name) for _ in range(chance.randrange(60)))

    def _declare_exchange(self) -> bytes:
        world = self._world
        name = self._free_name("exchange", "x")
        if not name:
            return b""
        kind, arguments = world.chance.choice(("fanout", "direct", "topic", "headers")), {"number": world.next_name}
        world.new_name("x")
        declare = commands.Exchange.Declare(exchange=name, exchange_type=kind, durable=True, arguments=arguments)
        return self._send(declare, f"declare {name}", [exchange_fact(name, kind, arguments)], [])

    def _delete_exchange(self) -> bytes:
        there = self._there("exchange", "x")
        if not there:
            return b""
        fact = self._world.chance.choice(there)
        name = fact[1]
        bound = [one for one in self._there("binding") if one[1] == name or one[2:4] == ("exchange", name)]
        return self._send(commands.Exchange.Delete(exchange=str(name)), f"delete {name}", [], [fact, *bound])

    def _bind(self) -> bytes:
        chance = self._world.chance
        exchanges = [str(fact[1]) for fact in self._there("exchange", "x")]
        queues = [str(fact[1]) for fact in self._there("queue")]
        if not exchanges or not queues or len(self._there("binding")) > 40:
            return b""
        source, key = chance.choice(exchanges), self._world.new_name("key.")
        method: base.Frame
        if chance.random() < 0.7:
            target_type, target = "queue", chance.choice(queues)
            method = commands.Queue.Bind(queue=target, exchange=source, routing_key=key)
        else:
            target_type, target = "exchange", chance.choice(exchanges)
            method = commands.Exchange.Bind(destination=target, source=source, routing_key=key)
        return self._send(method, f"bind {key}", [binding_fact(source, target_type, target, key)], [])

    def _unbind(self) -> bytes:
        there = self._there("binding", "x")
        if not there:
            return b""
        fact = self._world.chance.choice(there)
        source, target_type, target, key = map(str, fact[1:])
        method: base.Frame = commands.Queue.Unbind(queue=target, exchange=source, routing_key=key)
        if target_type == "exchange":
            method = commands.Exchange.Unbind(destination=target, source=source, routing_key=key)
        return self._send(method, f"unbind {key}", [], [fact])

    def _transient(self) -> bytes:
        """Of these nothing is left."""
        name = self._world.new_name("soft")
        is_exclusive = self._world.chance.random() < 0.5
        octets = frame.marshal(
            commands.Queue.Declare(queue=name, durable=is_exclusive, exclusive=is_exclusive), DECLARING
        )
        octets += frame.marshal(commands.Exchange.Declare(exchange=name, exchange_type="fanout"), DECLARING)
        octets += frame.marshal(commands.Queue.Bind(queue=name, exchange=name, routing_key=""), DECLARING)
        octets += frame.marshal(commands.Queue.Bind(queue="a", exchange=name, routing_key=""), DECLARING)
        self._line.asked.extend((None, None, None, None))
        return octets

    def _stream(self) -> bytes:
        """A new one, when there is none, or this one has become long."""
        world = self._world
        if not world.stream:
            world.stream = world.new_name("log")
            declare = commands.Queue.Declare(queue=world.stream, durable=True, arguments=STREAM)
            return self._send(declare, f"declare {world.stream}", [queue_fact(world.stream, STREAM)], [])
        if len(world.messages_in(world.stream)) < STREAM_LENGTH_MAX:
            return b""
        gone, world.stream = world.stream, ""
        return self._delete(queue_fact(gone, STREAM))

    def _purge(self) -> bytes:
        name = self._world.chance.choice(self._purgeable)
        removes = self._world.messages_in(name)
        if not removes:
            return b""
        return self._send(commands.Queue.Purge(queue=name), f"purge {name}", [], removes)
