"""latency, depth, redelivery, loss and fairness on journals of a few lines, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from told_events import answered, at, told

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
from leveret.pipeline.jobs.backlog import blocked, depth
from leveret.pipeline.jobs.failures import loss, redelivery
from leveret.pipeline.jobs.tables import NotRecorded
from leveret.pipeline.jobs.timing import fairness, latency

TWO = (
    "1 0 enqueued 1 q", "2 10 enqueued 2 q", "3 100 delivered 1 q attempt=1 consumer=a conn_id=7",
    "4 150 acked 1 q consumer=a conn_id=7", "5 210 delivered 2 q attempt=1 consumer=b conn_id=8",
    "6 220 requeued 2 q attempt=1 arg_ms=500 reason=nacked",
    "7 720 delivered 2 q attempt=2 consumer=b conn_id=8 flags=33",
    "8 1010 acked 2 q consumer=b conn_id=8",
)  # fmt: skip


def test_latency(engine: Any) -> None:
    """Waiting ends with the first delivery, service begins with the last."""
    tables = told(engine, *TWO)
    (row,) = answered(tables, "latency", latency(tables, 60))
    assert (row.queue, row.window_start, row.n) == ("q", at(0), 2)
    assert (row.queue_ms_p50, row.queue_ms_p99) == (100, 200)
    assert (row.service_ms_p50, row.service_ms_p99) == (50, 290)
    assert (row.e2e_ms_p50, row.e2e_ms_p999) == (150, 1000)


def depths(engine: Any, *lines: str, window_s: int = 1, until: int = 0) -> list[Any]:
    tables = told(engine, *lines)
    return answered(tables, "depth", depth(tables, window_s, int(at(0).timestamp()) + until))


def test_depth(engine: Any) -> None:
    """Running sums, in windows; the octets go with the messages; the most and the least of every moment."""
    rows = depths(engine, *TWO, "9 2000 enqueued 3 q")
    assert [
        (row.depth_end, row.depth_min, row.depth_max, row.in_per_s, row.out_per_s, row.bytes_end) for row in rows
    ] == [(1, 0, 2, 2.0, 1.0, 10), (0, 0, 1, 0.0, 1.0, 0), (1, 0, 1, 1.0, 0.0, 10)]


def test_depth_of_a_peak_within_a_second(engine: Any) -> None:
    """Ten came and went within some milliseconds: the depth was ten, though no second ended so."""
    came = [f"{n} {n} enqueued {n} q" for n in range(1, 11)]
    went = [f"{n + 10} {n + 100} acked {n} q" for n in range(1, 11)]
    (row,) = depths(engine, *came, *went, window_s=60)
    assert (row.depth_end, row.depth_min, row.depth_max) == (0, 0, 10)
    at_once = [f"99 200 purged {n} q" for n in range(1, 11)]  # one record: never nine
    (row,) = depths(engine, "98 100 enqueued 50 q", *came, *at_once, "100 300 acked 50 q", window_s=60)
    assert (row.depth_end, row.depth_min, row.depth_max) == (0, 0, 11)


def test_depth_of_windows_in_which_nothing_happened(engine: Any) -> None:
    """A row each, up to the end of the lake while messages are left; an empty queue ends with its last event."""
    rows = depths(
        engine, "1 0 enqueued 1 q", "2 0 enqueued 2 q", "3 3000 acked 1 q", "4 0 enqueued 3 r", "5 500 acked 3 r",
        until=5,
    )  # fmt: skip
    of_q = [(row.depth_min, row.depth_max, row.depth_end, row.in_per_s) for row in rows if row.queue == "q"]
    assert of_q == [(0, 2, 2, 2.0), (2, 2, 2, 0.0), (2, 2, 2, 0.0), (1, 2, 1, 0.0), (1, 1, 1, 0.0), (1, 1, 1, 0.0)]
    assert [row.depth_end for row in rows if row.queue == "r"] == [0]
    assert [row.window_start for row in rows] == sorted(row.window_start for row in rows if row.queue == "q") + [
        rows[-1].window_start
    ]


def test_redelivery(engine: Any) -> None:
    """Attempts, pauses, who had it last; dead of its attempts is poison."""
    tables = told(
        engine, *TWO, "9 1 enqueued 3 q", "10 2 killed 3 q reason=delivery_limit", "11 3 killed 4 q reason=maxlen"
    )
    found = {row.msg_id: row for row in answered(tables, "redelivery", redelivery(tables))}
    assert set(found) == {2, 3, 4}
    assert (found[2].attempts, found[2].requeues, found[2].backoff_ms) == (2, 1, [500])
    assert (found[2].last_consumer, found[2].last_reason, found[2].dead, found[2].poison) == (
        "b",
        "nacked",
        False,
        False,
    )
    assert [(found[id_].dead, found[id_].poison) for id_ in (3, 4)] == [(True, True), (True, False)]
    assert {row.msg_id for row in answered(tables, "redelivery", redelivery(tables, 2)) if row.poison} == {2, 3}


def test_a_message_that_came_back_had_an_attempt(engine: Any) -> None:
    """Of a consumer that left, whose deliveries the broker does not count."""
    tables = told(
        engine, "1 0 enqueued 1 q", "2 1 delivered 1 q attempt=1", "3 2 requeued 1 q reason=closed",
        "4 3 delivered 1 q attempt=1 flags=33", "5 4 acked 1 q",
    )  # fmt: skip
    found = answered(tables, "redelivery", redelivery(tables))
    assert [(row.msg_id, row.attempts, row.redeliveries, row.requeues, row.poison) for row in found] == [
        (1, 1, 1, 1, False),
    ]


def test_a_mark_on_a_first_delivery_is_no_redelivery(engine: Any) -> None:
    """A new leader of a cluster marks what waited, whether it was delivered before or not."""
    tables = told(
        engine, "1 0 led 0 reason={}", "2 0 enqueued 1 q", "3 0 enqueued 2 q", "4 1 delivered 2 q attempt=1",
        "5 9 led 0 reason={}", "6 10 delivered 1 q attempt=1 flags=33", "7 11 acked 1 q",
        "8 12 delivered 2 q attempt=1 flags=33", "9 13 acked 2 q",
    )  # fmt: skip
    assert [(row.msg_id, row.redeliveries) for row in answered(tables, "redelivery", redelivery(tables))] == [(2, 1)]


def test_returns_after_a_delay_are_returns(engine: Any) -> None:
    """They are recorded as scheduled, as is what was published with a delay."""
    tables = told(
        engine, "1 0 enqueued 1 q", "2 0 scheduled 1 q arg_ms=50 reason=published", "3 50 due 1 q",
        "4 60 delivered 1 q attempt=1", "5 70 scheduled 1 q attempt=1 arg_ms=500 reason=nacked", "6 570 due 1 q",
        "7 0 enqueued 2 q", "8 9 scheduled 2 q arg_ms=50 reason=published",
        "9 10 enqueued 3 q", "10 11 delivered 3 q attempt=1", "11 12 killed 3 q reason=rejected",
    )  # fmt: skip
    found = answered(tables, "redelivery", redelivery(tables))
    assert [(row.msg_id, row.requeues, row.backoff_ms, row.poison) for row in found] == [
        (1, 1, [500], False),
        (3, 0, [], False),
    ]
    assert {row.msg_id: row.requeues for row in answered(tables, "fates", f"SELECT * FROM {tables.lives_view()}")} == {
        1: 1,
        2: 0,
        3: 0,
    }


@pytest.mark.parametrize(
    "reason, end, is_poison",
    [
        ("nacked", "acked 1 q", (False, True)),  # gave it back, though no attempt was counted
        ("lost", "acked 1 q", (False, True)),
        ("closed", "acked 1 q", (False, False)),  # left, in order, with what it had not begun
        ("closed", "killed 1 q reason=rejected", (False, False)),
        ("closed", "dead_lettered 1 q reason=delivery_limit", (True, True)),
    ],
)
def test_what_is_poison(engine: Any, reason: str, end: str, is_poison: tuple[bool, bool]) -> None:
    """Consumers failed with it again and again, or its attempts were used up; not what one rejected at once."""
    again = [
        line
        for n in range(3)
        for line in (
            f"{2 * n + 2} {n} delivered 1 q attempt=1",
            f"{2 * n + 3} {n} requeued 1 q attempt=1 reason={reason}",
        )
    ]
    tables = told(engine, "1 0 enqueued 1 q", *again, "8 9 delivered 1 q attempt=1", f"9 9 {end}")
    found = [answered(tables, "redelivery", redelivery(tables, limit)) for limit in (4, 3)]
    assert tuple(one.poison for (one,) in found) == is_poison


def test_loss(engine: Any) -> None:
    """What left unread, by cause, with its age and octets; a ring does it on purpose."""
    tables = told(
        engine, *TWO, "9 0 enqueued 3 q", "10 0 enqueued 4 q size_bytes=5", "11 40 evicted 3 q", "12 60 evicted 4 q",
        "13 0 enqueued 5 r", "14 1000 expired 5 r",
    )  # fmt: skip
    found = {(row.queue, row.cause): row for row in answered(tables, "loss", loss(tables))}
    assert set(found) == {("q", "evicted"), ("r", "expired")}
    evicted = found["q", "evicted"]
    assert (evicted.n, evicted.bytes, evicted.age_ms_p50, evicted.age_ms_max) == (0, 0, 40, 60)
    assert (evicted.moved, evicted.refused, evicted.discarded) == (0, 0, 2)
    expired = found["r", "expired"]
    assert (expired.n, expired.bytes, expired.moved, expired.refused, expired.discarded) == (1, 10, 0, 0, 0)


def test_what_lives_on_is_not_lost(engine: Any) -> None:
    """A dead letter that arrived is followed to its end, under its own queue; one that no queue took is lost."""
    tables = told(
        engine,
        *(f"{id_} 0 published {id_}" for id_ in (1, 2, 3, 4)),
        *(f"{id_ + 4} 0 enqueued {id_} q" for id_ in (1, 2, 3)),
        "8 1 dropped 4 q reason=maxlen",  # refused: its publisher was told
        "9 5 expired 1 q reason=expired", "10 5 dead_lettered 2 q reason=rejected",
        "11 5 dead_lettered 3 q reason=rejected",
        "12 6 published 11 cause_id=1", "13 6 enqueued 11 dead",
        "14 6 published 12 cause_id=2", "15 6 enqueued 12 dead",
        "16 6 published 13 cause_id=3",
        "17 9 expired 11 dead reason=expired",
        "18 9 acked 12 dead",
    )  # fmt: skip
    rows = answered(tables, "loss", loss(tables))
    assert [(row.queue, row.cause, row.n, row.bytes, row.moved, row.refused, row.discarded) for row in rows] == [
        ("dead", "expired", 1, 10, 0, 0, 0),
        ("q", "dead_lettered", 1, 10, 1, 0, 0),
        ("q", "dropped", 0, 0, 0, 1, 0),
        ("q", "expired", 0, 0, 1, 0, 0),
    ]


def test_of_two_queues_the_copy_is_that_of_the_one_with_a_target(engine: Any) -> None:
    """The message expired in both, and one of them has a dead-letter exchange."""
    tables = told(
        engine, "1 0 published 1", "2 0 enqueued 1 a", "3 0 enqueued 1 b", "4 5 expired 1 a address=dlx",
        "5 5 expired 1 b", "6 5 published 2 cause_id=1", "7 5 enqueued 2 dead",
    )  # fmt: skip
    rows = answered(tables, "loss", loss(tables))
    assert [(row.queue, row.n, row.moved) for row in rows] == [("a", 0, 1), ("b", 1, 0)]


def test_a_stream_that_drops_its_oldest_loses_nothing(engine: Any) -> None:
    """Its retention is what it was declared for; and a message that was purged was to go."""
    tables = told(
        engine, '1 0 declared 0 s reason={"x-queue-type":"stream"}', "2 0 enqueued 1 s", "3 9 dropped 1 s",
        "4 9 enqueued 2 q", "5 9 purged 2 q",
    )  # fmt: skip
    rows = answered(tables, "loss", loss(tables))
    assert [(row.queue, row.cause, row.n, row.discarded) for row in rows] == [
        ("q", "purged", 0, 1),
        ("s", "dropped", 0, 1),
    ]


def test_octets_that_nobody_recorded_are_not_zero(engine: Any) -> None:
    """Of a message that entered before the lake begins."""
    tables = told(engine, "5 0 expired 1 q", "6 0 published 7", base_lsn=5)
    (row,) = answered(tables, "loss", loss(tables))
    assert (row.n, row.bytes, row.age_ms_max) == (1, None, None)
    more = ("6 0 published 7", "7 0 enqueued 7 q", "8 0 expired 7 q")
    tables = told(engine, "5 0 expired 1 q", *more, base_lsn=5)
    (row,) = answered(tables, "loss", loss(tables))
    assert (row.n, row.bytes) == (2, None), "of a sum of which a part is not known nothing is"


@pytest.mark.parametrize(
    "line", ['2 0 declared 0 q reason={"x-queue-type":"stream"}', "9 3 acked 1 q flags=3", "2 0 consumer_added 0"]
)
def test_two_readers_of_a_stream_are_no_redelivery(engine: Any, line: str) -> None:
    """Nor after a second start; in a queue that keeps nothing the second delivery is one."""
    tables = told(
        engine, '1 0 settings_changed 0 vhost= reason={}', line, "3 0 enqueued 1 q",
        "4 1 delivered 1 q attempt=1 consumer=a", '5 2 settings_changed 0 vhost= reason={}',
        "6 3 delivered 1 q attempt=1 consumer=b",
    )  # fmt: skip
    assert len(answered(tables, "redelivery", redelivery(tables))) == ("consumer_added" in line)


def test_fairness(engine: Any) -> None:
    """Shares of deliveries; service time is from a consumer's own delivery to its ack."""
    tables = told(engine, *TWO)
    found = {row.consumer: row for row in answered(tables, "fairness", fairness(tables))}
    assert [(found[name].deliveries, found[name].acked) for name in "ab"] == [(1, 1), (2, 1)]
    assert found["b"].share == pytest.approx(2 / 3)
    assert (found["a"].service_ms_p50, found["b"].service_ms_max) == (50, 290)


