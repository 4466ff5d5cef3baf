"""Consumers with filters on queues of any depth: who gets what, whatever is paged out, returned, evicted or restarted.

Looked at after each step, when all is quiet:

- a consumer gets only what it takes, and never something younger than what it could have had,
- nothing waits that a consumer with room takes, wherever it is (no starvation),
- where no message is taken by two consumers, a deep queue does the same as one in memory,
- after a kill nothing is there that was acknowledged, and all that was safe.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from depth_world import PERSISTENT, DepthMachine, DepthWorld, page_early, stories
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from leveret.engine import Message
from leveret.engine.messages.content import SCHEDULED_DELIVERY
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.queues import searching, selection
from leveret.engine.stores import levels

ARGUMENTS = st.sampled_from(
    [
        *[FieldTable()] * 4,
        {"x-message-ttl": Field("l", 900)},
        {"x-max-length": Field("l", 6)},
        *[{"x-max-priority": Field("l", 3)}] * 3,
        {"x-max-priority": Field("l", 3), "x-max-length-bytes": Field("l", 120)},
        {"x-ring-size": Field("l", 5)},
        {"x-single-active-consumer": Field("t", True)},
        {"x-queue-type": Field("S", b"quorum"), "x-delivery-limit": Field("l", 3)},
        {"x-last-value-key": Field("S", b"k")},
    ]
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "redelivery_delay_ms": st.sampled_from([0, 100]),
        "max_delivery_attempts": st.sampled_from([-1, 3]),
        "dead_letter_address": st.sampled_from(["", "dead"]),
    },
)
#: Expression -> the same of the number in the body and in the header `k`. The first three overlap with none of them.
FILTERS: dict[str, Callable[[int, int], bool]] = {
    "/n % 3 = 0": lambda n, k: n % 3 == 0,
    "/n % 3 = 1": lambda n, k: n % 3 == 1,
    "(/n % 3) IN (2)": lambda n, k: n % 3 == 2,
    "/n % 2 = 0": lambda n, k: n % 2 == 0,
    "HEADER('k') = 1": lambda n, k: k == 1,
    "k > 0 AND /n > 4": lambda n, k: k > 0 and n > 4,
    "": lambda n, k: True,
}
COUNTS = st.integers(1, 12)
WHO, AT = st.integers(0, 1), st.integers(0, 2)
PREFETCH = st.sampled_from([1, 1, 2, 4, 0])


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Windows are small, and turns are short."""
    with pytest.MonkeyPatch.context() as patch:
        page_early(patch)
        patch.setattr(searching, "STEP", 3)
        patch.setattr(searching, "WINDOW", 4)
        patch.setattr(levels, "NEAR", 2)
        patch.setattr(selection, "SEARCH_EFFORT", 12)
        patch.setattr(selection, "ARRIVALS_EFFORT", 9)
        patch.setattr(selection, "FOUND_MAX", 4)
        patch.setattr(selection, "TAKEN_MAX", 3)
        yield


class FilterWorld(DepthWorld):
    """Messages are numbered, in bodies and by the order of their ids."""

    def begin(self) -> None:
        self.numbers: dict[bytes, tuple[int, int]] = getattr(self, "numbers", {})
        super().begin()

    def publish_numbered(self, first: int, count: int, properties: dict[str, Any], k: int) -> None:
        """A run of them."""
        bodies = [b'{"n": %d}' % number for number in range(first, first + count)]
        self.numbers.update({body: (number, k) for number, body in enumerate(bodies, first)})
        self.publish(*bodies, key="q.x", exchange="e", by=self.sessions[2], **properties)

    def subscribe(self, tag: str, text: str, **how: Any) -> None:
        """A consumer with a filter."""
        self.join(tag, **how, **({"x_filter": text} if text else {}))

    def ready(self) -> dict[int, Message]:
        """All that is ready, by position."""
        store, after = self.q.store, 0
        found: dict[int, Message] = {}
        while True:
            seen = store.scan(after, 3)
            found.update(seen.found)
            if seen.found:
                after = seen.found[-1][0]
            elif seen.missing:
                store.load_at(after, 3)
            else:
                return found

    def takes(self, text: str, message: Message) -> bool:
        """Whether a filter takes it, by the model."""
        return FILTERS[text](*self.numbers[message.body])


