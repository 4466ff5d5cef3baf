"""Old garbage is collected while objects are few and some became old; millions of messages are left alone."""

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from leveret.serving.collector import FEW_BLOCKS, collect_if_few


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _undisturbed() -> Iterator[None]:
    """The collector runs when the test says so."""
    gc.disable()
    yield
    gc.enable()


def old_garbage() -> weakref.ref[Ring]:
    """It was used until it became old."""
    ring = Ring()
    gc.collect()
    gc.collect(1)
    return weakref.ref(ring)


def test_old_garbage_goes_while_objects_are_few() -> None:
    """Once; then there is nothing to do until more objects become old."""
    found = old_garbage()
    assert found() is not None
    assert collect_if_few(sys.getallocatedblocks())
    assert found() is None
    assert not collect_if_few(sys.getallocatedblocks())


def test_very_many_objects_are_not_looked_through() -> None:
    """That would take long."""
    found = old_garbage()
    assert not collect_if_few(sys.getallocatedblocks() - 2 * FEW_BLOCKS)
    assert found() is not None
