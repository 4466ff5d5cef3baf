"""connection.blocked and connection.unblocked of one connection, never in quick alternation.

Source: queues page E.4 rows 1 and 3, E.5 (state NOTIFIED), G.E E07 and E12.
"""

from collections.abc import Callable

from pamqp import commands

from ..engine import Clock, Deadline, Deadlines
from .login import Login
from .output import Output

#: After a change of mind nothing is sent for so long.
CALM_MS = 200


class BlockedNotice:
    """`is_given`: the peer was sent connection.blocked, and not yet connection.unblocked.

    Peers that did not announce the capability are sent nothing.
    """

    __slots__ = ("_clock", "_deadline", "_deadlines", "_is_calm", "_login", "_on_change", "_output", "_reason",
                 "_taken_back_ns", "is_given")  # fmt: skip

    def __init__(
        self,
        login: Login,
        output: Output,
        clock: Clock,
        deadlines: Deadlines,
        *,
        is_calm: Callable[[], bool | None],
        on_change: Callable[[bool], None],
    ) -> None:
        """`is_calm`: whether there is no reason left to be blocked; None: publishes are held, so there is one.

        `on_change`: connection.blocked was sent, or (False) connection.unblocked.
        """
        self._login = login
        self._output = output
        self._clock = clock
        self._deadlines = deadlines
        self._is_calm = is_calm
        self._on_change = on_change
        self._deadline: Deadline | None = None
        self._reason = ""
        self._taken_back_ns = -CALM_MS * 1_000_000
        self.is_given = False

    def give(self, reason: str) -> None:
        """The peer has to know that it is blocked. Said before: nothing."""
        if self.is_given:
            self._cancel()
        elif "connection.blocked" in self._login.capabilities:
            self._reason = reason
            due_ns = self._taken_back_ns + CALM_MS * 1_000_000
            if self._clock.monotonic_ns() >= due_ns:
                self._send_blocked()
            elif self._deadline is None:
                self._deadline = self._deadlines.set(due_ns, self._due)

    def ease(self) -> None:
        """Nothing is held any more: the peer hears so when that has lasted."""
        self._cancel()
        if self.is_given:
            self._deadline = self._deadlines.set(self._clock.monotonic_ns() + CALM_MS * 1_000_000, self._due)

    def end(self) -> None:
        """The connection is over. Forgets the callables, so that no cycle of references stays behind."""
        self._cancel()
        self._is_calm, self._on_change = _held, _ignore

    def _due(self) -> None:
        self._deadline = None
        is_calm = self._is_calm()
        if not self.is_given:
            if is_calm is None:
                self._send_blocked()
        elif is_calm:
            self._take_back()
        elif is_calm is not None:
            self.ease()  # the broker is still full, or an alarm up: nobody tells the end of that
        self._output.wake()

    def _take_back(self) -> None:
        self.is_given = False
        self._taken_back_ns = self._clock.monotonic_ns()
        self._output.send(0, commands.Connection.Unblocked)
        self._on_change(False)

    def _send_blocked(self) -> None:
        self._cancel()
        self.is_given = True
        reason = self._reason.encode()[:255].decode(errors="ignore")
        self._output.send(0, commands.Connection.Blocked, reason)
        self._on_change(True)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadlines.cancel(self._deadline)
            self._deadline = None


def _held() -> None:
    """Instead of `is_calm` once the connection is over."""


def _ignore(_: bool) -> None:
    """As `_held`."""
