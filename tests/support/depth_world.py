"""A broker on a journal, with or without messages that only the journal has: for tests that compare the two."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pytest
from effort import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from simulated_files import SimulatedFiles

from leveret.engine import Client, Consumer, Envelope, Queue, Session, reconfigure
from leveret.engine.clients.session import NACKED
from leveret.engine.messages.field_table import FieldTable
from leveret.engine.stores import memory_budget, tailed_store
from leveret.journal import JournalOptions
from leveret.journal.recording.recorder import Recorder
from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import Harness

#: Settings that page messages out.
MEMORY_LIMITS = frozenset({"memory_limit", "max_size_bytes", "max_size_messages", "cursor", "producer_flow_control"})
PERSISTENT: dict[str, Any] = {"delivery_mode": 2}


def page_early(patch: pytest.MonkeyPatch) -> None:
    """A queue is deep from its first messages on, and they come back in pairs."""
    for name, value in {"LOW": 2, "HIGH": 4, "LOAD_SLICE": 2, "PAGE_SLICE": 2}.items():
        patch.setattr(tailed_store, name, value)
    patch.setattr(memory_budget, "SMALL", 0)


class DepthWorld(Harness):
    """Three sessions of one client, the last one only gets; queues `q`, `dead` and `other` behind a topic exchange `e`.

    `memory`: octets that messages may take; None: nothing leaves memory. `said`: settings of `q`.
    `seen`: what each consumer got, by its tag, in all lives.
    """

    ends_turns = False
    has_journal: ClassVar[bool] = True
    #: Whether deliveries are recorded before they are sent.
    persists_deliveries: ClassVar[bool] = False
    memory_limits: ClassVar[frozenset[str]] = MEMORY_LIMITS

    def __init__(
        self,
        arguments: FieldTable,
        said: dict[str, Any],
        *,
        memory: int | None = None,
        files: SimulatedFiles | None = None,
        durable: bool = True,
        **broker: Any,
    ) -> None:
        self.arguments, self.said, self.memory, self.durable = arguments, said, memory, durable
        self.seen: dict[str, list[tuple[bool, Any]]] = {}
        super().__init__(
            journal=(files or SimulatedFiles()) if self.has_journal else None,
            journal_options=JournalOptions(segment_size=3000, preallocate_size=0),
            recorder=partial(Recorder, counts_max=-1, persists_deliveries=self.persists_deliveries),
            memory=memory,
            **broker,
        )

    def begin(self) -> None:
        self.settings = self.repository()
        super().begin()
        self.sessions: list[Session] = [self.session, *(self.client.open_session() for _ in range(2))]
        self.vhost.exchanges.declare("e", "topic", durable=True)
        for name in ("q", "dead", "other"):
            self.declare(name)
        self.bind("other", "e", "q.both")
        self.end_turn()

    def declare(self, name: str) -> None:
        """One of the queues, which may have been deleted."""
        arguments, durable = (self.arguments, self.durable) if name == "q" else ({}, True)
        self.queue(name, client=self.client, durable=durable, **arguments)
        self.bind(name, "e", f"{name}.#")

    @property
    def q(self) -> Queue:
        """What it is about."""
        return self.named("q")

    def repository(self) -> SettingsRepository:
        """The operator's settings; where nothing leaves memory, without limits on what is there."""
        said = self.said
        if self.memory is None:
            said = {key: value for key, value in said.items() if key not in self.memory_limits}
        return SettingsRepository([entry("q", **said)])

    def configure(self, said: dict[str, Any]) -> None:
        """Other settings from now on."""
        self.said = said
        self.reload(self.repository())

    def read(self, client: Client) -> None:
        super().read(client)
        for one in self.deliveries:
            self.seen.setdefault(one.consumer.tag, []).append(
                (one.redelivered, self.content(one.envelope, one.content))
            )
        self.deliveries.clear()

    @staticmethod
    def content(envelope: Envelope, content: bytes) -> Any:
        """What a client sees of a message."""
        body = envelope.framing.split(content)[1]
        return body, sorted(envelope.headers(content)), envelope.routing_key, envelope.exchange

    def fill(self, sizes: list[int], properties: dict[str, Any], number: int, key: str = "q.x") -> None:
        """A run of messages, numbered."""
        bodies = [b"%d.%d" % (number, index) + bytes(size) for index, size in enumerate(sizes)]
        self.publish(*bodies, key=key, exchange="e", by=self.sessions[2], **properties)

    def fetch(self, name: str = "q", *, no_ack: bool = True, who: int = 2) -> Any:
        """What a get gives."""
        got = self.get(name, no_ack=no_ack, by=self.sessions[who])
        if got is None:
            return None
        tag, message, redelivered, left = got
        return tag, redelivered, left, self.content(message.envelope, message.content)

    def join(
        self, tag: str, name: str = "q", *, prefetch: int = 0, no_ack: bool = True, total: bool = False, who: int = 0,
        **arguments: Any,
    ) -> Consumer:  # fmt: skip
        """A subscription."""
        return self.consume(
            name, tag, by=self.sessions[who], prefetch=prefetch, no_ack=no_ack, total=total, **arguments
        )

    def got(self, tag: str) -> list[bytes]:
        """The bodies that a consumer got, without padding."""
        return [content[0].rstrip(b"\0") for _, content in self.seen.get(tag, [])]

    def facts(self) -> object:
        """What there is to compare."""
        counts = [
            (len(one.store), one.unacked, len(one.scheduled), len(one.consumers), one.counters.as_dict())
            for one in self.vhost.queues.values()
        ]
        return counts, self.seen, [len(session.unacked) for session in self.sessions]


