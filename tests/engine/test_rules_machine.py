"""Any rules and any order of operations: rings hold, delays follow the formula, nothing is lost without a name.

Nothing is predicted here but what always holds; what exactly happens is in the rows (tests/conformance).
"""

from __future__ import annotations

import unittest
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.engine import MS, AckedEvent, Event, Message, Queue, Session, reconfigure
from leveret.engine.clients.session import NACKED
from leveret.engine.events import TERMINAL, EventKind
from leveret.engine.stores.store import ids_in
from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import Harness

TERMINAL_COUNTERS = ("acknowledged", "cancelled", "deleted", "expired", "killed", "purged", "replaced")

ADDRESS_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "redelivery_delay_ms": st.sampled_from([0, 1, 100, 5000]),
        "redelivery_delay_multiplier": st.sampled_from([0.5, 1.0, 1.5, 2.0, 10.0]),
        "max_redelivery_delay_ms": st.sampled_from([0, 50, 10**6]),
        "max_delivery_attempts": st.sampled_from([-1, 1, 2, 5]),
        "dead_letter_address": st.sampled_from(["", "dead", "q", "nobody"]),
        "auto_create_dead_letter_resources": st.booleans(),
        "expiry_address": st.sampled_from(["", "dead", "nobody"]),
        "expiry_delay_ms": st.sampled_from([-1, 0, 300]),
        "max_expiry_delay_ms": st.sampled_from([-1, 1000]),
        "max_size_messages": st.sampled_from([-1, 0, 4]),
        "max_size_bytes": st.sampled_from([-1, 200]),
        "address_full_policy": st.sampled_from(["DROP", "FAIL", "PAGE"]),
        "default_ring_size": st.sampled_from([-1, 1, 3]),
        "default_last_value_key": st.sampled_from(["", "k"]),
        "default_non_destructive": st.booleans(),
        "default_exclusive_queue": st.booleans(),
        "default_purge_on_no_consumers": st.booleans(),
        "default_consumers_before_dispatch": st.sampled_from([0, 2]),
        "default_group_buckets": st.sampled_from([-1, 0, 1]),
    },
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "x_max_priority": st.just(2),
        "x_message_ttl": st.sampled_from([0, 500]),
        "x_max_length_bytes": st.just(40),
    },
)


