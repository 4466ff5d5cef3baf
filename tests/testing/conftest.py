"""Brokers of the tests of the test broker."""

from collections.abc import Iterator

import pytest

from leveret.testing import RunningBroker, start_broker


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """On real time."""
    with start_broker() as broker:
        yield broker


@pytest.fixture
def virtual_broker() -> Iterator[RunningBroker]:
    """On virtual time, patient with clients on a busy machine."""
    with start_broker(clock="virtual", quiet_ms=20) as broker:
        yield broker
