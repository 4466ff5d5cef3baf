"""A tail against lists: whatever is put where, it comes out in the same order, with the same sizes and expiries."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.engine import Envelope, Message
from leveret.engine.messages.content import NATIVE, PropertySummary, encode_header
from leveret.engine.messages.levels import up_to
from leveret.engine.stores import paged_run
from leveret.engine.stores.levels import merge_back
from leveret.engine.stores.paged_run import IN_JOURNAL, Location, PagedRun, Taken
from leveret.engine.stores.tail import Tail

LEVEL_MAX = 2
ENVELOPES = [Envelope("", "q", PropertySummary(priority=level)) for level in range(4)]
CHUNK = object()

#: (what, level, how many or which, expiry of each: 0 is never)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["extend", "extend", "extend", "spool", "append", "insert", "sink", "take", "due"]),
        st.integers(0, 3),
        st.integers(1, 7),
        st.sampled_from([0, 0, 5, 9]),
    ),
    max_size=40,
)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Three messages are worth a run of their own, ten are the most in one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paged_run, "APART_MIN", 3)
        patch.setattr(paged_run, "RUN_MAX", 10)
        yield


def message(id_: int, level: int, expires_ns: int) -> Message:
    """Its body has as many octets as its id says, modulo 5."""
    body = bytes(id_ % 5)
    made = Message(id_, NATIVE.join(encode_header(len(body), {}), body), ENVELOPES[level])
    made.expires_ns = expires_ns
    return made


class Twin:
    """A tail, and what it should hold: (id, expiry) by level."""

    def __init__(self) -> None:
        self.tail = Tail(up_to(LEVEL_MAX))
        self.tail.count_octets()
        self.levels: list[deque[Message]] = [deque() for _ in range(LEVEL_MAX + 1)]
        self.next_id = 1
        self.spooled = 0

    def extend(self, level: int, count: int, expires_ns: int, location: Location | None = None) -> None:
        """Every other run leaves a gap before it, as when other queues got something."""
        first = self.next_id + count % 2
        self.next_id = first + count
        new = [message(id_, level, expires_ns) for id_ in range(first, self.next_id)]
        self.levels[min(level, LEVEL_MAX)].extend(new)
        sizes = [len(one.body) for one in new]
        expires = [expires_ns] * count if expires_ns else None
        envelope = {} if location is None else {"envelope": ENVELOPES[level]}
        self.tail.extend(first, sizes, expires, location=location, level=min(level, LEVEL_MAX), **envelope)

    def step(self, what: str, level: int, number: int, expires_ns: int) -> None:
        """One of the steps."""
        here = self.levels[min(level, LEVEL_MAX)]
        if what == "extend":
            self.extend(level, number, expires_ns)
        elif what == "spool":
            location = Location(CHUNK, self.spooled)
            self.extend(level, number, expires_ns, location)
            self.spooled += sum(len(one.body) for one in list(here)[-number:])
        elif what == "append":
            one = message(self.next_id, level, expires_ns)
            self.next_id += 1
            self.tail.append(one)
            here.append(one)
        elif what == "insert" and here:
            one = message(max(here[number % len(here)].id - 1, 1), level, expires_ns)
            if all(one.id != other.id for other in here):
                self.tail.insert(min(level, LEVEL_MAX), paged(one) if one.id % 3 else one)
                merge_back(here, [one])
        elif what == "sink":
            first = min((one.id for one in here), default=self.next_id) - 2 * number
            back = [message(first + 2 * at - at % 2, level, expires_ns) for at in range(number)]
            if back[0].id > 0:
                self.tail.put_back(min(level, LEVEL_MAX), [paged(one) if one.id % 3 else one for one in back])
                here.extendleft(reversed(back))
                self.next_id = max(self.next_id, back[-1].id + 1)
        elif what == "take":
            floor = self.tail.floor
            taken = flat(self.tail.take(number, 6))
            assert taken == facts([self.levels[floor].popleft() for _ in taken])
            assert taken or not any(self.levels)
        elif what == "due":
            taken = flat(self.tail.take_expired(min(level, LEVEL_MAX), 5, number))
            due = []
            while here and len(due) < number and 0 < here[0].expires_ns <= 5:
                due.append(here.popleft())
            assert taken == facts(due)


def paged(one: Message) -> PagedRun:
    """Left to the journal, in a run of its own."""
    run = PagedRun(one.id, None, IN_JOURNAL)
    run.extend(one.id, (len(one.body),), (one.expires_ns,) if one.expires_ns else None)
    return run


def facts(messages: list[Message]) -> list[tuple[int, int, int]]:
    """(id, octets of body, expiry)."""
    return [(one.id, len(one.body), one.expires_ns) for one in messages]


def flat(taken: list[Taken | Message]) -> list[tuple[int, int, int]]:
    """The same of what a tail gives."""
    found: list[tuple[int, int, int]] = []
    for part in taken:
        if isinstance(part, Message):
            found += facts([part])
        else:
            found += zip(part.ids, part.sizes, part.expires or [0] * len(part.ids), strict=True)
    return found


@settings(max_examples=examples(200))
@given(steps=STEPS)
def test_order(steps: list[tuple[str, int, int, int]]) -> None:
    """After each step the two hold the same."""
    twin = Twin()
    for step in steps:
        twin.step(*step)
        tail, levels = twin.tail, twin.levels
        expected = [one for level in reversed(levels) for one in level]
        found: list[tuple[int, int, int]] = []
        for part in tail.parts():
            if isinstance(part, Message):
                found += facts([part])
            else:
                found += zip(part.ids, part.sizes, part.expires or [0] * len(part.ids), strict=True)
        assert found == facts(expected)
        assert len(tail) == len(expected)
        assert tail.octets == sum(len(one.body) for one in expected)
        assert tail.floor == max((at for at, level in enumerate(levels) if level), default=-1)
        heads = [level[0].expires_ns if level else 0 for level in levels]
        assert [tail.expires_ns(level) for level in range(LEVEL_MAX + 1)] == heads


def test_every_other_message_costs_no_run_of_its_own() -> None:
    """Two queues that are fed in turns: 12 octets a message, and not some hundred."""
    tail = Tail()
    for id_ in range(0, 20, 2):
        tail.extend(id_, (1,))
    assert [list(part.ids) for part in tail.parts() if not isinstance(part, Message)] == [list(range(0, 20, 2))]


def test_what_was_seen_stays_while_others_append_and_take() -> None:
    """A checkpoint looks at parts in slices."""
    tail = Tail()
    for id_ in (1, 3, 4):
        tail.extend(id_, (id_,), (id_,))
    (part,) = tail.parts()
    assert not isinstance(part, Message)
    tail.take(2, 1000)
    tail.extend(6, (6,), (6,))
    assert (list(part.ids), list(part.sizes), list(part.expires or ())) == ([1, 3, 4], [1, 3, 4], [1, 3, 4])


@pytest.mark.parametrize("at_once", [1, 7, 200])
def test_holes_cost_few_runs(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every second message was taken out what stays is told in columns, not in runs of one message each."""
    monkeypatch.setattr(paged_run, "RUN_MAX", 1000)
    monkeypatch.setattr(paged_run, "APART_MIN", 64)
    tail = Tail()
    tail.extend(1, [10] * 2000)
    tail.extend(3001, [20] * 1000, [5] * 1000)
    every_second = [*range(1, 2001, 2), *range(3001, 4001, 2)]
    for start in range(0, len(every_second), at_once):
        tail.take_ids(0, every_second[start : start + at_once])
    left = [
        (id_, size) for part in tail.parts() if not isinstance(part, Message) for id_, size in zip(part.ids, part.sizes)
    ]
    assert left == [*((id_, 10) for id_ in range(2, 2001, 2)), *((id_, 20) for id_ in range(3002, 4001, 2))]
    assert len(tail.parts()) <= 4


def test_what_is_found_rises_also_where_the_tail_does_not() -> None:
    """A scan reads back the first part that fits its window: it must be the one that the scan has to show next."""
    tail = Tail()
    tail.extend(100, [10] * 3)
    tail.extend(40, [10] * 3)
    assert [list(part.ids) for part in tail.find(0, [40, 41, 42, 100, 101])] == [[40, 41, 42], [100, 101]]
    tail.take_ids(0, [41])
    tail.extend(41, [10])
    assert [list(part.ids) for part in tail.find(0, [40, 41, 42])] == [[40, 42], [41]]
