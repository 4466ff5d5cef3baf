"""The oracle's ledger, its books of objects, its audit of the journal, and what publishers know of confirms.

As the books in test_books.py, each says yes to a correct history and no to each fault that it is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from history import FakeBroker, FakeQueue, content_of, envelope_of, key
from simulator.clients.knowledge import Knowledge, body_of
from simulator.ledger import Broken, Ledger
from simulator.lives import Lives
from simulator.objects import Objects

from leveret.engine import (
    AckedEvent,
    DeliveredEvent,
    EnqueuedEvent,
    EventKind,
    LeftEvent,
    Message,
    PublishedEvent,
    QueueEvent,
    RequeuedEvent,
    UserUndeclaredEvent,
)

A = ("/", "a")


class Run:
    """One broker with a queue, its journal, and the ledger. A turn's changes are written below the next LSN."""

    def __init__(self, **features: Any) -> None:
        self.ledger = Ledger()
        self.ledger.features = {"a": features}
        self.ledger.committed_lsn = lambda: self.committed_lsn
        self.committed_lsn = self.lsn = 0
        self.starts()

    def starts(self, *ids: int, written_lsn: int | None = None) -> None:
        """A life begins, with these messages in the queue. Raises: Broken."""
        self.queue = FakeQueue("a")
        self.has(*ids)
        self.broker: Any = FakeBroker([self.queue])
        self.ledger.attach(self.broker, written_lsn)

    def has(self, *ids: int, out: tuple[int, ...] = ()) -> None:
        """What the engine says is there."""
        self.queue.there = [Message(id_, content_of(id_), envelope_of()) for id_ in ids]
        self.queue.out = [Message(id_, content_of(id_), envelope_of()) for id_ in out]

    def comes(self, *ids: int, persistent: bool = True, cause: str | None = None) -> None:
        envelope = envelope_of(persistent=persistent)
        self.ledger(PublishedEvent("/", "", ids, envelope, [content_of(id_) for id_ in ids], (), cause))
        self.ledger(EnqueuedEvent("/", "a", ids, envelope))

    def goes(self, *ids: int) -> None:
        self.ledger(AckedEvent("/", "a", ids, envelope_of()))

    def delivered(self, *ids: int) -> None:
        session: Any = None
        self.ledger(DeliveredEvent("/", "a", ids, envelope_of(), session, None))

    def came_back(self, id_: int) -> None:
        message = Message(id_, content_of(id_), envelope_of(), deliveries=1)
        self.ledger(RequeuedEvent("/", "a", [id_], [message], "lost", False))

    def dropped(self, *ids: int, came_in: bool = True) -> None:
        self.ledger(LeftEvent(EventKind.DROPPED, "/", "a", ids, envelope_of(), None, None, came_in))

    def undeclared(self) -> None:
        queue: Any = self.queue
        self.ledger(QueueEvent(EventKind.UNDECLARED, "/", "a", queue))

    def turn(self, *, durable: bool = True, is_unfinished: bool = False) -> None:
        """A turn ends; all so far is durable, or nothing of this turn."""
        self.lsn += 10
        if durable:
            self.committed_lsn = self.lsn
        self.ledger.turn_ended(self.lsn, self.committed_lsn, is_unfinished=is_unfinished)

    def full_disk(self, *, lasts: bool) -> None:
        """The journal takes nothing; later it states what it missed."""
        self.broker.context.storage.durability.takes_nothing = self.broker.context.storage.durability.is_behind = lasts


@pytest.fixture
def run() -> Iterator[Run]:
    yield Run()


# -- what happens in a life -------------------------------------------------------------------------------------------


def test_a_message_comes_goes_out_and_leaves(run: Run) -> None:
    run.comes(1, 2)
    run.delivered(1)
    run.goes(1)
    run.dropped(9, came_in=False)  # refused: it never was there
    run.has(2)
    run.ledger.check_contents()
    run.dropped(2)
    run.undeclared()
    run.broker.queues.clear()
    run.ledger.check_contents()


def test_the_ledger_says_no_in_a_life(run: Run) -> None:
    run.comes(1, 2)
    with pytest.raises(Broken, match="is in .* twice"):
        run.comes(1)
    with pytest.raises(Broken, match="delivered .* where it was not"):
        run.delivered(3)
    with pytest.raises(Broken, match="left .* where it was not"):
        run.goes(3)
    with pytest.raises(Broken, match="left .* where it was not"):
        run.dropped(3)
    run.has(1, out=(2, 4))
    with pytest.raises(Broken, match=r"holds \[4\] too many, \[\] too few"):
        run.ledger.check_contents()
    run.has(1)
    with pytest.raises(Broken, match=r"holds \[\] too many, \[2\] too few"):
        run.ledger.check_contents()
    with pytest.raises(Broken, match="nobody accounted for"):
        run.undeclared()


