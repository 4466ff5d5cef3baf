"""Address-settings rule queues that nobody declared anything special about, and change live.

The ids are rows of address-settings page 8.
"""

import pytest

from leveret.settings import SettingsRepository, entry
from leveret.settings.addresses.entries import Entry
from leveret.testing.harness import Harness


def broker_with(*entries: Entry) -> Harness:
    """A broker with these settings."""
    return Harness(SettingsRepository(entries))


def test_a_ring_by_wildcard() -> None:
    """`default-ring-size` reaches the queues that match, at creation, and no others."""
    harness = broker_with(entry("quotes.#", default_ring_size=3))
    for queue in ("quotes.eu", "orders"):
        harness.queue(queue)
        harness.publish(*"ABCDE", key=queue)
    assert (harness.all("quotes.eu"), harness.all("orders")) == ("CDE", "ABCDE")


def test_an_argument_is_stronger_and_a_length_limit_cancels_the_ring() -> None:
    """R31: x-max-length instead of the inherited ring; x-ring-size over it."""
    harness = broker_with(entry("#", default_ring_size=2))
    harness.queue("limited", x_max_length=5)
    harness.queue("ring", x_ring_size=3)
    for queue in ("limited", "ring"):
        harness.publish(*"123456", key=queue)
    assert (harness.all("limited"), harness.all("ring")) == ("23456", "456")


def test_the_most_specific_entry_counts() -> None:
    """L09: three attempts for `p.*`, four for `p.a`; the dead go where the nearest entry says."""
    harness = broker_with(
        entry("p.*", max_delivery_attempts=3, dead_letter_address="X"),
        entry("p.a", max_delivery_attempts=4, dead_letter_address="Y"),
    )
    for queue in ("p.a", "X", "Y"):
        harness.queue(queue)
    harness.publish("m", key="p.a")
    for attempt in range(1, 5):
        got = harness.session.get(harness.named("p.a"), no_ack=False)
        assert got is not None
        harness.session.reject(got[0], requeue=True)
        harness.end_turn()
        assert harness.named("Y").store.in_memory == (attempt == 4)
    assert (harness.all("X"), harness.all("Y")) == ("", "m")


@pytest.mark.parametrize("is_live", [False, True], ids=["at start", "replaced live"])
def test_redelivery_by_settings(is_live: bool) -> None:
    """A nack waits 1 s, 2 s, 4 s; with settings that came after the queue just the same."""
    rule = entry("jobs.#", redelivery_delay_ms=1000, redelivery_delay_multiplier=2.0)
    harness = broker_with(*() if is_live else (rule,))
    harness.queue("jobs.slow")
    harness.publish("m", key="jobs.slow")
    if is_live:
        harness.reload(SettingsRepository([rule]))
    queue = harness.named("jobs.slow")
    for wait_ms in (1000, 2000, 4000):
        got = harness.session.get(queue, no_ack=False)
        assert got is not None
        harness.session.reject(got[0], requeue=True)
        harness.advance(wait_ms - 1)
        assert len(queue.scheduled) == 1
        harness.advance(1)
        assert queue.store.in_memory == 1
    harness.reload(SettingsRepository())
    got = harness.session.get(queue, no_ack=False)
    assert got is not None
    harness.session.reject(got[0], requeue=True)
    assert queue.store.in_memory == 1  # no delay any more


def test_without_settings_a_queue_has_no_rules() -> None:
    """Nothing is paid for what nobody asked for."""
    from leveret.engine.rules.queue_rules import NO_RULES

    harness = broker_with(entry("other.#", default_ring_size=3))
    harness.queue("q")
    assert harness.named("q").rules is NO_RULES
