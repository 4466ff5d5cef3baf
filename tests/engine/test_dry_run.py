"""A dry run says where a message goes: then it goes there, through whatever is between.

Source: management page 16.
"""

import random

import pytest

from leveret.engine import (
    NATIVE,
    Broker,
    Envelope,
    Field,
    FieldTable,
    ManualClock,
    User,
    encode_header,
    scan_properties,
)
from leveret.testing.harness import Harness, messages

ME = User("me")
KINDS = ("direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message")
KEYS = ("a", "a.b", "b", "b.c.d", "")
PATTERNS = ("#", "*", "a.#", "*.b", "b.*.d", "a")


class World:
    """Exchanges of all kinds bound to each other and to queues."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.broker = Broker(ManualClock(), chance=chance.random)
        self.vhost = vhost = self.broker.virtual_hosts["/"]
        self.session = self.broker.connections.open("/", ME, name="me", flush=lambda: None).open_session()
        self.exchanges = [f"e{at}" for at in range(6)]
        for name in self.exchanges:
            kind = chance.choice(KINDS)
            arguments: FieldTable = {}
            if kind == "x-delayed-message":
                arguments["x-delayed-type"] = Field("S", b"topic")
            if chance.random() < 0.4:
                arguments["alternate-exchange"] = Field("S", chance.choice(self.exchanges).encode())
            vhost.exchanges.declare(name, kind, arguments=arguments)
        self.queues = [f"q{at}" for at in range(6)]
        for name in self.queues:
            vhost.queues.create(name, is_auto_created=False)
        for _ in range(14):
            self._bind()

    def _bind(self) -> None:
        chance, vhost = self.chance, self.vhost
        source = vhost.exchanges[chance.choice(self.exchanges)]
        key, arguments = chance.choice(PATTERNS), {}
        if source.type == "x-consistent-hash":
            key = str(chance.randrange(1, 4))
        elif source.type == "headers":
            arguments = self.headers()
            arguments["x-match"] = Field("S", chance.choice((b"all", b"any")))
        if chance.random() < 0.6:
            vhost.bindings.add("queue", chance.choice(self.queues), source.name, key, arguments)
        else:
            vhost.bindings.add("exchange", chance.choice(self.exchanges), source.name, key, arguments)

    def headers(self) -> FieldTable:
        """One, two or none."""
        return {
            name: Field("l", self.chance.randrange(2))
            for name in self.chance.sample(("h", "i"), self.chance.randrange(3))
        }


@pytest.mark.parametrize("seed", range(12))
def test_it_goes_where_the_dry_run_says(seed: int) -> None:
    """Queues, and what is in them; looking changes no counter."""
    world = World(seed)
    for _ in range(20):
        exchange, key = world.chance.choice(["", *world.exchanges]), world.chance.choice((*KEYS, *world.queues))
        header = encode_header(1, {"headers": world.headers()})
        envelope, content = Envelope(exchange, key, scan_properties(header[12:])), NATIVE.join(header, b"x")
        counters = world.broker.context.counters.as_dict()
        run = world.vhost.dry_run(envelope, content, ME)
        for _ in run.steps():
            pass
        assert world.broker.context.counters.as_dict() == counters
        before = {name: world.vhost.queues[name].ready_count for name in world.queues}
        world.session.publish(world.vhost.router.route(exchange, key, ME), envelope, [content], mandatory=False)
        got = [name for name in world.queues if world.vhost.queues[name].ready_count > before[name]]
        assert sorted(queue.name for queue in run.route.queues) == got
        assert all(run.outcome_at(queue) == ("ready", None) for queue in run.route.queues)


@pytest.mark.parametrize("has_consumer, outcome", [(False, "drops the oldest"), (True, "ready")])
def test_it_says_that_a_full_queue_drops_its_oldest(has_consumer: bool, outcome: str) -> None:
    """Unless a consumer takes the message first."""
    world = Harness()
    queue = world.queue(x_max_length=0)
    if has_consumer:
        world.consume()
    summary, (content,) = messages(["a"], {})
    run = world.vhost.dry_run(world.envelope("", "q", summary), content, ME)
    for _ in run.steps():
        pass
    assert run.outcome_at(queue) == (outcome, None)
