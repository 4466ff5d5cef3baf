"""Deliveries that nobody settles, on virtual time (behaviour page 2.16)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from leveret.engine import BrokerOptions, ConsumerCancelled, Session, SessionFailed
from leveret.engine.clients import acknowledgement_timeout, session, settling
from leveret.engine.clients.acknowledgement_timeout import NOTES_MAX, Notes
from leveret.settings import Policies, make_policy
from leveret.testing.harness import Harness


class Bench(Harness):
    """A broker, a client, and the queue q."""

    def __init__(self, timeout_ms: int | None = 10_000, **arguments: int) -> None:
        super().__init__(options=BrokerOptions(consumer_timeout_ms=timeout_ms))
        self.q = self.queue(durable=False, client=self.client, **arguments)

    def connect(self, name: str = "client", *, flush: Callable[[], object] | None = None) -> Session:
        """What it is sent stays in its outbox."""
        return super().connect(name, flush=flush or (lambda: None))

    def wait(self, seconds: float) -> None:
        """Time passes, a tenth of a second at a time."""
        for _ in range(round(seconds * 10)):
            self.advance(100)

    def failures_seen(self) -> list[int]:
        """Time-outs in ms that ended sessions."""
        effects = self.client.take_outbox()
        assert not any(isinstance(effect, ConsumerCancelled) for effect in effects)
        return [effect.error.timeout_ms for effect in effects if isinstance(effect, SessionFailed)]  # type: ignore[attr-defined]


def test_a_delivery_in_time_and_one_too_late() -> None:
    """Between the time-out and a quarter more; what it held is ready again."""
    bench = Bench()
    bench.consume()
    for _ in range(3):
        bench.publish("m")
        bench.wait(9)
        assert bench.failures_seen() == []
        bench.session.ack(0, multiple=True)
    bench.publish("m", "m")
    bench.wait(9.9)
    assert bench.failures_seen() == []
    bench.wait(2.7)
    assert bench.failures_seen() == [10_000]
    assert (bench.q.ready_count, bench.q.unacked, bench.q.consumers) == (2, 0, [])
    assert bench.session not in bench.client.sessions


@pytest.mark.parametrize("arguments", [{}, {"x_queue_type": "stream"}], ids=str)
@pytest.mark.parametrize("default_ms", [None, 1_800_000])
def test_a_policy_shortens_the_timeout_of_deliveries_that_are_out(
    default_ms: int | None, arguments: dict[str, str]
) -> None:
    """As in RabbitMQ, whose checks ask for the policy in force."""
    bench = Harness(options=BrokerOptions(consumer_timeout_ms=default_ms))
    bench.queue(client=bench.client, **arguments)
    bench.session.set_prefetch(10, total=False)
    bench.consume()
    bench.publish("m")
    policy = make_policy("p", "/", "^q$", {"consumer-timeout": 10_000})
    bench.broker.reloading.replace_policies(Policies([policy]))
    for _ in range(150):
        bench.advance(100)
    assert bench.session not in bench.client.sessions


def test_one_old_delivery_among_many_young_ones() -> None:
    """A busy consumer that has forgotten one message is found out as well, and notes stay few."""
    bench = Bench()
    bench.consume()
    bench.publish("m")
    for tag in range(2, 120):
        bench.publish("m")
        bench.session.ack(tag)
        bench.wait(0.1)
    assert bench.failures_seen() == []
    bench.wait(1)
    assert bench.failures_seen() == [10_000]


@pytest.mark.parametrize(
    "of_broker, of_queue, of_consumer, expected",
    [
        (None, None, None, []),
        (10_000, None, None, [10_000]),
        (10_000, 2_000, None, [2_000]),
        (10_000, 2_000, 1_000, [1_000]),
        (10_000, 2_000, 30_000, [30_000]),
        (10_000, 0, None, []),
        (10_000, 2_000, 0, []),
        (None, None, 3_000, [3_000]),
    ],
)
def test_whose_word_counts(
    of_broker: int | None, of_queue: int | None, of_consumer: int | None, expected: list[int]
) -> None:
    """The consumer's argument, else the queue's, else the broker's; 0 is for ever."""
    bench = Bench(of_broker, **({} if of_queue is None else {"x_consumer_timeout": of_queue}))
    bench.consume(**({} if of_consumer is None else {"x_consumer_timeout": of_consumer}))
    bench.publish("m")
    bench.wait(50)
    assert bench.failures_seen() == expected


def test_what_a_transaction_acknowledges_does_not_time_out() -> None:
    """As in RabbitMQ, which asks for the oldest delivery that no ack names, committed or not. The others do."""
    bench = Bench()
    bench.session.select_transactions()
    bench.consume()
    bench.publish("m", "m", by=bench.client.open_session())
    bench.session.ack(1)
    bench.session.ack(2)
    bench.wait(30)
    assert bench.failures_seen() == [] and bench.q.unacked == 2
    bench.session.roll_back()
    bench.session.ack(1)
    bench.wait(13)
    assert bench.failures_seen() == [10_000]


@pytest.mark.parametrize("order", [(30_000, 2_000), (2_000, 30_000), (30_000, 8_000, 2_000)])
def test_the_shortest_of_several_is_met(order: tuple[int, ...]) -> None:
    """Whichever consumer came first: looks are as frequent as the shortest time-out needs."""
    bench = Bench(None)
    for number, timeout_ms in enumerate(order):
        bench.consume(tag=f"t{number}", x_consumer_timeout=timeout_ms)
    bench.publish(*"m" * len(order))
    bench.wait(3.5)
    assert bench.failures_seen() == [2_000]


