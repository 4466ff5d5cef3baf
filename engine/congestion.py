"""The queue that recent publishes congested, because its consumers have not kept up. Nothing waits here.

A frontend that reads publishers no faster than consumers take messages uses it: see `amqp_frontend/flow/throttle.py`.
Source: queues page E.1 (producer flow control).
"""

from typing import Any, Protocol


class Throttle(Protocol):
    """The publishers that wait for one queue to become shorter; see `Queue.throttle`."""

    def drained(self, queue: Any) -> None:
        """Called, within turns, when messages may have left the queue or it was deleted. It only wakes tasks."""


class Congestible(Protocol):
    """The part of a queue that this file uses."""

    @property
    def ready_count(self) -> int:
        """Number of ready messages."""


class Congestion:
    """`queue`: of the queues with consumers that publishes left with more than `ready_max` ready messages, the longest.

    Reset it before publishing to learn which queue those publishes congested. Dead letters do not count.
    """

    __slots__ = ("queue", "ready_max")

    def __init__(self, ready_max: int) -> None:
        self.ready_max = ready_max
        self.queue: Any = None

    def note(self, queue: Congestible) -> None:
        """Note a queue with consumers and more than `ready_max` ready messages, into which a run was published."""
        other = self.queue
        if other is None or (other is not queue and other.ready_count < queue.ready_count):
            self.queue = queue
