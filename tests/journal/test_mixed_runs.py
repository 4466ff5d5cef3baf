"""Mixed runs: the same as one message after the other, for consumers, counters, listeners and after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from depth_world import DepthWorld
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_files import SimulatedFiles

from leveret.engine import CommonHeader, Delivered, Envelope, Event, MixedEvent
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.engine.messages.field_table import Field
from leveret.journal import JournalOptions
from leveret.testing.harness import Harness, messages

#: What a message may be like: routing key and properties. Plain ones to one queue make mixed runs.
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("q.x", {"delivery_mode": 2}),
    ("q.y", {"delivery_mode": 2, "priority": 3}),
    ("q.x", {"delivery_mode": 2, "content_type": b"text"}),
    ("other.z", {"delivery_mode": 2}),
]
TRANSIENT = ("q.x", {"delivery_mode": 1})
KEPT_BY_RULES = {"max_length": {"x-max-length": Field("I", 7)}, "none": {}}

run_of_kinds = st.lists(st.sampled_from(range(len(KINDS) + 1)), min_size=2, max_size=9)
publish = st.tuples(st.just("publish"), run_of_kinds)
#: Prefetch, and whether nothing is acknowledged, of the consumers that are there from the beginning.
first_consumers = st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=2)
step = st.one_of(
    publish,
    publish,
    publish,
    st.tuples(st.just("consume"), st.integers(0, 1), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 1)),
    st.tuples(st.just("ack"), st.integers(0, 1)),
    st.tuples(st.just("reject"), st.integers(0, 1)),
    st.tuples(st.just("end turn")),
    st.tuples(st.just("restart")),
)


class MixedWorld(DepthWorld):
    """`is_mixed`: runs are published whole; else message by message, queue by queue as a mixed run is."""

    has_temp_store = False

    def __init__(self, arguments: dict[str, Field], *, is_mixed: bool, memory: int | None) -> None:
        self.is_mixed = is_mixed
        self.heard: list[Event] = []
        self.confirmed: list[Any] = []
        self.number = 0
        super().__init__(arguments, {}, memory=memory)

    def begin(self) -> None:
        super().begin()
        self.broker.context.listeners.append(self.heard.append)
        self.envelopes = [self._envelope(key, properties) for key, properties in [*KINDS, TRANSIENT]]
        self.sessions[2].select_confirms()

    def _envelope(self, key: str, properties: dict[str, Any]) -> Envelope:
        return Envelope("e", key, scan_properties(encode_header(1, properties)[12:]))

    def publish_kinds(self, kinds: Sequence[int]) -> None:
        """A message of each of these kinds, numbered."""
        contents = []
        for kind in kinds:
            self.number += 1
            body = b"%d" % self.number
            contents.append(NATIVE.join(encode_header(len(body), [*KINDS, TRANSIENT][kind][1]), body))
        envelopes = [self.envelopes[kind] for kind in kinds]
        routes = [self.route(envelope.routing_key, "e") for envelope in envelopes]
        queues = [route.only_queue for route in routes]
        session = self.sessions[2]
        if self.is_mixed:
            session.publish_mixed([queue for queue in queues if queue is not None], envelopes, contents)
        else:
            for queue in dict.fromkeys(queues):
                for at, route in enumerate(routes):
                    if queues[at] is queue:
                        session.publish(route, envelopes[at], (contents[at],), mandatory=False)
        assert session.confirms is not None
        self.broker.scheduler.mark(self.q)

    def do(self, what: str, *arguments: Any) -> None:
        """A step."""
        if what == "publish":
            self.publish_kinds(arguments[0])
        elif what == "end turn":
            self.end_turn()
        elif what == "restart":
            self.end_turn()
            self.restart()
        else:
            self._at_session(what, *arguments)

    def _at_session(self, what: str, who: int, *arguments: Any) -> None:
        session, tag = self.sessions[who], f"t{who}"
        if what == "consume":
            prefetch, no_ack = arguments
            if tag not in session.consumers:
                self.join(tag, prefetch=prefetch, no_ack=no_ack, who=who)
        elif what == "cancel":
            session.cancel(tag)
        elif session.unacked:
            oldest = next(iter(session.unacked))
            if what == "ack":
                session.ack(oldest)
            else:
                session.reject(oldest, requeue=True)

    def restart(self) -> None:
        """The power goes; all was safe."""
        self.kill(power_cut=True)

    def get(self, name: str) -> Any:
        """What clients see of it."""
        got = super().get(name, by=self.sessions[2])
        return None if got is None else (got[0], *got[2:], self.content(got[1].envelope, got[1].content))

    def state(self) -> Any:
        """What is to be the same."""
        self.end_turn()
        confirms = self.sessions[2].confirms
        assert confirms is not None
        self.confirmed += confirms.take(1 << 60)
        queues = [self.named(name) for name in ("q", "other")]
        in_memory = [self.content(one.envelope, one.content) for one in self.q.store]
        counts = [(len(one.store), one.unacked, one.counters.as_dict()) for one in queues]
        return self.seen, in_memory, counts, self.confirmed, _told(self.heard)


def _told(events: Sequence[Event]) -> list[tuple[str, str, int]]:
    """What happened to each message, by message: a mixed run is published whole before any of it is enqueued."""
    assert not any(isinstance(event, MixedEvent) for event in events)  # a plain listener gets stretches
    told = [(id_, event.kind.value, event.subject) for event in events for id_ in event.messages]
    return sorted((subject, kind, id_) for id_, kind, subject in told)


@pytest.mark.parametrize("memory", [None, 200, 4000])
@pytest.mark.parametrize("rules", list(KEPT_BY_RULES))
@settings(deadline=None, max_examples=25)
@given(consumers=first_consumers, steps=st.lists(step, min_size=3, max_size=10))
def test_a_mixed_run_is_as_one_message_after_the_other(
    rules: str, memory: int | None, consumers: list[tuple[int, bool]], steps: list[tuple[Any, ...]]
) -> None:
    """With consumers that have credit or not, several of them, paged-out messages, limits, and power cuts."""
    steps = [("consume", who, *one) for who, one in enumerate(consumers)] + steps
    worlds = [MixedWorld(KEPT_BY_RULES[rules], is_mixed=is_mixed, memory=memory) for is_mixed in (True, False)]
    try:
        for one in steps:
            for world in worlds:
                world.do(*one)
        assert worlds[0].state() == worlds[1].state()
        for world in worlds:
            world.restart()
        contents = []
        for world in worlds:
            found = [[], []]  # type: list[list[Any]]
            for list_, name in zip(found, ("q", "other")):
                while (got := world.get(name)) is not None:
                    list_.append(got)
            contents.append(found)
        assert contents[0] == contents[1]
    finally:
        for world in worlds:
            world.close()


def test_envelopes_may_stand_in_any_sequence() -> None:
    """A consumer takes the first of three; its envelope is of that one alone, and the others keep theirs."""
    world = MixedWorld({}, is_mixed=True, memory=None)
    world.do("consume", 0, 1, False)
    envelopes = (world.envelopes[0], world.envelopes[1], world.envelopes[0])
    contents = [NATIVE.join(encode_header(1), body) for body in (b"1", b"2", b"3")]
    world.sessions[2].publish_mixed([world.q] * 3, envelopes, contents)
    (effect,) = world.client.take_outbox()
    assert isinstance(effect, Delivered)
    assert list(effect.runs()) == [(1, envelopes[0], contents[:1])]
    assert tuple(one.envelope for one in world.q.store) == envelopes[1:]
    world.close()


def test_messages_of_one_mixed_run_keep_their_own_headers() -> None:
    """Some with a header that a run has in common, others with one of their own: a restart gives each its own back."""
    harness = Harness(journal=SimulatedFiles())
    queue = harness.queue()
    envelopes: list[Envelope] = []
    contents: list[bytes] = []
    expected: list[tuple[bytes, bytes]] = []
    for kind in "abn":
        summary, (content,) = messages(["body"], {"type": kind, "delivery_mode": 2})
        header, body = NATIVE.split(content)
        framing = NATIVE if kind == "n" else CommonHeader(header)
        envelopes.append(Envelope("", "q", summary, framing))
        contents.append(content if kind == "n" else body)
        expected.append((header, body))
    harness.session.publish_mixed([queue] * 3, envelopes, contents)
    harness.end_turn()
    harness.restart()
    got = [found[1] for _ in expected if (found := harness.get())]
    assert [one.envelope.framing.split(one.content) for one in got] == expected


def test_messages_of_mixed_runs_free_their_segments() -> None:
    """Each counts in the segment that it is in, also where nothing else was published: then the segment can go."""
    options = JournalOptions(segment_size=2000, preallocate_size=0)
    harness = Harness(journal=SimulatedFiles(), journal_options=options)
    queue = harness.queue()
    for _ in range(12):
        parts = [messages([bytes(300)], {"delivery_mode": 2, "priority": priority}) for priority in (1, 2)]
        envelopes = [Envelope("", "q", summary) for summary, _ in parts]
        harness.session.publish_mixed([queue] * 2, envelopes, [content for _, (content,) in parts])
        harness.end_turn()
    rows = harness.journal.usage.segments
    assert len(rows) > 3 and sum(row.live for row in rows) == 24
    for left in range(23, -1, -1):
        harness.take()
        assert sum(row.live for row in rows) == left and all(row.live >= 0 for row in rows)
    harness.checkpoint(reclaims=True)
    assert len(harness.journal.usage.segments) == 1
