"""The table of leases beside a list of what runs, each with its own end."""

from __future__ import annotations

from random import Random

import pytest

from leveret.engine import MS, Envelope, Message
from leveret.engine.leases.book import LeaseTable

ENVELOPE = Envelope("", "k")


def message(id_: int, deliveries: int) -> Message:
    return Message(id_, b"", ENVELOPE, None, deliveries)


@pytest.mark.parametrize("seed", range(60))
def test_as_a_list(seed: int) -> None:
    """Begun, begun again, renewed, ended by acts and by time, with another period: none ends early, or twice."""
    chance = Random(seed)
    period = chance.choice((0, 5, 20)) * MS
    table, running, now_ns = LeaseTable(period), {}, 1_000_000_000
    deliveries: dict[int, int] = {}
    for _ in range(400):
        verb = chance.choice(
            ("begin", "begin", "end", "end", "wait", "renew", "period" if chance.random() < 0.1 else "")
        )
        if verb == "begin":
            ids = sorted({chance.randrange(1, 60) for _ in range(4)} - set(running))
            for id_ in ids:
                deliveries[id_] = deliveries.get(id_, 0) + 1
                running[id_] = now_ns + period if period else 0
            if ids:
                due_ns = table.begin([message(id_, deliveries[id_]) for id_ in ids], now_ns)
                assert due_ns == (now_ns + period if period else 0)
        elif verb == "end" and running:
            ended = chance.sample(sorted(running), min(3, len(running)))
            assert table.end([message(id_, 1) for id_ in ended])
            assert not table.end([message(id_, 1) for id_ in ended])
            for id_ in ended:
                del running[id_]
        elif verb == "renew" and running:
            id_ = chance.choice(sorted(running))
            table.renew(table.by_id[id_], now_ns)
            running[id_] = now_ns + period if period else 0
        elif verb == "wait":
            now_ns += chance.randrange(1, 8) * MS
            over = {id_ for id_, due_ns in running.items() if 0 < due_ns <= now_ns}
            gone: list[int] = []
            while some := table.ended(now_ns, 2):
                gone += [one.id for one in some]
                table.end(some)
            assert set(gone) == over and len(gone) == len(over)
            for id_ in over:
                del running[id_]
        elif verb == "period":
            before, period = period, chance.choice((0, 5, 20)) * MS
            table.change_period(period, now_ns)
            for id_, due_ns in running.items():
                running[id_] = (due_ns - before if due_ns else now_ns) + period if period else 0
        assert set(table.by_id) == set(running) and len(table) == len(running)
        assert {one.id: due_ns for one, due_ns in table.by_end()} == running
        assert table.next_ns() == min(filter(None, running.values()), default=0)


def test_those_of_one_instant_end_together() -> None:
    """Leases that begin within a millisecond end when the last of them does; none waits longer than that for it."""
    table = LeaseTable(50 * MS)
    assert [table.begin([message(id_, 1)], id_ * MS // 4) for id_ in range(1, 9)][-1] == 52 * MS
    ends = [due_ns for _, due_ns in table.by_end()]
    assert ends == [51 * MS] * 4 + [52 * MS] * 4


def test_what_is_acknowledged_leaves_nothing_behind() -> None:
    """However long a lease lasts, what is noted follows what is out, not what was."""
    table = LeaseTable(3_600_000 * MS)
    held = message(1, 1)
    table.begin([held], 1)
    for id_ in range(2, 20_000):
        one = message(id_, 1)
        table.begin([one], id_ * MS)
        table.end([one])
    assert list(table._begun_ns) == list(table.by_id) == [1]
