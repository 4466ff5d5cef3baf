"""What waits for a slow subscriber, against a model of it. Queues page E.1, "eviction"."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from subscribers import Bench, Subscriber, topics

KEY = "symbol"


@dataclass
class One:
    """A message, as the model knows it."""

    number: int
    priority: int
    symbol: int | None
    timestamp: int
    expires_ms: int | None


class Evictions(RuleBasedStateMachine):
    """One subscriber, one message after the other, and runs of them."""

    @initialize(
        prefetch=st.integers(1, 3),
        limit=st.integers(0, 5),
        eviction=st.sampled_from(["oldest", "lowest-priority", "unique-property"]),
        memory_limit=st.sampled_from([-1, 100_000_000]),
    )
    def begin(self, prefetch: int, limit: int, eviction: str, memory_limit: int) -> None:
        rules = {
            "pending_message_limit": limit,
            "message_eviction": eviction,
            "message_eviction_property": KEY,
            "memory_limit": memory_limit,
        }
        self.bench = Bench(destinations=topics(PRICES_=rules))
        self.subscriber = Subscriber(self.bench, "q", prefetch=prefetch).bind("#")
        self.prefetch, self.limit, self.eviction = prefetch, limit, eviction
        self.now_ms = self.number = 0
        self.ready: list[One] = []
        self.out: list[One] = []
        self.evicted = self.expired = 0
        self.flows = True

    @rule(
        count=st.integers(1, 4),
        priority=st.integers(0, 2),
        symbol=st.none() | st.integers(0, 2),
        timestamp=st.integers(0, 2),
        ttl=st.none() | st.integers(1, 20),
    )
    def publish(self, count: int, priority: int, symbol: int | None, timestamp: int, ttl: int | None) -> None:
        bodies = [str(self.number + one) for one in range(1, count + 1)]
        properties = {"priority": priority, "timestamp": timestamp}
        if symbol is not None:
            properties[KEY] = symbol
        if ttl is not None:
            properties["ttl"] = ttl
        self.bench.publish(*bodies, at_once=True, **properties)
        expires_ms = None if ttl is None else self.now_ms + ttl
        for _ in range(count):
            self.number += 1
            self.ready.append(One(self.number, priority, symbol, timestamp, expires_ms))
            self._hand_out()
            self._evict()

    @rule(count=st.integers(1, 3))
    def acknowledge(self, count: int) -> None:
        session = self.subscriber.session
        for tag in list(session.unacked)[:count]:
            session.ack(tag)
            self.out.pop(0)
        self.bench.end_turn()
        self._hand_out()

    @rule()
    def give_back(self) -> None:
        if self.out:
            self.subscriber.session.reject(0, multiple=True, requeue=True)
            self.bench.end_turn()
            self.ready = sorted([*self.out, *self.ready], key=lambda one: one.number)
            self.out = []
            self._hand_out()
            self._evict()

    @rule()
    def flow(self) -> None:
        self.flows = not self.flows
        self.subscriber.session.set_flowing(self.flows)
        self.bench.end_turn()
        self._hand_out()

    @rule(ms=st.integers(1, 10))
    def wait(self, ms: int) -> None:
        self.bench.advance(ms)
        self.now_ms += ms
        self._hand_out()

    # -- the model ----------------------------------------------------------------------------------------------------

    def _is_expired(self, one: One) -> bool:
        return one.expires_ms is not None and one.expires_ms <= self.now_ms

    def _hand_out(self) -> None:
        while self.ready:
            if self._is_expired(self.ready[0]):
                self.ready.pop(0)
                self.expired += 1
            elif self.flows and len(self.out) < self.prefetch:
                self.out.append(self.ready.pop(0))
            else:
                break

    def _evict(self) -> None:
        if len(self.ready) > self.limit:
            gone = [one for one in self.ready if self._is_expired(one)]
            self.expired += len(gone)
            self.ready = [one for one in self.ready if one not in gone]
        while len(self.ready) > self.limit:
            gone = self._chosen()
            self.evicted += len(gone)
            self.ready = [one for one in self.ready if one not in gone]

    def _chosen(self) -> list[One]:
        ready = self.ready
        if self.eviction == "oldest":
            return ready[:1]
        if self.eviction == "lowest-priority":
            return [min(ready, key=lambda one: (one.priority, one.number))]
        newest: dict[int, One] = {}
        for one in ready:
            if one.symbol is not None:
                last = newest.get(one.symbol, one)
                newest[one.symbol] = max(last, one, key=lambda each: (each.timestamp, each.number))
        redundant = [one for one in ready if newest.get(one.symbol if one.symbol is not None else -1) is not one]
        return redundant if redundant and newest else ready[:1]

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "bench"):
            return
        queue = self.subscriber.queue
        assert self.subscriber.waiting == [str(one.number) for one in self.ready]
        out = [message.body.decode() for message in self.subscriber.session.unacked.values()]
        assert out == [str(one.number) for one in self.out]
        counters = queue.counters
        assert (counters.replaced, counters.expired) == (self.evicted, self.expired)
        assert counters.enqueued - counters.acknowledged - self.evicted - self.expired == len(self.ready) + len(
            self.out
        )
        if queue.meter is not None:
            assert queue.meter.in_memory == len(self.ready) + len(self.out)
            assert queue.meter.fails is False


Evictions.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestEvictions = Evictions.TestCase
