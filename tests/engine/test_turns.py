"""What several queues' consumers share is dealt in turns: a channel's prefetch, its deliveries, a connection's room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from leveret.engine import Client, Session
from leveret.engine.errors import UnackedMaxReached
from leveret.engine.messages.field_table import Field
from leveret.engine.options import BrokerOptions
from leveret.engine.turn import PART_COST_MAX, part_of
from leveret.testing.harness import Harness

NON_DESTRUCTIVE = {"x-non-destructive": Field("t", True)}
STREAM = {"x-queue-type": Field("S", b"stream")}


class Table(Harness):
    """Queues with a backlog, and the tags of the consumers that were served, in order."""

    ends_turns = False

    def __init__(self, *, unsent_max: int = 1 << 40, unacked_max: int = 1 << 40) -> None:
        super().__init__(unsent_max=unsent_max, options=BrokerOptions(unacked_per_session_max=unacked_max))

    def stalled_client(self) -> Client:
        """One that takes what it is sent, and reads it when it is `drained`."""
        client = self.connect().client
        self.stalled.add(client)
        return client

    def fill(self, queue: str, count: int, *, size: int = 0, arguments: Mapping[str, Any] | None = None) -> None:
        """A queue, unless it is there, with messages."""
        self.queue(queue, client=self.client, durable=arguments is STREAM, **(arguments or {}))
        self.publish(*[bytes(size)] * count, key=queue)

    def subscribe(self, session: Session, queue: str, tag: str, *, no_ack: bool = False, prefetch: int = 0) -> None:
        session.prefetch = prefetch
        arguments = {"x-stream-offset": "first"} if queue.startswith("stream") else {}
        self.consume(queue, tag, by=session, no_ack=no_ack, **arguments)

    def served(self) -> str:
        """Who was served when the turn has ended."""
        self.deliveries.clear()
        self.end_turn()
        return "".join(one.consumer.tag for one in self.deliveries)

    def settle_oldest(self, session: Session, count: int = 1) -> str:
        """Acknowledge so many: who is served then."""
        for tag in list(session.unacked)[:count]:
            session.ack(tag)
        return self.served()


@pytest.mark.parametrize("prefetch", [1, 2, 3, 7])
def test_queues_share_a_prefetch_evenly(prefetch: int) -> None:
    """Three queues, a consumer each: whatever the limit, each has exactly its third."""
    table = Table()
    session = table.stalled_client().open_session()
    session.set_prefetch(prefetch, total=True)
    for tag in "abc":
        table.fill(tag, 100)
        table.subscribe(session, tag, tag)
    table.end_turn()
    assert Counter("".join(table.settle_oldest(session) for _ in range(60))) == {"a": 20, "b": 20, "c": 20}


def test_queues_share_evenly_when_much_is_settled_at_once() -> None:
    """A limit of 30, all settled in one go: a third each, within one delivery."""
    table = Table()
    session = table.stalled_client().open_session()
    session.set_prefetch(30, total=True)
    for tag in "abc":
        table.fill(tag, 100)
        table.subscribe(session, tag, tag)
    table.end_turn()
    for _ in range(5):
        session.ack(0, multiple=True)
        assert Counter(table.served()) == {"a": 10, "b": 10, "c": 10}


def test_who_has_nothing_to_get_loses_no_turn_to_his_neighbour() -> None:
    """Of five consumers two have messages: both get the same, although three idle ones stand between them."""
    table = Table()
    session = table.stalled_client().open_session()
    session.set_prefetch(1, total=True)
    for tag in "abcde":
        table.fill(tag, 100 if tag in "ae" else 0)
        table.subscribe(session, tag, tag)
    table.end_turn()
    assert Counter("".join(table.settle_oldest(session) for _ in range(20))) == {"a": 10, "e": 10}


def test_who_is_at_a_limit_of_its_own_gives_its_turn_to_all_others() -> None:
    """`a` may have one and keeps it; what is settled goes to `b` and `c` alike."""
    table = Table()
    session = table.stalled_client().open_session()
    for tag in "abc":
        table.fill(tag, 100)
        table.subscribe(session, tag, tag, prefetch=1 if tag == "a" else 0)
        if tag == "a":
            table.end_turn()
            session.prefetch_total = 3
    table.end_turn()
    kept = next(iter(session.unacked))
    served = ""
    for _ in range(20):
        session.ack(next(tag for tag in session.unacked if tag != kept))
        served += table.served()
    assert Counter(served) == {"b": 10, "c": 10}


def test_consumers_without_acknowledgements_do_not_take_the_turns_of_others() -> None:
    """It may have any number while there is room, but one at a time: `a`, who acknowledges, is served in between."""
    table = Table()
    session = table.stalled_client().open_session()
    session.set_prefetch(1, total=True)
    table.fill("a", 10)
    table.subscribe(session, "a", "a")
    table.end_turn()
    table.fill("b", 10)
    table.subscribe(session, "b", "b", no_ack=True)
    assert table.served() == ""
    served = "".join(table.settle_oldest(session) for _ in range(8))
    assert Counter(served)["a"] == 8
    assert 4 <= Counter(served)["b"] <= 8


def test_two_consumers_of_a_queue_that_keeps_its_messages_share_a_prefetch() -> None:
    """Each of them gets all messages, and none before the other has had its turn."""
    table = Table()
    session = table.stalled_client().open_session()
    session.set_prefetch(1, total=True)
    table.fill("kept", 50, arguments=NON_DESTRUCTIVE)
    table.subscribe(session, "kept", "a")
    table.subscribe(session, "kept", "b")
    table.end_turn()
    assert Counter("".join(table.settle_oldest(session) for _ in range(20))) == {"a": 10, "b": 10}


def test_deliveries_unsettled_on_a_channel_are_dealt_in_turns() -> None:
    """The bound of what may be out on a channel is shared as well."""
    table = Table(unacked_max=1)
    session = table.stalled_client().open_session()
    for tag in "abc":
        table.fill(tag, 100)
        table.subscribe(session, tag, tag)
    table.end_turn()
    assert Counter("".join(table.settle_oldest(session) for _ in range(60))) == {"a": 20, "b": 20, "c": 20}


@pytest.mark.parametrize("total, count", [(False, 0), (False, 3), (True, 0), (True, 5)])
def test_another_limit_lets_go_on_who_was_at_a_shared_one(total: bool, count: int) -> None:
    """At the end of the turn: a limit for consumers to come ends the shared one, another shared one replaces it."""
    table = Table()
    session = table.stalled_client().open_session()
    session.set_prefetch(2, total=True)
    table.fill("a", 10)
    table.subscribe(session, "a", "a")
    assert table.served() == "aa"
    session.set_prefetch(count, total=total)
    assert len(table.served()) == (3 if count == 5 else 8)


@pytest.mark.parametrize("settles", ["ack", "reject", "requeue"])
@pytest.mark.parametrize("ends", ["commit", "roll back"])
def test_what_a_transaction_settles_is_out_until_it_is_committed(settles: str, ends: str) -> None:
    """A channel that may have four out gets no fifth before that, neither by its consumers nor by basic.get."""
    table = Table(unacked_max=4)
    session = table.stalled_client().open_session()
    session.select_transactions()
    for tag in "ab":
        table.fill(tag, 10)
        table.subscribe(session, tag, tag)
    table.end_turn()
    assert len(session.unacked) == 4
    for tag in list(session.unacked)[:3]:
        session.ack(tag) if settles == "ack" else session.reject(tag, requeue=settles == "requeue")
        assert table.served() == ""
        assert session.unacked_room() == 0
        with pytest.raises(UnackedMaxReached):
            session.get(table.vhost.queues.named("a"), no_ack=False)
    if ends == "commit":
        session.commit()
        assert len(table.served()) == 3
    else:
        session.roll_back()
        assert table.served() == ""
    assert len(session.unacked) == 4


@pytest.mark.parametrize("arguments", [None, NON_DESTRUCTIVE, STREAM], ids=["classic", "kept", "stream"])
@pytest.mark.parametrize("sessions, queues", [(1, 3), (3, 3), (1, 1)])
def test_a_slow_connection_is_filled_in_turns(sessions: int, queues: int, arguments: Mapping[str, Any] | None) -> None:
    """A peer that reads slowly has three consumers: each time it has read, another one is served."""
    table = Table(unsent_max=5_000)
    client = table.stalled_client()
    channels = [client.open_session() for _ in range(sessions)]
    names = [f"stream-{tag}" if arguments is STREAM else tag for tag in "abc"[:queues]]
    for name in names:
        table.fill(name, 200, size=1_000, arguments=arguments)
    for number, tag in enumerate("abc"):
        table.subscribe(channels[number % sessions], names[number % queues], tag, prefetch=1000)
    table.end_turn()
    served = Counter[str]()
    for _ in range(30):
        client.drained()
        served.update(table.served())
    assert served.total() >= 120
    assert max(served.values()) - min(served[tag] for tag in "abc") <= 10


@pytest.mark.parametrize(
    "queues, count",
    [(1, 4_000), (10, 400), (1_000, 4), (1_250, 4), (1_251, 3), (2_000, 2), (4_000, 1), (100_000, 1)],
)
def test_how_many_messages_are_published_at_once(queues: int, count: int) -> None:
    """As many as fit; to very many queues a few, and one where even these would take too long."""
    assert part_of(4_000, queues) == count
    assert count * queues <= max(PART_COST_MAX, queues)
