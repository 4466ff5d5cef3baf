"""A recovered queue against a dictionary: whatever records say of its messages, in whatever order."""

from __future__ import annotations

from array import array
from random import Random
from typing import NamedTuple

import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from leveret.journal import MessageState, RecoveredMessage, RecoveredQueue
from leveret.journal.format.errors import BadRecord
from leveret.journal.format.record import DURABLE, RESTATED
from leveret.journal.recovery import recovered
from leveret.journal.recovery.recovered import FRESH
from leveret.journal.recovery.snapshot import PART_HEAD, load_part, run_record, snapshot_parts

IDS = st.integers(1, 40)
LSNS = st.integers(100, 160)
SIZES = st.integers(0, 5)
#: Of most there is nothing to say.
EXPIRIES, PRIORITIES = st.sampled_from([0, 0, 0, 77, 99]), st.sampled_from([0, 0, 0, 3, 9])
STATES = st.builds(MessageState, st.integers(0, 2), st.integers(0, 1), st.sampled_from([0, 0, 500]), PRIORITIES)


class Told(NamedTuple):
    """What a dictionary has of a message; its priority is in its state."""

    lsn: int
    size: int
    expires_ms: int
    state: MessageState


class Pair:
    """The queue, and the dictionary that it must agree with. Ids mostly rise, as those of messages do."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.queue = RecoveredQueue()
        self.told: dict[int, Told] = {}
        self.next_id = 1

    def _id(self) -> int:
        """A new one, or one that is late; of what is there, or was."""
        if self.chance.random() < 0.6:
            self.next_id += self.chance.choice((1, 1, 1, 2, 4))
            return self.next_id - 1
        return self.chance.randrange(1, self.next_id + 1)

    def _known(self) -> int:
        """Mostly of what is there."""
        if self.told and self.chance.random() < 0.9:
            return self.chance.choice(list(self.told))
        return self.chance.randrange(1, self.next_id + 1)

    def add(self) -> None:
        """As a record says, also of a message that is there already: then what it has been through stays."""
        id_, lsn, size = self._id(), self.chance.randrange(100, 900), self.chance.randrange(5)
        expires_ms, priority = self.chance.choice((0, 0, 77)), self.chance.choice((0, 0, 3))
        self.queue.add(id_, lsn, size, expires_ms, priority)
        self._told(id_, lsn, size, expires_ms, priority)

    def _told(self, id_: int, lsn: int, size: int, expires_ms: int, priority: int) -> None:
        state = self.told[id_].state if id_ in self.told else FRESH
        self.told[id_] = Told(lsn, size, expires_ms, state._replace(priority=priority))
        self.next_id = max(self.next_id, id_ + 1)

    def extend(self) -> None:
        """Several in a row, as a snapshot says."""
        chance, first, lsn, count = (
            self.chance,
            self._id(),
            self.chance.randrange(100, 900),
            self.chance.randrange(1, 7),
        )
        sizes = [chance.randrange(5) for _ in range(count)]
        expiries = [chance.choice((0, 70 + at)) for at in range(count)] if chance.random() < 0.2 else None
        priorities = bytes(chance.randrange(3) for _ in range(count)) if chance.random() < 0.2 else None
        ids = range(first, first + count)
        self.queue.extend(ids, lsn, array("I", sizes), expiries and array("q", expiries), priorities)
        for at, id_ in enumerate(ids):
            self._told(id_, lsn + at, sizes[at], expiries[at] if expiries else 0, priorities[at] if priorities else 0)

    def remove(self) -> None:
        """One that is there, or is not."""
        id_ = self._known()
        assert self.queue.remove(id_) is (self.told.pop(id_, None) is not None)

    def remove_range(self) -> None:
        first = self._known()
        last = first + self.chance.randrange(6)
        self.queue.remove_range(first, last)
        for id_ in range(first, last + 1):
            self.told.pop(id_, None)

    def move(self) -> None:
        id_, lsn = self._known(), self.chance.randrange(1000, 2000)
        assert self.queue.move(id_, lsn) is (id_ in self.told)
        if id_ in self.told:
            self.told[id_] = self.told[id_]._replace(lsn=lsn)

    def change(self) -> None:
        """A priority stays unless there is another."""
        chance, id_ = self.chance, self._known()
        counts = chance.choice((0, 2)), chance.choice((0, 1)), chance.choice((0, 500))
        state = MessageState(*counts, chance.choice((0, 0, 5)))
        self.queue.set_state(id_, state)
        if id_ in self.told:
            priority = state.priority or self.told[id_].state.priority
            self.told[id_] = self.told[id_]._replace(state=state._replace(priority=priority))

    def glance(self) -> None:
        """What can be asked without any effect."""
        queue, told = self.queue, self.told
        assert [id_ for id_ in range(self.next_id + 10) if id_ in queue] == sorted(told)
        assert len(queue) == len(told)
        assert queue.last_id >= max(told, default=0)
        states = {id_: one.state._replace(priority=0) for id_, one in told.items()}
        assert queue.states == {id_: state for id_, state in states.items() if state != FRESH}

    def look(self) -> None:
        """At everything, in order."""
        queue, told = self.queue, sorted(self.told.items())
        assert list(queue.messages()) == [RecoveredMessage(id_, *one) for id_, one in told]
        assert list(queue.ids()) == [id_ for id_, _ in told]
        _, lsns, sizes, expiries = queue.columns()
        assert (list(lsns), list(sizes)) == ([one.lsn for _, one in told], [one.size for _, one in told])
        assert list(expiries or bytes(len(told))) == [one.expires_ms for _, one in told]
        assert list(queue.priorities or bytes(len(told))) == [one.state.priority for _, one in told]
        runs = list(queue.runs())
        assert [start for start, *_ in runs] == [sum(run[3] for run in runs[:at]) for at in range(len(runs))]
        found = [(first + at, lsn + at) for _, first, lsn, count in runs for at in range(count)]
        assert found == [(id_, one.lsn) for id_, one in told]


@pytest.mark.parametrize("compact_min", [0, 5, 1000])
def test_it_is_a_dictionary(monkeypatch: pytest.MonkeyPatch, compact_min: int) -> None:
    """What is there, where its content is, how large, until when and how often tried; also while much of it is gone."""
    monkeypatch.setattr(recovered, "COMPACT_MIN", compact_min)
    for seed in range(examples(40)):
        pair = Pair(Random(seed))
        verbs = [pair.add, pair.add, pair.extend, pair.remove, pair.remove_range, pair.move, pair.change]
        for _ in range(60):
            pair.chance.choice(verbs)()
            pair.glance()
            if pair.chance.random() < 0.05:
                pair.look()
        pair.look()


@given(messages=st.dictionaries(IDS, st.builds(Told, LSNS, SIZES, EXPIRIES, STATES)), parts=st.integers(1, 5))
def test_a_snapshot_says_all_of_it(messages: dict[int, Told], parts: int) -> None:
    """Part by part, into an empty queue and into one that has them in another state."""
    expected = [RecoveredMessage(id_, *told) for id_, told in sorted(messages.items())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leveret.journal.recovery.snapshot.PART_MESSAGES", parts)
        records = list(snapshot_parts(7, iter(expected)))
    assert {(record.queue_id, record.flags) for record in records} <= {(7, DURABLE | RESTATED)}
    assert sum(record.arg for record in records) == sum(message.size for message in expected)
    fresh, known = RecoveredQueue(), RecoveredQueue()
    for message in expected:
        known.add(message.id, 5, 6, 7, 8)
    for queue in (fresh, known):
        assert sum(load_part(record.heap, queue) for record in records) == len(expected)
        assert list(queue.messages()) == expected


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    sizes=st.lists(SIZES, min_size=20, max_size=20),
    expires=st.booleans(),
    ahead_ms=st.sampled_from([0, 30, 1000]),
)
def test_a_snapshot_of_what_is_paged_out(counts: list[int], sizes: list[int], expires: bool, ahead_ms: int) -> None:
    """Runs with a size and an expiry each; times of a clock that ran ahead come earlier, and never become none."""
    runs, expected, at = [], [], 0
    for number, count in enumerate(counts):
        first, lsn = 1 + 10 * number, 200 + 7 * number
        runs.append((first, lsn, count))
        for offset in range(count):
            expires_ms = (0 if at % 3 == 2 else 40 + at) if expires else 0
            left_ms = max(1, expires_ms - ahead_ms) if expires_ms else 0
            expected.append(RecoveredMessage(first + offset, lsn + offset, sizes[at], left_ms, FRESH))
            at += 1
    expiries = array("q", (0 if n % 3 == 2 else 40 + n for n in range(at))) if expires else None
    record = run_record(3, runs, array("I", sizes[:at]), expiries)
    queue = RecoveredQueue()
    assert load_part(record.heap, queue, ahead_ms) == at
    assert list(queue.messages()) == expected
    assert (record.queue_id, record.flags, record.arg) == (3, DURABLE | RESTATED, sum(sizes[:at]))
    of_sizes = 4 if len(set(sizes[:at])) == 1 else 4 * at
    assert len(record.heap) == PART_HEAD.size + 20 * len(runs) + of_sizes + (8 * at if expires else 0), "no octet more"


def test_a_snapshot_that_is_cut_is_refused() -> None:
    """Wherever it ends: nothing is made of half a part. Nor of one whose numbers cannot be."""
    states = [MessageState(), MessageState(2, 1, 500, 3), MessageState(priority=4)]
    messages = [RecoveredMessage(at, 50 + at, at, 70 * at, state) for at, state in enumerate(states, 1)]
    (record,) = snapshot_parts(7, iter(messages))
    assert load_part(record.heap, RecoveredQueue()) == 3
    for size in range(len(record.heap)):
        with pytest.raises(BadRecord):
            load_part(record.heap[:size], RecoveredQueue())
    version, flags, _, count, runs, state_count = PART_HEAD.unpack_from(record.heap)
    for head in (
        (version + 1, flags, 0, count, runs, state_count),
        (version, flags, 0, count + 1, runs, state_count),
        (version, flags, 0, count - 1, runs, state_count),
        (version, flags, 0, count, runs, state_count + 1),
    ):
        with pytest.raises(BadRecord):
            load_part(PART_HEAD.pack(*head) + record.heap[PART_HEAD.size :], RecoveredQueue())


def test_the_highest_id_is_known_when_its_message_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many were removed since: leased queues number on from there."""
    monkeypatch.setattr(recovered, "COMPACT_MIN", 2)
    queue = RecoveredQueue()
    for id_ in range(1, 11):
        queue.add(id_, 100 + id_, 5, 0)
    for id_ in range(10, 0, -1):
        assert queue.last_id == 10
        queue.remove(id_)
    assert (queue.last_id, len(queue)) == (10, 0)
    queue.add(12, 200, 5, 0)
    assert queue.last_id == 12
