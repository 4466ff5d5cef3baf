"""The throttle: a publisher into a congested queue is not read until consumers have taken the surplus.

A publisher is confirmed as soon as its message is in the queue. If it is read as fast as it sends, the broker has less
time for the consumers: the queue and the latency grow although the consumers would keep up. So the publisher's next
read waits until no more than `busy_queue_ready_max` messages are ready. This helps only consumers that keep up: if they
do not take enough during a wait, later publishers do not wait and the queue grows.

A connection that consumes is never throttled: other connections may wait for its acknowledgements. No connection is
throttled for longer than `SLICE_S * SLICES_MAX` at a time, far less than a heartbeat. This module does not wait; the
endpoint does.
"""

from collections.abc import Callable

from ...engine import Client, Queue

#: Seconds of a slice, after which deliveries are checked, and the maximum slices of a wait.
SLICE_S, SLICES_MAX = 0.005, 20


class Throttle:
    """The connections that wait for one queue, in order of arrival. See `Queue.throttle`.

    `open_until`: number of delivered messages up to which no publisher waits, because the last wait had no effect.
    """

    __slots__ = ("open_until", "waiting")

    def __init__(self) -> None:
        self.open_until = 0
        self.waiting: dict[ThrottleWait, Callable[[], None]] = {}

    def drained(self, queue: Queue) -> None:
        """The queue may be shorter. If it has room again, wake one publisher: if all were woken, all would publish at
        once. If it has much room, or was deleted, wake all.
        """
        waiting = self.waiting
        if not waiting:
            return
        ready, ready_max = queue.ready_count, _ready_max(queue)
        if queue.deleted or ready <= ready_max // 2:
            self.waiting = {}
            for wake in waiting.values():
                wake()
        elif ready <= ready_max:
            waiting.pop(next(iter(waiting)))()


class ThrottleWait:
    """One connection that waits for a queue: `begin_slice`, wait for the wake-up or `SLICE_S`, `end_slice`."""

    __slots__ = ("_delivered", "_queue", "_slices", "_throttle")

    def __init__(self, queue: Queue, throttle: Throttle) -> None:
        self._queue = queue
        self._throttle = throttle
        self._delivered = 0
        self._slices = 0

    def begin_slice(self, wake: Callable[[], None]) -> None:
        """Begin a slice. `wake` is called, within a turn, when the wait is over."""
        self._delivered = self._queue.counters.delivered
        self._throttle.waiting[self] = wake

    def end_slice(self) -> bool:
        """End a slice. Returns whether to wait for another: not after a wake-up, if the queue is short enough or
        deleted, if consumers take too little, or after `SLICES_MAX`.
        """
        throttle, queue = self._throttle, self._queue
        if self not in throttle.waiting:
            return False
        surplus = queue.ready_count - _ready_max(queue)
        if surplus > 0 and not queue.deleted:
            self._slices += 1
            delivered = queue.counters.delivered
            if self._slices < SLICES_MAX and (delivered - self._delivered) * SLICES_MAX >= surplus:
                return True
            throttle.open_until = delivered + _ready_max(queue)
        self.end()
        return False

    def end(self) -> None:
        """Stop waiting."""
        self._throttle.waiting.pop(self, None)


def throttle_wait_of(queue: Queue, client: Client | None) -> ThrottleWait | None:
    """The wait of a connection that has just published into a congested queue; None: it may continue."""
    if client is None or client.closed or queue.deleted or queue.ready_count <= _ready_max(queue):
        return None
    throttle = queue.throttle
    if throttle is None:
        throttle = queue.throttle = Throttle()
    assert isinstance(throttle, Throttle)
    if queue.counters.delivered < throttle.open_until or any(session.consumers for session in client.sessions):
        return None
    return ThrottleWait(queue, throttle)


def _ready_max(queue: Queue) -> int:
    return queue.context.broker.options.busy_queue_ready_max
