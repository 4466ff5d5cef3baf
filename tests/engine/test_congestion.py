"""Which publishes crowd a queue: only those that leave too much in one from which somebody consumes."""

from __future__ import annotations

import pytest

from leveret.engine import Broker, BrokerOptions, Envelope, Field, ManualClock, Queue, Session, User
from leveret.engine.messages.content import PLAIN, encode_header

USER = User("guest")
READY_MAX = 3


class Bench:
    """Queues by name; `consumer` has one message of each queue that it consumes from, and acknowledges nothing."""

    def __init__(self) -> None:
        options = BrokerOptions(busy_queue_ready_max=READY_MAX)
        self.broker = Broker(ManualClock(), options=options, unsent_max=1 << 40)
        self.vhost = self.broker.virtual_hosts["/"]
        self.publisher, self.consumer = self.session(), self.session()
        self.consumer.limit(1, total=False)

    def session(self) -> Session:
        client = self.broker.connections.open("/", USER, name="c", flush=lambda: None)
        return client.open_session()

    def queue(self, name: str, *, is_consumed: bool = True, **arguments: Field) -> Queue:
        spelled = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        queue = self.vhost.queues.declare(name, client=self.publisher.client, arguments=spelled)  # type: ignore[arg-type]
        if is_consumed:
            self.consumer.consume(queue, name, no_ack=False, exclusive=False, arguments={})
            self.end_turn()
        return queue

    def publish(self, name: str, count: int, exchange: str = "") -> None:
        contents = [PLAIN.join(encode_header(0), b"")] * count
        self.publisher.publish(
            self.vhost.router.route(exchange, name, USER), Envelope(exchange, name), contents, mandatory=False
        )

    def end_turn(self) -> None:
        while self.broker.end_turn():
            pass

    @property
    def congested(self) -> str | None:
        queue = self.broker.context.congestion.queue
        return None if queue is None else queue.name


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("arguments", [{}, {"max_length": Field("I", 100)}, {"max_priority": Field("I", 3)}])
def test_more_than_the_maximum_crowds_a_queue_with_consumers(bench: Bench, arguments: dict[str, Field]) -> None:
    bench.queue("q", **arguments)
    bench.publish("q", 1 + READY_MAX)
    assert bench.congested is None
    bench.publish("q", 1)
    assert bench.congested == "q"


@pytest.mark.parametrize(
    "arguments",
    [{"non_destructive": Field("t", True)}, {"last_value_key": Field("S", b"k"), "non_destructive": Field("t", True)}],
)
def test_a_queue_that_keeps_its_messages_is_never_congested(bench: Bench, arguments: dict[str, Field]) -> None:
    """They do not leave it, however much is taken."""
    bench.queue("q", **arguments)
    bench.publish("q", 10 * READY_MAX)
    assert bench.congested is None


def test_without_consumers_a_queue_is_there_to_wait_in(bench: Bench) -> None:
    bench.queue("q", is_consumed=False)
    bench.publish("q", 10 * READY_MAX)
    assert bench.congested is None


@pytest.mark.parametrize("order", ["abc", "cab", "bca"])
def test_the_longest_one_is_told(bench: Bench, order: str) -> None:
    for name in "abc":
        bench.queue(name)
    for name in order:
        bench.publish(name, 1 + READY_MAX + {"a": 2, "b": 7, "c": 4}[name])
    assert bench.congested == "b"


def test_exchanges_behind_exchanges_are_its_own_publishes(bench: Bench) -> None:
    bench.queue("q")
    bench.vhost.exchanges.declare("behind", "fanout")
    bench.vhost.bindings.add("exchange", "behind", "amq.fanout", "", {})
    bench.vhost.bindings.add("queue", "q", "behind", "", {})
    bench.publish("", 2 + READY_MAX, exchange="amq.fanout")
    assert bench.congested == "q"


def test_a_commit_is_its_own_publishes(bench: Bench) -> None:
    bench.queue("q")
    bench.publisher.select_transactions()
    bench.publish("q", 2 + READY_MAX)
    assert bench.congested is None
    bench.publisher.commit()
    assert bench.congested == "q"


def test_dead_letters_are_nobodys_publishes(bench: Bench) -> None:
    """Also where somebody's get has them published before the turn ends."""
    dead = bench.queue("dead")
    bench.publish("dead", 1 + READY_MAX)
    limited = bench.queue(
        "q",
        is_consumed=False,
        max_length=Field("I", 1),
        dead_letter_exchange=Field("S", b""),
        dead_letter_routing_key=Field("S", b"dead"),
    )
    bench.publish("q", 3)
    assert bench.congested is None
    assert bench.publisher.get(limited, no_ack=True) is not None
    assert dead.ready_count > READY_MAX and bench.congested is None


def test_returned_messages_do_not_crowd_a_queue(bench: Bench) -> None:
    queue = bench.queue("q", is_consumed=False)
    bench.publish("q", 2 * READY_MAX)
    for _ in range(2 * READY_MAX):
        bench.publisher.get(queue, no_ack=False)
    bench.consumer.consume(queue, "q", no_ack=False, exclusive=False, arguments={})
    bench.publisher.recover()
    assert queue.ready_count > READY_MAX and bench.congested is None


def test_another_maximum_holds_at_once(bench: Bench) -> None:
    bench.queue("q")
    bench.broker.reloading.replace_settings(bench.broker.context.settings, BrokerOptions(busy_queue_ready_max=100))
    bench.publish("q", 10 * READY_MAX)
    assert bench.congested is None
    bench.broker.reloading.replace_settings(bench.broker.context.settings, BrokerOptions(busy_queue_ready_max=1))
    bench.publish("q", 1)
    assert bench.congested == "q"
