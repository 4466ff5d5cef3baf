"""How much is tried by tests that try much: `make test` a part, `make machines` ten times of it."""

import os

EFFORT = int(os.environ.get("LEVERET_EFFORT", "1"))


def examples(count: int) -> int:
    """So many in `make test`."""
    return count * EFFORT
