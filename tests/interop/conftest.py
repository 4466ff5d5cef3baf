"""The two brokers of the differential mode, once for all tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.interop.brokers import peers
from leveret.interop.differential import brokers


@pytest.fixture(scope="session")
def subject_url() -> Iterator[str]:
    """A leveret in RabbitMQ's profile: the virtual host that the recorded texts name."""
    with brokers.subject(None, 1) as lanes:
        yield lanes.urls[0]


@pytest.fixture(scope="session")
def reference_url() -> Iterator[str]:
    """A real RabbitMQ with the same virtual host."""
    if peers.find_rabbitmq() is None:
        pytest.skip(peers.WITHOUT_RABBITMQ)
    with brokers.reference(None, 1) as lanes:
        yield lanes.urls[0]
