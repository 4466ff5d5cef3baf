"""What a message costs that is taken out of the middle of a store, and comes back there: the same at every depth.

What is counted is calls of functions, of Python and of C; nobody is timed. Source: queues page F.2, F.6.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest
from store_owner import StoreOwner

from leveret.engine import Envelope, Message
from leveret.engine.messages.content import NATIVE, PropertySummary, encode_header
from leveret.engine.messages.levels import up_to
from leveret.engine.stores.storage import Storage
from leveret.engine.stores.store import LEVEL_STEP
from leveret.engine.stores.tailed_store import TailedStore
from leveret.testing.memory_pager import MemoryPager

#: How many of the depth a piece of the drain is.
PIECES = 8
#: Taken at once, as when consumers have so much credit.
AT_ONCE = 10
#: So many that came back wait for their turn.
LATE = 10
#: Of which there are so many at the end, of each kind of queue.
RUNS_MAX = 4
KINDS = {"plain": 0, "priorities": 2}
#: Octets of memory; None: there is no journal.
MEMORIES = {"in memory": None, "partly deep": 100_000, "deep": 10_000}


def store_of(level_max: int, memory: int | None, depth: int) -> TailedStore:
    """So many persistent messages, in levels one after the other."""
    storage = Storage()
    pager = None if memory is None else MemoryPager(memory)
    storage.pager = pager
    owner = StoreOwner(storage)
    store = owner.store = TailedStore.of_levels(owner, up_to(level_max), counts_octets=False)
    for id_ in range(1, depth + 1):
        envelope = ENVELOPES[id_ % (level_max + 1)]
        content = NATIVE.join(encode_header(4, {"priority": id_ % (level_max + 1)}), b"body")
        if pager is not None:
            pager.journal[id_] = (envelope, content)
        store.append(Message(id_, content, envelope))
    return store


ENVELOPES = [Envelope("", "q", PropertySummary(persistent=True, priority=level)) for level in range(3)]


def calls_of(act: Callable[[], object]) -> int:
    """How many functions it calls."""
    count = 0

    def seen(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def is_skipped(position: int) -> bool:
    """Every third of its level."""
    return position % LEVEL_STEP // 3 % 3 == 0


class Drain:
    """Takes what is not skipped, of which one of ten comes back once, and is taken again a little later."""

    def __init__(self, store: TailedStore) -> None:
        self.store = store
        self.after = 0
        self.back: deque[int] = deque()

    def on(self, count: int) -> None:
        """So many messages further."""
        store = self.store
        while count > 0:
            seen = store.scan(self.after, AT_ONCE)
            if not seen.found and not seen.missing:
                break
            if not seen.found:
                store.load_at(self.after, AT_ONCE)
                continue
            count -= len(seen.found)
            self.after = seen.found[-1][0]
            taken = store.take_at([position for position, _ in seen.found if not is_skipped(position)]).messages
            if taken:
                one = taken[len(taken) // 2]
                one.deliveries += 1
                self.back.append(store.position_of(one))
                store.put_back([one])
                store.enforce_quota()
            if len(self.back) > LATE:
                self.again()

    def again(self) -> None:
        """Take the first that came back."""
        assert len(self.store.take_at([self.back.popleft()]).messages) == 1


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_last_message_costs_what_the_first_did(kind: str, memory: str) -> None:
    """A third of the queue is skipped; what was taken behind it comes back, and leaves again."""
    costs = []
    for depth in (800, 6400):
        drain = Drain(store_of(KINDS[kind], MEMORIES[memory], depth))
        piece = depth // PIECES
        costs += [calls_of(partial(drain.on, piece)) / piece for _ in range(PIECES)]
        drain.on(depth)
        while drain.back:
            drain.again()
        assert len(drain.store) == sum(map(is_skipped, range(1, depth + 1)))
        assert len(drain.store.paged_parts()) <= RUNS_MAX  # what stays is told in columns
    assert max(costs[PIECES:]) < 2 * max(costs[:PIECES]), costs
