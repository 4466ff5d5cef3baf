"""Where the rows of the address-settings: face to face, and through sockets with pika.

Time is virtual in both.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from desk import Desk, Make, VirtualDesk, load
from leased_desk import LeasedDesk
from pika_desk import PikaDesk
from socket_broker import SocketBroker


@pytest.fixture(params=["face to face", "pika"])
def at(request: pytest.FixtureRequest) -> Iterator[Make]:
    """A desk: `at(settings, **arguments of q)`; `q=False`: without the queue."""
    with ExitStack() as stack:

        def make(settings: str = "", *, q: bool = True, **arguments: Any) -> Desk:
            desk: Desk
            if request.param == "pika":
                desk = PikaDesk(stack.enter_context(SocketBroker(load(settings))))
                stack.callback(desk.close)
            else:
                desk = VirtualDesk(settings)
            if q:
                desk.declare("q", **arguments)
            return desk

        yield make


@pytest.fixture
def desk() -> LeasedDesk:
    """For leased queues, in virtual time."""
    return LeasedDesk()
