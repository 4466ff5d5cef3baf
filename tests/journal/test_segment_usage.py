"""Which segments may go: the usage's accounts against a recount of every message, after each step.

The recount knows of each (message, queue) where its content is, and what has become of it. docs/journal-format.md.
"""

from __future__ import annotations

from array import array
from random import Random

import pytest
from effort import examples
from journal_workload import PATH, Driver, opened
from simulated_files import SimulatedFiles

from leveret.engine.events import EventKind
from leveret.journal import Journal, JournalOptions, JournalReader, RecoveredQueue, recover, register_reader
from leveret.journal.appending import segment_usage
from leveret.journal.appending.segment_usage import SegmentCounts, SegmentUsage
from leveret.journal.disk.segment import segments_in

SEGMENT_OCTETS, MINUTE_US = 1000, 60_000_000


class Books:
    """A usage, and what it must say: `where`: (queue, message id) -> base LSN of the segment with its content."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.usage = SegmentUsage()
        self.where: dict[tuple[int, int], int] = {}
        self.entered: dict[int, int] = {}
        self.ended_us: dict[int, int] = {}
        self.next_id = self.next_lsn = 1
        self.now_us = 0
        self.bases: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Another segment, a minute later."""
        self.now_us += MINUTE_US
        if self.bases:
            self.ended_us[self.bases[-1]] = self.now_us
        self.usage.begin_segment(self.next_lsn, self.now_us, SEGMENT_OCTETS + len(self.bases), self.next_id)
        self.bases.append(self.next_lsn)
        self.entered[self.next_lsn] = 0
        self.next_lsn += 1

    def publish(self) -> None:
        """A run into some queues; sometimes of ids that were given before the segment began, as of a transaction."""
        count = self.chance.choice((1, 2, 5, segment_usage.BULK_MIN + 3))
        first = self.next_id + self.chance.choice((0, 0, 3))
        late = self.chance.random() < 0.2
        if late:
            count, first = 1, self.next_id
            self.next_id += 1
            self.begin()
        ids = range(first, first + count)
        for queue in self.chance.sample(range(3), self.chance.randrange(1, 3)):
            self.usage.enqueued(ids, self.next_lsn)
            self.where.update(((queue, id_), self.bases[-1]) for id_ in ids)
            self.entered[self.bases[-1]] += count
        self.next_id = max(self.next_id, first + count)
        self.next_lsn += count

    def settle(self) -> None:
        """Some of a queue, or a stretch, or all, in one of the forms that callers have."""
        queue = self.chance.randrange(3)
        ids = sorted(id_ for place, id_ in self.where if place == queue)
        if not ids:
            return
        how = self.chance.choice(("one", "some", "falling", "stretch", "all"))
        if how == "one":
            ids = [self.chance.choice(ids)]
        elif how in ("some", "falling"):
            ids = [id_ for id_ in ids if self.chance.random() < 0.5]
        elif how == "stretch":
            first = ids[0]
            ids = [id_ for at, id_ in enumerate(ids) if id_ == first + at]
        for id_ in ids:
            del self.where[queue, id_]
        self.usage.settled(range(ids[0], ids[-1] + 1) if how == "stretch" else ids[::-1] if how == "falling" else ids)

    def move(self) -> None:
        """What an old segment holds of one message is in the open one now."""
        if not self.where:
            return
        _, id_ = self.chance.choice(list(self.where))
        places = [place for place in self.where if place[1] == id_]
        if self.where[places[0]] == self.bases[-1]:
            return
        self.usage.moved(id_, len(places))
        self.where.update(dict.fromkeys(places, self.bases[-1]))
        self.entered[self.bases[-1]] += len(places)
        self.next_lsn += 1

    def live(self, base_lsn: int) -> int:
        return list(self.where.values()).count(base_lsn)

    def may_go(self, checkpoint: int, keep_lsn: int | None, keep_us: int | None) -> list[int]:
        """By the definition: of each segment and of all before it, nothing is needed by anybody."""
        found: list[int] = []
        for base_lsn, behind in zip(self.bases, self.bases[1:]):
            is_needed = (
                self.live(base_lsn) > 0
                or any(lsn >= checkpoint for lsn in range(base_lsn, behind))
                or (keep_lsn is not None and any(lsn >= keep_lsn for lsn in range(base_lsn, behind)))
                or (keep_us is not None and self.ended_us[base_lsn] > keep_us)
            )
            if is_needed:
                break
            found.append(base_lsn)
        return found

    def remove(self) -> None:
        """Whatever may go."""
        around = [lsn + more for lsn in self.bases for more in (-1, 0, 1)]
        times = [time + more for time in (0, *self.ended_us.values()) for more in (-1, 0, 1)]
        checkpoint = self.chance.choice([*around, self.next_lsn])
        keep_lsn, keep_us = self.chance.choice([None, *around]), self.chance.choice([None, *times])
        gone = self.usage.removable(checkpoint, keep_lsn, keep_us)
        assert gone == self.may_go(checkpoint, keep_lsn, keep_us)
        self.check_dead_size(keep_lsn, keep_us)
        self.usage.remove(gone)
        del self.bases[: len(gone)]

    def check_dead_size(self, keep_lsn: int | None, keep_us: int | None) -> None:
        """As if another segment began now, with a checkpoint in it: what could go then, by its octets."""
        base_lsn, size = self.bases[-1], 77
        self.bases.append(self.next_lsn)
        self.ended_us[base_lsn] = self.now_us + MINUTE_US
        sizes = {row.base_lsn: row.size for row in self.usage.segments} | {base_lsn: size}
        gone = self.may_go(self.next_lsn, keep_lsn, keep_us)
        if base_lsn in gone and (keep_lsn is not None or keep_us is not None):
            gone.remove(base_lsn)  # the open one is young, and somebody may read on in it
        assert self.usage.removable_size(size, keep_lsn, keep_us) == sum(map(sizes.__getitem__, gone))
        self.bases.pop()

    def check(self) -> None:
        """Each account by a recount."""
        rows = self.usage.segments
        assert [row.base_lsn for row in rows] == self.bases
        assert [row.live for row in rows] == [self.live(base_lsn) for base_lsn in self.bases]
        assert [row.entered for row in rows] == [self.entered[base_lsn] for base_lsn in self.bases]
        assert all(row.size >= SEGMENT_OCTETS for row in rows[:-1]) and rows[-1].size == 0
        assert [row.ended_us for row in rows[:-1]] == [self.ended_us[base_lsn] for base_lsn in self.bases[:-1]]
        first = next((base_lsn for base_lsn in self.bases if self.live(base_lsn)), -1)
        assert self.usage.first_live_lsn(-1) == first
        for (_, id_), base_lsn in self.where.items():
            assert [one for one in self.bases if self.usage.holds(id_, one)] == [base_lsn]

    def check_recovered(self) -> None:
        """A start counts the same from what is there."""
        usage = SegmentUsage()
        for row in self.usage.segments:
            usage.begin_segment(row.base_lsn, 1, row.size, row.first_id)
        for place in range(3):
            queue = RecoveredQueue()
            for (one, id_), base_lsn in sorted(self.where.items()):
                if one == place:
                    queue.add(id_, base_lsn, 0, 0)
            usage.add_recovered(queue)
        assert [row.live for row in usage.segments] == [row.live for row in self.usage.segments]
        for (_, id_), base_lsn in self.where.items():
            assert usage.holds(id_, base_lsn)
        for _, id_ in self.where:
            usage.settled((id_,))
        assert not any(row.live for row in usage.segments)


