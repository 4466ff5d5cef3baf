"""What if: arrivals through the real engine, checked by hand. Without Spark."""

from __future__ import annotations

import pytest

from leveret.pipeline.jobs.simulation import Arrival, simulate

RING = '[[address-setting]]\nmatch = "q"\ndefault-ring-size = 500\n'
RETRY = '[[address-setting]]\nmatch = "q"\nredelivery-delay = {}\nmax-delivery-attempts = 3\n'


def test_a_ring_of_500() -> None:
    """Of 2,000 that come while nobody consumes a ring keeps 500; then 100 are taken."""
    arrivals = [Arrival(ms) for ms in range(2000)]
    told = simulate("q", arrivals, [2000] * 100, RING)
    assert (told["replaced"], told["acknowledged"], told["open"]) == (1500, 100, 400)
    told = simulate("q", arrivals, [2000] * 100, "")
    assert (told["replaced"], told["acknowledged"], told["open"]) == (0, 100, 1900)


def test_room_waits_for_a_message() -> None:
    """Consumers that are ready take what comes, as long as it takes them."""
    arrivals = [Arrival(10, service_ms=100), Arrival(20)]
    told = simulate("q", arrivals, [0, 0], RING)
    assert (told["acknowledged"], told["open"]) == (2, 0)


@pytest.mark.parametrize("offers, acked, killed", [([0, 50, 150, 400], 1, 0), ([0, 50], 0, 0)])
def test_another_backoff(offers: list[int], acked: int, killed: int) -> None:
    """A message that fails twice needs three deliveries, and waits before each."""
    told = simulate("q", [Arrival(0, failures=2)], offers, RETRY.format(100))
    assert (told["acknowledged"], told["killed"]) == (acked, killed)


def test_attempts_run_out() -> None:
    """With three attempts a message that fails thrice is dead."""
    told = simulate("q", [Arrival(0, failures=3)], [0, 1000, 2000, 3000], RETRY.format(10))
    assert (told["acknowledged"], told["killed"], told["open"]) == (0, 1, 0)


def test_expiry() -> None:
    """Messages expire as they did, unless they are taken."""
    arrivals = [Arrival(0, expiration_ms=100), Arrival(0, expiration_ms=100)]
    told = simulate("q", arrivals, [50, 200], "")
    assert (told["expired"], told["acknowledged"]) == (1, 1)


def test_faulty_settings() -> None:
    """Are said, not guessed."""
    with pytest.raises(ValueError, match="default-ring-size"):
        simulate("q", (), (), RING.replace("500", '"many"'))
