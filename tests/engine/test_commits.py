"""A commit in slices does what it does at once, whatever is in it and whoever goes in the middle (behaviour page 2.15).

Two brokers get the same transaction. One applies it at once; the other cuts it as small as it can be cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_in_journal import StandInJournal

from leveret.engine import Broker, BrokerOptions, Event
from leveret.engine.clients import transaction
from leveret.engine.clients.transaction import Commit
from leveret.engine.errors import PartialCommit, TransactionTooLarge
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.testing.harness import Harness

DEAD_TO: FieldTable = {"x-dead-letter-exchange": Field("S", b""), "x-dead-letter-routing-key": Field("S", b"dead")}
SHORT: FieldTable = {"x-max-length": Field("l", 4), "x-overflow": Field("S", b"reject-publish")}
QUEUES: dict[str, FieldTable] = {"a": DEAD_TO, "b": {}, "short": SHORT, "dead": {}, "taken": {}}
#: Exchange, routing key, and the queues that they lead to: one, three, by headers, one that refuses, one whose messages
#: a consumer takes, none.
PLACES = (
    ("", "a", "a"),
    ("", "b", "b"),
    ("amq.fanout", "", "a b short"),
    ("amq.headers", "", "a b short"),
    ("", "short", "short"),
    ("", "taken", ""),
    ("", "nobody", ""),
)
FILLED = 9


class World(Harness):
    """Messages of `a` and `b` are out at a session in a transaction; another one consumes from `taken`."""

    ends_turns = False
    checks = True

    def __init__(self) -> None:
        super().__init__()
        for name, arguments in QUEUES.items():
            self.queue(name, durable=False, **arguments)
        for name in ("a", "b", "short"):
            self.bind(name, "amq.fanout")
            self.bind(name, "amq.headers")
        for name in ("a", "b"):
            self.fill("", name, FILLED, 0, mandatory=False)
        for number in range(2 * FILLED):
            assert self.get("ab"[number % 2], no_ack=False) is not None
        self.taker = self.connect("other")
        self.consume("taken", "t", by=self.taker)
        self.session.select_transactions()

    def fill(self, exchange: str, key: str, count: int, first: int, *, mandatory: bool) -> None:
        """A run of so many, whose bodies are numbers that rise."""
        bodies = [b"%03d" % number for number in range(first, first + count)]
        self.publish(*bodies, key=key, exchange=exchange, mandatory=mandatory)

    def prepare(self, steps: list[tuple[str, int, int, bool]]) -> None:
        """What the transaction is to do."""
        first = 100
        for what, which, count, flag in steps:
            tags = list(self.session.unacked)
            if what == "publish":
                exchange, key, _ = PLACES[which]
                self.fill(exchange, key, count, first, mandatory=flag)
                first += count
            elif tags and what == "ack":
                self.session.ack(tags[which % len(tags)], multiple=flag)
            elif tags:
                self.session.reject(tags[which % len(tags)], multiple=count > 3, requeue=flag)

    def check(self, commit: Commit, steps: list[tuple[str, int, int, bool]]) -> None:
        """What was published is where it should be: a queue refuses what is too much for it, and others take that."""
        sent = {name: list[bytes]() for name in QUEUES}
        returned, first = list[bytes](), 100
        for what, which, count, flag in steps:
            if what == "publish":
                bodies = [b"%03d" % number for number in range(first, first + count)]
                for name in PLACES[which][2].split():
                    sent[name] += bodies
                returned += bodies if flag and PLACES[which][1] == "nobody" else []
                first += count
        room = SHORT["x-max-length"].value
        assert self.outcome(commit) == (PartialCommit if len(sent["short"]) > room else returned)
        sent["short"] = sent["short"][:room]
        for name in ("a", "b", "short"):
            assert [body for body in self.bodies(name) if body >= b"1"] == sent[name]

    def outcome(self, commit: Commit) -> Any:
        """What the publisher is told: bodies that come back, or that it is partial."""
        assert commit.is_done
        try:
            return [content[-3:] for _, contents in commit.outcome() for content in contents]
        except PartialCommit:
            return PartialCommit

    def seen(self, *but: str) -> dict[str, Any]:
        """All that operators and clients see, of all queues but these."""
        session = self.session
        found: dict[str, Any] = {
            "session": (session.published, session.returned, session.dropped, session.acked, sorted(session.unacked)),
            "taken": [message.body for message in self.taker.unacked.values()],
        }
        for name, queue in self.vhost.queues.items():
            if name not in but:
                counters = {
                    one: getattr(queue.counters, one) for one in ("enqueued", "acknowledged", "killed", "requeued")
                }
                found[f"queue {name}"] = (self.bodies(queue), queue.unacked, counters)
        of_all = self.broker.context.counters
        found["broker"] = (of_all.published, of_all.routed, of_all.unroutable)
        return found


STEP = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 6), st.integers(1, 12), st.booleans()),
    st.tuples(st.sampled_from(("ack", "reject")), st.integers(0, 17), st.integers(1, 5), st.booleans()),
)
STEPS = st.lists(STEP, min_size=3, max_size=10)


def _close_session(world: World) -> None:
    world.session.close(failed=True)


def _close_client(world: World) -> None:
    world.client.close(failed=True)


def _delete(name: str) -> Callable[[World], object]:
    return lambda world: world.vhost.queues.remove(world.vhost.queues.named(name))


def _unbind(world: World) -> None:
    world.vhost.bindings.remove("queue", "b", "amq.fanout", "", {})


MEANWHILE: dict[str, tuple[Callable[[World], object], tuple[str, ...]]] = {
    "nothing": (lambda world: None, ()),
    "its channel is closed": (_close_session, ()),
    "its connection dies": (_close_client, ()),
    "a binding goes": (_unbind, ()),
    "a queue goes": (_delete("b"), ("b",)),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@settings(max_examples=40)
@given(steps=STEPS, slice_=st.integers(1, 30), turns=st.integers(1, 6))
def test_in_slices_as_at_once(meanwhile: str, steps: list[tuple[str, int, int, bool]], slice_: int, turns: int) -> None:
    """The same queues, in the same order, the same counts, and the same answer, however small the slices are."""
    happens, but = MEANWHILE[meanwhile]
    at_once, sliced = World(), World()
    for world in (at_once, sliced):
        world.prepare(steps)
    whole = at_once.session.commit()
    at_once.end_turn()
    at_once.check(whole, steps)
    happens(at_once)
    at_once.end_turn()
    with patch.object(transaction, "COMMIT_SLICE", slice_):
        commit = sliced.session.commit()
        for _ in range(turns):
            sliced.turn()
        is_early = not commit.is_done
        happens(sliced)
        sliced.end_turn()
    if meanwhile == "a queue goes" and is_early:
        assert _of_queues(sliced.seen(*but)) == _of_queues(at_once.seen(*but))
    else:
        assert sliced.outcome(commit) == at_once.outcome(whole)
        assert sliced.seen(*but) == at_once.seen(*but)


def _of_queues(seen: dict[str, Any]) -> dict[str, Any]:
    return {what: of for what, of in seen.items() if what.startswith("queue")}


class CountingJournal(StandInJournal):
    """Records one thing for each event."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.lsn = 0
        self._broker = broker

    def record(self, event: Event) -> None:
        self.lsn += 1
        self._broker.context.turn.records += 1

    def sync_lsn(self) -> int:
        return self.lsn


