"""Works on many objects in short steps: generators that yield so that the broker can serve its clients.

A step ends after `STEP_S`, not after a number of objects, because a row takes 5 us in one list and a millisecond in
another. Objects may be declared or deleted between two steps, so pass a copy of a list that the engine changes.
Source: management page 12.3, 20.
"""

import heapq
import operator
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Seconds after which a step ends. The last step ends with a yield only if it took longer than LAST_STEP_S.
STEP_S, LAST_STEP_S = 0.003, 0.001
#: Objects that are sorted at once. Maximum objects of sorted parts that are merged at once. Both take one or two
#: milliseconds if keys are tuples of texts. Longer parts are merged object by object, which costs four times as much.
SORTED_AT_ONCE, MERGED_AT_ONCE = 1_000, 8_000
#: Objects that are compared at once with the first ones of a page. A comparison may need an object's row.
COMPARED_AT_ONCE = 100
#: Objects that are freed in one step.
FREED_AT_ONCE = 5_000

#: Work in short steps. The caller ends the turn after each. Returns the result.
Steps = Generator[None, None, Any]
#: Steps that return a list.
ListSteps = Generator[None, None, list[T]]


def map_in_steps(make: Callable[[T], R], items: Iterable[T]) -> ListSteps[R]:
    made: list[R] = []
    append = made.append
    until = perf_counter() + STEP_S
    for one in items:
        append(make(one))
        if perf_counter() > until:
            yield
            until = perf_counter() + STEP_S
    if perf_counter() > until - STEP_S + LAST_STEP_S:
        yield
    return made


def filter_in_steps(predicate: Callable[[T], bool], items: Sequence[T]) -> ListSteps[T]:
    answers = yield from map_in_steps(predicate, items)
    return [one for one, is_true in zip(items, answers) if is_true]


def sort_in_steps(key: Callable[[T], Any], items: Sequence[T]) -> ListSteps[T]:
    """The items sorted by their keys. Items with equal keys keep their order."""
    keys = yield from map_in_steps(key, items)
    key_of = keys.__getitem__
    starts = range(0, len(items), SORTED_AT_ONCE)
    runs = yield from map_in_steps(
        lambda start: sorted(range(start, min(start + SORTED_AT_ONCE, len(items))), key=key_of), starts
    )
    # `sorted` merges two sorted parts in linear time.
    while len(runs) > 1 and len(runs[0]) < MERGED_AT_ONCE:
        pairs = [runs[at : at + 2] for at in range(0, len(runs), 2)]
        runs = yield from map_in_steps(lambda pair: sorted(chain(*pair), key=key_of), pairs)
    indexes: Iterable[int] = heapq.merge(*runs, key=key_of) if len(runs) > 1 else chain(*runs)
    found = yield from map_in_steps(items.__getitem__, indexes)
    yield from free_in_steps(keys)
    return found


def first_in_steps(
    key: Callable[[T], Any],
    items: Sequence[T],
    count: int,
    *,
    tie: Callable[[T], Any] = lambda one: 0,
    is_reversed: bool = False,
) -> ListSteps[T]:
    """The first `count` items of the list that `sort_in_steps` would return, or of its reverse.

    `tie`: a second key, for items whose keys are equal. All items are compared, but few are sorted: a page of 100,000
    queues takes a tenth of the time. The reverse is found from the end of the items: objects are often declared in the
    order of their names, so that from the beginning each item would come before all earlier ones.
    """
    best: list[tuple[Any, Any, int]] = []
    foremost, is_before = (max, operator.gt) if is_reversed else (min, operator.lt)
    until = perf_counter() + STEP_S
    starts = range(0, len(items), COMPARED_AT_ONCE)
    for start in reversed(starts) if is_reversed else starts:
        some = items[start : start + COMPARED_AT_ONCE]
        keys = list(map(key, some))
        found = zip(keys, map(tie, some), range(start, start + len(some)))
        if len(best) < count:
            best = sorted([*best, *found], reverse=is_reversed)[:count]
        else:
            # min or max of many keys takes a tenth of the time in which Python compares them one by one.
            last, first = best[-1], foremost(keys)
            is_better = is_before(first, last[0]) if first != last[0] else is_before(foremost(map(tie, some)), last[1])
            if is_better:
                better = [one for one in found if is_before(one, last)]
                best = sorted(best + better, reverse=is_reversed)[:count]
        if perf_counter() > until:
            yield
            until = perf_counter() + STEP_S
    return [items[index] for *_, index in best]


def free_in_steps(items: list[Any]) -> Generator[None, None, None]:
    """Free a list in steps: freeing 60,000 rows at once would take 10 ms."""
    while items:
        del items[-FREED_AT_ONCE:]
        if items:
            yield
