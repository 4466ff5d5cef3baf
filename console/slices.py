"""Work on many objects in short steps, between which clients have their turns.

A step ends by the clock, not after a count: a row of one list takes 5 us, of another a millisecond. What is iterated
must be the caller's own list: between two steps anything may be declared or deleted.
Source: management page 12.3, 20.
"""

import heapq
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Seconds of a step. What takes at least the second is a step of its own also when nothing follows.
STEP_S, PART_S = 0.003, 0.001
#: Objects that are put in order, and at most in ordered runs of which two are merged, in one go: a millisecond or two
#: where keys are tuples of texts. More runs are merged one object after the other, which costs four times as much.
SORTED_AT_ONCE, MERGED_AT_ONCE = 1_000, 8_000
#: Objects that are freed in one step.
LET_GO_AT_ONCE = 5_000

#: The steps to a list.
Listing = Generator[None, None, list[T]]


def mapped(make: Callable[[T], R], items: Iterable[T]) -> Listing[R]:
    """What `make` makes of each."""
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
    """Those that are meant."""
    answers = yield from mapped(is_meant, items)
    return [one for one, is_one in zip(items, answers) if is_one]


def ordered(key: Callable[[T], Any], items: Sequence[T]) -> Listing[T]:
    """By their keys; those with the same key as they came."""
    keys = yield from mapped(key, items)
    key_of = keys.__getitem__
    starts = range(0, len(items), SORTED_AT_ONCE)
    runs = yield from mapped(
        lambda start: sorted(range(start, min(start + SORTED_AT_ONCE, len(items))), key=key_of), starts
    )
    # Of two runs that are in order Python's sort compares each element once.
    while len(runs) > 1 and len(runs[0]) < MERGED_AT_ONCE:
        pairs = [runs[at : at + 2] for at in range(0, len(runs), 2)]
        runs = yield from mapped(lambda pair: sorted(chain(*pair), key=key_of), pairs)
    places: Iterable[int] = heapq.merge(*runs, key=key_of) if len(runs) > 1 else chain(*runs)
    found = yield from mapped(items.__getitem__, places)
    yield from let_go(keys)
    return found


def let_go(items: list[Any]) -> Generator[None, None, None]:
    """Forget them: to free 60,000 rows at once would take 10 ms."""
    while items:
        del items[-LET_GO_AT_ONCE:]
        if items:
            yield
