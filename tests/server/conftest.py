"""A broker on real sockets, with time that tests turn."""

from collections.abc import Iterator

import pytest
from configured_broker import load
from socket_broker import SocketBroker


@pytest.fixture
def configuration() -> str:
    """TOML of the broker. Files that need another one define this fixture again."""
    return ""


@pytest.fixture
def broker(configuration: str) -> Iterator[SocketBroker]:
    """It serves on a loopback port."""
    with SocketBroker(load(configuration)) as running:
        yield running
