"""Commands that take long are done in steps, so that clients are served in between."""

from collections.abc import Generator
from typing import Any

#: Yields after each short step, and returns what it comes to.
Steps = Generator[None, None, Any]


def finished(steps: Steps) -> Any:
    """The result, after all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
