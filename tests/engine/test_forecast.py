"""The forecast of changed rules is what happens when they come. Source: behaviour page 3.12; management page 15."""

from collections.abc import Generator
from typing import Any

import pytest

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
