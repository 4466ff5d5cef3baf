"""The forecast of changed rules is what happens when they come. Source: behaviour page 3.12; management page 15."""

from collections.abc import Callable, Generator
from typing import Any

import pytest

from leveret.engine.queues import bounds
from leveret.engine.queues.reconfigure import Forecast, forecast
from leveret.settings import Policies, make_policy
from leveret.testing.harness import Harness, arguments_of, load


def ended(steps: Generator[None, None, Forecast]) -> Forecast:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Forecast = end.value
            return found


def policies(**definition: Any) -> Policies:
    return Policies([make_policy("p", "/", "^q$", {key.replace("_", "-"): one for key, one in definition.items()})])


@pytest.mark.parametrize(
    "arguments, definition, foreseen",
    [
        ({}, {"max_length": 2}, Forecast(5, 3)),
        ({}, {"max_length": 9}, Forecast(5)),
        ({}, {"max_length": 2, "dead_letter_exchange": "dead"}, Forecast(5, 3, "dead")),
        ({}, {"max_length": 2, "overflow": "reject-publish"}, Forecast(5, full="reject-publish")),
        ({}, {"max_length_bytes": 10, "overflow": "reject-publish"}, Forecast(5, full="reject-publish")),
        ({}, {"max_length_bytes": 11, "overflow": "reject-publish"}, Forecast(5)),
        ({}, {"max_length_bytes": 5}, Forecast(5, 3)),
        ({}, {"max_length_bytes": 0}, Forecast(5, 5)),
        ({"x-max-length": 4}, {"max_length": 9}, Forecast(4)),
        ({"x-max-length": 5}, {"max_length": 1}, Forecast(5, 4)),
        ({"x-max-priority": 3}, {"max_length_bytes": 5}, Forecast(5, 3)),
        ({}, {"expires": 1000}, Forecast(5, unused_ms=1000)),
        ({}, {"message_ttl": 0}, Forecast(5)),
        ({"x-queue-type": "quorum"}, {"max_length": 2}, Forecast(5, 3)),
        ({"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 4}, {"max_age": "1h"}, Forecast(5)),
        (
            {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 4},
            {"max_length_bytes": 4},
            Forecast(5, 5),
        ),
    ],
)  # fmt: skip
def test_a_policy(arguments: dict[str, Any], definition: dict[str, Any], foreseen: Forecast) -> None:
    """It is foreseen, nothing changes by that, and as many leave when the policy comes."""
    harness = Harness()
    harness.broker.virtual_hosts["/"].queues.declare("q", client=None, durable=True, arguments=arguments_of(arguments))
    queue = harness.named("q")
    harness.publish("AA", "BB", "CC", "DD", "EE")
    found = ended(forecast(queue, harness.broker.context.settings, policies(**definition)))
    assert found == foreseen
    assert len(queue.store) == foreseen.ready
    harness.broker.reloading.replace_policies(policies(**definition))
    harness.finish_turns()
    assert len(queue.store) == foreseen.ready - foreseen.dropped


def test_settings() -> None:
    """A full address would refuse; a ring that is smaller sheds messages as others arrive."""
    harness = Harness()
    queue = harness.queue()
    harness.publish(*"ABCDE")
    full = load('[[address-setting]]\nmatch = "q"\nmax-size-messages = 4\naddress-full-policy = "FAIL"').repository
    assert ended(forecast(queue, full, Policies())) == Forecast(5, full="FAIL")
    shorter = arguments_of({"x-max-length": 1})
    assert ended(forecast(queue, harness.broker.context.settings, Policies(), shorter)) == Forecast(5, 4)
    assert harness.all() == "ABCDE"


@pytest.mark.parametrize("memory", [12_000, 15_000, 20_000])
def test_paged_messages_that_stay(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest messages are in memory: the paged-out ones leave first. Their sizes are added up in steps."""
    monkeypatch.setattr(bounds, "SIZES_SLICE", 100)
    harness = Harness(memory=memory)
    queue = harness.queue(x_non_destructive=True)
    harness.publish(*["x" * 10] * 1000, delivery_mode=2)
    for _ in range(5):
        harness.publish("x" * 1000, delivery_mode=2)
    assert queue.store.is_deep and queue.store.in_memory
    limit = policies(max_length_bytes=5000)
    steps = forecast(queue, harness.broker.context.settings, limit)
    assert sum(1 for _ in steps) >= 10
    assert ended(forecast(queue, harness.broker.context.settings, limit)) == Forecast(1005, 1000)
    harness.broker.reloading.replace_policies(limit)
    harness.finish_turns()
    assert len(queue.store) == 5


@pytest.mark.parametrize(
    "meanwhile, foreseen",
    [
        (lambda harness: harness.publish("FF"), Forecast(5, 3, unused_ms=1000)),
        (lambda harness: harness.get(), Forecast(4, 2, unused_ms=1000)),
        (lambda harness: harness.named("q").purge(), Forecast(0, unused_ms=1000)),
        (lambda harness: harness.broker.virtual_hosts["/"].queues.remove(harness.named("q")), Forecast(0)),
    ],
    ids=["published", "taken", "purged", "deleted"],
)
def test_changes_during_the_steps(
    meanwhile: Callable[[Harness], object], foreseen: Forecast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that come are not counted; those that leave are no longer told as dropped."""
    monkeypatch.setattr(bounds, "SIZES_SLICE", 2)
    harness = Harness()
    queue = harness.queue()
    harness.publish("AA", "BB", "CC", "DD", "EE")
    steps = forecast(queue, harness.broker.context.settings, policies(max_length_bytes=5, expires=1000))
    next(steps)
    meanwhile(harness)
    assert ended(steps) == foreseen