def test_not_recorded(engine: Any) -> None:
    """A journal without deliveries gives no figures rather than zeros."""
    tables = told(engine, *TWO, scope="durable")
    for job in (redelivery, fairness):
        with pytest.raises(NotRecorded, match='not recorded; .*scope = "all"'):
            job(tables)


def test_blocked(engine: Any) -> None:
    """One row for each wait of a connection at one limit; one that still waits has no end."""

    def line(lsn: int, ms: int, kind: str, conn: int, limit: str, waited_ms: int) -> str:
        text = f'{{"connection":"c{conn}","destination":"broker","limit":"{limit}","waited_ms":{waited_ms}}}'
        return f"{lsn} {ms} {kind} 0 conn_id={conn} reason={text}"

    tables = told(
        engine,
        line(1, 0, "blocked", 7, "memory", 0),
        line(2, 10, "blocked", 8, "memory", 0),
        line(3, 50, "unblocked", 7, "memory", 50),
        line(4, 60, "blocked", 7, "store", 0),
        line(5, 90, "unblocked", 7, "store", 30),
    )
    rows = answered(tables, "blocked", blocked(tables))
    assert [(row.connection, row.limit, row.since, row.until, row.waited_ms) for row in rows] == [
        ("c8", "memory", at(10), None, None),
        ("c7", "memory", at(0), at(50), 50),
        ("c7", "store", at(60), at(90), 30),
    ]


@pytest.mark.parametrize("start", ["settings_changed 0 vhost= reason={}", "led 0 vhost= reason={}"])
def test_who_was_blocked_when_the_broker_was_killed(start: str, engine: Any) -> None:
    """Waits no longer, as no connection of before is left; nor does a later wait of the same number end that one."""
    text = '{"connection":"c7","destination":"broker","limit":"memory","waited_ms":%d}'
    tables = told(
        engine,
        "1 0 settings_changed 0 vhost= reason={}",
        f"2 10 blocked 0 conn_id=7 reason={text % 0}",
        f"3 20 {start}",
        f"4 30 blocked 0 conn_id=7 reason={text % 0}",
        f"5 70 unblocked 0 conn_id=7 reason={text % 40}",
        f"6 80 blocked 0 conn_id=8 reason={text % 0}",
        f"7 90 {start}",
    )
    rows = answered(tables, "blocked", blocked(tables))
    assert [(row.since, row.until, row.waited_ms) for row in rows] == [
        (at(10), at(20), 10),
        (at(30), at(70), 40),
        (at(80), at(90), 10),
    ]
