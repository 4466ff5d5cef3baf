"""The oracle's books of where messages are, how they were routed, what there is room for, and of priorities and counts.

Each says yes to a history that is correct, and no to each fault that it is for: at the step with which that happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from history import History, Step
from simulator.books.limits import Limits
from simulator.books.priorities import Priorities
from simulator.books.routing import Routing
from simulator.books.statistics import COUNTER, Statistics
from simulator.ledger import Broken

from leveret.engine import ConnectionEvent, EventKind

Case = tuple[str, list[Step]]


def say_no(history: History, steps: Sequence[Step], sentence: str) -> None:
    """To the last step, and to none before it."""
    history.tell(steps[:-1])
    with pytest.raises(Broken, match=sentence):
        history.tell(steps[-1:])


# -- whereabouts ------------------------------------------------------------------------------------------------------

#: Four messages of a queue, each on its way: settled, out again, waiting, expired.
COURSE: list[Step] = [
    ("enqueued", "a", [1, 2, 3, 4]),
    ("delivered", "a", [1, 2, 3]),
    ("acked", "a", [1]),
    ("requeued", "a", [2]),
    ("delivered", "a", [2]),
    ("scheduled", "a", [3], 10),
    ("left", "a", [4], "expired"),
    ("has", "a", [], {"out": 1}),
    ("has_waiting", "a", (3, 10)),
    ("check",),
    ("due", "a", [3]),
    ("delivered", "a", [3]),
    ("acked", "a", [2, 3]),
    ("has", "a", []),
    ("has_waiting", "a"),
    ("check",),
]

LOST_ITS_WAY: list[Case] = [
    ("and was out already", [*COURSE[:2], ("delivered", "a", [2])]),
    ("and was still waiting", [*COURSE[:6], ("delivered", "a", [3])]),
    ("and was not there", [*COURSE, ("delivered", "a", [1])]),
    ("was acknowledged and was not out", [*COURSE[:1], ("acked", "a", [1])]),
    ("was requeued and was not out", [*COURSE, ("requeued", "a", [1])]),
    ("was sent to wait and was not out", [*COURSE[:1], ("scheduled", "a", [1], 10)]),
    ("is due and did not wait", [*COURSE[:2], ("due", "a", [1])]),
    (r"left \(purged\) and was not there", [*COURSE, ("left", "a", [4], "purged")]),
    ("1 ready, by the books 2", [("enqueued", "a", [1, 2]), ("has", "a", [1]), ("check",)]),
    ("0 out, by the books 1", [("enqueued", "a", [1]), ("delivered", "a", [1]), ("has", "a", []), ("check",)]),
    ("0 waiting, by the books 1", [*COURSE[:7], ("has", "a", [], {"out": 1}), ("check",)]),
    ("was delivered and is not there", [("enqueued", "kept", [1]), ("delivered", "kept", [2])]),
    ("but for", [("enqueued", "kept", [1]), ("delivered", "kept", [1]), ("acked", "kept", [1])]),
]


def of_whereabouts() -> History:
    return History(lambda history: history.where, a={}, kept={"keeps": True})


def test_whereabouts_knows_the_course_of_a_message() -> None:
    of_whereabouts().tell(COURSE)


def test_whereabouts_lets_copies_of_a_queue_that_keeps_go_as_often_as_they_like() -> None:
    delivered: Step = ("delivered", "kept", [1])
    acked: Step = ("acked", "kept", [1], {"kept": True})
    of_whereabouts().tell([("enqueued", "kept", [1]), delivered, delivered, acked, ("has", "kept", [1]), ("check",)])


def test_whereabouts_begins_with_what_a_new_life_found() -> None:
    history = of_whereabouts()
    history.tell([("has", "a", [5, 6]), ("has_waiting", "a", (9, 10)), ("restarted",), ("delivered", "a", [5])])
    place = history.where.places["/", "a"]
    assert (list(place.ready), list(place.out), list(place.waiting)) == ([6], [5], [9])
    history.tell([("undeclared", "a"), ("declared", "a"), ("check",)])


@pytest.mark.parametrize(("sentence", "steps"), LOST_ITS_WAY)
def test_whereabouts_says_no(sentence: str, steps: list[Step]) -> None:
    say_no(of_whereabouts(), steps, sentence)


# -- routing ----------------------------------------------------------------------------------------------------------


def of_routing() -> History:
    return History(lambda history: Routing(), a={}, b={})


def test_routing_sees_each_message_come_where_it_was_routed_once() -> None:
    history = of_routing()
    refused: Step = ("left", "b", [3], "dropped", {"reason": "maxlen", "came_in": False})
    history.tell([("published", [1, 2], ["a", "b"]), ("enqueued", "a", [1]), ("enqueued", "a", [2])])
    history.tell([("enqueued", "b", [1, 2]), ("turn_ended",)])
    history.tell([("published", [3], ["b"]), refused, ("published", [4], []), ("turn_ended",)])
    routing = history.book
    assert isinstance(routing, Routing)
    assert routing.refused == {routing.keys[3]}
    assert routing.unroutable == {routing.keys[4]}
    assert routing.seen == set(routing.keys.values())


@pytest.mark.parametrize(
    ("sentence", "steps"),
    [
        ("did not come to where", [("published", [1], ["a", "b"]), ("enqueued", "a", [1]), ("turn_ended",)]),
        ("was not routed there", [("published", [1], ["a"]), ("enqueued", "b", [1])]),
        ("or twice", [("published", [1], ["a"]), ("enqueued", "a", [1]), ("enqueued", "a", [1])]),
        ("or twice", [("published", [1]), ("enqueued", "a", [1]), ("published", [2], {"numbers": [1]})]),
        ("was published to a after", [("published", [1, 2], ["a"], {"numbers": [2, 1]})]),
    ],
)
def test_routing_says_no(sentence: str, steps: list[Step]) -> None:
    say_no(of_routing(), steps, sentence)


def test_routing_knows_what_was_sent_again_and_what_was_rolled_back() -> None:
    history = of_routing()
    routing = history.book
    assert isinstance(routing, Routing)
    history.tell([("published", [1, 2]), ("enqueued", "a", [1, 2])])
    routing.again.add(routing.keys[1])
    history.tell([("published", [3], {"numbers": [1]}), ("enqueued", "a", [3]), ("turn_ended",)])
    routing.never.add(routing.keys[2])
    history.tell([("published", [4], [], {"numbers": [2], "exchange": "amq.rabbitmq.trace"})])  # traced nevertheless
    say_no(history, [("published", [5], {"numbers": [2]})], "although it was rolled back")


def test_what_a_journal_that_has_failed_refuses_is_refused() -> None:
    history = of_routing()
    history.broker.context.storage.durability.has_failed = True
    history.tell([("published", [1]), ("turn_ended",)])
    assert isinstance(history.book, Routing)
    assert history.book.refused == set(history.book.keys.values())


# -- limits -----------------------------------------------------------------------------------------------------------

EVICTED = "evicted"
MAXLEN = {"reason": "maxlen"}


def of_limits() -> History:
    return History(
        lambda history: Limits(history.where),
        a={},
        ring={"ring_size": 2},
        slow_ring={"ring_size": 2, "delay_ms": 10},
        bounded={"max_length": 2},
        refusing={"refuses_at": 2},
    )


def test_limits_lets_the_oldest_go_and_refuses_what_is_too_much() -> None:
    of_limits().tell(
        [
            ("enqueued", "ring", [1, 2, 3]),
            ("left", "ring", [1], EVICTED),
            ("enqueued", "bounded", [1, 2, 3, 4]),
            ("left", "bounded", [1, 2], "dropped", MAXLEN),
            ("enqueued", "refusing", [1]),
            ("enqueued", "refusing", [2]),
            ("left", "refusing", [3], "dropped", {"reason": "maxlen", "came_in": False}),
            ("enqueued", "slow_ring", [1, 2]),
            ("delivered", "slow_ring", [1, 2]),
            ("enqueued", "slow_ring", [3, 4]),
            ("left", "slow_ring", [1], EVICTED),
            ("check",),
        ]
    )


@pytest.mark.parametrize(
    ("sentence", "steps"),
    [
        ("3 ready of 2", [("enqueued", "ring", [1, 2, 3]), ("check",)]),
        ("3 ready of 2", [("enqueued", "bounded", [1, 2, 3]), ("check",)]),
        ("has no limit", [("enqueued", "a", [1]), ("left", "a", [1], EVICTED)]),
        ("with 2 ready of 2", [("enqueued", "ring", [1, 2]), ("left", "ring", [1], EVICTED)]),
        ("the oldest is 1", [("enqueued", "ring", [1, 2, 3]), ("left", "ring", [2], EVICTED)]),
        ("are not the oldest", [("enqueued", "bounded", [1, 2, 3, 4]), ("left", "bounded", [1, 3], "dropped", MAXLEN)]),
        ("and were out", [("enqueued", "ring", [1, 2]), ("delivered", "ring", [1]), ("left", "ring", [1], EVICTED)]),
        (
            r"took \[3\], with 2 ready of 2",
            [("enqueued", "refusing", [1]), ("enqueued", "refusing", [2]), ("enqueued", "refusing", [3])],
        ),
        (
            r"refused \[2\], with 1 ready of 2",
            [("enqueued", "refusing", [1]), ("left", "refusing", [2], "dropped", {**MAXLEN, "came_in": False})],
        ),
    ],
)
def test_limits_says_no(sentence: str, steps: list[Step]) -> None:
    say_no(of_limits(), steps, sentence)


# -- priorities -------------------------------------------------------------------------------------------------------

#: Ids 1 and 2 have priority 0, 3 and 4 have 5, as have 5 and 6 after that was cut to what the queue knows.
LEVELS: list[Step] = [
    ("enqueued", "a", [1, 2]),
    ("enqueued", "a", [3, 4], {"priority": 5}),
    ("enqueued", "a", [5, 6], {"priority": 9}),
]


def of_priorities() -> History:
    return History(lambda history: Priorities(history.where), a={"priority_max": 5})


def test_priorities_has_the_highest_first_and_of_one_the_oldest() -> None:
    ended: Step = ("turn_ended",)
    history = of_priorities()
    history.tell(
        [*LEVELS, ("delivered", "a", [3, 4]), ended, ("requeued", "a", [3, 4]), ("delivered", "a", [3]), ended]
    )
    history.tell([("delivered", "a", [5]), ("delivered", "a", [4]), ended])  # two consumers in one turn
    history.tell([("delivered", "a", [6, 1]), ended, ("delivered", "a", [2]), ended, ("check",)])


@pytest.mark.parametrize("went", [[1], [4], [3, 5], [3, 4, 6], [3, 4, 5, 6, 2]])
def test_priorities_says_no_to_what_went_before_its_turn(went: list[int]) -> None:
    say_no(of_priorities(), [*LEVELS, ("delivered", "a", went), ("turn_ended",)], "lower or newer ones went before")


def test_priorities_says_no_to_what_came_back_and_was_passed() -> None:
    steps: list[Step] = [*LEVELS, ("delivered", "a", [3, 4]), ("turn_ended",), ("requeued", "a", [3])]
    say_no(of_priorities(), [*steps, ("delivered", "a", [5]), ("turn_ended",)], r"went before \[3\]")


def test_priorities_says_no_to_what_nobody_announced() -> None:
    history = of_priorities()
    history.tell(LEVELS)
    history.where.places["/", "a"].ready[7] = None
    say_no(history, [("check",)], "nobody announced")


# -- statistics -------------------------------------------------------------------------------------------------------


def of_statistics(**counters: int) -> History:
    """The engine counts what it should, but for `counters`; there was one message of each fate."""
    history = History(lambda history: Statistics(history.where), a={})
    ids = list(range(1, len(COUNTER) + 4))
    history.tell([("published", ids), ("published", [99], []), ("enqueued", "a", ids), ("delivered", "a", [1, 2])])
    history.tell([("requeued", "a", [1]), ("acked", "a", [2]), ("scheduled", "a", [1], 5, {"counted": None})])
    counted: dict[str, Any] = history.broker.counted.counters
    counted |= {"published": len(ids) + 1, "unroutable": 1}
    queue = history.broker.queues["a"].counters
    queue.enqueued, queue.delivered, queue.requeued, queue.acknowledged = len(ids), 2, 1, 1
    for id_, (kind, counter) in enumerate(COUNTER.items(), 3):
        history.tell([("left", "a", [id_], kind.value)])
        setattr(queue, counter, getattr(queue, counter) + 1)
    for name, more in counters.items():
        if name in counted:
            counted[name] += more
        else:
            setattr(queue, name, getattr(queue, name) + more)
    history.broker.counted.queues, history.broker.counted.ready, history.broker.counted.scheduled = 1, 1, 1
    return history


def test_statistics_agrees_with_counters_that_are_right() -> None:
    of_statistics().tell([("check",)])
    assert set(COUNTER) <= set(EventKind)


def test_statistics_begins_with_what_was_counted_before_it_looked() -> None:
    history = of_statistics(enqueued=3, published=2)
    history.tell([("has", "a", [1]), ("restarted",)])
    history.broker.counted.scheduled = 0
    history.tell([("check",)])


@pytest.mark.parametrize("name", [*sorted({*COUNTER.values()} - {"dropped"}), "enqueued", "delivered", "acknowledged"])
def test_statistics_says_no_to_a_counter_of_a_queue(name: str) -> None:
    say_no(of_statistics(**{name: 1}), [("check",)], f"counts 2 {name}|counts .* {name}, of events")


@pytest.mark.parametrize("name", ["published", "unroutable"])
def test_statistics_says_no_to_a_counter_of_the_broker(name: str) -> None:
    say_no(of_statistics(**{name: -1}), [("check",)], f"the broker counts .* {name}, of events")


def test_totals_of_connections_never_fall() -> None:
    """Also when a connection ends."""
    history = of_statistics()
    totals = {"octets_in": 1, "octets_out": 5, "reads": 1, "writes": 1}
    history.broker.connections = [SimpleNamespace(connection_info=SimpleNamespace(**totals))]
    history.tell([("check",)])
    history.broker.connections = []
    history.broker.context.activity = SimpleNamespace(**totals)
    history.tell([("check",)])
    history.broker.context.activity = SimpleNamespace(**totals | {"octets_out": 4})
    with pytest.raises(Broken, match="counts 4 octets_out, before there were 5"):
        history.event(ConnectionEvent(EventKind.CONNECTION_CLOSED, "/", "peer"))


@pytest.mark.parametrize("name", ["queues", "ready", "scheduled"])
def test_statistics_says_no_to_a_sum(name: str) -> None:
    history = of_statistics()
    setattr(history.broker.counted, name, 7)
    say_no(history, [("check",)], f"the broker counts 7 {name}")
