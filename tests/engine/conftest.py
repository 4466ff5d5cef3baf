"""For the tests of the engine: each leaves brokers behind that do not contradict themselves."""

from collections.abc import Iterator

import pytest
from invariant_check import brokers_checked


@pytest.fixture(autouse=True)
def _invariants() -> Iterator[None]:
    """What is true of the engine is true of each broker that a test made."""
    with brokers_checked():
        yield
