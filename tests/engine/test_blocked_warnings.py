"""Warnings that publishers wait. Queues page E.1, "blockedProducerWarningInterval"."""

from __future__ import annotations

import pytest
from subscribers import Bench

from leveret.engine import BlockedWarning, Envelope
from leveret.settings import SettingsRepository, SystemUsage, entry
from leveret.testing.harness import messages

_, (MESSAGE,) = messages([bytes(2_000)], {})


class Waiting:
    """A client whose publish to `q` has to wait."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench = bench
        self.session = bench.connect(name)
        self.client = self.session.client
        self.publish()

    def publish(self) -> None:
        offer = self._offer()
        assert offer.full is not None
        self.bench.broker.flow.wait(offer.full, self.client, self)

    def _offer(self):  # type: ignore[no-untyped-def]
        return self.session.publish_with_room(self.bench.route("q"), Envelope("", "q"), [MESSAGE], mandatory=False)

    def resume(self, octets: int, messages: int) -> tuple[int, int]:
        """See `Waiter`: there is room, or it is to look again whether it is still held."""
        offer = self._offer()
        if offer.taken:
            return len(MESSAGE), 1
        assert offer.full is not None
        self.bench.broker.flow.wait(offer.full, self.client, self)
        return 0, 0


def bench_with(interval_ms: int | None, system: SystemUsage | None = None) -> tuple[Bench, list[BlockedWarning]]:
    """A full queue, and what is warned of."""
    limits = {} if system is not None else {"memory_limit": 1_000, "cursor": "vm"}
    if interval_ms is not None:
        limits["blocked_producer_warning_interval_ms"] = interval_ms
    bench = Bench(entry("q", **limits), system=system)
    bench.queue()
    warnings: list[BlockedWarning] = []
    bench.broker.flow.warnings.on_due = warnings.append
    bench.session.publish(bench.route("q"), Envelope("", "q"), [MESSAGE], mandatory=False)
    return bench, warnings


def test_at_once_and_then_once_an_interval() -> None:
    """However many wait, for as long as somebody does."""
    bench, warnings = bench_with(10_000)
    waiting = Waiting(bench, "a")
    others = [Waiting(bench, name) for name in "bcd"]
    assert [(one.destination, one.limit_name, one.clients) for one in warnings] == [
        ("queue 'q' in vhost '/'", "memory", 1)
    ]
    bench.advance(9_000)
    assert len(warnings) == 1
    bench.advance(1_000)
    assert [one.clients for one in warnings] == [1, 4]
    for one in (waiting, *others):
        bench.broker.flow.leave(one)
    bench.advance(100_000)
    assert len(warnings) == 2


def test_one_who_waits_again_soon_is_no_news() -> None:
    """There is one warning an interval, however often publishers wait and go on."""
    bench, warnings = bench_with(10_000)
    for second in range(25):
        waiting = Waiting(bench, f"a{second}")
        bench.advance(500)
        bench.broker.flow.leave(waiting)
        bench.advance(500)
    assert len(warnings) == 3  # at 0 s, 10 s and 20 s


@pytest.mark.parametrize(("interval_ms", "count"), [(0, 0), (None, 2), (60_000, 1)])
def test_the_interval_is_of_the_address(interval_ms: int | None, count: int) -> None:
    """0: no warnings; not configured: 30 s."""
    bench, warnings = bench_with(interval_ms)
    Waiting(bench, "a")
    bench.advance(30_000)
    assert len(warnings) == count


def test_limits_of_the_broker() -> None:
    """Are warned of every 30 s, whatever addresses say."""
    bench, warnings = bench_with(1_000, SystemUsage(memory=1_000, store=0, temp=0))
    Waiting(bench, "a")
    bench.advance(30_000)
    assert [one.destination for one in warnings] == ["broker", "broker"]


def test_a_reload() -> None:
    """Another interval holds from the next warning on."""
    bench, warnings = bench_with(10_000)
    Waiting(bench, "a")
    other = entry("q", memory_limit=1_000, cursor="vm", blocked_producer_warning_interval_ms=1_000)
    bench.broker.reloading.replace_settings(SettingsRepository([other]), bench.broker.context.options)
    bench.advance(10_000)
    assert len(warnings) == 2
    bench.advance(1_000)
    assert len(warnings) == 3


def test_nothing_is_timed_where_nobody_listens() -> None:
    bench, _ = bench_with(10_000)
    bench.broker.flow.warnings.on_due = None
    before = len(bench.broker.context.deadlines)
    Waiting(bench, "a")
    assert len(bench.broker.context.deadlines) == before
