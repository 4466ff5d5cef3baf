"""What is known of paged-out messages: runs of them, and those that leave in any order. Which messages go on a run."""

from __future__ import annotations

from array import array
from random import Random
from typing import NamedTuple

import pytest
from effort import examples

from leveret.engine.stores import paged_index
from leveret.engine.stores.paged_index import PagedEntry, PagedIndex
from leveret.engine.stores.paged_run import APART_MIN, IN_JOURNAL, RUN_MAX, Location, PagedRun, Part, Taken


@pytest.mark.parametrize(
    ("here", "next_id", "count", "goes_on"),
    [
        (APART_MIN, APART_MIN + 1, 1, True),  # consecutive
        (APART_MIN, APART_MIN + 1, APART_MIN, True),
        (APART_MIN, APART_MIN + 2, 1, False),  # a gap behind many would cost 8 octets for each of them
        (APART_MIN - 1, APART_MIN + 1, 1, True),
        (APART_MIN - 1, APART_MIN + 1, APART_MIN, False),  # and before many, too
        (APART_MIN - 1, APART_MIN - 2, 1, False),  # not rising
        (RUN_MAX - 1, RUN_MAX, 1, True),
        (RUN_MAX, RUN_MAX + 1, 1, False),
    ],
)
def test_which_messages_go_on_a_run(here: int, next_id: int, count: int, goes_on: bool) -> None:
    """Ids from 1 on: gaps are for short runs, so that long ones need no list of ids."""
    run = PagedRun(1, None, IN_JOURNAL)
    run.extend(1, [5] * here, None)
    assert run.can_extend(next_id, count, False, None, IN_JOURNAL) is goes_on
    for other in ({"deliveries": 1}, {"uncounted": 1}):
        assert not run.can_extend(next_id, count, False, None, IN_JOURNAL, **other)


class Told(NamedTuple):
    """Of a message: octets, when it expires (0: never), and where it is in the temp store."""

    id: int
    size: int
    expires_ns: int
    offset: int


def rows(part: Taken | Part, offset: int = 0) -> list[Told]:
    """Its messages; those in the journal are at no place."""
    expires = part.expires if part.expires is not None else [0] * len(part.sizes)
    offset = offset if part.location is None else part.location.offset
    found = []
    for id_, size, expires_ns in zip(part.ids, part.sizes, expires, strict=True):
        found.append(Told(id_, size, expires_ns, offset))
        offset += size if part.location is not None else 0
    return found


@pytest.mark.parametrize("is_in_journal", [False, True])
def test_a_run_is_a_list(is_in_journal: bool) -> None:
    """Of what was appended, less what was taken; its parts are lists, too, and go on after they were taken out."""
    for seed in range(examples(30)):
        chance, chunk = Random(seed), object()
        place = None if is_in_journal else Location(chunk, 0)
        run, told, next_id, end = PagedRun(1, place, IN_JOURNAL), [Told(1, 3, 0, 0)], 2, 0 if is_in_journal else 3
        run.extend(1, [3], None)
        for _ in range(40):
            verb = chance.choice(("extend", "extend", "join", "take", "between", "out of it"))
            if verb in ("extend", "join"):
                next_id += chance.choice((0, 0, 3))
                sizes = array("I", (chance.randrange(9) for _ in range(chance.randrange(1, 4))))
                due = array("q", (chance.choice((0, 77)) for _ in sizes)) if chance.random() < 0.3 else None
                place = None if is_in_journal else Location(chunk, end)
                assert run.can_extend(next_id, len(sizes), due is not None, place, IN_JOURNAL)
                if verb == "extend":
                    run.extend(next_id, sizes, due)
                    part = Taken(range(next_id, next_id + len(sizes)), sizes, due, place, IN_JOURNAL, 0, 0)
                else:
                    more = PagedRun(next_id, place, IN_JOURNAL)
                    more.extend(next_id, sizes, due)
                    part = more.take(len(sizes)).first(chance.randrange(1, len(sizes) + 1))
                    assert run.join(part)
                told += rows(part)
                next_id += len(part.sizes)
                end += 0 if is_in_journal else sum(part.sizes)
            elif verb == "take":
                count = chance.randrange(len(told))
                assert rows(run.take(count)) == told[:count]
                del told[:count]
            elif verb == "between":
                start = chance.randrange(len(told))
                stop = chance.randrange(start, len(told)) + 1
                assert rows(run.between(start, stop)) == told[start:stop]
            else:
                run = PagedRun.of(run.take(len(told)))
            assert rows(run.part(0)) == told
            assert (len(run), run.first_id, run.head_expires_ns) == (len(told), told[0].id, told[0].expires_ns)


def test_what_leaves_in_any_order_is_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    """By id: octets of the body and of the content, and when it expires; also where older ones come late."""
    monkeypatch.setattr(paged_index, "COMPACT_MIN", 4)
    for seed in range(examples(30)):
        chance, index = Random(seed), PagedIndex()
        told: dict[int, tuple[int, int, int]] = {}
        used: set[int] = set()  # no id comes twice
        for _ in range(60):
            verb = chance.choice(("extend", "take", "take", "take first", "content"))
            if verb == "extend":
                free = [id_ for id_ in range(1, max(used, default=0) + 9) if id_ not in used]
                ids = sorted(chance.sample(free, chance.randrange(1, 6)))
                sizes, contents = ([chance.randrange(9) + at for _ in ids] for at in (0, 20))
                due = [chance.choice((0, 77, 78)) for _ in ids] if chance.random() < 0.3 else None
                index.extend(array("q", ids), array("I", sizes), array("I", contents), due and array("q", due))
                told |= dict(zip(ids, zip(sizes, contents, due or [0] * len(ids))))
                used.update(ids)
            elif verb == "content" and told:
                id_ = chance.choice(list(told))
                index.set_content_octets(id_, 50)
                told[id_] = told[id_][0], 50, told[id_][2]
            elif told:
                id_ = min(told) if verb == "take first" else chance.choice(list(told))
                taken = index.take_first() if verb == "take first" else index.take(id_)
                assert taken == PagedEntry(id_, *told.pop(id_)[1:])
                assert index.take(id_) is None
            here = sorted(told)
            assert (len(index), [id_ for id_ in sorted(used) if id_ in index]) == (len(told), here)
            assert index.after(0, 99) == here
            assert index.after(5, 3, 9) == within([id_ for id_ in here if id_ > 5][:3], told, 9)
            assert list(index.expiries()) == [(id_, told[id_][2]) for id_ in here]
            assert index.body_octets == sum(size for size, _, _ in told.values())
            assert index.content_octets == sum(octets for _, octets, _ in told.values())
            if told:
                assert (index.first_id, index.first_expires_ns) == (here[0], told[here[0]][2])
                assert index.last_id >= here[-1]
            if chance.random() < 0.1:
                found = [(one.id, one.size, one.expires_ns) for part in index.parts() for one in rows(part)]  # type: ignore[arg-type]
                assert found == [(id_, told[id_][0], told[id_][2]) for id_ in here]
        assert list(index.take_all()) == sorted(told) and not index.body_octets


def within(ids: list[int], told: dict[int, tuple[int, int, int]], octets: int) -> list[int]:
    """The first ones, until they have these octets of bodies."""
    found: list[int] = []
    for id_ in ids:
        if found and octets <= 0:
            break
        found.append(id_)
        octets -= told[id_][0]
    return found