class DepthMachine(RuleBasedStateMachine):
    """Everything is done in a world in memory and in a deep one. Subclasses say what, and what holds."""

    worlds: list[Any]

    def both(self, act: Callable[[Any], object]) -> None:
        answers = []
        for world in self.worlds:
            answers.append(act(world))
            world.end_turn()
        assert answers[0] == answers[1]

    @rule(who=st.integers(0, 1))
    def cancel(self, who: int) -> None:
        self.both(lambda world: [world.sessions[who].cancel(tag) for tag in list(world.sessions[who].consumers)])

    @rule(
        who=st.integers(0, 2),
        which=st.integers(0, 9),
        how=st.sampled_from(["ack", "ack", "nack", "nack", "reject"]),
        multiple=st.booleans(),
    )
    def settle(self, who: int, which: int, how: str, multiple: bool) -> None:
        def act(world: Any) -> None:
            session = world.sessions[who]
            tags = self.settleable(session)
            if not tags:
                return
            tag, is_multiple = tags[which % len(tags)], multiple and self.may_settle_many(session)
            if how == "ack":
                session.ack(tag, multiple=is_multiple)
            else:
                session.reject(tag, multiple=is_multiple, requeue=how == "nack", why=NACKED)

        self.both(act)

    def settleable(self, session: Session) -> list[int]:
        """Tags, in an order that is the same in both worlds."""
        return list(session.unacked)

    def may_settle_many(self, session: Session) -> bool:
        """Whether both worlds settle the same with `multiple`."""
        return True

    @rule(who=st.integers(0, 2), failed=st.booleans())
    def close(self, who: int, failed: bool) -> None:
        def act(world: Any) -> None:
            world.sessions[who].close(failed=failed)
            world.sessions[who] = world.client.open_session()

        self.both(act)

    def intervention(self, what: str) -> Callable[[Any], object]:
        """What happens more seldom."""
        acts: dict[str, Callable[[Any], object]] = {
            "purge": lambda world: world.q.purge(),
            "recover": lambda world: [session.recover() for session in world.sessions],
            "ring": lambda world: reconfigure.set_ring_size(world.q, 5),
            "no ring": lambda world: reconfigure.set_ring_size(world.q, None),
        }
        return acts[what]

    @rule(ms=st.sampled_from([1, 400, 6000]))
    def advance(self, ms: int) -> None:
        self.both(lambda world: world.advance(ms))

    @rule()
    def checkpoint(self) -> None:
        """Segments go and contents move under the deep queue."""
        self.both(lambda world: world.checkpoint(reclaims=True))

    @precondition(lambda self: hasattr(self, "worlds"))
    @invariant()
    def no_difference(self) -> None:
        shallow, deep = self.worlds
        assert deep.facts() == shallow.facts()

    def teardown(self) -> None:
        for world in getattr(self, "worlds", ()):
            world.close()


def stories(count: int) -> settings:
    """Many short ones."""
    return settings(
        max_examples=examples(count), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
