"""Any order of publishes, settlements and reloads under limits: the usage is what is there, and nobody is stuck.

Queues page E.5. After each step the broker is quiet: all that may go on has gone on.
"""

from __future__ import annotations

import unittest
from collections import Counter, deque
from typing import Any

from effort import examples
from flow_bench import Publisher, make_content
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.engine import (
    Broker,
    BrokerOptions,
    Consumer,
    Delivered,
    ManualClock,
    Message,
    PropertySummary,
    Queue,
    Session,
)
from leveret.engine.invariants import check_broker
from leveret.settings import NO_WHOLE_LIMITS, SettingsRepository, SystemUsage, WholeLimits, entry
from leveret.testing.harness import GUEST
from leveret.testing.memory_pager import MemoryTempStore

QUEUES = ("a", "b", "c")
PUBLISHERS = 3
#: Between nothing and a few messages of each of these sizes.
LARGEST = 5_000
SIZES = st.sampled_from([100, 900, 1_100, LARGEST])
LIMITS = st.sampled_from([1, 2_000, 3_300, 10_000])

one_setting = st.one_of(
    st.fixed_dictionaries({}),
    st.fixed_dictionaries(
        {"memory_limit": LIMITS, "cursor": st.sampled_from(["vm", "store", "store", "file"])},
        optional={
            "send_fail_if_no_space": st.booleans(),
            "producer_flow_control": st.booleans(),
            "minimum_message_size": st.sampled_from([0, 1024]),
        },
    ),
    st.fixed_dictionaries(
        {"address_full_policy": st.sampled_from(["BLOCK", "FAIL", "DROP"])},
        optional={"max_size_bytes": LIMITS, "max_size_bytes_reject_threshold": LIMITS},
    ),
    st.fixed_dictionaries(
        {"page_full_policy": st.sampled_from(["FAIL", "DROP"]), "page_limit_bytes": LIMITS},
        optional={"max_size_bytes": LIMITS},
    ),
    st.fixed_dictionaries({"address_full_policy": st.just("BLOCK"), "max_size_messages": st.integers(1, 5)}),
    st.fixed_dictionaries({"max_size_bytes": st.just(0) | LIMITS}, optional={"max_size_messages": st.integers(0, 5)}),
    st.fixed_dictionaries(
        {"memory_limit": LIMITS, "cursor": st.sampled_from(["vm", "store"]), "default_ring_size": st.integers(1, 4)}
    ),
)
systems = st.none() | st.builds(SystemUsage, memory=LIMITS, store=LIMITS | st.just(0), temp=LIMITS | st.just(0))
wholes = st.just(NO_WHOLE_LIMITS) | st.builds(
    WholeLimits, octets_max=st.none() | LIMITS, messages_max=st.none() | st.integers(0, 6)
)


