"""Work in slices comes to the same end however small the slices are: nobody is forgotten between two of them.

Two brokers do the same. One has the slices of every day, into which all of it fits; the other one very small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.engine import (
    Session,
    dead_letters,
    reloading,
)
from leveret.engine import broker as broker_module
from leveret.engine.clients import session, settling, transaction
from leveret.engine.clock import MS
from leveret.engine.queues import bounds
from leveret.engine.queues import queue as queue_module
from leveret.engine.stores import memory_budget
from leveret.settings import Policies, Policy, SettingsRepository, entry
from leveret.testing.harness import Harness

NAMES = ("a", "b", "c", "d")
#: Where a number stands that ends a slice.
SLICES: tuple[tuple[Any, str], ...] = (
    (broker_module, "TURN_END_EFFORT"),
    (broker_module, "ROUNDS_MAX"),
    (dead_letters, "DEAD_LETTERS_EFFORT"),
    (transaction, "COMMIT_SLICE"),
    (reloading, "POLICIES_SLICE"),
    (reloading, "CONCERNED_SLICE"),
    (reloading, "SETTINGS_SLICE"),
    (settling, "REQUEUE_SLICE"),
    (session, "REQUEUE_SLICE"),
    (bounds, "TRIM_SLICE"),
    (queue_module, "EXPIRE_SLICE"),
)


@contextmanager
def slices_of(number: int | None) -> Iterator[None]:
    """All of them; None: as they are."""
    with ExitStack() as stack:
        for module, name in SLICES if number is not None else ():
            stack.enter_context(patch.object(module, name, number))
        stack.enter_context(patch.object(memory_budget, "SMALL", 0))
        yield


class World(Harness):
    """Queues of which each has a consumer on a channel of its own, and `dead` for what is rejected or too much."""

    ends_turns = False
    checks = True
    properties = {"delivery_mode": 2}
    turns_left = 20_000

    def __init__(self, *, is_deep: bool) -> None:
        super().__init__(memory=0 if is_deep else None, unsent_max=1 << 40)
        self.queue("dead")
        for name in NAMES:
            self.queue(name, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
            self.bind(name, "amq.fanout")
        self.sessions = {name: self.connect() for name in NAMES}
        self.number = 0

    def fill(self, exchange: str, key: str, count: int, by: Session | None = None, **properties: bytes) -> None:
        bodies = [b"%04d" % (self.number + at) for at in range(count)]
        self.number += count
        self.publish(*bodies, key=key, exchange=exchange, by=by, **properties)

    def step(self, what: str, name: str, count: int) -> None:
        """One thing, of which more may follow at the ends of turns."""
        session, queue = self.sessions[name], self.named(name)
        if what == "publish":
            self.fill("", name, count)
        elif what == "publish to all":
            self.fill("amq.fanout", "", count)
        elif what == "publish for a while":
            self.fill("", name, count, expiration=b"50")
        elif what == "wait":
            self.clock.advance_ns(60 * MS)
            self.broker.advance()
        elif what == "consume" and not session.consumers:
            self.consume(queue, "t", by=session, prefetch=count)
        elif what == "cancel":
            session.cancel("t")
        elif what == "ack":
            session.ack(0, multiple=True)
        elif what in ("stop all", "go all"):
            for one in self.sessions.values():
                one.set_flowing(what == "go all")
        elif what == "requeue all":
            for one in self.sessions.values():
                one.reject(0, multiple=True, requeue=True)
        elif what == "reload":
            said = [entry("#", max_delivery_attempts=count)] if count > 3 else []
            self.broker.reloading.replace_settings(SettingsRepository(said))
        elif what in ("requeue", "reject"):
            session.reject(0, multiple=True, requeue=what == "requeue")
        elif what in ("close", "lose"):
            session.close(failed=what == "lose")
            self.sessions[name] = self.connect()
        elif what == "commit":
            by = self.connect()
            by.select_transactions()
            self.fill("", name, count, by)
            self.fill("amq.fanout", "", count, by)
            by.commit()
        elif what in ("limit", "no limit"):
            definition = {"max-length": count} if what == "limit" else {}
            policy = Policy(vhost="/", name="p", pattern="^[a-d]$", apply_to="queues", definition=definition)
            self.broker.reloading.replace_policies(Policies([policy] if definition else []))
        elif what == "purge":
            queue.purge()

    def turn(self) -> bool:
        self.turns_left -= 1
        assert self.turns_left, "it never ends"
        return super().turn()

    def seen(self) -> dict[str, Any]:
        """What is ready, out, and counted, of each queue; of `dead`, whose letters come in any order, which it has."""
        found: dict[str, Any] = {}
        for name in NAMES:
            queue, session = self.named(name), self.sessions[name]
            counters = queue.counters
            found[name] = (
                len(queue.store),
                [message.body for message in session.unacked.values()],
                queue.unacked,
                (counters.enqueued, counters.acknowledged, counters.killed, counters.purged, counters.requeued),
            )
        found["dead"] = len(self.named("dead").store)
        return found


STEP = st.tuples(
    st.sampled_from(
        (
            "publish", "publish", "publish to all", "publish to all", "publish for a while", "wait", "consume",
            "consume", "consume", "cancel", "ack", "ack", "requeue", "requeue all", "reject", "close", "lose", "commit",
            "limit", "no limit", "purge", "stop all", "go all", "go all", "reload",
        )
    ),
    st.sampled_from(NAMES),
    st.integers(1, 12),
)  # fmt: skip


@pytest.mark.parametrize("is_deep", [False, True], ids=["in memory", "paged out"])
@settings(max_examples=50)
@given(steps=st.lists(STEP, min_size=5, max_size=25), number=st.integers(1, 6))
def test_small_slices_come_to_the_same_end(is_deep: bool, steps: list[tuple[str, str, int]], number: int) -> None:
    """After each step, when there is nothing more to do, all is where it is with large ones."""
    with slices_of(None):
        plain = World(is_deep=is_deep)
    with slices_of(number):
        sliced = World(is_deep=is_deep)
    for what, name, count in steps:
        with slices_of(None):
            plain.step(what, name, count)
            plain.end_turn()
        with slices_of(number):
            sliced.step(what, name, count)
            sliced.end_turn()
        assert sliced.seen() == plain.seen(), what