@pytest.mark.parametrize("found", [(1, 2), (1, 2, 3), (2, 3)])
def test_of_unfinished_work_the_journal_may_have_a_part(found: tuple[int, ...]) -> None:
    """In its order; what comes later may still belong to what was published before."""
    run = Run()
    run.comes(1, 2)
    run.turn()
    run.comes(3)
    run.turn(durable=False, is_unfinished=True)
    run.goes(1)
    run.turn(durable=False)
    run.starts(*found)


# -- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [(1, 2), (1, 2, 3, 4), (2, 3, 4)])
def test_a_restart_finds_what_there_was_behind_some_turn(run: Run, found: tuple[int, ...]) -> None:
    run.comes(1, 2)
    run.turn()
    run.comes(3, 4)
    run.turn(durable=False)
    run.goes(1)
    run.turn(durable=False)
    run.starts(*found)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ((1,), r"lost \[\('a', 2\)\]"),
        ((1, 2, 3), r"lost \[\], restored \[\('a', 3\)\]"),
        ((2,), r"lost \[\('a', 1\)\]"),
        ((1, 2, 7), r"restored \[\('a', 7\)\]"),
    ],
    ids=["a durable one is lost", "half a turn", "of a later turn alone", "never was"],
)
def test_a_restart_that_finds_what_never_was(run: Run, found: tuple[int, ...], sentence: str) -> None:
    run.comes(1, 2)
    run.turn()
    run.comes(3, 4)
    run.turn(durable=False)
    run.goes(1)
    run.turn(durable=False)
    with pytest.raises(Broken, match=f"after a restart: .*{sentence}"):
        run.starts(*found)


def test_an_acknowledgement_that_was_durable_does_not_come_back(run: Run) -> None:
    run.comes(1, 2)
    run.goes(1)
    run.turn()
    with pytest.raises(Broken, match=r"restored \[\('a', 1\)\]"):
        run.starts(1, 2)


def test_after_a_kill_what_was_written_is_there(run: Run) -> None:
    run.comes(1)
    run.turn(durable=False)
    with pytest.raises(Broken, match=r"lost \[\('a', 1\)\]"):
        run.starts(written_lsn=run.lsn)


def test_what_is_transient_does_not_survive(run: Run) -> None:
    run.comes(1, persistent=False)
    run.turn()
    run.starts()


def test_an_id_that_was_safe_is_not_given_again(run: Run) -> None:
    """One of a message that a restart lost may be."""
    run.comes(1, 2)
    run.turn()
    run.goes(1, 2)
    run.turn()
    run.comes(3)
    run.turn(durable=False)
    run.starts()
    run.comes(3)
    with pytest.raises(Broken, match="the id 2 is given again: up to 2 they were safe"):
        run.comes(2)


def test_a_restart_finds_the_parameters_of_some_turn() -> None:
    """Of those that the broker sets for itself nothing is said."""
    operated = Operated()
    operated.broker.parameters = [(("", "", "g0"), 1), (("", "broker", "own"), 1)]
    operated.turn(durable=True)
    with pytest.raises(Broken, match="found .*, instead of .*parameter.*g0"):
        operated.starts()


@pytest.mark.parametrize("found", [(1,), (1, 2), (1, 3), (1, 2, 3)])
def test_what_came_while_the_disk_was_full_is_there_or_not_each_for_itself(run: Run, found: tuple[int, ...]) -> None:
    run.comes(1)
    run.turn()
    run.full_disk(lasts=True)
    run.comes(2, 3)
    run.turn()
    assert not run.ledger.is_safe(key(2))
    run.starts(*found)


def test_what_a_checkpoint_has_stated_is_there(run: Run) -> None:
    run.full_disk(lasts=True)
    run.comes(2)
    run.turn()
    run.full_disk(lasts=False)
    run.turn()
    assert run.ledger.is_safe(key(2))
    with pytest.raises(Broken, match="lost"):
        run.starts()


def test_a_ring_that_was_out_keeps_the_newest() -> None:
    run = Run(ring_size=2)
    run.comes(1, 2, 3)
    run.turn()
    run.starts(2, 3)
    with pytest.raises(Broken, match="lost"):
        run.starts(2)


