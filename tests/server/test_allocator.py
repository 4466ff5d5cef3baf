"""Memory of a backlog that is gone goes back to the system."""

import pytest

from leveret.allocator import FREE_MIN, resident_octets, trimmer

PIECE = 1100
COUNT = 2 * FREE_MIN // PIECE


def test_much_that_is_free_among_little_that_is_not() -> None:
    """Every tenth of many pieces stays, as of messages nine of ten that were out and have come back to the journal."""
    trim = trimmer()
    if trim is None:
        pytest.skip("only glibc can be asked")
    while trim():
        pass  # what tests before this one left
    pieces = [bytes(PIECE) for _ in range(COUNT)]
    assert not trim()  # all of it is in use
    full = resident_octets()
    del pieces[::2], pieces[::2], pieces[::2]
    assert trim()
    assert resident_octets() < full - FREE_MIN // 2
    assert pieces[0] == bytes(PIECE)
