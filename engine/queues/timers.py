"""The deadlines of a queue: expiry of a head, scheduled messages, its own expiry, start of dispatch, and paging."""

from collections.abc import Callable

from ..deadlines import Deadline, Deadlines

Action = Callable[[], object]


class Timers:
    """The deadlines of one queue, at most one of each kind. `unused`: that of the queue's own expiry."""

    __slots__ = ("_deadlines", "_due", "_expiry", "_paging", "_start", "unused")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._expiry: Deadline | None = None
        self._due: Deadline | None = None
        self.unused: Deadline | None = None
        self._start: Deadline | None = None
        self._paging: Deadline | None = None

    def arm_expiry(self, due_ns: int, action: Action) -> None:
        """Set the time when the soonest head expires (monotonic ns; 0: none does). An earlier deadline stays."""
        deadline = self._expiry
        if deadline is not None and deadline.action is not None:
            if due_ns and deadline.due_ns <= due_ns:
                return  # its action finds the next head, and arms again
            self._deadlines.cancel(deadline)
        self._expiry = self._deadlines.set(due_ns, action) if due_ns else None

    def arm_due(self, due_ns: int | None, action: Action) -> None:
        """Set the time when the soonest scheduled message is due; None: there is none."""
        deadline = self._due
        if deadline is not None and deadline.action is not None:
            if deadline.due_ns == due_ns:
                return
            self._deadlines.cancel(deadline)
        self._due = None if due_ns is None else self._deadlines.set(due_ns, action)

    def arm_unused(self, due_ns: int | None, action: Action) -> None:
        """Set the time when the queue expires if it stays unused; None: it does not expire now."""
        self._deadlines.cancel(self.unused)
        self.unused = None if due_ns is None else self._deadlines.set(due_ns, action)

    def arm_start(self, due_ns: int | None, action: Action) -> None:
        """Set the time when dispatch starts with any number of consumers; None: there is none."""
        self._deadlines.cancel(self._start)
        self._start = None if due_ns is None else self._deadlines.set(due_ns, action)

    def arm_paging(self, due_ns: int, action: Action) -> None:
        """Set the time when paging is retried, unless it is set already."""
        if self._paging is None or self._paging.action is None:
            self._paging = self._deadlines.set(due_ns, action)

    def cancel_all(self) -> None:
        """Cancel all deadlines: the queue is deleted."""
        for deadline in (self._expiry, self._due, self.unused, self._start, self._paging):
            self._deadlines.cancel(deadline)