def test_of_an_ids_last_value_only_an_older_one_may_be_missing() -> None:
    run = Run(last_value_keys=2)
    run.comes(1, 2)
    run.turn()
    run.starts(2)
    with pytest.raises(Broken, match="lost"):
        run.starts()


def test_what_may_expire_may_be_missing(run: Run) -> None:
    run.comes(1)
    run.turn()
    run.ledger.expirable.add(1)
    run.starts()


# -- attempts that are counted before the delivery -----------------------------------------------------------------


@pytest.fixture
def counting() -> Run:
    """Messages 1 and 2 are there; a delivery is the last one."""
    run = Run(attempts_max=1)
    run.ledger.counts_deliveries = True
    run.comes(1, 2)
    run.turn()
    return run


def test_what_was_out_for_the_last_time_is_dead_after_a_restart(counting: Run) -> None:
    counting.delivered(1)
    counting.turn()
    assert counting.ledger.recorded_count() == 2
    with pytest.raises(Broken, match=r"restored \[\('a', 1\)\]"):
        counting.starts(1, 2)
    counting.starts(2)
    counting.ledger.compare_audit({A: {1, 2}})  # its death is not written yet
    assert counting.ledger.died == {(A, 1)}
    with pytest.raises(Broken, match="delivered .* where it was not"):
        counting.delivered(1)


@pytest.mark.parametrize("found", [(1, 2), (2,)])
def test_a_last_delivery_that_was_not_durable_counts_or_does_not(counting: Run, found: tuple[int, ...]) -> None:
    counting.delivered(1)
    counting.turn(durable=False)
    counting.starts(*found)


def test_what_came_back_from_its_last_delivery_uncounted_is_there_after_a_restart(counting: Run) -> None:
    counting.delivered(1)
    counting.turn()
    counting.came_back(1)
    counting.turn()
    assert counting.ledger.recorded_count() == 2
    with pytest.raises(Broken, match=r"lost \[\('a', 1\)\]"):
        counting.starts(2)
    counting.starts(1, 2)


def test_a_delivery_that_is_not_the_last_one_kills_nobody() -> None:
    run = Run(attempts_max=2)
    run.ledger.counts_deliveries = True
    run.comes(1)
    run.delivered(1)
    run.turn()
    with pytest.raises(Broken, match=r"lost \[\('a', 1\)\]"):
        run.starts()
    run.starts(1)


def test_what_came_while_the_disk_was_full_and_is_out_for_the_last_time_is_dead_too(counting: Run) -> None:
    counting.full_disk(lasts=True)
    counting.comes(3)
    counting.turn()
    counting.broker.context.storage.durability.takes_nothing = False  # there is room, and a checkpoint begins
    counting.delivered(3)
    counting.turn()
    counting.full_disk(lasts=False)
    counting.turn()
    assert counting.ledger.recorded_count() == 3
    with pytest.raises(Broken, match=r"restored \[\('a', 3\)\]"):
        counting.starts(1, 2, 3)
    counting.starts(1, 2)


# -- confirms and commits ---------------------------------------------------------------------------------------------


def test_a_confirm_is_safe_when_all_of_it_is(run: Run) -> None:
    knowledge = Knowledge(run.ledger)
    run.comes(1, 2)
    run.turn(durable=False)
    with pytest.raises(Broken, match="confirmed before it was durable"):
        knowledge.confirm(key(1))
    run.goes(2)
    knowledge.confirm(key(2))  # it was settled: nothing more has to be there
    run.turn()
    knowledge.confirm(key(1))


def test_nobody_waits_for_the_confirm_of_a_dead_letter(run: Run) -> None:
    run.comes(1, cause="rejected")
    run.turn(durable=False)
    assert run.ledger.is_safe(key(1))


def test_a_committed_acknowledgement_is_gone_wherever_the_broker_starts_again(run: Run) -> None:
    run.comes(1)
    run.turn()
    run.goes(1)
    run.turn(durable=False)
    assert run.ledger.first_left([(A, 1)]) == (A, 1)
    run.turn()
    assert run.ledger.first_left([(A, 1)]) is None


def test_what_comes_to_a_client_has_the_octets_that_were_published() -> None:
    knowledge = Knowledge(Ledger())
    knowledge.publish(key(1), 10)
    assert knowledge.check(body_of(key(1), 10)) == (7, 1)
    with pytest.raises(Broken, match="has other octets"):
        knowledge.check(b"?" + body_of(key(1), 10)[1:])
    with pytest.raises(Broken, match="that nobody published"):
        knowledge.check(body_of(key(2), 10))