class Flow(RuleBasedStateMachine):
    """`offered`: what each publisher was given to publish; what it did not publish, it holds or was refused."""

    @initialize(first=st.fixed_dictionaries(dict.fromkeys(QUEUES, one_setting)), system=systems, whole=wholes,
                room=st.sampled_from([0, 3_000, 1 << 40, 1 << 40]))  # fmt: skip
    def begin(
        self, first: dict[str, dict[str, Any]], system: SystemUsage | None, whole: WholeLimits, room: int
    ) -> None:
        """`room`: octets that the temp store has, where all goes that leaves memory."""
        self.clock = ManualClock()
        self.broker = Broker(
            self.clock, options=BrokerOptions(system_usage=system, whole_limits=whole), unsent_max=1 << 40
        )
        self.temp, self.room = MemoryTempStore(room), room
        self.broker.context.storage.open_temp = lambda: self.temp
        self._set(first, system, whole)
        self.vhost = self.broker.virtual_hosts["/"]
        self.summary = PropertySummary()
        for name in QUEUES:
            self._declare(name)
        self.vhost.bindings.add("queue", "a", "amq.fanout", "", {})
        self.vhost.bindings.add("queue", "b", "amq.fanout", "", {})
        self.publishers = [Publisher(self, f"p{number}") for number in range(PUBLISHERS)]  # type: ignore[arg-type]
        self.offered: Counter[Publisher] = Counter()
        self.session: Session = self.broker.connections.open(
            "/", GUEST, name="consumer", flush=self._take
        ).open_session()
        self.session.set_prefetch(3, total=False)
        self.out: deque[int] = deque()
        self.consumers: dict[str, Consumer] = {}

    def _declare(self, name: str) -> Queue:
        return self.vhost.queues.declare(name, client=None, durable=True, arguments={})

    def _set(
        self, given: dict[str, dict[str, Any]], system: SystemUsage | None, whole: WholeLimits = NO_WHOLE_LIMITS
    ) -> None:
        repository = SettingsRepository([entry(name, **fields) for name, fields in given.items()], usage=system)
        self.broker.reloading.replace_settings(repository, BrokerOptions(system_usage=system, whole_limits=whole))

    def route(self, name: str) -> Any:
        return self.vhost.router.route("amq.fanout" if name == "*" else "", name, GUEST)

    def _take(self) -> None:
        for effect in self.session.client.take_outbox():  # type: ignore[attr-defined]
            if type(effect) is Delivered and not effect.consumer.no_ack:
                self.out.extend(range(effect.first_tag, effect.first_tag + len(effect.contents)))

    def _quiet(self) -> None:
        while self.broker.end_turn():
            pass

    # -- rules ----------------------------------------------------------------------------------------------------

    @rule(who=st.integers(0, PUBLISHERS - 1), to=st.sampled_from((*QUEUES, "*")), sizes=st.lists(SIZES, max_size=6),
          persistent=st.booleans())  # fmt: skip
    def publish(self, who: int, to: str, sizes: list[int], persistent: bool) -> None:
        publisher = self.publishers[who]
        if publisher.wants and publisher.to != to:
            to = publisher.to
        self.summary = PropertySummary(persistent=persistent)
        self.offered[publisher] += len(sizes)
        publisher.publish(*map(make_content, sizes), to=to)
        self._quiet()

    @rule(name=st.sampled_from(QUEUES), no_ack=st.booleans())
    def get(self, name: str, no_ack: bool) -> None:
        got = self.session.get(self.vhost.queues[name], no_ack=no_ack)
        if got is not None and not no_ack:
            self.out.append(got[0])
        self._quiet()

    @rule(name=st.sampled_from(QUEUES), no_ack=st.booleans())
    def consume(self, name: str, no_ack: bool) -> None:
        if name in self.consumers:
            self.session.cancel(name)
            del self.consumers[name]
        else:
            queue = self.vhost.queues[name]
            self.consumers[name] = self.session.consume(queue, name, no_ack=no_ack, exclusive=False, arguments={})
        self._quiet()

    @precondition(lambda self: self.out)
    @rule(how=st.sampled_from(["ack", "requeue", "reject"]), newest=st.booleans())
    def settle(self, how: str, newest: bool) -> None:
        tag = self.out.pop() if newest else self.out.popleft()
        if how == "ack":
            self.session.ack(tag)
        else:
            self.session.reject(tag, requeue=how == "requeue")
        self._quiet()

    @rule(name=st.sampled_from(QUEUES))
    def purge(self, name: str) -> None:
        self.vhost.queues.purge(name, None)
        self._quiet()

    @rule(name=st.sampled_from(("c",)))
    def delete(self, name: str) -> None:
        self.vhost.queues.delete(name, None)
        self.consumers.pop(name, None)
        self._quiet()
        self._declare(name)
        self.out = deque(tag for tag in self.out if tag in self.session.unacked)
        self._quiet()

    @rule(given=st.fixed_dictionaries(dict.fromkeys(QUEUES, one_setting)), system=systems, whole=wholes)
    def reload(self, given: dict[str, dict[str, Any]], system: SystemUsage | None, whole: WholeLimits) -> None:
        self._set(given, system, whole)
        self._quiet()

    @rule(who=st.integers(0, PUBLISHERS - 1))
    def leave(self, who: int) -> None:
        """A publisher's connection is lost with what it holds."""
        publisher = self.publishers[who]
        self.broker.flow.leave(publisher)
        self.offered[publisher] -= len(publisher.wants)
        publisher.wants.clear()
        self._quiet()

    # -- what always holds ----------------------------------------------------------------------------------------

    @invariant()
    def the_usage_is_what_is_there(self) -> None:
        check_broker(self.broker)
        tails = [part for queue in self.vhost.queues.values() for part in queue.store.paged_parts()]
        assert self.temp.used == sum(sum(part.sizes) for part in tails if not isinstance(part, Message))
        assert {node.used for node in self.broker.flow.nodes() if node.limit_name == "temp"} <= {self.temp.used}

    @invariant()
    def memory_is_within_its_limits(self) -> None:
        """What is ready in memory leaves it as long as it can, but for the last message that was read back."""
        if self.room < self.temp.used + LARGEST:
            return
        for queue in self.vhost.queues.values():
            store, meter = queue.store, queue.meter
            aside = any(isinstance(part, Message) for part in store.paged_parts())
            if queue.pageable is None or queue.pageable.share.cap is None or aside or meter is None:
                continue
            for bound in meter.memory_bounds:
                if not bound._charge.node.is_root:  # others may have filled it
                    assert bound.room >= 0 or store.in_memory <= 1 or bound.room + LARGEST >= 0

    @invariant()
    def nobody_waits_where_there_is_room(self) -> None:
        waiting = {publisher for publisher in self.publishers if publisher.wants}
        assert waiting == set(self.broker.flow._waits)
        for node, _ in self.broker.flow._waits.values():
            assert node.is_full
            assert node.used > node.low

    @invariant()
    def nothing_is_lost(self) -> None:
        for publisher in self.publishers:
            assert publisher.published + publisher.refused + len(publisher.wants) == self.offered[publisher]

    def teardown(self) -> None:
        """With all limits gone everybody goes on."""
        if hasattr(self, "broker"):
            self._set({}, None)
            self._quiet()
            assert not any(publisher.wants for publisher in self.publishers)
            assert self.broker.flow.nodes() == []


Flow.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestFlow(Flow.TestCase, unittest.TestCase):  # type: ignore[misc,valid-type]
    """The machine."""
