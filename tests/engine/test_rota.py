"""The rota: runs are dealt exactly as one message at a time would be (behaviour page 4, "multiple consumers")."""

from __future__ import annotations

import pytest

from leveret.engine import Broker, Client, Delivered, Envelope, ManualClock, Session, User
from leveret.engine.messages.content import PLAIN, encode_header
from leveret.engine.queues.queue import Queue

USER = User("guest")


class Bench:
    """One queue `q`, and what every client was handed, in order, as (consumer tag, body)."""

    def __init__(self) -> None:
        self.broker = Broker(ManualClock(), unsent_max=1 << 40)
        self.vhost = self.broker.virtual_hosts["/"]
        self.publisher = self.client()
        self.queue: Queue = self.vhost.declare_queue("q", client=self.publisher.client)
        self.handed: list[tuple[str, int]] = []

    def client(self) -> Session:
        """A client with one session; its effects are noted and count as sent."""
        client: Client

        def flush() -> None:
            for effect in client.take_outbox():
                assert isinstance(effect, Delivered)
                tag = effect.consumer.tag  # type: ignore[attr-defined]
                self.handed += [(tag, int(PLAIN.split(blob)[1])) for blob in effect.blobs]
            client.drained()

        client = self.broker.connect("/", USER, name="client", flush=flush)
        return client.open_session()

    def consume(self, session: Session, tag: str, *, no_ack: bool = False) -> None:
        """Subscribe to q."""
        session.consume(self.queue, tag, no_ack=no_ack, exclusive=False, arguments={})

    def publish(self, first: int, count: int) -> None:
        """A run of messages with these numbers as bodies."""
        blobs = [PLAIN.join(encode_header(1), b"%d" % number) for number in range(first, first + count)]
        route = self.vhost.route("", "q", USER)
        self.publisher.publish(route, Envelope("", "q"), blobs, mandatory=False)

    def of(self, tag: str) -> list[int]:
        """What one consumer was handed."""
        return [number for each, number in self.handed if each == tag]

    def end_turn(self) -> None:
        """All of it."""
        while self.broker.end_turn():
            pass


def by_the_rota(tags: str, count: int) -> dict[str, list[int]]:
    """One message each, in turn."""
    return {tag: list(range(index, count, len(tags))) for index, tag in enumerate(tags)}


@pytest.mark.parametrize("is_backlog", [False, True], ids=["waiting consumers", "backlog"])
@pytest.mark.parametrize("limited", ["", "a", "b", "c", "ab", "abc"])
def test_a_shared_limit_does_not_break_the_rota(limited: str, is_backlog: bool) -> None:
    """Consumers whose session has a (wide) shared prefetch take turns with all the others, one message each."""
    bench = Bench()
    if is_backlog:
        bench.publish(0, 30)
    for tag in "abc":
        session = bench.client()
        if tag in limited:
            session.limit(1000, total=True)
        bench.consume(session, tag)
    if not is_backlog:
        bench.publish(0, 30)
    bench.end_turn()
    assert {tag: bench.of(tag) for tag in "abc"} == by_the_rota("abc", 30)


@pytest.mark.parametrize("is_backlog", [False, True], ids=["waiting consumers", "backlog"])
def test_consumers_of_one_session_are_served_in_queue_order(is_backlog: bool) -> None:
    """Delivery tags of a channel rise with the messages' places: a b c a b c (behaviour page 4, probed)."""
    bench = Bench()
    session = bench.client()
    if is_backlog:
        bench.publish(0, 9)
    for tag in "abc":
        bench.consume(session, tag)
    if not is_backlog:
        bench.publish(0, 9)
    bench.end_turn()
    assert bench.handed == [("abc"[number % 3], number) for number in range(9)]


def test_a_new_consumer_joins_behind_the_others() -> None:
    """Three messages in, whose turn is next stays next, and the newcomer comes last."""
    bench = Bench()
    for tag in "ab":
        bench.consume(bench.client(), tag)
    bench.publish(0, 3)
    bench.consume(bench.client(), "c")
    bench.end_turn()
    bench.publish(3, 6)
    bench.end_turn()
    order = {number: tag for tag, number in bench.handed}
    assert [order[number] for number in range(3, 9)] == ["b", "a", "c", "b", "a", "c"]


def test_a_full_client_is_skipped_and_served_when_it_has_caught_up() -> None:
    """A paused client gets nothing; what it missed goes to the others, and it has its turn again afterwards."""
    bench = Bench()
    slow, quick = bench.client(), bench.client()
    bench.consume(slow, "slow")
    bench.consume(quick, "quick")
    slow.client.paused = True
    bench.publish(0, 4)
    bench.end_turn()
    assert bench.of("quick") == [0, 1, 2, 3]
    slow.client.drained()
    bench.publish(4, 4)
    bench.end_turn()
    assert bench.of("slow") == [4, 6]