@pytest.mark.parametrize("slice_", [1, 10, 2_000])
@pytest.mark.parametrize("ends", ["publish", "ack", "reject"])
def test_an_answer_waits_for_the_last_that_was_recorded_of_it(ends: str, slice_: int) -> None:
    """And for nothing of others, before it or in between; until then it is unfinished for the journal."""
    world = World()
    journal = CountingJournal(world.broker)
    world.broker.context.storage.durability = journal
    world.broker.context.listeners.append(journal.record)
    world.prepare([("publish", 0, 12, False), ("publish", 2, 12, False)])
    if ends != "publish":
        world.prepare([(ends, 0, 1, False), (ends, 3, 1, False)])
    other = world.connect("more")
    world.session, session = other, world.session
    last = 0
    with patch.object(transaction, "COMMIT_SLICE", slice_):
        world.fill("", "b", 3, 500, mandatory=False)
        commit = session.commit()
        while not commit.is_done:
            before = journal.lsn
            world.broker.end_turn()
            last = journal.lsn if journal.lsn > before else last
            assert commit.has_begun and world.broker.is_unfinished or commit.is_done
            world.fill("", "dead", 1, 600, mandatory=False)
    assert commit.sync_lsn == last or slice_ == 2_000 and commit.sync_lsn == journal.lsn
    world.end_turn()
    assert not world.broker.is_unfinished


