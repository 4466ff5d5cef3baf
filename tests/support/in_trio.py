"""Runs an async test in a trio loop of its own."""

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

import trio

P = ParamSpec("P")


def in_trio(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """A test that pytest calls with the same fixtures and parameters."""

    @functools.wraps(test)
    def run(*args: P.args, **named: P.kwargs) -> None:
        trio.run(functools.partial(test, *args, **named))

    return run