@pytest.mark.parametrize("way", ["consumes", "gets", "consumes later"])
def test_a_time_out_that_comes_with_a_reload(way: str) -> None:
    """There was none: it holds for what is out already, and for what comes."""
    bench = Bench(None)
    if way == "consumes":
        bench.consume()
    bench.publish("m")
    if way == "gets":
        bench.session.get(bench.q, no_ack=False)
    bench.wait(60)
    context = bench.broker.context
    bench.broker.reloading.replace_settings(context.settings, replace(context.options, consumer_timeout_ms=10_000))
    if way == "consumes later":
        bench.consume()
    bench.wait(9)
    assert bench.failures_seen() == []
    bench.wait(7)
    assert bench.failures_seen() == [10_000]


def test_a_message_that_was_got() -> None:
    """basic.get without no_ack as well."""
    bench = Bench()
    bench.publish("m")
    assert bench.session.get(bench.q, no_ack=False) is not None
    bench.wait(13)
    assert bench.failures_seen() == [10_000]


def test_nobody_looks_when_there_is_nothing_to_look_at() -> None:
    """No deadline without consumers and deliveries."""
    bench = Bench()
    assert bench.broker.next_deadline_ns() is None
    bench.consume()
    assert bench.broker.next_deadline_ns() is not None
    bench.session.cancel("c")
    assert bench.broker.next_deadline_ns() is None
    bench.publish("m")
    bench.session.get(bench.q, no_ack=False)
    bench.session.ack(1)
    bench.wait(10)
    assert bench.broker.next_deadline_ns() is None
    bench.consume()
    bench.client.close()
    assert bench.broker.next_deadline_ns() is None


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize(
    "leaves", ["cancels", "closes its channel", "hangs up", "loses its queue", "cancels and comes again"]
)
def test_who_stays_is_still_looked_at(leaves: str, holds: bool) -> None:
    """Another consumer leaves, however that is, and whether it had anything: what comes later is timed out as ever."""
    bench = Bench()
    bench.consume(tag="stays")
    session = bench.connect("o")
    other = session.client
    queue = bench.queue("other", client=other, durable=False)
    for _ in range(1 + (leaves == "cancels and comes again")):
        bench.consume(queue, "leaves", by=session)
        if holds:
            bench.publish("m", key="other", by=session)
            session.ack(0, multiple=True)
        if leaves.startswith("cancels"):
            session.cancel("leaves")
        elif leaves == "closes its channel":
            session.close()
        elif leaves == "hangs up":
            other.close(failed=True)
        else:
            other.vhost.queues.delete("other", other)
    bench.wait(5)
    bench.publish("m")
    bench.wait(13)
    assert bench.failures_seen() == [10_000]


@pytest.mark.parametrize("leaves", ["cancels", "loses its queue"])
def test_a_consumer_that_acknowledges_nothing_ends_no_checks(leaves: str) -> None:
    """It leaves: those that stay are timed out as ever."""
    bench = Bench()
    bench.consume(tag="stays")
    queue = bench.queue("other", client=bench.client, durable=False)
    bench.consume(queue, "leaves", no_ack=True)
    if leaves == "cancels":
        bench.session.cancel("leaves")
    else:
        bench.vhost.queues.delete("other", bench.client)
        bench.client.take_outbox()
    bench.publish("m")
    bench.wait(13)
    assert bench.failures_seen() == [10_000]


def test_notes_are_bounded() -> None:
    """However long a delivery stays out; the time of an old one only gets later."""
    notes = Notes()
    for look in range(1, 10_000):
        notes.add(look, 10 * look, 5)
        assert len(notes.times_ns) <= NOTES_MAX
    assert notes.delivered_ns(5) == 1
    assert notes.delivered_ns(99_990) is None
    for tag in range(10, 99_000, 777):
        delivered = notes.delivered_ns(tag)
        assert delivered is None or delivered >= tag // 10


def test_what_the_last_consumer_leaves_unacknowledged_is_timed_out() -> None:
    """No consumer is left to look after, but its delivery is."""
    bench = Bench()
    bench.consume()
    bench.publish("m")
    bench.session.cancel("c")
    bench.wait(13)
    assert bench.failures_seen() == [10_000] and bench.q.ready_count == 1


def test_clients_have_their_turn_between_slices_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sessions there are; what is closed meanwhile is not timed out, and all others are."""
    monkeypatch.setattr(acknowledgement_timeout, "SESSIONS_SLICE", 2)
    for module in (session, settling):  # a session that closes has deliveries for some turns more
        monkeypatch.setattr(module, "REQUEUE_SLICE", 1)
    bench = Bench()
    sessions = [bench.session, *(bench.client.open_session(number) for number in range(2, 8))]
    for one in sessions:
        bench.consume(by=one)
    bench.publish(*"m" * 20 * len(sessions))
    bench.wait(12.4)
    bench.clock.advance_ns(100_000_000)
    bench.broker.advance()
    found = []
    for _ in bench.turns(lambda: 0):
        found.append(len(bench.failures_seen()))
        if len(found) == 1:
            sessions[4].close()
    assert [count for count in found if count] == [2, 2, 1, 1]