def test_one_that_has_begun_is_completed_when_the_journal_fails() -> None:
    """One that waits behind it begins when the journal is well again."""
    world = World()
    journal = world.broker.context.storage.durability = StandInJournal()
    second = world.connect("second")
    second.select_transactions()
    world.prepare([("publish", 6, 12, False)] * 3)
    first, world.session = world.session, second
    world.prepare([("publish", 6, 12, False)] * 3)
    with patch.object(transaction, "COMMIT_SLICE", 10):
        both = [first.commit(), second.commit()]
        assert world.broker.end_turn()
        assert [commit.has_begun for commit in both] == [True, False]
        journal.has_failed = True
        world.end_turn()
        assert [commit.is_done for commit in both] == [True, False] and not both[1].has_begun
        assert not world.broker.is_unfinished  # what waits has no records that the journal must keep together
        journal.has_failed = False
        world.end_turn()
        assert both[1].is_done


@pytest.mark.parametrize("slice_", [10, 2_000])
def test_an_error_of_the_broker_ends_one_commit(slice_: int) -> None:
    """Its client gets the error as the answer, and the commit that waits behind it is applied."""
    world = World()
    second = world.connect("second")
    second.select_transactions()
    world.prepare([("publish", 0, 12, False)] * 3)
    first, world.session = world.session, second
    world.prepare([("publish", 1, 12, False)] * 3)
    listeners, before = world.broker.context.listeners, world.named("b").ready_count

    def fails(event: Event) -> None:
        listeners.remove(fails)
        raise RuntimeError("our error")

    with patch.object(transaction, "COMMIT_SLICE", slice_):
        listeners.append(fails)
        both = [first.commit(), second.commit()]
        for _ in range(20):
            world.broker.end_turn()
    assert [commit.is_done for commit in both] == [True, True]
    with pytest.raises(RuntimeError, match="our error"):
        both[0].outcome()
    assert both[1].outcome() == [] and world.named("b").ready_count == before + 3 * 12


@pytest.mark.parametrize("bodies", [["a" * 300, "b" * 300], [""] * 4])
def test_a_transaction_has_a_limit_for_all_its_messages_together(bodies: list[str]) -> None:
    """Of octets, with 256 for each message, however short; what was in it is gone with its channel."""
    world = Harness(options=BrokerOptions(transaction_size_max=1000))
    world.queue()
    world.session.select_transactions()
    with pytest.raises(TransactionTooLarge):
        for body in bodies:
            world.publish(body)
    assert world.session.transaction is not None and world.session.transaction.count == len(bodies) - 1


def test_the_publishes_of_a_commit_count_when_it_is_done() -> None:
    """In the figures of their channel."""
    world = Harness()
    world.queue()
    world.session.select_transactions()
    world.publish("a", "b")
    assert world.session.published == 0
    world.session.commit()
    world.end_turn()
    assert (world.session.published, world.all()) == (2, "ab")


def test_what_a_commit_does_after_its_channel_closed_is_in_the_sums() -> None:
    """Of all channels that are closed: its publishes, acknowledgements and what no queue took."""
    world = Harness()
    world.queue(durable=False)
    world.publish(*"abc")
    session = world.client.open_session()
    session.select_transactions()
    for _ in range(3):
        world.get(no_ack=False, by=session)
    session.ack(0, multiple=True)
    world.publish(*"defg", by=session)
    world.publish("h", key="nobody", by=session)
    with patch.object(transaction, "COMMIT_SLICE", 1):
        session.commit()
        world.broker.end_turn()
        session.close()
        sums = [world.broker.context.past_sessions, world.vhost.context.past_sessions]
        before = [(one.published, one.acked, one.dropped, one.got) for one in sums]
        assert 0 < before[0][0] < 5
        world.end_turn()
    assert [(one.published, one.acked, one.dropped, one.got) for one in sums] == [(5, 3, 1, 3)] * 2