class FilterMachine(DepthMachine):
    """Consumers with filters."""

    @initialize(
        arguments=ARGUMENTS,
        said=SETTINGS,
        runs=st.lists(st.tuples(COUNTS, st.sampled_from([True, True, False])), min_size=1, max_size=5),
        memory=st.sampled_from([0, 1500, 4000]),
        disjoint=st.booleans(),
        consumers=st.lists(st.tuples(WHO, PREFETCH, st.sampled_from(sorted(FILTERS)), AT), min_size=1, max_size=4),
    )
    def start(
        self,
        arguments: FieldTable,
        said: dict[str, Any],
        runs: list[tuple[int, bool]],
        memory: int,
        disjoint: bool,
        consumers: list[tuple[int, int, str, int]],
    ) -> None:
        """There is something to begin with."""
        self.worlds = [FilterWorld(arguments, said, memory=share) for share in (None, memory)]
        self.disjoint = disjoint and "x-ring-size" not in arguments
        self.texts: dict[str, str] = {}
        self.subscribed: dict[str, dict[str, Any]] = {}
        self.before: list[dict[int, Message]] = [{}, {}]
        self.number = 1
        for count, persistent in runs:
            self.publish(count, persistent, None, count % 4, 0, count % 2)
        for who, prefetch, text, at in consumers:
            self.consume(who, prefetch, False, text, at)

    def both(self, act: Callable[[FilterWorld], object]) -> None:
        for at, world in enumerate(self.worlds):
            world.end_turn()
            world.seen.clear()
            self.before[at] = world.ready()
        for world in self.worlds:
            act(world)
            world.end_turn()

    @rule(
        count=COUNTS,
        persistent=st.sampled_from([True, True, True, False]),
        expiration=st.sampled_from([None, None, None, b"400"]),
        priority=st.sampled_from([None, 0, 1, 2, 3, 9]),
        delay_ms=st.sampled_from([0, 0, 0, 0, 300]),
        k=st.integers(0, 2),
    )
    def publish(
        self, count: int, persistent: bool, expiration: bytes | None, priority: int | None, delay_ms: int, k: int
    ) -> None:
        mode = 2 if persistent else 1
        headers = {"k": Field("I", k)}
        if delay_ms:
            headers[SCHEDULED_DELIVERY] = Field("l", self.worlds[0].clock.wall_ms() + delay_ms)
        properties = {"delivery_mode": mode, "expiration": expiration, "priority": priority, "headers": headers}
        first, self.number = self.number, self.number + count
        self.both(lambda world: world.publish_numbered(first, count, properties, k))

    @rule(
        who=WHO,
        prefetch=PREFETCH,
        no_ack=st.sampled_from([False, False, True]),
        text=st.sampled_from(sorted(FILTERS)),
        at=AT,
    )
    def consume(self, who: int, prefetch: int, no_ack: bool, text: str, at: int) -> None:
        self.number += 1
        tag = f"t{self.number}"
        if self.disjoint:
            text = list(FILTERS)[at]
            if text in [self.texts[one.tag] for one in self.worlds[0].q.consumers]:
                return
        self.texts[tag] = text
        self.subscribed[tag] = {"prefetch": prefetch, "no_ack": no_ack, "who": who}
        self.both(lambda world: world.subscribe(tag, text, prefetch=prefetch, no_ack=no_ack, who=who))

    @rule(who=st.integers(0, 1), which=st.integers(0, 9))
    def cancel(self, who: int, which: int) -> None:
        def act(world: FilterWorld) -> None:
            tags = list(world.sessions[who].consumers)
            if tags:
                world.sessions[who].cancel(sorted(tags)[which % len(tags)])

        self.both(act)

    @rule(no_ack=st.booleans(), count=st.integers(1, 3))
    def get(self, no_ack: bool, count: int) -> None:
        def act(world: FilterWorld) -> None:
            for _ in range(count):
                world.fetch(no_ack=no_ack)

        self.both(act)

    @rule(what=st.sampled_from(["purge", "recover", "recover", "ring", "no ring", "page out"]))
    def intervene(self, what: str) -> None:
        if what == "ring":
            self.disjoint = False  # a full ring may drop what comes back before a consumer has found it
        if what == "page out":
            self.both(lambda world: world.q.pageable is None or world.q.pageable.page_out(1000))
        else:
            self.both(self.intervention(what))

    @rule(said=SETTINGS, is_kill=st.booleans(), who=st.integers(0, 2), which=st.integers(0, 9), count=COUNTS)
    def start_again(self, said: dict[str, Any], is_kill: bool, who: int, which: int, count: int) -> None:
        """The power goes, and comes back, and so do the consumers."""
        consumers = [one.tag for one in self.worlds[0].q.consumers]
        if is_kill:
            self.kill(who, which, count)
        else:
            for world in self.worlds:
                world.said = said
                world.kill(power_cut=True)
        for tag in consumers:
            for world in self.worlds:
                world.subscribe(tag, self.texts[tag], **self.subscribed[tag])
        for world in self.worlds:
            world.seen.clear()
            world.end_turn()
        self.before = [{}, {}]

    def kill(self, who: int, which: int, count: int) -> None:
        """While an acknowledgement and new messages are under way."""
        for world in self.worlds:
            world.end_turn()
            safe = {message.body for message in world.ready().values() if message.envelope.summary.persistent}
            scheduled = {message.body for message in world.q.messages() if message.envelope.summary.persistent}
            out = {one.body: one for one in world.q.unacked_messages() if one.envelope.summary.persistent}
            session = world.sessions[who]
            tags = list(session.unacked)
            if tags:
                session.ack(tags[which % len(tags)], multiple=False)
            world.publish_numbered(self.number, count, PERSISTENT, 0)
            world.broker.end_turn()
            world.kill()
            there = {message.body for message in [*world.ready().values(), *world.q.messages()]}
            new = {b'{"n": %d}' % number for number in range(self.number, self.number + count)}
            assert there <= safe | scheduled | set(out) | new
            if world.arguments == {} and not world.said:
                assert len((safe | set(out)) - there) <= bool(tags)
        self.number += count

    @precondition(lambda self: hasattr(self, "worlds"))
    @invariant()
    def consumers_have_what_they_take(self) -> None:
        for at, world in enumerate(self.worlds):
            ready = world.ready()
            stayed = [position for position in ready if position in self.before[at]]
            for tag, got in world.seen.items():
                for _, content in got:
                    assert FILTERS[self.texts[tag]](*world.numbers[content[0]]), (tag, content)
            consumer_list = world.q.consumer_list
            now_ns = world.clock.monotonic_ns()
            for consumer in consumer_list.served:
                text = self.texts[consumer.tag]
                if consumer.credit() > 0:
                    for message in ready.values():
                        assert 0 < message.expires_ns <= now_ns or not world.takes(text, message), (text, message)
                got_ids = [self.positions(world)[content[0]] for _, content in world.seen.get(consumer.tag, ())]
                for position in stayed:
                    message = ready[position]
                    if world.takes(text, message) and not 0 < message.expires_ns <= now_ns:
                        assert all(one < position for one in got_ids), (text, message, got_ids)
            assert len(ready) == world.q.ready_count

    @staticmethod
    def positions(world: FilterWorld) -> dict[bytes, int]:
        """Where messages that are out stood."""
        found = {}
        for message in world.q.unacked_messages():
            found[message.body] = world.q.store.position_of(message)
        for body in world.numbers:
            found.setdefault(body, 0)  # gone: nothing is known of it
        return found

    @precondition(lambda self: hasattr(self, "worlds") and self.disjoint)
    @invariant()
    def no_difference(self) -> None:
        shallow, deep = self.worlds
        assert deep.facts() == shallow.facts()


class TestFilters(FilterMachine.TestCase):  # type: ignore[misc,valid-type]
    """Many short stories."""

    settings = stories(80)


assert issubclass(TestFilters, unittest.TestCase)
