"""Where the rows of the address-settings page are executed: face to face, in virtual time."""

from collections.abc import Iterator
from typing import Any

import pytest
from desk import Desk, Make, VirtualDesk


@pytest.fixture
def at() -> Iterator[Make]:
    """A desk: `at(settings, **arguments of q)`; `q=False`: without the queue."""

    def make(settings: str = "", *, q: bool = True, **arguments: Any) -> Desk:
        desk = VirtualDesk(settings)
        if q:
            desk.declare("q", **arguments)
        return desk

    yield make
