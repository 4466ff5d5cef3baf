"""Work on many objects in short steps, between which clients have their turns.

The clock ends a step, not a count: a row of one list takes 5 us, of another a millisecond. The iterated list must
be the caller's own: between two steps objects may be declared or deleted.
Source: management page 12.3, 20.
"""

import heapq
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Seconds of a step. Work that takes the second number is its own step, even at the end.
STEP_S, PART_S = 0.003, 0.001
#: Objects that are sorted in one go, and maximum objects of two sorted runs that are merged in one go: one or two
#: milliseconds if keys are tuples of texts. Longer runs are merged object by object, which costs four times as much.
SORTED_AT_ONCE, MERGED_AT_ONCE = 1_000, 8_000
#: Objects that are compared in one go with the first ones of a page; their rows may be needed for that.
COMPARED_AT_ONCE = 100
#: Objects that are freed in one step.
FREED_AT_ONCE = 5_000

#: The steps to a list.
Listing = Generator[None, None, list[T]]


def mapped(make: Callable[[T], R], items: Iterable[T]) -> Listing[R]:
    made: list[R] = []
    append = made.append
    until = perf_counter() + STEP_S
    for one in items:
        append(make(one))
        if perf_counter() > until:
            yield
            until = perf_counter() + STEP_S
    if perf_counter() > until - STEP_S + PART_S:
        yield
    return made


def chosen(is_meant: Callable[[T], bool], items: Sequence[T]) -> Listing[T]:
    answers = yield from mapped(is_meant, items)
    return [one for one, is_one in zip(items, answers) if is_one]


def ordered(key: Callable[[T], Any], items: Sequence[T]) -> Listing[T]:
    """The items sorted by their keys; the order of equal keys stays."""
    keys = yield from mapped(key, items)
    key_of = keys.__getitem__
    starts = range(0, len(items), SORTED_AT_ONCE)
    runs = yield from mapped(
        lambda start: sorted(range(start, min(start + SORTED_AT_ONCE, len(items))), key=key_of), starts
    )
    # Python's sort compares each element of two sorted runs once.
    while len(runs) > 1 and len(runs[0]) < MERGED_AT_ONCE:
        pairs = [runs[at : at + 2] for at in range(0, len(runs), 2)]
        runs = yield from mapped(lambda pair: sorted(chain(*pair), key=key_of), pairs)
    places: Iterable[int] = heapq.merge(*runs, key=key_of) if len(runs) > 1 else chain(*runs)
    found = yield from mapped(items.__getitem__, places)
    yield from free_in_steps(keys)
    return found


def first_of(key: Callable[[T], Any], items: Sequence[T], count: int, *, is_reversed: bool = False) -> Listing[T]:
    """The first `count` items as `ordered` sorts them, or as it sorts them when that is reversed. All are looked at and
    few are sorted: a page of 100,000 queues takes a tenth of the time.
    """
    best: list[tuple[Any, int]] = []
    last: Any = None
    until = perf_counter() + STEP_S
    for start in range(0, len(items), COMPARED_AT_ONCE):
        keys = enumerate(map(key, items[start : start + COMPARED_AT_ONCE]), start)
        if len(best) < count:
            better = [(one, place) for place, one in keys]
        elif is_reversed:
            better = [(one, place) for place, one in keys if one >= last]  # of equal keys the later item is first
        else:
            better = [(one, place) for place, one in keys if one < last]
        if better:
            best = sorted(best + better, reverse=is_reversed)[:count]
            last = best[-1][0]
        if perf_counter() > until:
            yield
            until = perf_counter() + STEP_S
    return [items[place] for _, place in best]


def free_in_steps(items: list[Any]) -> Generator[None, None, None]:
    """Free a list in steps: freeing 60,000 rows at once would take 10 ms."""
    while items:
        del items[-FREED_AT_ONCE:]
        if items:
            yield
