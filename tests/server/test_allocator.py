"""Memory of a backlog that is gone goes back to the system."""

import subprocess
import sys

import pytest

from leveret.serving.allocator import trimmer

#: In a process of its own, in which nobody else has freed anything. Every eighth of many pieces stays, as of messages
#: that were out and have come back to the journal.
PROGRAM = """
from leveret.serving.allocator import FREE_MIN, resident_octets, trimmer

trim = trimmer()
trim()
pieces = [bytes(1100) for _ in range(4 * FREE_MIN // 1100)]
assert not trim(), "all of it is in use"
full = resident_octets()
del pieces[::2], pieces[::2], pieces[::2]
assert trim()
assert resident_octets() < full - FREE_MIN, (full, resident_octets())
assert not trim(), "the system has it already"
pieces += [bytes(1100) for _ in range(4 * FREE_MIN // 1100)]
assert not trim(), "it is in use again"
del pieces[::2], pieces[::2]
assert trim()
assert pieces[0] == bytes(1100)
"""


def test_much_that_is_free_among_little_that_is_not() -> None:
    """It is given back, once."""
    if trimmer() is None:
        pytest.skip("only glibc can be asked")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