class RulesMachine(RuleBasedStateMachine):
    """One queue `q` with rules, a queue `dead`, two clients."""

    @initialize(said=ADDRESS_SETTINGS, arguments=ARGUMENTS)
    def start(self, said: dict[str, Any], arguments: dict[str, int]) -> None:
        """The rules hold for `q` alone."""
        self.world = Harness(SettingsRepository([entry("q", **said)]))
        self.world.checks = True  # type: ignore[misc]
        self.broker, self.clock = self.world.broker, self.world.clock
        self.broker.context.listeners.append(self.heard)
        self.open: dict[tuple[str, int], str] = {}  # (queue, id) -> the last thing that happened to it
        self.done: set[tuple[str, int]] = set()
        self.failed: Counter[int] = Counter()  # id -> attempts that failed
        self.ring_before = 0
        self.tags = 0
        self.world.queue("q", **arguments)
        self.world.queue("dead")
        self.sessions = [self.world.session, self.world.connect()]
        self.scheduled_before: dict[int, int] = {}

    @property
    def queue(self) -> Queue:
        return self.world.named("q")

    def heard(self, event: Event) -> None:
        """At most one enqueued, at most one terminal event for each (queue, message)."""
        for id_ in event.messages:
            key = (event.subject, id_)
            if event.kind is EventKind.ENQUEUED:
                assert key not in self.open and key not in self.done, (event, key)
                self.open[key] = "in"
            elif event.kind in TERMINAL and not (isinstance(event, AckedEvent) and event.kept):
                assert key not in self.done, (event, key)
                assert key in self.open or event.kind in (EventKind.DROPPED, EventKind.DEAD_LETTERED), (event, key)
                self.open.pop(key, None)
                self.done.add(key)

    # -- operations -------------------------------------------------------------------------------------------------

    @rule(
        bodies=st.lists(st.binary(max_size=30), min_size=1, max_size=6),
        key=st.sampled_from(["q", "q", "q", "dead"]),
        headers=st.dictionaries(st.sampled_from(["k", "_AMQ_GROUP_ID"]), st.sampled_from("xy")),
        delay=st.sampled_from([None, None, 10, 2000]),
        expiration=st.sampled_from([None, "0", "700"]),
        priority=st.sampled_from([None, 0, 1, 9]),
    )
    def publish(
        self,
        bodies: list[bytes],
        key: str,
        headers: dict[str, str],
        delay: int | None,
        expiration: str | None,
        priority: int | None,
    ) -> None:
        table = headers if delay is None else {**headers, "x-delay": delay}
        self.ring_before = self.queue.store.in_memory
        self.world.publish(*bodies, key=key, headers=table, expiration=expiration, priority=priority)

    @rule(who=st.integers(0, 1), prefetch=st.integers(0, 3), no_ack=st.booleans())
    def consume(self, who: int, prefetch: int, no_ack: bool) -> None:
        self.tags += 1
        self.world.consume("q", f"t{self.tags}", by=self.sessions[who], prefetch=prefetch, no_ack=no_ack)

    @rule(who=st.integers(0, 1))
    def cancel(self, who: int) -> None:
        for tag in list(self.sessions[who].consumers)[:1]:
            self.sessions[who].cancel(tag)
        self.world.end_turn()

    @rule(who=st.integers(0, 1), no_ack=st.booleans())
    def get(self, who: int, no_ack: bool) -> None:
        self.world.get("q", by=self.sessions[who], no_ack=no_ack)

    def _some(self, who: int, which: int) -> tuple[Session, int] | None:
        session = self.sessions[who]
        tags = list(session.unacked)
        return (session, tags[which % len(tags)]) if tags else None

    @rule(who=st.integers(0, 1), which=st.integers(0, 9), multiple=st.booleans())
    def ack(self, who: int, which: int, multiple: bool) -> None:
        found = self._some(who, which)
        if found is not None:
            found[0].ack(found[1], multiple=multiple)
        self.world.end_turn()

    @rule(who=st.integers(0, 1), which=st.integers(0, 9), multiple=st.booleans(), requeue=st.booleans())
    def nack(self, who: int, which: int, multiple: bool, requeue: bool) -> None:
        found = self._some(who, which)
        if found is None:
            return
        session, tag = found
        returned = [message for each, message in session.unacked.items() if each == tag or (multiple and each <= tag)]
        self._watch(returned, counted=True)
        session.reject(tag, multiple=multiple, requeue=requeue, why=NACKED)
        self.check_waits()
        self.world.end_turn()

    @rule(who=st.integers(0, 1))
    def recover(self, who: int) -> None:
        self._watch(list(self.sessions[who].unacked.values()), counted=False)
        self.sessions[who].recover()
        self.check_waits()
        self.world.end_turn()

    def _watch(self, returned: list[Message], *, counted: bool) -> None:
        for message in returned:
            if getattr(message.holder, "queue", None) is self.queue:
                self.failed[message.id] += counted
        self.scheduled_before = {message.id: due for due, message in self.queue.scheduled.entries()}

    def check_waits(self) -> None:
        """Of what waits since this return: due = now + delay x multiplier^(n - 1), at most the cap, or its expiry."""
        rules, now = self.queue.rules, self.clock.monotonic_ns()
        for due, message in self.queue.scheduled.entries():
            if message.id in self.scheduled_before:
                continue
            exponent = max(self.failed[message.id] - 1, 0)
            wait = int(rules.redelivery_delay_ms * Fraction(rules.redelivery_delay_multiplier) ** exponent)
            cap = rules.max_redelivery_delay_ms
            wait = min(wait, 10 * rules.redelivery_delay_ms if cap is None else cap)
            expected = now + wait * MS
            if message.expires_ns:
                expected = min(expected, message.expires_ns)
            assert due == expected

    @rule(who=st.integers(0, 1), failed=st.booleans())
    def end_connection(self, who: int, failed: bool) -> None:
        if failed:
            for message in self.sessions[who].unacked.values():
                if getattr(message.holder, "queue", None) is self.queue:
                    self.failed[message.id] += 1
        self.sessions[who].client.close(failed=failed)
        self.world.end_turn()
        self.sessions[who] = self.world.connect()

    @rule(ms=st.sampled_from([1, 50, 400, 6000]))
    def advance(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def purge(self) -> None:
        self.queue.purge()
        self.world.end_turn()

    @rule(size=st.sampled_from([None, 1, 2, 5]))
    def resize(self, size: int | None) -> None:
        reconfigure.set_ring_size(self.queue, size)

    @rule(said=ADDRESS_SETTINGS)
    def reload(self, said: dict[str, Any]) -> None:
        self.broker.reloading.replace_settings(SettingsRepository([entry("q", **said)]))

    # -- what always holds --------------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "ring_before"))
    @invariant()
    def the_ring_holds(self) -> None:
        """Never more than its size; after it was made smaller, never more than before."""
        size = self.queue.rules.ring_size
        if size is not None:
            assert self.queue.store.in_memory <= max(size, self.ring_before)
        self.ring_before = self.queue.store.in_memory

    @precondition(lambda self: hasattr(self, "ring_before"))
    @invariant()
    def nothing_is_lost(self) -> None:
        """What came in and did not end is there; the counters say the same as the events."""
        for queue in self.world.vhost.queues.values():
            here = {message.id for message in queue.scheduled} | set(ids_in(queue.store))
            if not queue.keeps_acked:
                here |= {message.id for message in queue.unacked_messages()}
            assert here == {id_ for name, id_ in self.open if name == queue.name}
            counters = queue.counters.as_dict()
            ended = sum(counters[name] for name in TERMINAL_COUNTERS)
            if not queue.keeps_acked:
                done = sum(name == queue.name for name, _ in self.done)
                dead_on_arrival = done - (counters["enqueued"] - len(here))
                assert ended + counters["dropped"] == counters["enqueued"] - len(here) + dead_on_arrival


RulesMachine.TestCase.settings = settings(
    max_examples=examples(200), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestRules(RulesMachine.TestCase, unittest.TestCase):  # type: ignore[misc]
    """Many short stories."""


pytestmark = pytest.mark.filterwarnings("error")
