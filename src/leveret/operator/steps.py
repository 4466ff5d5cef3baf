"""Long commands run in steps, so that clients are served in between."""

from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: A command in steps: it yields after each short step, and returns the result.
Steps = Generator[None, None, Any]
#: Objects that are converted to values in one step (1 to 2 ms).
VALUES_A_STEP = 500


def mapped(make: Callable[[T], R], items: Iterable[T]) -> Generator[None, None, list[R]]:
    """The results of `make` for each item, in steps. `items` must not change meanwhile."""
    made: list[R] = []
    for one in items:
        made.append(make(one))
        if len(made) % VALUES_A_STEP == 0:
            yield
    return made


def finished(steps: Steps) -> Any:
    """Run all steps at once, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
