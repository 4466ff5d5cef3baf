"""Which publishes crowd a queue: only those that leave too much in one from which somebody consumes."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.engine import BrokerOptions, Queue
from leveret.testing.harness import Harness

READY_MAX = 3


class Bench(Harness):
    """Queues by name; `consumer` has one message of each queue that it consumes from, and acknowledges nothing."""

    ends_turns = False

    def __init__(self) -> None:
        super().__init__(options=BrokerOptions(busy_queue_ready_max=READY_MAX), unsent_max=1 << 40)
        self.consumer = self.connect("c")
        self.consumer.set_prefetch(1, total=False)

    def queue(self, name: str = "q", *, is_consumed: bool = True, **arguments: Any) -> Queue:
        queue = super().queue(name, durable=False, client=self.client, **arguments)
        if is_consumed:
            self.consume(queue, name, by=self.consumer)
            self.end_turn()
        return queue

    def fill(self, name: str, count: int, exchange: str = "") -> None:
        self.publish(*[b""] * count, key=name, exchange=exchange)

    @property
    def congested(self) -> str | None:
        queue = self.broker.context.turn.congested
        return None if queue is None else queue.name


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("arguments", [{}, {"x_max_length": 100}, {"x_max_priority": 3}])
def test_more_than_the_maximum_crowds_a_queue_with_consumers(bench: Bench, arguments: dict[str, Any]) -> None:
    bench.queue("q", **arguments)
    bench.fill("q", 1 + READY_MAX)
    assert bench.congested is None
    bench.fill("q", 1)
    assert bench.congested == "q"


@pytest.mark.parametrize(
    "arguments",
    [{"x_non_destructive": True}, {"x_last_value_key": "k", "x_non_destructive": True}],
)
def test_a_queue_that_keeps_its_messages_is_never_congested(bench: Bench, arguments: dict[str, Any]) -> None:
    """They do not leave it, however much is taken."""
    bench.queue("q", **arguments)
    bench.fill("q", 10 * READY_MAX)
    assert bench.congested is None


def test_without_consumers_a_queue_is_there_to_wait_in(bench: Bench) -> None:
    bench.queue("q", is_consumed=False)
    bench.fill("q", 10 * READY_MAX)
    assert bench.congested is None


@pytest.mark.parametrize("order", ["abc", "cab", "bca"])
def test_the_longest_one_is_told(bench: Bench, order: str) -> None:
    for name in "abc":
        bench.queue(name)
    for name in order:
        bench.fill(name, 1 + READY_MAX + {"a": 2, "b": 7, "c": 4}[name])
    assert bench.congested == "b"


def test_exchanges_behind_exchanges_are_its_own_publishes(bench: Bench) -> None:
    bench.queue("q")
    bench.vhost.exchanges.declare("behind", "fanout")
    bench.vhost.bindings.add("exchange", "behind", "amq.fanout", "", {})
    bench.bind("q", "behind")
    bench.fill("", 2 + READY_MAX, exchange="amq.fanout")
    assert bench.congested == "q"


def test_a_commit_is_its_own_publishes(bench: Bench) -> None:
    bench.queue("q")
    bench.session.select_transactions()
    bench.fill("q", 2 + READY_MAX)
    assert bench.congested is None
    bench.session.commit()
    assert bench.congested == "q"


def test_dead_letters_are_nobodys_publishes(bench: Bench) -> None:
    """Also where somebody's get has them published before the turn ends."""
    dead = bench.queue("dead")
    bench.fill("dead", 1 + READY_MAX)
    limited = bench.queue(
        "q",
        is_consumed=False,
        x_max_length=1,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="dead",
    )
    bench.fill("q", 3)
    assert bench.congested is None
    assert bench.session.get(limited, no_ack=True) is not None
    assert dead.ready_count > READY_MAX and bench.congested is None


def test_returned_messages_do_not_crowd_a_queue(bench: Bench) -> None:
    queue = bench.queue("q", is_consumed=False)
    bench.fill("q", 2 * READY_MAX)
    for _ in range(2 * READY_MAX):
        bench.session.get(queue, no_ack=False)
    bench.consume(queue, "q", by=bench.consumer)
    bench.session.recover()
    assert queue.ready_count > READY_MAX and bench.congested is None


def test_another_maximum_holds_at_once(bench: Bench) -> None:
    bench.queue("q")
    bench.broker.reloading.replace_settings(bench.broker.context.settings, BrokerOptions(busy_queue_ready_max=100))
    bench.fill("q", 10 * READY_MAX)
    assert bench.congested is None
    bench.broker.reloading.replace_settings(bench.broker.context.settings, BrokerOptions(busy_queue_ready_max=1))
    bench.fill("q", 1)
    assert bench.congested == "q"