# -- the audit --------------------------------------------------------------------------------------------------------


def test_the_journal_has_what_the_broker_has(run: Run) -> None:
    run.comes(1, 2)
    run.turn()
    run.goes(1)
    run.turn(durable=False)
    run.ledger.compare_audit({A: {1, 2}})
    run.ledger.compare_audit({A: {2}})
    with pytest.raises(Broken, match=r"not in the journal: \[2\]"):
        run.ledger.compare_audit({})
    with pytest.raises(Broken, match=r"that are not there: \[9\]"):
        run.ledger.compare_audit({A: {1, 2, 9}})


# -- objects ----------------------------------------------------------------------------------------------------------


class Operated:
    """A broker of which only users matter, and the books of objects."""

    def __init__(self, *users: str) -> None:
        self.objects = Objects()
        self.lsn = 0
        self.starts(*users)

    def starts(self, *users: str, written_lsn: int | None = None) -> None:
        storage = SimpleNamespace(durability=SimpleNamespace(is_lost=False, is_behind=False))
        context = SimpleNamespace(policies=[], listeners=[], storage=storage)
        self.broker: Any = SimpleNamespace(users=[], virtual_hosts={}, parameters=[], context=context)
        self.has(*users)
        self.objects.attach(self.broker, written_lsn)

    def has(self, *users: str) -> None:
        self.broker.users = [
            SimpleNamespace(
                name=name, is_configured=False, password=SimpleNamespace(text=lambda: "secret"), tags=(),
                max_connections=None, max_channels=None, permissions=None,
            )
            for name in users
        ]  # fmt: skip

    def turn(self, *users: str, durable: bool) -> None:
        """An operator changes who is there."""
        self.has(*users)
        self.objects(UserUndeclaredEvent("", "somebody"))
        self.lsn += 10
        self.objects.turn_ended(self.lsn, self.lsn if durable else 0)


@pytest.mark.parametrize("found", [("ann",), ("ann", "bob"), ("bob",)])
def test_a_restart_finds_the_users_of_some_turn(found: tuple[str, ...]) -> None:
    operated = Operated("eve")
    operated.turn("ann", durable=True)
    operated.turn("ann", "bob", durable=False)
    operated.turn("bob", durable=False)
    operated.starts(*found)


@pytest.mark.parametrize("found", [("ann", "eve"), (), ("eve",)])
def test_who_was_deleted_does_not_come_back(found: tuple[str, ...]) -> None:
    operated = Operated("eve")
    operated.turn("ann", durable=True)
    with pytest.raises(Broken, match="a restart found what never was"):
        operated.starts(*found)


def test_after_a_kill_the_users_that_were_written_are_there() -> None:
    operated = Operated("eve")
    operated.turn("ann", durable=False)
    with pytest.raises(Broken, match="never was"):
        operated.starts("eve", written_lsn=operated.lsn)


def test_while_the_journal_took_nothing_each_user_is_as_at_some_time() -> None:
    operated = Operated("eve")
    operated.turn("ann", durable=True)
    operated.broker.context.storage.durability.is_behind = True
    operated.turn("ann", "bob", "cid", durable=True)
    operated.starts("ann", "cid")
    operated.broker.context.storage.durability.is_behind = True
    operated.turn("ann", "cid", durable=True)
    with pytest.raises(Broken, match="which never was"):
        operated.starts("ann", "cid", "dan")


def test_who_comes_while_the_broker_gives_up_is_there_later() -> None:
    """Seed 992563408: what could not be read back concerns messages; until the broker stops, it records all else."""
    operated = Operated("eve")
    ledger = SimpleNamespace(turn_ended=lambda *lsns, is_unfinished: None)
    ground: Any = SimpleNamespace(
        plan=SimpleNamespace(checked=1.0), chance=Random, ledger=ledger, objects=operated.objects
    )
    journal, lives = SimpleNamespace(next_lsn=10, durable_lsn=0), Lives(ground)
    host: Any = SimpleNamespace(
        supervisor=SimpleNamespace(journal=journal), broker=SimpleNamespace(is_unfinished=False)
    )
    host.is_giving_up = True
    for user in ("ann", "bob"):
        operated.has(user)
        operated.objects(UserUndeclaredEvent("", "somebody"))
        lives._turn_ended(host)
        journal.next_lsn += 10
    operated.starts("ann", written_lsn=15)
