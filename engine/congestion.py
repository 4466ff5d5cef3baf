"""Which queue publishes crowd: its consumers have not taken what came. A pure fact; nobody is held up here.

A frontend that reads its publishers no faster than consumers take asks for it: see `amqp_frontend/flow/throttle.py`.
Source: queues page E.1 (producer flow control).
"""

from typing import Any, Protocol


class Throttle(Protocol):
    """Where publishers into one queue wait for it to become shorter; see `Queue.throttle`."""

    def drained(self, queue: Any) -> None:
        """Messages may have left the queue, or it is deleted. Called within turns: it only wakes somebody."""


class Congestible(Protocol):
    """A queue, as far as this file knows it."""

    @property
    def ready_count(self) -> int:
        """How many messages are ready in it."""


class Congestion:
    """`queue`: the longest of those with consumers that publishes left with more than `ready_max` ready messages.

    Who wants to know what its own publishes did sets it to None before them. Dead letters are nobody's publishes.
    """

    __slots__ = ("queue", "ready_max")

    def __init__(self, ready_max: int) -> None:
        self.ready_max = ready_max
        self.queue: Any = None

    def note(self, queue: Congestible) -> None:
        """A run was published into a queue that has consumers, and has more than `ready_max` ready."""
        other = self.queue
        if other is None or (other is not queue and other.ready_count < queue.ready_count):
            self.queue = queue