@pytest.mark.parametrize("seed", range(examples(12)))
def test_its_accounts_are_a_recount(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Published, settled, moved, recovered, removed: what is alive, where, and what may go."""
    monkeypatch.setattr(segment_usage, "BULK_MIN", 6)
    books = Books(Random(seed))
    verbs = [
        books.publish,
        books.publish,
        books.begin,
        books.settle,
        books.settle,
        books.move,
        books.move,
        books.remove,
    ]
    for _ in range(80):
        books.chance.choice(verbs)()
        books.check()
    books.check_recovered()
    books.where.clear()


def rows(*segments: tuple[int, int, int]) -> SegmentUsage:
    """Of (octets, alive, entered) each; the last one is open."""
    usage = SegmentUsage()
    for at in range(len(segments)):
        usage.begin_segment(1 + 100 * at, 1, 0, 1)
    for at, (size, live, entered) in enumerate(segments):
        usage.segments[at] = SegmentCounts(1 + 100 * at, 1, live, entered, size, 1)
    return usage


@pytest.mark.parametrize(
    "segments, is_emptied",
    [
        ([(100, 1, 10), (100, 0, 10), (0, 9, 9)], True),  # 95 per cent are dead
        ([(100, 10, 10), (100, 0, 10), (0, 0, 0)], False),  # half of it
        ([(100, 9, 10), (100, 0, 10), (0, 0, 0)], True),
        ([(100, 0, 10), (100, 0, 10), (0, 0, 0)], False),  # it goes by itself
        ([(100, 1, 10), (0, 0, 0)], False),  # there is not enough to win
        ([(100, 1, 10)], False),
        ([(100, 5, 10), (100, 0, 0), (0, 0, 0)], True),  # nothing was in the second
        ([(100, 10, 10), (900, 80, 100), (0, 0, 0)], False),
    ],
)
def test_when_it_pays_to_empty_a_segment(segments: list[tuple[int, int, int]], is_emptied: bool) -> None:
    """As soon as more than half of all octets are dead and the oldest segment is not: then one of two octets is won."""
    assert rows(*segments).worth_emptying() == (1 if is_emptied else None)


@pytest.mark.parametrize(
    "keep_lsn, keep_us, is_emptied",
    [(None, None, True), (101, None, True), (100, None, False), (None, 1, True), (None, 0, False)],
)
def test_a_segment_that_is_kept_is_not_emptied(keep_lsn: int | None, keep_us: int | None, is_emptied: bool) -> None:
    """A reader needs its records, or it is too young: its contents would be on the disk twice."""
    assert rows((100, 1, 10), (100, 0, 10), (0, 9, 9)).worth_emptying(keep_lsn, keep_us) == (1 if is_emptied else None)


def test_messages_of_several_segments_leave_in_any_order() -> None:
    """As a consumer acknowledges them: each counts in its own segment, which can be deleted then."""
    usage = SegmentUsage()
    usage.begin_segment(1, 1, 0, 1)
    usage.enqueued((1, 2), 1)
    usage.begin_segment(10, 2, 100, 3)
    usage.enqueued((3,), 10)
    usage.settled((1, 3, 2))
    assert [row.live for row in usage.segments] == [0, 0]


def test_a_start_makes_no_segment_younger() -> None:
    """A segment that ended before the start is retained from its end on, and has the octets that it had."""
    usage = rows((100, 0, 1), (200, 0, 1))
    usage.begin_segment(201, 50, 7, 1)
    assert [(row.ended_us, row.size) for row in usage.segments[:2]] == [(1, 100), (1, 200)]


@pytest.mark.parametrize(
    "lsn, kept", [(1, (600, 10)), (100, (600, 10)), (101, (500, 20)), (200, (500, 20)), (201, (300, 30)), (301, (0, 0))]
)
def test_what_is_kept_for_a_reader_alone(lsn: int, kept: tuple[int, int]) -> None:
    """From the segment with its next record on: the octets, and when the oldest of them ended."""
    usage = rows((100, 0, 1), (200, 0, 1), (300, 0, 1), (0, 0, 0))
    for row, ended_us in zip(usage.segments, (10, 20, 30)):
        row.ended_us = ended_us
    assert usage.kept_for(lsn, [1, 101, 201]) == kept


def test_a_clock_that_ran_ahead_retains_nothing_for_longer() -> None:
    """A segment that ended in the future ended now."""
    usage = rows((1, 0, 1), (1, 0, 1), (0, 0, 0))
    usage.segments[0].ended_us, usage.segments[1].ended_us = 50, 900
    usage.clamp_ends(100)
    assert [row.ended_us for row in usage.segments[:2]] == [50, 100]


@pytest.mark.parametrize(
    "keep_lsn, keep_us, octets",
    [(None, None, 350), (201, None, 300), (101, None, 100), (100, None, 0), (None, 1, 300), (None, 0, 0)],
)
def test_the_room_that_a_checkpoint_would_make(keep_lsn: int | None, keep_us: int | None, octets: int) -> None:
    """The open segment counts as well, since a checkpoint begins another; not for a reader, nor if it is retained."""
    assert rows((100, 0, 1), (200, 0, 1), (0, 0, 0)).removable_size(50, keep_lsn, keep_us) == octets


class Journalled(Driver):
    """A journal with readers: what a recount of the segments and of the model says of it after each step."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.files = SimulatedFiles()
        self.readers: dict[str, int] = {}
        super().__init__(self.opened())
        self.declare("a", "b")
        self.turn()

    def opened(self) -> Journal:
        options = JournalOptions(segment_size=1500, preallocate_size=0)
        return opened(self.files, options)

    def turn(self) -> None:
        """And all that is to be done for it."""
        self.journal.commit()
        while self.journal.writer.run_once():
            pass

    def publishes(self) -> None:
        bodies = [bytes(self.chance.choice((0, 10, 300))) for _ in range(self.chance.randrange(1, 4))]
        self.publish(bodies, *self.chance.sample(("a", "b"), self.chance.randrange(1, 3)))

    def settles(self) -> None:
        name = self.chance.choice(("a", "b"))
        ids = sorted(self.model[name])
        if len(ids) > 2 and self.chance.random() < 0.4:
            self.journal.messages.settled_range(EventKind.ACKED, self.queue_ids[name], ids[1:])
            for id_ in ids[1:]:
                del self.model[name][id_]
        else:
            self.settle(name, [id_ for id_ in ids if self.chance.random() < 0.7])

    def reads(self) -> None:
        """A reader says from where on it needs the records, or is told where it can begin."""
        lsns = range(segments_in(self.files, PATH)[0], self.journal.durable_lsn)
        name = self.chance.choice(("one", "two"))
        self.readers[name] = max(self.chance.choice(lsns), self.readers.get(name, 0))
        register_reader(PATH, name, self.readers[name], self.files)

    def reclaims(self) -> None:
        self.turn()
        self.checkpoint()
        self.turn()
        self.reclaim()

    def restarts(self) -> None:
        self.turn()
        self.files = self.files.power_cut()
        self.journal = self.opened()

    def check(self) -> None:
        journal, ledger_rows = self.journal, self.journal.usage.segments
        bases = segments_in(self.files, PATH)
        assert [row.base_lsn for row in ledger_rows] == bases
        held = [self.lsns[id_] for messages in self.model.values() for id_ in messages]
        for row, behind in zip(ledger_rows, [*bases[1:], journal.next_lsn]):
            assert row.live == sum(row.base_lsn <= lsn < behind for lsn in held)
        assert journal.statistics().live == len(held)
        found = recover(self.files.power_cut(), PATH)
        assert {found.names.text(id_): list(queue.ids()) for id_, queue in found.queues.items() if len(queue)} == {
            name: sorted(messages) for name, messages in self.model.items() if messages
        }
        for at, row in enumerate(ledger_rows[:-1]):
            octets = len(self.files.content(f"{PATH}/{bases[at]:020d}.log"))
            assert octets / 3 < row.size <= octets, "what is counted is about what is there"
        assert journal.backlog_bytes == 0
        for lsn in self.readers.values():
            if lsn < journal.durable_lsn:
                reader = JournalReader(PATH, self.files).records(lsn, trust_open=True)
                assert [one for one, _ in reader] == list(range(lsn, journal.next_lsn)), "a reader misses nothing"
        for id_, lsn in {id_: self.lsns[id_] for messages in self.model.values() for id_ in messages}.items():
            assert journal.contents.read_message(lsn)[0].msg_id == id_


@pytest.mark.parametrize("seed", range(examples(4)))
def test_a_journal_s_accounts_are_a_recount(seed: int) -> None:
    """With segments that are emptied and go, readers, and restarts; and what a reader needs is there."""
    load = Journalled(Random(seed))
    verbs = [load.publishes] * 4 + [load.settles] * 4 + [load.reads, load.reclaims, load.reclaims, load.restarts]
    gone = 0
    for _ in range(60):
        load.chance.choice(verbs)()
        load.turn()
        load.check()
        gone = max(gone, load.journal.usage.segments[0].base_lsn)
    assert gone > 1


def test_an_empty_queue_is_counted() -> None:
    """A start with nothing in it."""
    usage = rows((1, 0, 0))
    usage.add_recovered(RecoveredQueue())
    usage.settled(array("q"))
    assert [row.live for row in usage.segments] == [0]
